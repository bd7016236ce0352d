/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/upstream/worker_upstream.h"

#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/sync.h"
#include "workers/upstream/upstream_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REQUESTS_MAX 4096 /* requests of single clients, in addition to lines */
#define LINES_WAITING_MIN 16

static struct worker_upstream *upstream_of(struct worker *worker) {
    return (struct worker_upstream *)(void *)worker;
}

uint32_t worker_upstream_lines_max(const struct upstream_spec *spec) {
    uint32_t more = spec->concurrency;
    return spec->concurrency + (more < LINES_WAITING_MIN ? LINES_WAITING_MIN : more);
}

void upstream_job_free(struct upstream_job *job) {
    buf_release(&job->sse.line);
    buf_release(&job->sse.data);
    buf_release(&job->error);
    free(job);
}

static struct upstream_job *new_job(const struct worker_job *from) {
    struct upstream_job *job = mem_new(1, sizeof *job + from->body.bytes);
    job->job = *from;
    job->taken_ns = clock_monotonic_ns();
    memcpy(job->body, from->body.at, from->body.bytes);
    job->job.body.at = job->body;
    if (from->model.bytes > 0 && from->model.bytes < sizeof job->served)
        memcpy(job->served, from->model.at, from->model.bytes);
    job->job.model = str_from(job->served);
    return job;
}

/* Puts the job after others of its tier; requests of clients before lines. The lock is held. */
static void put_in_order(struct worker_upstream *upstream, struct upstream_job *job) {
    struct upstream_job **at = &upstream->first;
    if (job->job.tier < TIER_BATCH)
        while (*at && (*at)->job.tier <= job->job.tier) at = &(*at)->next;
    else
        at = upstream->last;
    job->next = *at;
    *at = job;
    if (!job->next) upstream->last = &job->next;
    upstream->waiting++;
}

static bool submit(struct worker *worker, const struct worker_job *from) {
    struct worker_upstream *upstream = upstream_of(worker);
    struct upstream_job *job = new_job(from);
    pthread_mutex_lock(&upstream->lock);
    uint32_t waiting_max = worker_upstream_lines_max(&upstream->spec) + REQUESTS_MAX;
    bool is_taken = upstream->is_open && !upstream->is_closing && !upstream->is_quiet &&
                    upstream->waiting < waiting_max;
    bool is_idle = upstream->running_count < upstream->spec.concurrency;
    if (is_taken)
        put_in_order(upstream, job);
    else
        upstream->wants_room = true;
    pthread_mutex_unlock(&upstream->lock);
    if (!is_taken) upstream_job_free(job);
    if (is_taken && is_idle) net_client_wake(upstream->http);
    return is_taken;
}

/* Marks the job; the thread ends it. */
static void cancel(struct worker *worker, uint64_t job_id) {
    struct worker_upstream *upstream = upstream_of(worker);
    pthread_mutex_lock(&upstream->lock);
    struct upstream_job *job = upstream->running;
    while (job && job->job.id != job_id) job = job->next;
    if (!job) job = upstream->first;
    while (job && job->job.id != job_id) job = job->next;
    if (job) upstream->has_cancels = job->is_cancelled = true;
    pthread_mutex_unlock(&upstream->lock);
    if (job) net_client_wake(upstream->http);
}

/* The same for a job that waits; any other has been sent. */
static void recall(struct worker *worker, uint64_t job_id) {
    struct worker_upstream *upstream = upstream_of(worker);
    pthread_mutex_lock(&upstream->lock);
    struct upstream_job *job = upstream->first;
    while (job && job->job.id != job_id) job = job->next;
    if (job) upstream->has_cancels = job->is_cancelled = job->is_recalled = true;
    pthread_mutex_unlock(&upstream->lock);
    if (job) net_client_wake(upstream->http);
}

/* The thread gives the waiting jobs back. */
static void quiesce(struct worker *worker) {
    struct worker_upstream *upstream = upstream_of(worker);
    pthread_mutex_lock(&upstream->lock);
    upstream->is_quiet = true;
    pthread_mutex_unlock(&upstream->lock);
    net_client_wake(upstream->http);
}

static bool serves(struct worker *worker, struct str model) {
    struct worker_upstream *upstream = upstream_of(worker);
    pthread_mutex_lock(&upstream->lock);
    bool is_served = upstream_models_find(&upstream->models, model) != NULL;
    pthread_mutex_unlock(&upstream->lock);
    return is_served;
}

static size_t models(struct worker *worker, struct worker_model *ret_models, size_t models_max) {
    struct worker_upstream *upstream = upstream_of(worker);
    pthread_mutex_lock(&upstream->lock);
    size_t count = upstream_models_list(&upstream->models, ret_models, models_max);
    pthread_mutex_unlock(&upstream->lock);
    return count;
}

static void status(struct worker *worker, struct worker_status *ret_status) {
    struct worker_upstream *upstream = upstream_of(worker);
    pthread_mutex_lock(&upstream->lock);
    *ret_status = upstream->figures;
    ret_status->upstream = upstream->spec.name;
    ret_status->ready = upstream->is_open && !upstream->is_closing;
    ret_status->knows_names = ret_status->ready;
    ret_status->running = upstream->running_count;
    ret_status->waiting = upstream->waiting;
    ret_status->is_refusing = *upstream->refusal;
    if (!ret_status->ready)
        snprintf(ret_status->text, sizeof ret_status->text, "waiting: %s", upstream->reason);
    else
        snprintf(ret_status->text, sizeof ret_status->text, "ready%s%s",
                 *upstream->refusal ? ", but " : "", upstream->refusal);
    pthread_mutex_unlock(&upstream->lock);
}

static uint32_t timings(struct worker *worker, struct timings *ret_timings) {
    struct worker_upstream *upstream = upstream_of(worker);
    pthread_mutex_lock(&upstream->lock);
    *ret_timings = upstream->timings;
    pthread_mutex_unlock(&upstream->lock);
    return 1u << TIMING_FIRST_TOKEN | 1u << TIMING_BETWEEN_TOKENS | 1u << TIMING_WHOLE |
           1u << TIMING_QUEUE | 1u << TIMING_PROMPT_TOKENS | 1u << TIMING_GENERATED_TOKENS;
}

/* Forgets a key that waits. The lock is held, or no other thread is left. */
static void forget_new_key(struct worker_upstream *upstream) {
    if (upstream->new_key) explicit_bzero(upstream->new_key, strlen(upstream->new_key));
    free(upstream->new_key);
    upstream->new_key = NULL;
}

void worker_upstream_set_key(struct worker *worker, const char *key) {
    struct worker_upstream *upstream = upstream_of(worker);
    pthread_mutex_lock(&upstream->lock);
    forget_new_key(upstream);
    upstream->new_key = mem_text(key);
    pthread_mutex_unlock(&upstream->lock);
    net_client_wake(upstream->http);
}

static void free_list(struct upstream_job *job) {
    while (job) {
        struct upstream_job *next = job->next;
        upstream_job_free(job);
        job = next;
    }
}

static void release(struct worker_upstream *upstream) {
    net_client_close(upstream->http);
    forget_new_key(upstream);
    free_list(upstream->first);
    free_list(upstream->running);
    upstream_models_release(&upstream->models);
    buf_release(&upstream->answer);
    pthread_cond_destroy(&upstream->changed);
    pthread_mutex_destroy(&upstream->lock);
    free(upstream);
}

static void close_worker(struct worker *worker) {
    struct worker_upstream *upstream = upstream_of(worker);
    pthread_mutex_lock(&upstream->lock);
    upstream->is_closing = true;
    pthread_mutex_unlock(&upstream->lock);
    net_client_wake(upstream->http);
    pthread_join(upstream->thread, NULL);
    release(upstream);
}

bool worker_upstream_wait_asked(struct worker *worker, int64_t timeout_ms) {
    struct worker_upstream *upstream = upstream_of(worker);
    int64_t due_ns = sync_deadline_ns(timeout_ms);
    pthread_mutex_lock(&upstream->lock);
    while (!upstream->has_asked && sync_wait_until(&upstream->changed, &upstream->lock, due_ns)) {
    }
    bool has_asked = upstream->has_asked;
    pthread_mutex_unlock(&upstream->lock);
    return has_asked;
}

static enum err open_http(struct worker_upstream *upstream, const char *key, struct error *error) {
    const struct upstream_spec *spec = &upstream->spec;
    static const char *const headers[] = {"Accept: application/json, text/event-stream", NULL};
    const struct net_client_options options = {
        .key = key,
        .headers = headers,
        .proxy_from_environment = spec->proxy_from_environment,
        .unpacks = true,
        .exchanges_max = spec->concurrency + 1, /* and a probe */
        .text_bytes_max = WORKER_UPSTREAM_ANSWER_BYTES_MAX,
        .connect_ms = spec->connect_ms,
        .context = upstream,
        .bytes = upstream_on_bytes,
        .done = upstream_on_done,
    };
    return net_client_open(&upstream->http, &options, error);
}

/* vLLM has words and what it pools beside /v1, which ends the base; the other paths are in it. */
/* vLLM has words and what it pools beside /v1, which ends the base; the other paths are in it. */
static void set_urls(struct worker_upstream *upstream) {
    const char *base = upstream->spec.base;
    const int root_bytes = (int)(strlen(base) - strlen("/v1"));
    snprintf(upstream->models_url, sizeof upstream->models_url, "%s/models", base);
    for (size_t i = 0; i < ENDPOINT_ALL_COUNT; i++) {
        const char *path = endpoint_path((enum endpoint)i);
        if (i == ENDPOINT_POOLING || i == ENDPOINT_CLASSIFY) path += strlen("/v1");
        snprintf(upstream->job_urls[i], sizeof upstream->job_urls[i], "%.*s%s", root_bytes, base,
                 path);
    }
}

enum err worker_upstream_open(struct worker **ret_worker, const struct upstream_spec *spec,
                              const char *key, const struct worker_events *events,
                              struct error *error) {
    static const struct worker_ops ops = {.submit = submit,
                                          .cancel = cancel,
                                          .recall = recall,
                                          .serves = serves,
                                          .models = models,
                                          .status = status,
                                          .timings = timings,
                                          .quiesce = quiesce,
                                          .close = close_worker};
    static const struct worker_ops refusing_ops = {.shapes = SHAPES_REFUSED,
                                                   .submit = submit,
                                                   .cancel = cancel,
                                                   .recall = recall,
                                                   .serves = serves,
                                                   .models = models,
                                                   .status = status,
                                                   .timings = timings,
                                                   .quiesce = quiesce,
                                                   .close = close_worker};
    struct worker_upstream *upstream = mem_new(1, sizeof *upstream);
    upstream->worker.ops = spec->refuses_shapes ? &refusing_ops : &ops;
    upstream->events = *events;
    upstream->spec = *spec;
    upstream->last = &upstream->first;
    upstream->rng.state = id_u64();
    set_urls(upstream);
    pthread_mutex_init(&upstream->lock, NULL);
    sync_cond_init(&upstream->changed);
    buf_init(&upstream->answer, WORKER_UPSTREAM_ANSWER_BYTES_MAX * 6); /* each byte as \uXXXX */
    upstream_models_init(&upstream->models, spec);
    upstream_limit_init(&upstream->limit, spec->concurrency);
    snprintf(upstream->reason, sizeof upstream->reason, "asking it for its models");
    enum err err = open_http(upstream, key, error);
    if (err == OK) {
        int number = pthread_create(&upstream->thread, NULL, upstream_loop, upstream);
        if (number != 0) err = err_from_errno(error, number, "cannot start an upstream's thread");
    }
    if (err != OK) {
        release(upstream);
        return err;
    }
    pthread_setname_np(upstream->thread, "upstream");
    *ret_worker = &upstream->worker;
    return OK;
}
