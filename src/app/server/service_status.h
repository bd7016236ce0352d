/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* service_status: the sentence about a running server that `systemctl status` shows.
 *
 * It tells what an operator asks first: how much the start recovered, what runs at which rate, and
 * why nothing runs. A sentence is sent when it differs from the last one, at most once in
 * SERVICE_STATUS_MS.
 *
 * Thread: main.
 * Memory: the caller's struct. */

#include "runner/runner.h"

#define SERVICE_STATUS_MS 5000

/* Zero is a valid start. */
struct service_status {
    bool is_told;
    int64_t told_ns;     /* monotonic time of the last sentence */
    uint64_t lines_done; /* at that time */
    char text[256];
};

/* Writes the sentence: `status`, and its lines of the last `elapsed_ns`. */
void service_status_write(char *ret_text, size_t text_bytes, const struct runner_status *status,
                          uint64_t lines, int64_t elapsed_ns);
/* Tells a service manager the state, when it is time. */
void service_status_tell(struct service_status *told, struct runner *runner);
/* Tells that the server drains, and for how long at most the manager must not kill it. */
void service_status_tell_drain(struct runner *runner, int64_t timeout_ms);
