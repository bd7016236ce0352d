/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define WAIT_S 120

static void on_delta(void *context, uint64_t id, struct str chunk) {
    struct harness *harness = context;
    pthread_mutex_lock(&harness->lock);
    struct harness_job *job = &harness->jobs[id];
    if (job->is_done) abort(); /* a delta after its result */
    buf_add_str(&job->deltas, chunk);
    buf_add_byte(&job->deltas, '\n');
    job->delta_count++;
    pthread_cond_broadcast(&harness->changed);
    pthread_mutex_unlock(&harness->lock);
}

static void on_result(void *context, uint64_t id, const struct wire_result *result) {
    struct harness *harness = context;
    pthread_mutex_lock(&harness->lock);
    struct harness_job *job = &harness->jobs[id];
    if (job->is_done) abort(); /* a second result */
    job->is_done = true;
    job->done_rank = harness->done_count++;
    job->result = *result;
    buf_add_str(&job->text, result->body);
    job->result.body = (struct str){NULL, 0};
    if (json_read(&job->body, result->body, NULL) != OK) abort();
    for (size_t i = 0; i < result->body.bytes; i++)
        if ((unsigned char)result->body.at[i] >= 0x7F || result->body.at[i] < ' ') abort();
    pthread_cond_broadcast(&harness->changed);
    pthread_mutex_unlock(&harness->lock);
}

static void on_stats(void *context, uint64_t ping, const struct wire_stats *stats) {
    struct harness *harness = context;
    pthread_mutex_lock(&harness->lock);
    harness->stats = *stats;
    harness->stats_count++;
    if (ping) harness->last_ping = ping;
    pthread_cond_broadcast(&harness->changed);
    pthread_mutex_unlock(&harness->lock);
}

static void on_fatal(void *context, const char *sentence) {
    struct harness *harness = context;
    pthread_mutex_lock(&harness->lock);
    snprintf(harness->fatal, sizeof harness->fatal, "%s", sentence);
    pthread_cond_broadcast(&harness->changed);
    pthread_mutex_unlock(&harness->lock);
}

void harness_open_model(struct harness *harness, const struct served_model *model,
                        const struct wire_hello *hello) {
    harness->model = model;
    pthread_mutex_init(&harness->lock, NULL);
    pthread_cond_init(&harness->changed, NULL);
    for (size_t i = 0; i < HARNESS_JOBS_MAX; i++) {
        harness->jobs[i] = (struct harness_job){.delta_count = 0};
        buf_init(&harness->jobs[i].deltas, BUF_UNLIMITED);
        buf_init(&harness->jobs[i].text, BUF_UNLIMITED);
    }
    harness->done_count = harness->stats_count = 0;
    harness->last_ping = 0;
    harness->fatal[0] = '\0';
    const struct engine_events events = {harness, on_delta, on_result, on_stats, on_fatal};
    struct error error;
    if (engine_open(&harness->engine, model, hello, &events, &error) != OK)
        fail_msg("%s", error.text);
}

void harness_open(struct harness *harness, const struct toy_options *toy,
                  const struct wire_hello *hello) {
    toy_open(&harness->toy, toy ? toy : &(struct toy_options){.block_count = 0});
    const struct wire_hello plain = {.prefix_caching = true, .prep_threads = 2};
    harness_open_model(harness, &harness->toy.model, hello ? hello : &plain);
}

void harness_close(struct harness *harness) {
    engine_close(harness->engine);
    if (harness->model == &harness->toy.model) toy_close(&harness->toy);
    for (size_t i = 0; i < HARNESS_JOBS_MAX; i++) {
        buf_release(&harness->jobs[i].deltas);
        buf_release(&harness->jobs[i].text);
        json_decref(harness->jobs[i].body);
    }
    pthread_cond_destroy(&harness->changed);
    pthread_mutex_destroy(&harness->lock);
}

void harness_submit(struct harness *harness, uint64_t id, enum endpoint endpoint, bool stream,
                    const char *body) {
    assert_true(id < HARNESS_JOBS_MAX);
    const struct wire_job job = {endpoint, TIER_DEFAULT, stream, false, 0, str_from(body), STR("")};
    assert_true(engine_submit(harness->engine, id, &job));
}

int harness_wait(struct harness *harness, uint64_t id) {
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += WAIT_S;
    pthread_mutex_lock(&harness->lock);
    int waited = 0;
    while (!harness->jobs[id].is_done && waited == 0)
        waited = pthread_cond_timedwait(&harness->changed, &harness->lock, &deadline);
    int status = harness->jobs[id].is_done ? harness->jobs[id].result.status : -1;
    pthread_mutex_unlock(&harness->lock);
    if (status < 0) fail_msg("job %llu has no result", (unsigned long long)id);
    return status;
}

int harness_ask(struct harness *harness, uint64_t id, enum endpoint endpoint, const char *body) {
    harness_submit(harness, id, endpoint, false, body);
    return harness_wait(harness, id);
}

static const json_t *choice_of(const struct harness *harness, uint64_t id, size_t choice) {
    return json_array_get(json_object_get(harness->jobs[id].body, "choices"), choice);
}

const char *harness_text(const struct harness *harness, uint64_t id, size_t choice) {
    const json_t *object = choice_of(harness, id, choice);
    const json_t *message = json_object_get(object, "message");
    return json_string_value(message ? json_object_get(message, "content")
                                     : json_object_get(object, "text"));
}

const char *harness_reason(const struct harness *harness, uint64_t id, size_t choice) {
    return json_string_value(json_object_get(choice_of(harness, id, choice), "finish_reason"));
}

/* One chunk's text for `choice`. */
static void take_chunk(const json_t *chunk, uint32_t choice, struct buf *text, bool *is_ended) {
    const json_t *choices = json_object_get(chunk, "choices");
    assert_true(json_is_array(choices));
    assert_non_null(json_object_get(chunk, "id"));
    if (json_array_size(choices) == 0) return;
    const json_t *object = json_array_get(choices, 0);
    if (json_integer_value(json_object_get(object, "index")) != choice) return;
    assert_false(*is_ended);
    const json_t *delta = json_object_get(object, "delta");
    const json_t *piece = json_object_get(delta ? delta : object, delta ? "content" : "text");
    if (piece) buf_add_str(text, json_str(piece));
    *is_ended = json_is_string(json_object_get(object, "finish_reason"));
}

char *harness_streamed(const struct harness *harness, uint64_t id, uint32_t choice) {
    struct str all = buf_str(&harness->jobs[id].deltas);
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    buf_add_text(&text, "");
    bool is_ended = false;
    for (size_t at = 0; at < all.bytes;) {
        size_t end = str_find_byte(all, '\n', at);
        json_t *chunk;
        assert_int_equal(json_read(&chunk, (struct str){all.at + at, end - at}, NULL), OK);
        take_chunk(chunk, choice, &text, &is_ended);
        json_decref(chunk);
        at = end + 1;
    }
    assert_true(is_ended);
    return text.at;
}
