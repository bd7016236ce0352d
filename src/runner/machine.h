/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* machine: looks at workers and disk once per second, and notes in the history what has changed and
 * how much was done.
 *
 * Workers tell when they go down and nothing else, so loads and unloads are found by comparing. A
 * model that is loaded and unloaded again within a second leaves no event.
 *
 * Thread: machine_look on the dispatch thread, without the runner's lock; machine_tell on any.
 * Memory: in struct runner; the history is opened and closed with it. */

#include "runner/runner.h"

struct machine {
    struct history *history;
    /* machine_look's alone: */
    struct {
        bool is_up; /* its last event said so */
        bool is_failed;
        uint64_t restarts; /* at that event */
    } seen[RUNNER_WORKERS_MAX];
    bool is_disk_full;
};

void machine_look(struct runner *runner, int64_t now_ns);
/* Notes an event of a batch or of the whole machine. `batch_id` NULL: the machine; else `owner` is
 * the owner of the batch. */
void machine_tell(struct runner *runner, enum history_kind kind, const char *batch_id,
                  const char *owner, const char *format, ...) PRINTF_LIKE(5, 6);
