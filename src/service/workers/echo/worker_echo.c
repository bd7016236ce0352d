/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "base/sync.h"
#include "workers/echo/echo_internal.h"

#include "base/clock.h"
#include "json/span.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct echo *echo_of(struct worker *worker) {
    return (struct echo *)worker;
}

/* --- the thread --- */

static bool is_nth(uint64_t seen, uint64_t every) {
    return every > 0 && seen % every == 0;
}

static void free_jobs(struct echo_job **list) {
    while (*list) {
        struct echo_job *job = *list;
        *list = job->next;
        free(job);
    }
}

/* Loses all waiting jobs. The lock is held, and let go for the event. */
static void go_down(struct echo *echo, const char *reason) {
    free_jobs(&echo->first);
    free_jobs(&echo->hanging);
    echo->last = &echo->first;
    echo->waiting = 0;
    echo->restarts++;
    echo->down_until_ns = clock_monotonic_ns() + echo->options.down_ms * 1000000;
    echo->was_full = true;
    pthread_mutex_unlock(&echo->lock);
    echo->events.down(echo->events.context, reason);
    pthread_mutex_lock(&echo->lock);
}

/* Waits for the next job that is due. The lock is held. NULL if the worker stops. */
static struct echo_job *take(struct echo *echo) {
    while (!echo->stopping) {
        int64_t now_ns = clock_monotonic_ns();
        int64_t due_ns = now_ns + 100000000;
        bool is_up = echo->ready && now_ns >= echo->down_until_ns;
        if (is_up && echo->was_full && echo->waiting <= echo->options.waiting_max / 2) {
            echo->was_full = false;
            pthread_mutex_unlock(&echo->lock);
            echo->events.room(echo->events.context);
            pthread_mutex_lock(&echo->lock);
            continue;
        }
        struct echo_job *job = echo->first;
        if (job && (job->due_ns <= now_ns || job->cancelled)) {
            echo->first = job->next;
            if (!echo->first) echo->last = &echo->first;
            echo->waiting--;
            return job;
        }
        if (job) due_ns = job->due_ns;
        if (!is_up && echo->down_until_ns > now_ns) due_ns = echo->down_until_ns;
        sync_wait_until(&echo->work, &echo->lock, due_ns);
    }
    return NULL;
}

/* Answers one job. The lock is held, and let go for the event. */
static void run(struct echo *echo, struct echo_job *job) {
    const struct worker_echo_options *options = &echo->options;
    uint64_t seen = ++echo->seen;
    bool is_poison =
        options->poison && memmem(job->body, job->bytes, options->poison, strlen(options->poison));
    if (job->hangs && !job->cancelled) {
        job->next = echo->hanging;
        echo->hanging = job;
        return;
    }
    is_poison = is_poison || job->goes_down;
    if (!job->cancelled && (is_poison || is_nth(seen, options->down_every))) {
        free(job);
        go_down(echo, is_poison ? "poisoned" : "told to");
        return;
    }
    pthread_mutex_unlock(&echo->lock);
    buf_clear(&echo->text);
    if (job->cancelled)
        echo_answer_error(echo, job, 499, OUTCOME_CANCELLED, "cancelled");
    else if (job->told_status)
        echo_fail_as_told(echo, job);
    else if (is_nth(seen, options->retryable_every))
        echo_answer_error(echo, job, 503, OUTCOME_TRY_AGAIN, "busy");
    else if (is_nth(seen, options->fail_every))
        echo_answer_error(echo, job, 500, OUTCOME_DONE, "told to fail");
    else
        echo_answer(echo, job);
    pthread_mutex_lock(&echo->lock);
    echo->answered++;
    echo->tokens_in += job->bytes;
    echo->tokens_out += echo->text.bytes;
    free(job);
}

static void *echo_main(void *context) {
    struct echo *echo = context;
    pthread_mutex_lock(&echo->lock);
    for (struct echo_job *job; (job = take(echo));) run(echo, job);
    pthread_mutex_unlock(&echo->lock);
    return NULL;
}

/* --- the interface --- */

/* Reads the faults that the body asks for. */
static void read_wishes(struct echo_job *job) {
    struct str echo = echo_wishes((struct str){job->body, job->bytes});
    int64_t delay_ms = 0;
    if (str_to_i64(json_span_get(echo, "delay_ms"), &delay_ms) && delay_ms > 0)
        job->due_ns += delay_ms * 1000000;
    if (!str_to_i64(json_span_get(echo, "each_ms"), &job->each_ms) || job->each_ms < 0)
        job->each_ms = 0;
    if (!str_to_i64(json_span_get(echo, "status"), &job->told_status) || job->told_status < 400 ||
        job->told_status > 599)
        job->told_status = 0;
    job->hangs = str_is(json_span_get(echo, "hang"), "true");
    job->goes_down = str_is(json_span_get(echo, "down"), "true");
}

static bool echo_submit(struct worker *worker, const struct worker_job *from) {
    struct echo *echo = echo_of(worker);
    int64_t now_ns = clock_monotonic_ns();
    struct echo_job *job = mem_alloc(sizeof *job + from->body.bytes);
    *job = (struct echo_job){.job = *from, .bytes = from->body.bytes};
    memcpy(job->body, from->body.at, from->body.bytes);
    if (from->model.bytes > 0 && from->model.bytes < sizeof job->model)
        memcpy(job->model, from->model.at, from->model.bytes);
    job->due_ns = now_ns + echo->options.latency_ms * 1000000;
    read_wishes(job);
    pthread_mutex_lock(&echo->lock);
    if (echo->waiting == 0) echo->last_due_ns = 0;
    if (job->each_ms > 0) {
        if (job->due_ns < echo->last_due_ns) job->due_ns = echo->last_due_ns;
        job->due_ns += job->each_ms * 1000000;
        echo->last_due_ns = job->due_ns;
    }
    bool takes = echo->ready && !echo->stopping && now_ns >= echo->down_until_ns &&
                 echo->waiting < echo->options.waiting_max;
    if (takes) {
        bool was_empty = echo->waiting++ == 0;
        if (from->tier < TIER_BATCH) { /* ahead of all waiting jobs */
            job->next = echo->first;
            if (!echo->first) echo->last = &job->next;
            echo->first = job;
        } else {
            *echo->last = job;
            echo->last = &job->next;
        }
        if (was_empty || from->tier < TIER_BATCH) pthread_cond_signal(&echo->work);
    } else {
        echo->was_full = true;
    }
    pthread_mutex_unlock(&echo->lock);
    if (!takes) free(job);
    return takes;
}

/* Cancelled jobs are moved to the front, so that they end at once. */
static void echo_cancel(struct worker *worker, uint64_t job_id) {
    struct echo *echo = echo_of(worker);
    pthread_mutex_lock(&echo->lock);
    struct echo_job **at = &echo->first;
    while (*at && (*at)->job.id != job_id) at = &(*at)->next;
    if (!*at) {
        at = &echo->hanging;
        while (*at && (*at)->job.id != job_id) at = &(*at)->next;
        if (*at) echo->waiting++;
    }
    struct echo_job *job = *at;
    if (job) {
        *at = job->next;
        if (echo->last == &job->next) echo->last = at;
        job->cancelled = true;
        job->next = echo->first;
        if (!echo->first) echo->last = &job->next;
        echo->first = job;
        pthread_cond_signal(&echo->work);
    }
    pthread_mutex_unlock(&echo->lock);
}

static bool echo_serves(struct worker *worker, struct str model) {
    const struct echo *echo = echo_of(worker);
    if (!echo->options.models) return model.bytes > 0;
    for (size_t i = 0; echo->options.models[i]; i++)
        if (str_is(model, echo->options.models[i])) return true;
    return false;
}

static size_t echo_models(struct worker *worker, struct worker_model *ret_models,
                          size_t models_max) {
    const struct echo *echo = echo_of(worker);
    static const char *const any[] = {"echo", NULL};
    const char *const *models = echo->options.models ? echo->options.models : any;
    size_t count = 0;
    for (; models[count] && count < models_max; count++)
        ret_models[count] = (struct worker_model){.name = str_from(models[count]),
                                                  .created_unix_s = ECHO_CREATED_UNIX_S,
                                                  .generates = true,
                                                  .embeds = true};
    return count;
}

static void echo_status(struct worker *worker, struct worker_status *ret_status) {
    struct echo *echo = echo_of(worker);
    pthread_mutex_lock(&echo->lock);
    bool is_up = echo->ready && clock_monotonic_ns() >= echo->down_until_ns;
    *ret_status = (struct worker_status){.ready = is_up,
                                         .knows_names = echo->ready,
                                         .waiting = echo->waiting,
                                         .restarts = echo->restarts,
                                         .steps = echo->answered,
                                         .prompt_tokens = echo->tokens_in,
                                         .completion_tokens = echo->tokens_out};
    const char *text = is_up ? "ready" : echo->ready ? "down" : "loading";
    memcpy(ret_status->text, text, strlen(text) + 1);
    pthread_mutex_unlock(&echo->lock);
}

static void echo_close(struct worker *worker) {
    struct echo *echo = echo_of(worker);
    pthread_mutex_lock(&echo->lock);
    echo->stopping = true;
    pthread_cond_signal(&echo->work);
    pthread_mutex_unlock(&echo->lock);
    pthread_join(echo->thread, NULL);
    free_jobs(&echo->first);
    free_jobs(&echo->hanging);
    buf_release(&echo->answer);
    buf_release(&echo->text);
    buf_release(&echo->model);
    pthread_cond_destroy(&echo->work);
    pthread_mutex_destroy(&echo->lock);
    free(echo);
}

/* An answer depends on the request alone. */
static bool echo_identity(struct worker *worker, struct str model,
                          unsigned char ret_identity[WORKER_IDENTITY_BYTES]) {
    (void)worker, (void)model;
    memset(ret_identity, 'e', WORKER_IDENTITY_BYTES);
    return true;
}

static bool echo_weights(struct worker *worker, struct str model,
                         unsigned char ret_mark[WORKER_IDENTITY_BYTES]) {
    const char *text = echo_of(worker)->options.weights;
    (void)model;
    if (!text) return false;
    memset(ret_mark, 0, WORKER_IDENTITY_BYTES);
    memcpy(ret_mark, text, strnlen(text, WORKER_IDENTITY_BYTES));
    return true;
}

static const struct worker_ops echo_ops = {.submit = echo_submit,
                                           .cancel = echo_cancel,
                                           .serves = echo_serves,
                                           .models = echo_models,
                                           .status = echo_status,
                                           .identity = echo_identity,
                                           .weights = echo_weights,
                                           .close = echo_close};

enum err worker_echo_open(struct worker **ret_worker, const struct worker_echo_options *options,
                          const struct worker_events *events, struct error *error) {
    struct echo *echo = mem_new(1, sizeof *echo);
    echo->worker.ops = &echo_ops;
    echo->options = *options;
    if (echo->options.waiting_max == 0) echo->options.waiting_max = 65536;
    echo->events = *events;
    echo->ready = !options->loading;
    echo->last = &echo->first;
    buf_init(&echo->answer, ECHO_ANSWER_BYTES_MAX);
    buf_init(&echo->text, ECHO_ANSWER_BYTES_MAX);
    buf_init(&echo->model, (size_t)MODEL_NAME_BYTES * 8);
    pthread_mutex_init(&echo->lock, NULL);
    sync_cond_init(&echo->work);
    int failed = pthread_create(&echo->thread, NULL, echo_main, echo);
    if (failed) {
        free(echo);
        return err_from_errno(error, failed, "cannot start the echo worker");
    }
    pthread_setname_np(echo->thread, "echo");
    *ret_worker = &echo->worker;
    return OK;
}

void worker_echo_set_ready(struct worker *worker) {
    struct echo *echo = echo_of(worker);
    pthread_mutex_lock(&echo->lock);
    echo->ready = true;
    echo->was_full = true; /* tells `room` */
    pthread_cond_signal(&echo->work);
    pthread_mutex_unlock(&echo->lock);
}
