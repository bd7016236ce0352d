/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* time_limits: how long a client may take: for a header block, for a body, for taking an answer,
 * and between two requests.
 *
 * Thread: the gate's.
 * Memory: none. */

#include "http/gate.h"
#include "http/relay.h"

/* Refuses a connection that is too slow, or marks it dead. One from which the gate does not read
 * now is not slow. */
void time_limits_judge(const struct gate_options *options, struct gate_connection *c,
                       int64_t at_ms);
