/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* active_end: ends the running of a batch's lines: done, cancelled, expired, or at a fault.
 *
 * Thread: the runner's lock, for every function except batches_tend and cancel_list_send.
 * Memory: a list of cancels is the caller's, and freed when it is sent. */

#include "runner/active_batch.h"

struct slot;

/* Jobs to cancel at their workers once the lock is free. Zero is an empty list. */
struct cancel_list {
    struct cancel_item {
        struct worker *worker;
        uint64_t job_id;
        bool may_stay; /* worker_ops.recall instead: it stays if it has begun */
    } * items;
    size_t count, capacity;
};
/* Adds the job of a slot, which is RUNNING; slot->may_stay says how. */
void cancel_list_add(struct runner *runner, struct cancel_list *list, const struct slot *slot);
/* Ends the running of lines: PHASE_END. Adds the jobs in flight to *cancel. */
void active_stop_lines(struct runner *runner, struct active_batch *batch,
                       struct cancel_list *cancel);
/* Ends the batch with a fault of the server. */
void active_fault(struct runner *runner, struct active_batch *batch, const char *message,
                  struct cancel_list *cancel);
/* Without the lock: sends the cancels and frees the list. */
void cancel_list_send(struct cancel_list *list);

/* Without the lock: looks at the clock of every active batch. */
void batches_tend(struct runner *runner);
