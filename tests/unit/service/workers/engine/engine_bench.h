/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* engine_bench: a worker_engine over a fake engine (fake_engine.h), and the runner's side of it for
 * the tests here: events are counted, and waited for.
 *
 * Thread: the test's; events come on the worker's.
 * Memory: bench_close frees the worker. */

#include "workers/engine/worker_engine.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct bench {
    struct worker *worker;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t results, deltas, downs, rooms, returned;
    uint64_t last_id;
    int32_t last_status;
    struct usage last_usage;
    char body[256], chunks[256], reason[512];
    void (*after_result)(struct bench *bench); /* on the worker's thread; NULL: none */
};

/* First in main: runs the fake engine if this process is one, and makes the clock movable. */
void bench_begin(int count, char **words);

/* Begins the bench; its worker is the caller's to open with these events. */
struct worker_events bench_events(struct bench *bench);
/* Opens a worker in a mode of the fake engine, and waits until it is ready unless it takes turns.
 */
enum err bench_open(struct bench *bench, const char *mode, struct worker_engine_options options,
                    struct error *error);
void bench_open_good(struct bench *bench, struct worker_engine_options options);
void bench_close(struct bench *bench);

/* Waits until *counter reaches `value`; fails the test after minutes. */
void wait_for(struct bench *bench, const uint32_t *counter, uint32_t value);
/* Waits until it has gone down; time runs if it `hangs`. */
void wait_down(struct bench *bench, bool hangs);

/* A clock that runs: a second per 10 ms, so that limits of many seconds come at once. */
struct mover {
    pthread_t thread;
    atomic_bool is_over;
};

#define HANG_MS 20000 /* with a mover a fifth of a second */

void mover_start(struct mover *mover);
void mover_stop(struct mover *mover);

/* Submits the job of a batch's line; false without room. */
bool try_job(struct bench *bench, uint64_t id, bool stream, const char *body);
/* Submits as a runner does: again after every room event. */
void give_job(struct bench *bench, uint64_t id, const char *body);
void give_request(struct bench *bench, uint64_t id, const char *body);
/* The process of the engine, which it tells itself; its result is not counted. */
int engine_pid(struct bench *bench);

enum load { UNLOADED, LOADED, FAILED, MOVING };
enum load load_of(struct bench *bench);
