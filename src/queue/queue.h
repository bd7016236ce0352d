/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* queue: leases of ranges of places of the active batches. A place is a position in the order in
 * which a batch's lines run (batch/index.h), not a line number. A lease ends by being done or by
 * being given back whole or in part; a lease of an older epoch is worth nothing.
 *
 * Which batch comes next is order.h. Knows no line, no worker and no clock. queue_local_open keeps
 * everything in memory: after a restart the runner adds its batches again and steps over lines that
 * have a result.
 *
 * Thread: one at a time (the runner's lock).  Memory: owned by the queue.
 * Invariant: no place is in two leases of one epoch at a time. */

#include "base/err.h"

#include <stdint.h>

struct queue_work {
    uint64_t batch; /* the batch's sequence */
    uint32_t epoch;
    uint32_t count; /* places 0 … count - 1 */
};

struct queue_lease {
    uint64_t batch;
    uint32_t first;
    uint32_t count;
    uint32_t epoch;
};

struct queue;

struct queue_ops {
    /* The batch must not be there. */
    void (*add)(struct queue *queue, const struct queue_work *work);
    /* Forgets the batch and its leases; an unknown one is ignored. */
    void (*remove)(struct queue *queue, uint64_t batch);
    /* At most `count_max` places of the batch: the first free ones at or behind `from`, or those
     * at the front when there are none. False when all are leased, or the batch is not there. */
    bool (*take)(struct queue *queue, uint64_t batch, uint32_t from, uint32_t count_max,
                 struct queue_lease *ret_lease);
    /* Places that were not run. */
    void (*give_back)(struct queue *queue, const struct queue_lease *lease);
    void (*close)(struct queue *queue);
};

/* The first member of every queue's own struct. */
struct queue {
    const struct queue_ops *ops;
};

enum err queue_local_open(struct queue **ret_queue, struct error *error) MUST_CHECK;
