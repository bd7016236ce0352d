/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* queue: leases of ranges of places of the active batches.
 *
 * A place is a position in the order in which a batch's lines run (batch/index.h), not a line
 * number. A lease ends when its batch is removed, or when it is given back, whole or in part. A
 * lease of an older epoch is worth nothing.
 *
 * Which batch comes next is order.h. The queue knows no line, no worker and no clock. A queue is
 * opened by its name, so that the runner knows none of them.
 *
 * Thread: one at a time (the runner's lock).
 * Memory: owned by the queue.
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
    /* The batch is not in the queue. */
    void (*add)(struct queue *queue, const struct queue_work *work);
    /* Forgets the batch and its leases; an unknown batch is ignored. */
    void (*remove)(struct queue *queue, uint64_t batch);
    /* Leases at most `count_max` places of the batch: the first free ones from `from` on, else from
     * the front. False if all are leased, or the batch is unknown. */
    bool (*take)(struct queue *queue, uint64_t batch, uint32_t from, uint32_t count_max,
                 struct queue_lease *ret_lease);
    /* The lease, or a part of it, was not run: its places are free again. */
    void (*give_back)(struct queue *queue, const struct queue_lease *lease);
    void (*close)(struct queue *queue);
};

/* The first member of every queue's own struct. */
struct queue {
    const struct queue_ops *ops;
};

/* "local" is the queue in this process's memory. ERR_INVALID for a name that is no queue. */
enum err queue_open(struct queue **ret_queue, const char *name, struct error *error) MUST_CHECK;
