/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* runner_internal: the inside of a runner, and its threads.
 *
 * One lock guards everything in here. It is never held while a worker, a client's callback or a
 * long read is called. It is held over the short transactions that change a batch's status, so that
 * the row of an active batch is always the stored one.
 *
 * Thread: the lock, except as said.
 * Memory: owned by the runner.
 * Invariant: locks are taken in this order: runner->lock, then the store's. A request's `calling`
 * is taken without the runner's lock. */

#include "queue/order.h"
#include "runner/active_batch.h"
#include "runner/line_reader.h"
#include "runner/machine.h"
#include "runner/peers.h"
#include "runner/requests.h"
#include "runner/retention.h"
#include "runner/reuse.h"
#include "runner/seat.h"
#include "runner/slot.h"

#define RUNNER_THREADS 3

struct runner {
    struct store *store;
    struct runner_options options;
    struct queue *queue;
    struct seglog_writer *writer;
    uint64_t nonce; /* random for this start; part of request ids */

    pthread_mutex_t lock;
    pthread_cond_t work;    /* wakes dispatch */
    pthread_cond_t helpers; /* wakes validate and publish */
    pthread_cond_t idle;    /* a slot, a request or a batch is gone */
    pthread_t dispatch_thread, validate_thread, publish_thread;
    size_t thread_count; /* those of them that run, in this order */
    bool is_started;
    bool is_draining;
    bool is_holding;     /* lines of batches that were taken up wait for runner_adopted */
    bool is_halted;      /* its threads, workers and writer have ended; the owner's alone */
    bool closes_workers; /* and takes no more of them */
    bool is_stopping;
    int64_t missed_due_ns; /* new batches are looked for in the store then; 0: none was missed */
    uint64_t progress;     /* counts what may have made room */

    struct seat seats[RUNNER_WORKERS_MAX];
    uint32_t seat_count;

    struct active_batch *batches; /* all that have not ended */
    struct order order;           /* those whose lines run */
    struct active_batch *current; /* the one whose lines dispatch gives now */
    uint32_t current_left;        /* lines until it chooses again */
    bool is_reordered;            /* it chooses again at once */
    bool is_sweep_due;            /* publish sweeps at once */
    atomic_bool is_erasing;       /* an erasure is under way */
    int64_t watch_ns;             /* the next look at progress is due; dispatch's alone */
    int64_t tail_ns;              /* and at the ends of batches (tail.h); likewise */
    struct peers peers;           /* likewise */

    struct slot **chunks; /* see slot.h */
    uint32_t slot_count;
    uint32_t first_free; /* index + 1; 0: none */
    uint64_t job_count;
    uint64_t slots_taken;
    uint32_t recalled; /* slots whose lines were asked back (tail.h) */

    struct reuse reuse;
    struct line_reader adopting; /* these two are of the thread that adopts (adopt.h) */
    struct buf adopting_room;

    struct request *requests; /* waiting and running, in order */
    uint32_t request_count;
    uint64_t request_order;

    struct runner_status counters;
    struct retention retention; /* has no need of the lock */
    struct machine machine;     /* has a lock of its own */
};

/* The threads; the argument is the runner. */
void *dispatch_main(void *context);
void *validate_main(void *context);
void *publish_main(void *context);

/* Waits on a condition until `due_ns` of the monotonic clock at the latest. The lock is held. */
void runner_wait(struct runner *runner, pthread_cond_t *cond, int64_t due_ns);
/* Takes up every live batch of the store that is not active (runner_batches.c). */
void runner_kick_missed(struct runner *runner);
int64_t runner_now_unix_s(struct runner *runner);
