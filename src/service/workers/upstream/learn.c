/* SPDX-License-Identifier: Apache-2.0 */

/* What an answer says about its upstream: the outcome of the job where the key is in doubt, and
 * what key, limit and breaker learn from it. */

#include "base/log.h"
#include "workers/upstream/error.h"
#include "workers/upstream/upstream_internal.h"

#include <stdio.h>
#include <string.h>

#define REFUSAL_TOLD_NS (60 * INT64_C(1000000000)) /* between two lines of the log about refusals */

/* --- the outcome --- */

/* A request that was never sent counts as sent when it ended. */
static int64_t sent_ns_of(const struct net_answer *answer) {
    return answer->sent_ns ? answer->sent_ns : answer->ended_ns;
}

/* True if the answer says something about the key. Then it is not the request's own. */
static bool doubts_key(const struct worker_upstream *upstream, const struct net_answer *answer,
                       const struct upstream_reading *reading) {
    return answer->end == NET_END_WHOLE && !reading->is_overload &&
           upstream_key_is_doubted(&upstream->key, answer->status);
}

enum outcome upstream_decide(const struct worker_upstream *upstream,
                             const struct net_answer *answer,
                             const struct upstream_reading *reading) {
    const struct upstream_job *job = answer->owner;
    if (!doubts_key(upstream, answer, reading)) return reading->outcome;
    return upstream_key_outcome(
        &upstream->key, job->job.body,
        upstream_breaker_would_open(&upstream->breaker, sent_ns_of(answer)));
}

void upstream_write_reason(const struct worker_upstream *upstream, const struct net_answer *answer,
                           char ret_reason[UPSTREAM_REASON_BYTES]) {
    snprintf(ret_reason, UPSTREAM_REASON_BYTES, "the upstream %.63s %.40s", upstream->spec.name,
             answer->what);
}

/* --- what is learnt --- */

/* `reason` is shown to clients; addresses go only to the log. True if the breaker opens. */
static bool learn_bad(struct worker_upstream *upstream, const struct net_answer *answer,
                      const char *reason) {
    if (!upstream_breaker_failed(&upstream->breaker, sent_ns_of(answer), answer->ended_ns,
                                 rng_unit(&upstream->rng)))
        return false;
    log_warn("upstream=%s event=breaker_open reason=\"%s%s%s\", retrying", upstream->spec.name,
             reason, *answer->why ? ": " : "", answer->why);
    pthread_mutex_lock(&upstream->lock);
    snprintf(upstream->reason, sizeof upstream->reason, "%s", reason);
    upstream->figures.openings++;
    pthread_mutex_unlock(&upstream->lock);
    return true;
}

static void set_key_refused(struct worker_upstream *upstream, bool is_refused) {
    upstream->key.is_refused = is_refused;
    pthread_mutex_lock(&upstream->lock);
    upstream->figures.is_key_refused = is_refused;
    pthread_mutex_unlock(&upstream->lock);
}

/* Any other answer: the upstream takes requests. */
static void forget_refusal(struct worker_upstream *upstream) {
    pthread_mutex_lock(&upstream->lock);
    bool was_refusing = *upstream->refusal;
    *upstream->refusal = '\0';
    pthread_mutex_unlock(&upstream->lock);
    if (was_refusing) log_debug("upstream=%s event=accepted", upstream->spec.name);
}

/* While the key is refused lines wait, as for an upstream that is away. */
static void learn_key_doubt(struct worker_upstream *upstream, const struct net_answer *answer,
                            const struct upstream_reading *reading, enum outcome outcome) {
    const struct upstream_job *job = answer->owner;
    char reason[UPSTREAM_REASON_BYTES], message[UPSTREAM_REASON_BYTES - 60] = "";
    forget_refusal(upstream);
    upstream_key_doubt(&upstream->key, job->job.body);
    /* The reason for a 401 or 403 may name the key. */
    if (answer->status == 402) upstream_error_line(message, sizeof message, reading->body);
    snprintf(reason, sizeof reason, "it refuses its key (status %d)%s%s", answer->status,
             *message ? ": " : "", message);
    bool opens = learn_bad(upstream, answer, reason);
    if (!opens || outcome != OUTCOME_NOT_RUN) return;
    if (!upstream->key.is_refused)
        log_error("upstream=%s event=key_refused status=%d, lines wait until it is accepted",
                  upstream->spec.name, answer->status);
    set_key_refused(upstream, true);
    upstream_breaker_delay(&upstream->breaker, upstream->key.openings++, answer->ended_ns,
                           rng_unit(&upstream->rng));
}

static void learn_key_good(struct worker_upstream *upstream) {
    if (!upstream_key_accept(&upstream->key)) return;
    set_key_refused(upstream, false);
    log_info("upstream=%s event=key_accepted", upstream->spec.name);
}

static void learn_good(struct worker_upstream *upstream, const struct net_answer *answer,
                       const struct usage *usage) {
    pthread_mutex_lock(&upstream->lock);
    bool is_full =
        upstream->waiting > 0 || upstream->running_count >= upstream_limit_level(&upstream->limit);
    pthread_mutex_unlock(&upstream->lock);
    upstream_limit_answered(&upstream->limit, answer->sent_ns, answer->ended_ns,
                            1 + (double)usage->output_tokens, is_full);
    if (!upstream_breaker_answered(&upstream->breaker, answer->sent_ns)) return;
    log_info("upstream=%s event=breaker_closed", upstream->spec.name);
    upstream_limit_init(&upstream->limit, upstream->spec.concurrency);
}

/* The wait that an overloaded upstream asks for, wherever its answer says so; negative: for none.
 */
static int64_t asked_wait_ms(const struct net_answer *answer,
                             const struct upstream_reading *reading) {
    if (answer->retry_after_ms >= 0) return answer->retry_after_ms;
    return answer->reset_ms >= 0 ? answer->reset_ms : reading->wait_ms;
}

/* The upstream's own reason in an error: without quern's sentence around it, and empty if the
 * sentence says that there is none. */
static const char *own_reason(const struct worker_upstream *upstream, int status,
                              const char *message) {
    char sentence[128];
    int bytes = snprintf(sentence, sizeof sentence, "The upstream %.63s answered with status %d",
                         upstream->spec.name, status);
    if (strncmp(message, sentence, (size_t)bytes) != 0) return message;
    message += bytes;
    return strncmp(message, ": ", 2) == 0 ? message + 2 : "";
}

/* Notes why the upstream takes no requests now, and tells the log once a minute at most. */
static void learn_refusal(struct worker_upstream *upstream, const struct net_answer *answer,
                          const struct upstream_reading *reading) {
    char message[UPSTREAM_REASON_BYTES - 80], asked[60] = "";
    int64_t asked_ms = asked_wait_ms(answer, reading);
    upstream_error_line(message, sizeof message, reading->body);
    const char *own = own_reason(upstream, reading->status, message);
    upstream_limit_refused(&upstream->limit, answer->sent_ns, answer->ended_ns, asked_ms,
                           rng_unit(&upstream->rng));
    if (asked_ms > 0)
        snprintf(asked, sizeof asked, " and asked for a pause of %lld s",
                 (long long)(asked_ms + 999) / 1000);
    pthread_mutex_lock(&upstream->lock);
    bool is_news = !*upstream->refusal;
    snprintf(upstream->refusal, sizeof upstream->refusal, "it answered %d%s%s%s", reading->status,
             asked, *own ? ": " : "", own);
    pthread_mutex_unlock(&upstream->lock);
    bool is_due = upstream->refusal_told_ns == 0 ||
                  answer->ended_ns - upstream->refusal_told_ns > REFUSAL_TOLD_NS;
    if (!is_news || !is_due) return;
    upstream->refusal_told_ns = answer->ended_ns;
    log_warn("upstream=%s event=refused reason=\"%s\", retrying", upstream->spec.name,
             upstream->refusal);
}

void upstream_learn(struct worker_upstream *upstream, const struct net_answer *answer,
                    const struct upstream_reading *reading, enum outcome outcome) {
    char reason[UPSTREAM_REASON_BYTES];
    bool is_whole = answer->end == NET_END_WHOLE;
    if (doubts_key(upstream, answer, reading)) {
        learn_key_doubt(upstream, answer, reading, outcome);
        return;
    }
    bool is_overload = is_whole && reading->is_overload;
    int status = is_overload ? reading->status : answer->status;
    if (is_whole && status < 500 && !is_overload && !upstream_is_key_status(status))
        learn_key_good(upstream);
    if (is_overload) {
        learn_refusal(upstream, answer, reading);
        snprintf(reason, sizeof reason, "%s", upstream->refusal);
    } else if (is_whole) {
        snprintf(reason, sizeof reason, "status %d", status);
        forget_refusal(upstream);
    } else {
        upstream_write_reason(upstream, answer, reason);
    }
    if (answer->end == NET_END_TIMEOUT)
        upstream_limit_refused(&upstream->limit, answer->sent_ns, answer->ended_ns,
                               answer->retry_after_ms, rng_unit(&upstream->rng));
    /* An answer that is too long, or a 4xx that may be tried again, shows a working upstream. */
    bool speaks = answer->end == NET_END_TOO_LONG || (is_whole && status >= 400 && status < 500);
    if (outcome == OUTCOME_DONE)
        learn_good(upstream, answer, &reading->usage);
    else if (!speaks)
        learn_bad(upstream, answer, reason);
    else if (upstream_breaker_answered(&upstream->breaker, answer->sent_ns))
        log_info("upstream=%s event=breaker_closed", upstream->spec.name);
}
