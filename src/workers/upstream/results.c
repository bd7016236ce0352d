/* SPDX-License-Identifier: Apache-2.0 */

/* What becomes of the answers of an upstream: results, deltas, and what limit and breaker learn. */

#include "base/clock.h"
#include "base/log.h"
#include "json/envelope.h"
#include "workers/upstream/upstream_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* --- streams --- */

/* One event of a stream, passed on. */
static bool take_event(void *context, struct str data) {
    struct upstream_job *job = ((void **)context)[0];
    struct worker_upstream *upstream = ((void **)context)[1];
    if (job->is_done || job->has_failed) return true; /* nothing after the end counts */
    switch (
        upstream_read_event(&upstream->answer, data, job->model, &job->usage, &job->is_finished)) {
    case UPSTREAM_EVENT_DONE: job->is_done = true; return true;
    case UPSTREAM_EVENT_BAD: return false;
    case UPSTREAM_EVENT_ERROR:
        job->has_failed = true;
        buf_add_str(&job->error, buf_str(&upstream->answer));
        return true;
    case UPSTREAM_EVENT_USAGE:
        if (!job->wants_usage) return true; /* it was us who asked */
        break;
    case UPSTREAM_EVENT_CHUNK: break;
    }
    job->has_streamed = true;
    const struct worker_delta delta = {job->job.id, buf_str(&upstream->answer)};
    if (upstream->events.delta) upstream->events.delta(upstream->events.context, &delta);
    return true;
}

bool upstream_on_bytes(void *context, void *owner, struct str bytes) {
    struct upstream_job *job = owner;
    void *both[] = {job, context};
    return net_sse_feed(&job->sse, bytes, take_event, both);
}

/* What a stream came to, once the exchange is over. */
static void read_stream(struct worker_upstream *upstream, struct upstream_job *job,
                        struct upstream_reading *ret_reading) {
    *ret_reading = (struct upstream_reading){
        .verdict = UPSTREAM_OWN, .status = 200, .body = STR("{}"), .usage = job->usage};
    if (!job->has_failed && (job->is_done || job->is_finished)) return;
    ret_reading->verdict = UPSTREAM_FAULTED;
    ret_reading->status = 502;
    buf_clear(&upstream->answer);
    if (job->has_failed)
        buf_add_str(&upstream->answer, buf_str(&job->error));
    else
        envelope_write(&upstream->answer, 502, "upstream_broken", NULL,
                       STR("The upstream ended its stream before the answer was complete."));
    ret_reading->body = buf_str(&upstream->answer);
}

/* --- answers that did not come --- */

static void read_failure(struct worker_upstream *upstream, const struct net_answer *answer,
                         struct upstream_reading *ret_reading) {
    static const struct {
        enum upstream_verdict verdict;
        int status;
        const char *code;
    } ends[] = {
        [NET_END_UNSENT] = {UPSTREAM_AWAY, 503, "upstream_unreachable"},
        [NET_END_TIMEOUT] = {UPSTREAM_FAULTED, 504, "upstream_timeout"},
        [NET_END_BROKEN] = {UPSTREAM_FAULTED, 502, "upstream_broken"},
        [NET_END_TOO_LONG] = {UPSTREAM_FAULTED, 502, "upstream_bad_answer"},
        [NET_END_STOPPED] = {UPSTREAM_FAULTED, 502, "upstream_bad_answer"},
    };
    char message[320];
    snprintf(message, sizeof message, "T%s.", answer->text + 1);
    assert(answer->end != NET_END_WHOLE && *answer->text == 't');
    buf_clear(&upstream->answer);
    envelope_write(&upstream->answer, ends[answer->end].status, ends[answer->end].code, NULL,
                   str_from(message));
    *ret_reading = (struct upstream_reading){.verdict = ends[answer->end].verdict,
                                             .status = ends[answer->end].status,
                                             .body = buf_str(&upstream->answer)};
}

/* --- what is learnt --- */

/* Addresses stay in the log: `reason` is told to everybody. True when the breaker opens. */
static bool learn_bad(struct worker_upstream *upstream, const struct net_answer *answer,
                      const char *reason) {
    /* What was never sent is as new as its end. */
    int64_t sent_ns = answer->sent_ns ? answer->sent_ns : answer->ended_ns;
    if (!upstream_breaker_failed(&upstream->breaker, sent_ns, answer->ended_ns,
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

/* --- a key that is refused --- */

bool upstream_is_key_status(int status) {
    return status == 401 || status == 402 || status == 403;
}

static void set_key_refused(struct worker_upstream *upstream, bool is_refused) {
    upstream->is_key_refused = is_refused;
    pthread_mutex_lock(&upstream->lock);
    upstream->figures.is_key_refused = is_refused;
    pthread_mutex_unlock(&upstream->lock);
}

/* Notes that the request met such an answer (FNV-1a of its body). */
static void note_refusal(struct worker_upstream *upstream, struct str body) {
    uint64_t sum = 0xCBF29CE484222325u;
    for (size_t i = 0; i < body.bytes; i++)
        sum = (sum ^ (unsigned char)body.at[i]) * 0x100000001B3u;
    if (upstream->key_requests == 0 || upstream->key_body != sum) upstream->key_requests++;
    upstream->key_body = sum;
}

/* Such an answer is about the key and not the request when it comes for all: then lines wait, as
 * for an upstream that is away. A 403 of one that has answered others is the request's own, as from
 * a moderation; else it is tried again, and one request alone proves nothing. */
static void judge_key(struct worker_upstream *upstream, const struct net_answer *answer,
                      struct upstream_reading *reading) {
    const struct upstream_job *job = answer->owner;
    char reason[UPSTREAM_REASON_BYTES];
    if (answer->status == 403 && upstream->has_answered && !upstream->is_key_refused) return;
    note_refusal(upstream, job->job.body);
    snprintf(reason, sizeof reason, "it refuses its key (status %d)", answer->status);
    bool is_open = learn_bad(upstream, answer, reason);
    if (is_open && (upstream->is_key_refused || upstream->key_requests > 1)) {
        if (!upstream->is_key_refused)
            log_error("upstream=%s event=key_refused status=%d, lines wait until it is accepted",
                      upstream->spec.name, answer->status);
        set_key_refused(upstream, true);
        upstream_breaker_delay(&upstream->breaker, upstream->key_trials++, answer->ended_ns,
                               rng_unit(&upstream->rng));
    }
    reading->verdict = upstream->is_key_refused ? UPSTREAM_AWAY : UPSTREAM_FAULTED;
}

/* Something else came, so that the key is good. */
static void accept_key(struct worker_upstream *upstream) {
    upstream->has_answered = true;
    upstream->key_requests = upstream->key_trials = 0;
    if (!upstream->is_key_refused) return;
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

static void learn(struct worker_upstream *upstream, const struct net_answer *answer,
                  struct upstream_reading *reading) {
    char reason[UPSTREAM_REASON_BYTES];
    bool is_whole = answer->end == NET_END_WHOLE;
    if (is_whole && upstream_is_key_status(answer->status)) {
        judge_key(upstream, answer, reading);
        if (reading->verdict != UPSTREAM_OWN) return;
    } else if (is_whole && answer->status < 500 && answer->status != 429) {
        accept_key(upstream);
    }
    if (is_whole)
        snprintf(reason, sizeof reason, "status %d", answer->status);
    else
        snprintf(reason, sizeof reason, "%.*s", UPSTREAM_REASON_BYTES - 1, answer->text);
    bool is_slow = answer->end == NET_END_TIMEOUT;
    if (reading->verdict == UPSTREAM_BUSY || (reading->verdict == UPSTREAM_AWAY && is_whole) ||
        is_slow)
        upstream_limit_refused(&upstream->limit, answer->sent_ns, answer->ended_ns,
                               answer->retry_after_ms, rng_unit(&upstream->rng));
    /* An answer that is too long, or a 4xx that may be tried again, is no word about the upstream.
     */
    bool speaks = answer->end == NET_END_TOO_LONG ||
                  (is_whole && answer->status >= 400 && answer->status < 500);
    if (reading->verdict == UPSTREAM_OWN)
        learn_good(upstream, answer, &reading->usage);
    else if (!speaks)
        learn_bad(upstream, answer, reason);
    else if (upstream_breaker_answered(&upstream->breaker, answer->sent_ns))
        log_info("upstream=%s event=breaker_closed", upstream->spec.name);
}

/* --- results --- */

void upstream_unlink_running(struct worker_upstream *upstream, struct upstream_job *job) {
    pthread_mutex_lock(&upstream->lock);
    struct upstream_job **at = &upstream->running;
    while (*at != job) at = &(*at)->next;
    *at = job->next;
    upstream->running_count--;
    pthread_mutex_unlock(&upstream->lock);
    if (job->is_trial) upstream->has_trial = false;
}

void upstream_give_back(struct worker_upstream *upstream, struct upstream_job *job) {
    char message[UPSTREAM_REASON_BYTES + 128];
    bool was_cancelled = job->is_cancelled;
    snprintf(message, sizeof message, "The upstream %s does not take requests now: %s.",
             upstream->spec.name, upstream->reason);
    buf_clear(&upstream->answer);
    int status = was_cancelled ? 499 : 503;
    envelope_write(&upstream->answer, status, NULL, NULL,
                   was_cancelled ? STR("The request was cancelled.") : str_from(message));
    const struct worker_result result = {.id = job->job.id,
                                         .status = status,
                                         .body = buf_str(&upstream->answer),
                                         .retryable = !was_cancelled,
                                         .not_run = !was_cancelled};
    upstream->events.result(upstream->events.context, &result);
    upstream_job_free(job);
}

static void count(struct worker_upstream *upstream, const struct worker_result *result) {
    pthread_mutex_lock(&upstream->lock);
    struct worker_status *figures = &upstream->figures;
    figures->steps++;
    figures->refusals += result->not_run;
    figures->faults += result->retryable && !result->not_run;
    figures->prompt_tokens += result->usage.input_tokens;
    figures->cached_tokens += result->usage.cached_tokens;
    figures->completion_tokens += result->usage.output_tokens;
    pthread_mutex_unlock(&upstream->lock);
}

void upstream_on_done(void *context, const struct net_answer *answer) {
    struct worker_upstream *upstream = context;
    struct upstream_job *job = answer->owner;
    struct upstream_reading reading;
    if (!job) {
        upstream_probe_done(upstream, answer);
        return;
    }
    if (job->has_streamed || job->is_done || job->has_failed)
        read_stream(upstream, job, &reading);
    else if (answer->end != NET_END_WHOLE)
        read_failure(upstream, answer, &reading);
    else if (job->job.stream && answer->status / 100 == 2)
        read_stream(upstream, job, &reading);
    else
        upstream_read_answer(&upstream->answer, answer->status, answer->body, job->model,
                             upstream->spec.name, &reading);
    learn(upstream, answer, &reading);
    upstream_unlink_running(upstream, job);
    const struct worker_result result = {.id = job->job.id,
                                         .status = reading.status,
                                         .body = reading.body,
                                         .usage = reading.usage,
                                         .retryable = reading.verdict != UPSTREAM_OWN,
                                         .not_run = reading.verdict == UPSTREAM_BUSY ||
                                                    reading.verdict == UPSTREAM_AWAY,
                                         .retry_after_ms = answer->retry_after_ms};
    count(upstream, &result);
    upstream->events.result(upstream->events.context, &result);
    upstream_job_free(job);
}
