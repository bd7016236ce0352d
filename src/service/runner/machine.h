/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* machine: looks at workers and disk once per second, and notes changes and counts in the history.
 *
 * Workers report only that they go down, so loads and unloads are found by comparison. A
 * model that is loaded and unloaded again within a second leaves no event.
 *
 * Thread: machine_look on the dispatch thread, without the runner's lock.
 * Memory: in struct runner; the history lives as long as the runner. */

#include "runner/runner.h"

struct machine {
    struct history *history;
    /* Used by machine_look alone: */
    struct {
        bool is_up; /* according to its last event */
        bool is_failed;
        uint64_t restarts; /* at that event */
    } seen[RUNNER_WORKERS_MAX];
    bool is_disk_full;
};

void machine_look(struct runner *runner, int64_t now_ns);
