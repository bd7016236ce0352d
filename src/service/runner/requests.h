/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* requests: requests of single clients. They wait in order of tier, priority and arrival, and go to
 * a worker before any line of a batch.
 *
 * Thread: the runner's lock, except as said. A client is called with the request's `calling` held
 * and without the runner's lock.
 * Memory: freed with the last hold.
 * Invariant: a client gets exactly one result, and no delta after it. */

#include "runner/runner.h"

#include <pthread.h>

struct request {
    struct request *next;
    uint64_t id;
    uint64_t order; /* order of arrival */
    struct runner_request call;
    struct runner_request_events events;
    char *model;
    char *body;
    uint64_t job_id;     /* 0 while it waits */
    uint32_t seat;       /* where it was last submitted */
    int64_t begun_ns;    /* when it came */
    int64_t placed_ns;   /* when it was last submitted; 0: not yet */
    uint64_t blocked_at; /* runner->progress when no worker had room */
    bool is_placing;     /* dispatch is handing it to a worker */
    bool was_lost;       /* one try failed: the second failure is its result */
    bool has_streamed;
    bool cancel;
    uint32_t holds; /* one by the list, one by each thread that uses it */
    pthread_mutex_t calling;
    bool is_finished; /* guarded by `calling`: its client has the result */
};

/* Gives waiting requests to workers. The lock is held, and let go in between. True if one was
 * given. */
bool requests_dispatch(struct runner *runner);
/* Takes the request out of the list; the hold of the list is then the caller's. False if it was out
 * already. */
bool request_unlink(struct runner *runner, struct request *request);

/* --- without the lock; the request was taken out --- */
void request_finish(struct runner *runner, struct request *request,
                    const struct worker_result *result);
/* Ends the request with an error of quern's own. */
void request_fail(struct runner *runner, struct request *request, int32_t status, const char *code,
                  const char *message);
void request_drop(struct runner *runner, struct request *request);
void requests_fail_all(struct runner *runner);
