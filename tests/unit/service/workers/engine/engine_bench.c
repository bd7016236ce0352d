/* SPDX-License-Identifier: Apache-2.0 */
#include "engine_bench.h"

#include "base/clock.h"
#include "fake_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define WAIT_S 250              /* for one event */
#define WAIT_READY_MS 360000000 /* an hour, with a mover */

void bench_begin(int count, char **words) {
    for (int i = 1; i + 1 < count; i++)
        if (strcmp(words[i], "fake-engine") == 0) _exit(fake_engine_main(words[i + 1]));
    clock_make_movable();
}

static void on_delta(void *context, const struct worker_delta *delta) {
    struct bench *bench = context;
    pthread_mutex_lock(&bench->lock);
    bench->deltas++;
    size_t used = strlen(bench->chunks);
    snprintf(bench->chunks + used, sizeof bench->chunks - used, "%.*s;", STR_ARGS(delta->chunk));
    pthread_mutex_unlock(&bench->lock);
}

static void on_result(void *context, const struct worker_result *result) {
    struct bench *bench = context;
    pthread_mutex_lock(&bench->lock);
    bench->results++;
    bench->returned += result->outcome == OUTCOME_RETURNED;
    bench->last_id = result->id;
    bench->last_status = result->status;
    bench->last_usage = result->usage;
    snprintf(bench->body, sizeof bench->body, "%.*s", STR_ARGS(result->body));
    pthread_cond_broadcast(&bench->changed);
    pthread_mutex_unlock(&bench->lock);
    if (bench->after_result) bench->after_result(bench);
}

static void on_down(void *context, const char *reason) {
    struct bench *bench = context;
    pthread_mutex_lock(&bench->lock);
    bench->downs++;
    snprintf(bench->reason, sizeof bench->reason, "%s", reason);
    pthread_cond_broadcast(&bench->changed);
    pthread_mutex_unlock(&bench->lock);
}

static void on_room(void *context) {
    struct bench *bench = context;
    pthread_mutex_lock(&bench->lock);
    bench->rooms++;
    pthread_cond_broadcast(&bench->changed);
    pthread_mutex_unlock(&bench->lock);
}

void wait_for(struct bench *bench, const uint32_t *counter, uint32_t value) {
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline);
    deadline.tv_sec += WAIT_S;
    pthread_mutex_lock(&bench->lock);
    int waited = 0;
    while (*counter < value && waited == 0)
        waited = pthread_cond_timedwait(&bench->changed, &bench->lock, &deadline);
    bool is_there = *counter >= value;
    pthread_mutex_unlock(&bench->lock);
    if (!is_there) fail_msg("waited in vain for event number %u", value);
}

static void *mover_main(void *context) {
    struct mover *mover = context;
    while (!atomic_load(&mover->is_over)) {
        clock_move_ms(100);
        clock_sleep_ms(1);
    }
    return NULL;
}

void mover_start(struct mover *mover) {
    atomic_init(&mover->is_over, false);
    assert_int_equal(pthread_create(&mover->thread, NULL, mover_main, mover), 0);
}

void mover_stop(struct mover *mover) {
    atomic_store(&mover->is_over, true);
    pthread_join(mover->thread, NULL);
}

void wait_down(struct bench *bench, bool hangs) {
    struct mover mover;
    if (hangs) mover_start(&mover);
    wait_for(bench, &bench->downs, 1);
    if (hangs) mover_stop(&mover);
}

struct worker_events bench_events(struct bench *bench) {
    *bench = (struct bench){.results = 0};
    pthread_mutex_init(&bench->lock, NULL);
    pthread_cond_init(&bench->changed, NULL);
    return (struct worker_events){bench, on_delta, on_result, on_down, on_room};
}

enum err bench_open(struct bench *bench, const char *mode, struct worker_engine_options options,
                    struct error *error) {
    const char *const arguments[] = {"fake-engine", mode, NULL};
    if (!options.hello.model_path.at) options.hello.model_path = STR("fake.gguf");
    options.arguments = arguments;
    options.restart_delay_ms = 1;
    const struct worker_events events = bench_events(bench);
    enum err err = worker_engine_open(&bench->worker, &options, &events, error);
    assert_int_equal(err, OK);
    if (options.turns) return OK; /* it loads when it is wanted */
    return worker_engine_wait_ready(bench->worker, WAIT_READY_MS, error);
}

void bench_open_good(struct bench *bench, struct worker_engine_options options) {
    struct error error = {0};
    if (bench_open(bench, "good", options, &error) != OK) fail_msg("%s", error.text);
}

void bench_close(struct bench *bench) {
    bench->worker->ops->close(bench->worker);
    pthread_cond_destroy(&bench->changed);
    pthread_mutex_destroy(&bench->lock);
}

static bool submit(struct bench *bench, const struct worker_job *job) {
    return bench->worker->ops->submit(bench->worker, job);
}

static struct worker_job line_of(uint64_t id, const char *body) {
    return (struct worker_job){.id = id,
                               .endpoint = ENDPOINT_CHAT,
                               .tier = TIER_BATCH,
                               .is_line = true,
                               .priority = -1,
                               .body = str_from(body)};
}

bool try_job(struct bench *bench, uint64_t id, bool stream, const char *body) {
    struct worker_job job = line_of(id, body);
    job.stream = stream;
    return submit(bench, &job);
}

static void give(struct bench *bench, const struct worker_job *job) {
    for (;;) {
        pthread_mutex_lock(&bench->lock);
        uint32_t rooms = bench->rooms;
        pthread_mutex_unlock(&bench->lock);
        if (submit(bench, job)) return;
        wait_for(bench, &bench->rooms, rooms + 1);
    }
}

void give_job(struct bench *bench, uint64_t id, const char *body) {
    const struct worker_job job = line_of(id, body);
    give(bench, &job);
}

int engine_pid(struct bench *bench) {
    uint32_t results = bench->results;
    give_job(bench, 1u << 30, "pid");
    wait_for(bench, &bench->results, results + 1);
    bench->results = results;
    return (int)strtol(bench->body, NULL, 10);
}

void give_request(struct bench *bench, uint64_t id, const char *body) {
    const struct worker_job job = {
        .id = id, .endpoint = ENDPOINT_CHAT, .tier = TIER_DEFAULT, .body = str_from(body)};
    give(bench, &job);
}

enum load load_of(struct bench *bench) {
    struct worker_status status;
    bench->worker->ops->status(bench->worker, &status);
    if (status.is_failed) return FAILED;
    return status.is_parked ? UNLOADED : status.ready ? LOADED : MOVING;
}
