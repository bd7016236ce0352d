/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* two_workers: a runner with two workers that answer what a test tells them to, when it says so. */

#include "pipeline.h"

#include <pthread.h>

#include <cmocka.h>

#define NODES 2
#define JOBS_MAX 16384
#define TICK_MS 100

enum cancels { CANCELS_OBEYED, CANCELS_UNHEARD, CANCELS_ANSWERED };

/* A worker that answers the oldest jobs when it is told to. */
struct node {
    struct worker worker;
    struct worker_events events;
    pthread_mutex_t lock;
    struct {
        uint64_t id;
        bool has_ended;
    } jobs[JOBS_MAX];
    size_t count, oldest;
    uint32_t in_flight, running, answered;
    uint64_t looks; /* calls of `status` */
    bool is_unheard, is_silent;
    enum cancels cancels;
    uint32_t cancelled, recalled; /* how often it was asked */
};

struct fleet {
    struct pipeline p;
    struct node nodes[NODES];
};

static inline void tell(struct node *node, uint64_t id, enum outcome outcome, int32_t status) {
    const struct worker_result result = {.id = id,
                                         .outcome = outcome,
                                         .status = status,
                                         .body = STR("{}"),
                                         .usage = {.input_tokens = 10}};
    node->events.result(node->events.context, &result);
}

static inline bool node_submit(struct worker *worker, const struct worker_job *job) {
    struct node *node = (struct node *)worker;
    pthread_mutex_lock(&node->lock);
    bool takes = node->count < JOBS_MAX;
    if (takes) node->jobs[node->count++].id = job->id;
    if (takes) node->in_flight++;
    pthread_mutex_unlock(&node->lock);
    return takes;
}

static inline void node_end(struct node *node, size_t most, enum outcome outcome, int32_t status) {
    for (size_t i = 0; i < most; i++) {
        uint64_t id = 0;
        pthread_mutex_lock(&node->lock);
        while (node->oldest < node->count && node->jobs[node->oldest].has_ended) node->oldest++;
        if (node->oldest < node->count) {
            node->jobs[node->oldest].has_ended = true;
            id = node->jobs[node->oldest].id;
            node->in_flight--;
            node->answered++;
        }
        pthread_mutex_unlock(&node->lock);
        if (id == 0) return;
        tell(node, id, outcome, status);
    }
}

static inline void node_answer(struct node *node, size_t most) {
    node_end(node, most, OUTCOME_DONE, 200);
}

static inline void node_cancel(struct worker *worker, uint64_t job_id) {
    struct node *node = (struct node *)worker;
    bool is_here = false;
    pthread_mutex_lock(&node->lock);
    node->cancelled++;
    pthread_mutex_unlock(&node->lock);
    if (node->cancels == CANCELS_UNHEARD) return;
    pthread_mutex_lock(&node->lock);
    for (size_t i = node->oldest; i < node->count; i++) {
        if (node->jobs[i].id != job_id || node->jobs[i].has_ended) continue;
        node->jobs[i].has_ended = is_here = true;
        node->in_flight--;
        node->answered += node->cancels == CANCELS_ANSWERED;
    }
    pthread_mutex_unlock(&node->lock);
    if (!is_here) return;
    if (node->cancels == CANCELS_ANSWERED)
        tell(node, job_id, OUTCOME_DONE, 200);
    else
        tell(node, job_id, OUTCOME_CANCELLED, 499);
}

/* All of its lines have begun. */
static inline void node_recall(struct worker *worker, uint64_t job_id) {
    struct node *node = (struct node *)worker;
    (void)job_id;
    pthread_mutex_lock(&node->lock);
    node->recalled++;
    pthread_mutex_unlock(&node->lock);
}

static inline bool node_serves(struct worker *worker, struct str model) {
    (void)worker;
    return str_is(model, "m");
}

static inline size_t node_models(struct worker *worker, struct worker_model *ret_models,
                                 size_t models_max) {
    (void)worker;
    if (models_max > 0) ret_models[0] = (struct worker_model){.name = STR("m")};
    return models_max > 0;
}

static inline void node_status(struct worker *worker, struct worker_status *ret_status) {
    struct node *node = (struct node *)worker;
    pthread_mutex_lock(&node->lock);
    uint32_t running = node->in_flight < node->running ? node->in_flight : node->running;
    *ret_status = (struct worker_status){.ready = true,
                                         .knows_names = true,
                                         .running = running,
                                         .is_unheard = node->is_unheard,
                                         .is_silent = node->is_silent};
    node->looks++;
    pthread_mutex_unlock(&node->lock);
}

static inline void node_close(struct worker *worker) {
    pthread_mutex_destroy(&((struct node *)worker)->lock);
}

static const struct worker_ops node_ops = {.submit = node_submit,
                                           .cancel = node_cancel,
                                           .serves = node_serves,
                                           .models = node_models,
                                           .status = node_status,
                                           .close = node_close};

static const struct worker_ops recalling_ops = {.submit = node_submit,
                                                .cancel = node_cancel,
                                                .recall = node_recall,
                                                .serves = node_serves,
                                                .models = node_models,
                                                .status = node_status,
                                                .close = node_close};

/* Two workers that have at most `lines_max` lines and run 4 at a time; `cancels` is the second's
 * way. */
static inline struct fleet *fleet_open(uint32_t lines_max, enum cancels cancels) {
    struct error error;
    struct runner_options options = {.now_unix_s = test_now};
    struct fleet *fleet = calloc(1, sizeof *fleet);
    assert_non_null(fleet);
    pipeline_dir(&fleet->p);
    pipeline_open_store(&fleet->p);
    must(runner_open(&fleet->p.runner, fleet->p.store, &options, &error));
    for (size_t i = 0; i < NODES; i++) {
        struct node *node = &fleet->nodes[i];
        uint32_t seat;
        node->worker.ops = &node_ops;
        node->running = 4;
        node->cancels = i == 1 ? cancels : CANCELS_OBEYED;
        pthread_mutex_init(&node->lock, NULL);
        if (!runner_worker_seat(fleet->p.runner, &node->events, &seat)) abort();
        runner_worker_tune(fleet->p.runner, seat, 1, lines_max);
        runner_worker_attach(fleet->p.runner, seat, &node->worker);
    }
    must(runner_start(fleet->p.runner, &error));
    return fleet;
}

static inline void fleet_close(struct fleet *fleet) {
    pipeline_close(&fleet->p);
    assert_int_equal(pipeline_fsck(&fleet->p), 0);
    pipeline_remove(&fleet->p);
    free(fleet);
}

struct node_counts {
    uint32_t in_flight;
    uint64_t looks;
};

static inline struct node_counts counts_of(struct node *node) {
    pthread_mutex_lock(&node->lock);
    const struct node_counts counts = {node->in_flight, node->looks};
    pthread_mutex_unlock(&node->lock);
    return counts;
}

/* Waits until the worker has so many lines. The clock is not moved: a worker that has answered none
 * for seconds gets no more. */
static inline void node_wait(struct node *node, uint32_t lines) {
    int64_t until_ns = test_real_ns() + WAIT_MS_MAX * INT64_C(1000000);
    while (counts_of(node).in_flight < lines && test_real_ns() < until_ns) usleep(500);
    assert_int_equal(counts_of(node).in_flight, lines);
}

static inline struct runner_status status_of(struct fleet *fleet) {
    struct runner_status status;
    runner_status(fleet->p.runner, &status);
    return status;
}

/* Lets time pass, in which the first worker answers; false once the batch is over. */
static inline bool fleet_tick(struct fleet *fleet, size_t lines, const char *id, int64_t until_ns) {
    struct error error;
    struct store_batch batch;
    node_answer(&fleet->nodes[0], lines);
    clock_move_ms(TICK_MS);
    usleep(2000);
    must(runner_batch_get(fleet->p.runner, str_from(id), &batch, &error));
    bool goes_on = !is_over(&batch);
    store_batch_release(&batch);
    assert_true(test_real_ns() < until_ns);
    return goes_on;
}

static inline int64_t soon_ns(void) {
    return test_real_ns() + WAIT_MS_MAX * INT64_C(1000000);
}

/* Checks that each line of the ended batch is in its output once. */
static inline void check_output(struct fleet *fleet, const char *id, unsigned lines) {
    struct store_batch batch = pipeline_wait(&fleet->p, id, is_over);
    size_t bytes;
    char *output = pipeline_read(&fleet->p, batch.output_file_id, &bytes);
    assert_int_equal(batch.completed, lines);
    assert_int_equal(count_lines(output, bytes), lines);
    for (unsigned i = 0; i < lines; i++) {
        char name[40];
        snprintf(name, sizeof name, "\"custom_id\":\"t-%u\"", i);
        const char *at = strstr(output, name);
        assert_non_null(at);
        assert_null(strstr(at + 1, name));
    }
    free(output);
    store_batch_release(&batch);
}
