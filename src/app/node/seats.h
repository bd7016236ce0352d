/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* seats: where the workers of a node sit: at the runner of a server, or at the agent of a node of
 * another server.
 *
 * Thread: main.
 * Memory: none; borrows both. */

#include "agent/agent.h"
#include "runner/runner.h"

struct seats {
    struct runner *runner;
    struct agent *agent; /* NULL: the runner's */
};

static inline bool seats_take(const struct seats *seats, struct worker_events *ret_events,
                              uint32_t *ret_seat) {
    return seats->agent ? agent_seat(seats->agent, ret_events, ret_seat)
                        : runner_worker_seat(seats->runner, ret_events, ret_seat);
}

static inline void seats_attach(const struct seats *seats, uint32_t seat, struct worker *worker) {
    if (seats->agent)
        agent_attach(seats->agent, seat, worker);
    else
        runner_worker_attach(seats->runner, seat, worker);
}

static inline void seats_tune(const struct seats *seats, uint32_t seat, uint32_t weight,
                              uint32_t lines_max) {
    if (seats->agent)
        agent_tune(seats->agent, seat, weight, lines_max);
    else
        runner_worker_tune(seats->runner, seat, weight, lines_max);
}
