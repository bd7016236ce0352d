/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/worker_echo.h"

#include "base/buf.h"
#include "base/clock.h"
#include "runner/echo_vectors.h"
#include "runner/names.h"
#include "json/json.h"
#include "json/span.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ANSWER_BYTES_MAX ((size_t)64 << 20)
#define CREATED_UNIX_S 1700000000 /* fixed, so that equal requests have equal answers */
#define MODEL_CREATED_UNIX_S CREATED_UNIX_S

struct job {
    struct job *next;
    struct worker_job job;
    int64_t due_ns;
    int64_t each_ms;
    int64_t told_status; /* 0: none */
    bool cancelled;
    bool hangs;
    bool goes_down;
    char model[MODEL_NAME_BYTES]; /* empty: what the body says */
    size_t bytes;
    char body[];
};

struct echo {
    struct worker worker;
    struct worker_echo_options options;
    struct worker_events events;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct job *first, **last;
    struct job *hanging; /* that are not answered until they are cancelled */
    uint32_t waiting;
    int64_t last_due_ns; /* of the jobs that wait */
    bool was_full;       /* a submit was refused */
    bool ready;
    bool stopping;
    int64_t down_until_ns;
    uint64_t seen; /* jobs taken up, for the n-th */
    uint64_t answered;
    uint64_t restarts;
    uint64_t tokens_in, tokens_out;
    struct buf answer;
    struct buf text;
    struct buf model;
};

static struct echo *echo_of(struct worker *worker) {
    return (struct echo *)worker;
}

/* The member `echo` of a body; empty when there is none. */
static struct str wishes_of(struct str body) {
    /* Most have none, and a search is cheaper than reading the object. */
    if (!memmem(body.at, body.bytes, "\"echo\"", 6)) return (struct str){NULL, 0};
    struct str echo = json_span_get(body, "echo");
    return json_span_is_object(echo) ? echo : (struct str){NULL, 0};
}

/* --- answers --- */

/* Appends what a message's content says, as the inside of a JSON string. */
static void add_content(struct buf *buf, struct str content) {
    if (json_span_is_string(content)) {
        json_span_add_ascii(buf, (struct str){content.at + 1, content.bytes - 2});
        return;
    }
    struct json_span_iter iter;
    struct str part;
    if (content.bytes == 0 || *content.at != '[' || !json_span_enter(&iter, content)) return;
    while (json_span_element(&iter, &part)) {
        struct str text = json_span_is_string(part) ? part : json_span_get(part, "text");
        if (json_span_is_string(text))
            json_span_add_ascii(buf, (struct str){text.at + 1, text.bytes - 2});
    }
}

/* The content of the last message of a user. */
static struct str last_user(struct str body) {
    struct json_span_iter iter;
    struct str message, found = {NULL, 0}, messages = json_span_get(body, "messages");
    if (messages.bytes == 0 || *messages.at != '[' || !json_span_enter(&iter, messages))
        return found;
    while (json_span_element(&iter, &message))
        if (json_span_string_is(json_span_get(message, "role"), "user"))
            found = json_span_get(message, "content");
    return found;
}

static void add_usage(struct buf *buf, const struct worker_usage *usage) {
    buf_printf(buf,
               "\"usage\":{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%u,"
               "\"prompt_tokens_details\":{\"cached_tokens\":0},"
               "\"completion_tokens_details\":{\"reasoning_tokens\":0}}",
               usage->prompt_tokens, usage->completion_tokens,
               usage->prompt_tokens + usage->completion_tokens);
}

static void add_head(struct buf *buf, const char *id, const char *object, struct str model) {
    buf_printf(buf, "{\"id\":\"%s-echo\",\"object\":\"%s\",\"created\":%d,\"model\":", id, object,
               CREATED_UNIX_S);
    if (json_span_is_string(model))
        json_span_add_ascii(buf, model);
    else
        buf_add_text(buf, "null");
}

/* As the engine says it: lines of batches report the default tier. */
static const char *tier_name(enum tier tier) {
    if (tier == TIER_PRIORITY) return "priority";
    return tier == TIER_FLEX ? "flex" : "default";
}

static void answer_chat(struct buf *buf, struct str text, struct str model, enum tier tier,
                        struct str finish_reason, const struct worker_usage *usage) {
    add_head(buf, "chatcmpl", "chat.completion", model);
    buf_printf(buf, ",\"system_fingerprint\":null,\"service_tier\":\"%s\"", tier_name(tier));
    buf_add_text(buf, ",\"choices\":[{"
                      "\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"");
    buf_add_str(buf, text);
    buf_add_text(buf, "\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":");
    buf_add_str(buf, json_span_is_string(finish_reason) ? finish_reason : STR("\"stop\""));
    buf_add_text(buf, "}],");
    add_usage(buf, usage);
    buf_add_byte(buf, '}');
}

static void answer_completion(struct buf *buf, struct str text, struct str model,
                              const struct worker_usage *usage) {
    add_head(buf, "cmpl", "text_completion", model);
    buf_add_text(buf, ",\"choices\":[{\"text\":\"");
    buf_add_str(buf, text);
    buf_add_text(buf, "\",\"index\":0,\"logprobs\":null,\"finish_reason\":\"stop\"}],");
    add_usage(buf, usage);
    buf_add_byte(buf, '}');
}

static void answer_numbers(struct buf *buf, enum endpoint endpoint, struct str body,
                           struct str model, const struct worker_usage *usage) {
    if (endpoint == ENDPOINT_EMBEDDINGS) {
        buf_add_text(buf, "{\"object\":\"list\",\"model\":");
        json_span_add_ascii(buf, json_span_is_string(model) ? model : STR("null"));
        buf_add_text(buf, ",\"data\":");
        echo_write_vectors(buf, body);
        buf_add_byte(buf, ',');
    } else {
        add_head(buf, "score", "list", model);
        buf_add_text(buf, ",\"data\":[{\"index\":0,\"object\":\"score\",\"score\":0.5}],");
    }
    buf_printf(buf, "\"usage\":{\"prompt_tokens\":%u,\"total_tokens\":%u}}", usage->prompt_tokens,
               usage->prompt_tokens);
}

/* What a stream says: the whole of echo->text at once. */
static void send_delta(struct echo *echo, const struct job *job, struct str model) {
    if (!job->job.stream || !echo->events.delta) return;
    struct buf chunk;
    buf_init(&chunk, ANSWER_BYTES_MAX);
    add_head(&chunk, "chatcmpl", "chat.completion.chunk", model);
    buf_add_text(&chunk, ",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\","
                         "\"content\":\"");
    buf_add(&chunk, echo->text.at, echo->text.bytes);
    buf_add_text(&chunk, "\"},\"logprobs\":null,\"finish_reason\":\"stop\"}]}");
    struct worker_delta delta = {.id = job->job.id, .chunk = buf_str(&chunk)};
    echo->events.delta(echo->events.context, &delta);
    buf_release(&chunk);
}

/* The name of the served model as JSON. */
static struct str model_of(struct echo *echo, const struct job *job) {
    if (!*job->model) return json_span_get((struct str){job->body, job->bytes}, "model");
    buf_clear(&echo->model);
    json_write_string(&echo->model, str_from(job->model));
    return buf_str(&echo->model);
}

static void answer(struct echo *echo, const struct job *job) {
    struct worker_result result = {.id = job->job.id, .status = 200};
    struct str body = {job->body, job->bytes}, model = model_of(echo, job);
    buf_clear(&echo->answer);
    buf_clear(&echo->text);
    result.usage.prompt_tokens = (uint32_t)job->bytes;
    switch (job->job.endpoint) {
    case ENDPOINT_CHAT:
    case ENDPOINT_COMPLETIONS:
        add_content(&echo->text, job->job.endpoint == ENDPOINT_CHAT
                                     ? last_user(body)
                                     : json_span_get(body, "prompt"));
        result.usage.completion_tokens = (uint32_t)echo->text.bytes;
        if (job->job.endpoint == ENDPOINT_CHAT)
            answer_chat(&echo->answer, buf_str(&echo->text), model, job->job.tier,
                        json_span_get(wishes_of(body), "finish_reason"), &result.usage);
        else
            answer_completion(&echo->answer, buf_str(&echo->text), model, &result.usage);
        break;
    case ENDPOINT_EMBEDDINGS:
    case ENDPOINT_SCORE:
    case ENDPOINT_COUNT:
        answer_numbers(&echo->answer, job->job.endpoint, body, model, &result.usage);
        break;
    }
    result.body = buf_str(&echo->answer);
    send_delta(echo, job, model);
    echo->events.result(echo->events.context, &result);
}

static void answer_error(struct echo *echo, const struct job *job, int32_t status, bool retryable,
                         const char *message) {
    buf_clear(&echo->answer);
    buf_printf(&echo->answer,
               "{\"error\":{\"message\":\"%s\",\"type\":\"server_error\",\"param\":null,"
               "\"code\":null}}",
               message);
    struct worker_result result = {.id = job->job.id,
                                   .status = status,
                                   .body = buf_str(&echo->answer),
                                   .retryable = retryable};
    echo->events.result(echo->events.context, &result);
}

/* A stream has said its text by then. */
static void fail_as_told(struct echo *echo, const struct job *job) {
    struct str body = {job->body, job->bytes};
    buf_clear(&echo->text);
    add_content(&echo->text, last_user(body));
    send_delta(echo, job, json_span_get(body, "model"));
    answer_error(echo, job, (int32_t)job->told_status, job->told_status == 503,
                 "told to by the request");
}

/* --- the thread --- */

static bool is_nth(uint64_t seen, uint64_t every) {
    return every > 0 && seen % every == 0;
}

static void free_jobs(struct job **list) {
    while (*list) {
        struct job *job = *list;
        *list = job->next;
        free(job);
    }
}

/* Loses everything that waits. The lock is held, and let go for the event. */
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

/* Waits for the next job that is due. The lock is held. NULL when stopping. */
static struct job *take(struct echo *echo) {
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
        struct job *job = echo->first;
        if (job && (job->due_ns <= now_ns || job->cancelled)) {
            echo->first = job->next;
            if (!echo->first) echo->last = &echo->first;
            echo->waiting--;
            return job;
        }
        if (job) due_ns = job->due_ns;
        if (!is_up && echo->down_until_ns > now_ns) due_ns = echo->down_until_ns;
        struct timespec until = {.tv_sec = due_ns / 1000000000, .tv_nsec = due_ns % 1000000000};
        pthread_cond_timedwait(&echo->work, &echo->lock, &until);
    }
    return NULL;
}

/* Answers one job. The lock is held, and let go for the event. */
static void run(struct echo *echo, struct job *job) {
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
    if (job->cancelled)
        answer_error(echo, job, 499, false, "cancelled");
    else if (job->told_status)
        fail_as_told(echo, job);
    else if (is_nth(seen, options->retryable_every))
        answer_error(echo, job, 503, true, "busy");
    else if (is_nth(seen, options->fail_every))
        answer_error(echo, job, 500, false, "told to fail");
    else
        answer(echo, job);
    pthread_mutex_lock(&echo->lock);
    echo->answered++;
    echo->tokens_in += job->bytes;
    free(job);
}

static void *echo_main(void *context) {
    struct echo *echo = context;
    pthread_mutex_lock(&echo->lock);
    for (struct job *job; (job = take(echo));) run(echo, job);
    pthread_mutex_unlock(&echo->lock);
    return NULL;
}

/* --- the interface --- */

/* What the body itself asks for. */
static void read_wishes(struct job *job) {
    struct str echo = wishes_of((struct str){job->body, job->bytes});
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
    struct job *job = malloc(sizeof *job + from->body.bytes);
    if (!job) abort();
    *job = (struct job){.job = *from, .bytes = from->body.bytes};
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
        if (from->tier < TIER_BATCH) { /* ahead of what waits */
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
    struct job **at = &echo->first;
    while (*at && (*at)->job.id != job_id) at = &(*at)->next;
    if (!*at) {
        at = &echo->hanging;
        while (*at && (*at)->job.id != job_id) at = &(*at)->next;
        if (*at) echo->waiting++;
    }
    struct job *job = *at;
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
                                                  .created_unix_s = MODEL_CREATED_UNIX_S,
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
                                         .prompt_tokens = echo->tokens_in};
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

/* An answer is made of the request alone, as far as an echo is wanted again. */
static bool echo_identity(struct worker *worker, struct str model,
                          unsigned char ret_identity[WORKER_IDENTITY_BYTES]) {
    (void)worker, (void)model;
    memset(ret_identity, 'e', WORKER_IDENTITY_BYTES);
    return true;
}

static const struct worker_ops echo_ops = {.submit = echo_submit,
                                           .cancel = echo_cancel,
                                           .serves = echo_serves,
                                           .models = echo_models,
                                           .status = echo_status,
                                           .identity = echo_identity,
                                           .close = echo_close};

enum err worker_echo_open(struct worker **ret_worker, const struct worker_echo_options *options,
                          const struct worker_events *events, struct error *error) {
    struct echo *echo = calloc(1, sizeof *echo);
    if (!echo) abort();
    echo->worker.ops = &echo_ops;
    echo->options = *options;
    if (echo->options.waiting_max == 0) echo->options.waiting_max = 65536;
    echo->events = *events;
    echo->ready = !options->loading;
    echo->last = &echo->first;
    buf_init(&echo->answer, ANSWER_BYTES_MAX);
    buf_init(&echo->text, ANSWER_BYTES_MAX);
    buf_init(&echo->model, (size_t)MODEL_NAME_BYTES * 8);
    pthread_mutex_init(&echo->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&echo->work, &monotonic);
    pthread_condattr_destroy(&monotonic);
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

uint64_t worker_echo_answered(struct worker *worker) {
    struct echo *echo = echo_of(worker);
    pthread_mutex_lock(&echo->lock);
    uint64_t answered = echo->answered;
    pthread_mutex_unlock(&echo->lock);
    return answered;
}
