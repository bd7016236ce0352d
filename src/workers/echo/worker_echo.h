/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* worker_echo: a worker that answers every request with the text of its last user message (or its
 * prompt or input), in the shape of the endpoint, counting bytes as tokens. It measures the server
 * alone, and with its faults switched on it tests what the runner promises. A body may ask for a
 * fault of its own in its member "echo":
 *
 *   {"delay_ms": N}   its answer comes that much later, and all behind it as well
 *   {"hang": true}    it is never answered; the next ones are
 *   {"down": true}    it takes the worker down
 *   {"each_ms": N}    it takes that long, and those that ask for it go one after another
 *   {"status": N}     it is answered with this error, 400 to 599, a stream after its text; 503 may
 *                     pass another time
 *   {"finish_reason": "length"}  a chat's answer has this one
 *
 * Thread: one of its own.  Memory: a copy of each waiting body; at most `waiting_max` of them.
 * Invariant: the same request gives the same answer. */

#include "protocol/worker.h"

/* Zero is a valid start. */
struct worker_echo_options {
    const char *const *models; /* names it serves, NULL at the end; NULL: every name */
    uint32_t waiting_max;      /* 65536 */
    int64_t latency_ms;        /* from submit to result */
    uint64_t fail_every;       /* every n-th job ends with status 500 */
    uint64_t retryable_every;  /* every n-th with a retryable 503 */
    uint64_t down_every;       /* at every n-th the worker goes down instead of answering */
    int64_t down_ms;           /* how long it then takes nothing */
    const char *poison;        /* a body that contains this takes the worker down */
    bool loading;              /* not ready until worker_echo_set_ready */
};

enum err worker_echo_open(struct worker **ret_worker, const struct worker_echo_options *options,
                          const struct worker_events *events, struct error *error) MUST_CHECK;
void worker_echo_set_ready(struct worker *worker);
