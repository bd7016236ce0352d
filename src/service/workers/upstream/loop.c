/* SPDX-License-Identifier: Apache-2.0 */

/* The thread of an upstream: sends jobs as limit and breaker allow, probes, and gives back jobs
 * that cannot be sent. */

#include "base/clock.h"
#include "base/log.h"
#include "net/retry.h"
#include "workers/upstream/error.h"
#include "workers/upstream/request.h"
#include "workers/upstream/shape.h"
#include "workers/upstream/upstream_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_MS ((int64_t)1000000)
#define TICK_MS 100
#define RAMP_TICK_MS 10
#define PROBE_FIRST_BYTE_MS 10000
#define PROBE_STALL_MS 5000
#define MODELS_NS (60 * 1000 * NS_PER_MS) /* between two looks at the list of models */
#define MODELS_SOON_MS 500                /* the same while no list is known */
#define MODELS_SOON_MS_MAX 10000
/* A longer pause gives waiting jobs back: another worker may have room. */
#define PAUSE_KEPT_NS (1000 * NS_PER_MS)
#define LINE_BYTES_MAX ((size_t)4 << 20) /* an event, and one line of it */
#define ERROR_BYTES_MAX ((size_t)1 << 20)

/* --- probes --- */

static void start_probe(struct worker_upstream *upstream, enum upstream_probe probe) {
    const char *url = probe == PROBE_HEALTH ? upstream->spec.health : upstream->models_url;
    const struct net_request request = {.url = url,
                                        .sends_key = true,
                                        .first_byte_ms = PROBE_FIRST_BYTE_MS,
                                        .stall_ms = PROBE_STALL_MS,
                                        .text_ms = PROBE_FIRST_BYTE_MS};
    upstream->probe = probe;
    (void)net_client_start(upstream->http, &request);
}

static void start_probes(struct worker_upstream *upstream, int64_t now_ns) {
    if (upstream->probe != PROBE_NONE) return;
    if (upstream_breaker_wants_probe(&upstream->breaker, now_ns)) {
        upstream->is_probe_of_breaker = true;
        start_probe(upstream, PROBE_HEALTH);
    } else if (upstream->breaker.state != UPSTREAM_BREAKER_OPEN && !upstream->models.is_fixed &&
               now_ns >= upstream->models_due_ns) {
        upstream->is_probe_of_breaker = false;
        start_probe(upstream, PROBE_MODELS);
    }
}

/* Writes what came instead of a list of models. The reason for a 401 or 403 may name the key. */
static void write_no_models(const struct worker_upstream *upstream, const struct net_answer *answer,
                            char ret_reason[UPSTREAM_REASON_BYTES]) {
    char message[UPSTREAM_REASON_BYTES - 100] = "";
    const struct upstream_asked asked = {.endpoint = ENDPOINT_TOKENIZER_INFO,
                                         .name = upstream->spec.name};
    struct upstream_reading reading;
    struct buf buf;
    int status = answer->status;
    buf_init(&buf, WORKER_UPSTREAM_ANSWER_BYTES_MAX * 6);
    upstream_read_answer(&buf, status, answer->body, &asked, &reading);
    if (status >= 400 && (status == 402 || !upstream_is_key_status(status)))
        upstream_error_line(message, sizeof message, reading.body);
    snprintf(ret_reason, UPSTREAM_REASON_BYTES,
             "GET /v1/models gave status %d%s%s%s; models= can name its models", status,
             status == 200 ? " and no list" : "", *message ? ": " : "", message);
    buf_release(&buf);
}

/* Takes the answer if it is a list of models; else false. The lock is held. */
static bool take_models(struct worker_upstream *upstream, const struct net_answer *answer) {
    struct error error = {0};
    char reason[UPSTREAM_REASON_BYTES];
    bool is_whole = answer->end == NET_END_WHOLE;
    if (is_whole && answer->status == 200 &&
        upstream_models_read(&upstream->models, answer->body, &error) == OK)
        return true;
    if (!is_whole)
        upstream_write_reason(upstream, answer, reason);
    else
        write_no_models(upstream, answer, reason);
    if (!upstream->models.is_known)
        snprintf(upstream->reason, sizeof upstream->reason, "%s", reason);
    return false;
}

void upstream_probe_done(struct worker_upstream *upstream, const struct net_answer *answer) {
    int64_t now_ns = answer->ended_ns;
    bool is_whole = answer->end == NET_END_WHOLE;
    bool is_good = is_whole && answer->status < 500 &&
                   !(upstream->key.is_refused && upstream_is_key_status(answer->status));
    bool was_health = upstream->probe == PROBE_HEALTH;
    upstream->probe = PROBE_NONE;
    /* A gateway's /health may take long, because it asks others: a timeout is no bad sign. */
    if (was_health && (is_good || answer->end == NET_END_TIMEOUT)) {
        start_probe(upstream, PROBE_MODELS);
        return;
    }
    pthread_mutex_lock(&upstream->lock);
    bool has_list = !was_health && take_models(upstream, answer);
    bool is_first = !upstream->has_asked;
    upstream->has_asked = true;
    if (is_whole) upstream->figures.is_reached = true;
    pthread_cond_broadcast(&upstream->changed);
    if (upstream->is_probe_of_breaker && !is_good && !is_whole)
        upstream_write_reason(upstream, answer, upstream->reason);
    pthread_mutex_unlock(&upstream->lock);
    if (is_first && !upstream->models.is_known)
        log_warn("upstream=%s event=no_models reason=\"%s%s%s\", retrying", upstream->spec.name,
                 upstream->reason, *answer->why ? ": " : "", answer->why);
    int64_t soon_ms = net_backoff_ms(MODELS_SOON_MS, MODELS_SOON_MS_MAX, upstream->models_failures);
    upstream->models_failures = has_list ? 0 : upstream->models_failures + 1;
    upstream->models_due_ns =
        now_ns + (upstream->models.is_known ? MODELS_NS : soon_ms * NS_PER_MS);
    if (upstream->is_probe_of_breaker)
        upstream_breaker_probed(&upstream->breaker, is_good, now_ns, rng_unit(&upstream->rng));
}

/* --- starting --- */

static bool may_start(const struct worker_upstream *upstream, const struct upstream_job *job) {
    if (upstream->breaker.state == UPSTREAM_BREAKER_HALF_OPEN) return !upstream->has_trial;
    uint32_t max = job->job.tier < TIER_BATCH ? upstream->spec.concurrency
                                              : upstream_limit_level(&upstream->limit);
    return upstream->running_count < max;
}

static void start_job(struct worker_upstream *upstream, struct upstream_job *job) {
    struct buf body, scratch;
    buf_init(&body, BUF_UNLIMITED);
    buf_init(&scratch, BUF_UNLIMITED);
    struct str name = upstream_request_model(job->job.body, &scratch);
    pthread_mutex_lock(&upstream->lock);
    const struct upstream_model *model =
        upstream_models_find(&upstream->models, job->job.model.bytes ? job->job.model : name);
    bool is_mapped = model && !str_is(name, model->theirs);
    pthread_mutex_unlock(&upstream->lock);
    job->model = is_mapped ? model->name.at : NULL;
    struct net_request request = {.owner = job,
                                  .url = upstream->job_urls[job->job.endpoint],
                                  .body = job->job.body,
                                  .sends_key = true,
                                  .stream = job->job.stream ? NET_STREAM_EVENTS : NET_STREAM_NONE,
                                  .first_byte_ms = upstream->spec.first_byte_ms,
                                  .stall_ms = upstream->spec.stall_ms,
                                  .text_ms = upstream->spec.first_byte_ms};
    bool is_get = job->job.endpoint == ENDPOINT_TOKENIZER_INFO;
    if (is_get) {
        request.body = (struct str){NULL, 0};
    } else if (is_mapped || job->job.stream) {
        upstream_request_write(&body, job->job.body, is_mapped ? model->theirs : NULL,
                               job->job.stream, &job->wants_usage);
        request.body = buf_str(&body);
    }
    if (job->job.stream) {
        buf_init(&job->sse.line, LINE_BYTES_MAX);
        buf_init(&job->sse.data, LINE_BYTES_MAX);
        buf_init(&job->error, ERROR_BYTES_MAX);
    }
    job->is_trial = upstream->breaker.state == UPSTREAM_BREAKER_HALF_OPEN;
    if (job->is_trial) upstream->has_trial = true;
    job->exchange = net_client_start(upstream->http, &request);
    buf_release(&body);
    buf_release(&scratch);
}

/* Takes over a key that was set meanwhile; what the old one met says nothing about it. */
static void take_key(struct worker_upstream *upstream) {
    pthread_mutex_lock(&upstream->lock);
    char *key = upstream->new_key;
    upstream->new_key = NULL;
    pthread_mutex_unlock(&upstream->lock);
    if (!key) return;
    net_client_set_key(upstream->http, key);
    upstream->key = (struct upstream_key){0};
    explicit_bzero(key, strlen(key));
    free(key);
}

/* Whether the job may be sent; *ret_refusal says why not. */
static bool may_send(const struct upstream_job *job, struct refusal *ret_refusal) {
    bool generates =
        job->job.endpoint == ENDPOINT_CHAT || job->job.endpoint == ENDPOINT_COMPLETIONS;
    return !generates || upstream_shape_check(job->job.body, ret_refusal);
}

static void start_jobs(struct worker_upstream *upstream, int64_t now_ns) {
    if (upstream->breaker.state == UPSTREAM_BREAKER_OPEN ||
        upstream_limit_is_paused(&upstream->limit, now_ns))
        return;
    for (;;) {
        pthread_mutex_lock(&upstream->lock);
        struct upstream_job *job = upstream->is_quiet ? NULL : upstream->first;
        /* What was cancelled or recalled before it began is not sent. */
        if (job && (job->is_cancelled || !may_start(upstream, job))) job = NULL;
        if (job) {
            upstream->first = job->next;
            if (!upstream->first) upstream->last = &upstream->first;
            upstream->waiting--;
            job->next = upstream->running;
            upstream->running = job;
            upstream->running_count++;
        }
        pthread_mutex_unlock(&upstream->lock);
        if (!job) return;
        struct refusal refusal;
        if (!may_send(job, &refusal)) {
            upstream_unlink_running(upstream, job);
            upstream_refuse(upstream, job, &refusal);
            continue;
        }
        take_key(upstream); /* a job that came after the key is sent with it */
        start_job(upstream, job);
    }
}

/* --- ending --- */

/* Takes the first waiting job, or the first one that is cancelled. The lock is held. */
static struct upstream_job *take_waiting(struct worker_upstream *upstream, bool cancelled_only) {
    struct upstream_job **at = &upstream->first;
    while (*at && cancelled_only && !(*at)->is_cancelled) at = &(*at)->next;
    struct upstream_job *job = *at;
    if (!job) return NULL;
    *at = job->next;
    if (!job->next) upstream->last = at;
    upstream->waiting--;
    return job;
}

static void end_cancelled(struct worker_upstream *upstream) {
    pthread_mutex_lock(&upstream->lock);
    bool has_cancels = upstream->has_cancels;
    upstream->has_cancels = false;
    pthread_mutex_unlock(&upstream->lock);
    while (has_cancels) {
        pthread_mutex_lock(&upstream->lock);
        struct upstream_job *job = take_waiting(upstream, true), *running = NULL;
        if (!job) running = upstream->running;
        while (running && !running->is_cancelled) running = running->next;
        pthread_mutex_unlock(&upstream->lock);
        if (running) {
            net_client_abort(upstream->http, running->exchange);
            upstream_unlink_running(upstream, running);
        }
        if (!job) job = running;
        if (!job) return;
        upstream_give_back(upstream, job);
    }
}

static void give_back_waiting(struct worker_upstream *upstream) {
    for (;;) {
        pthread_mutex_lock(&upstream->lock);
        struct upstream_job *job = take_waiting(upstream, false);
        pthread_mutex_unlock(&upstream->lock);
        if (!job) return;
        upstream_give_back(upstream, job);
    }
}

/* --- the gate --- */

/* Opens and closes the gate, and publishes the figures. */
static void tend_gate(struct worker_upstream *upstream, int64_t now_ns) {
    const struct upstream_limit *limit = &upstream->limit;
    bool is_paused = limit->pause_until_ns > now_ns + PAUSE_KEPT_NS;
    bool is_open =
        upstream->models.is_known && !is_paused && upstream->breaker.state != UPSTREAM_BREAKER_OPEN;
    pthread_mutex_lock(&upstream->lock);
    if (is_paused && upstream->breaker.state != UPSTREAM_BREAKER_OPEN)
        snprintf(upstream->reason, sizeof upstream->reason, "%s",
                 *upstream->refusal ? upstream->refusal : "it did not answer in time");
    bool tells_room = is_open && upstream->wants_room && !upstream->is_quiet;
    bool shuts = (!is_open && upstream->is_open) || (upstream->is_quiet && upstream->first);
    upstream->is_open = is_open;
    if (is_open) upstream->figures.is_reached = true;
    if (is_open) {
        upstream->wants_room = false;
        if (!upstream->has_asked) {
            upstream->has_asked = true;
            pthread_cond_broadcast(&upstream->changed);
        }
    }
    upstream->figures.limit = upstream_limit_level(limit);
    upstream->figures.breaker = upstream_breaker_name(upstream->breaker.state);
    pthread_mutex_unlock(&upstream->lock);
    if (shuts) give_back_waiting(upstream);
    if (tells_room) upstream->events.room(upstream->events.context);
}

/* The time until something may be due. */
static int wait_ms(const struct worker_upstream *upstream, int64_t now_ns) {
    int64_t pause_ns = upstream->limit.pause_until_ns - now_ns;
    if (upstream->limit.is_ramping && upstream->running_count > 0) return RAMP_TICK_MS;
    if (pause_ns > 0 && pause_ns < TICK_MS * NS_PER_MS) return (int)(pause_ns / NS_PER_MS) + 1;
    return TICK_MS;
}

void *upstream_loop(void *user) {
    struct worker_upstream *upstream = user;
    for (;;) {
        pthread_mutex_lock(&upstream->lock);
        bool is_closing = upstream->is_closing;
        bool is_full = upstream->waiting > 0 &&
                       upstream->running_count >= upstream_limit_level(&upstream->limit);
        pthread_mutex_unlock(&upstream->lock);
        if (is_closing) return NULL;
        int64_t now_ns = clock_monotonic_ns();
        upstream_limit_tick(&upstream->limit, is_full, now_ns);
        end_cancelled(upstream);
        take_key(upstream);
        start_probes(upstream, now_ns);
        tend_gate(upstream, now_ns);
        start_jobs(upstream, now_ns);
        net_client_poll(upstream->http, wait_ms(upstream, now_ns));
    }
}
