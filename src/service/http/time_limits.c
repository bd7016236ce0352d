/* SPDX-License-Identifier: Apache-2.0 */
#include "http/time_limits.h"

#define PACE_MS 10000 /* the window in which the pace of a body is measured */

/* Refuses a client that sends too slowly. One from which the gate does not read now is not slow. */
static void judge_pace(const struct gate_options *options, struct gate_connection *c,
                       int64_t at_ms) {
    bool in_body = c->reading == RELAY_LENGTH || c->reading == RELAY_CHUNKED;
    if (!in_body || c->up_start < c->up_ready) {
        c->pace_ms = at_ms;
        c->pace_bytes = 0;
        return;
    }
    if (at_ms - c->pace_ms < PACE_MS) return;
    if (c->pace_bytes < options->body_bytes_per_s_min * (PACE_MS / 1000))
        relay_refuse(c, 408, "The request body comes too slowly");
    c->pace_ms = at_ms;
    c->pace_bytes = 0;
}

void time_limits_judge(const struct gate_options *options, struct gate_connection *c,
                       int64_t at_ms) {
    if (c->lingering) {
        /* A client sees the answer to a body only if the rest of it is still taken. */
        if (at_ms - c->linger_ms > (c->in_body ? options->stall_ms : RELAY_LINGER_MS))
            c->dead = true;
        return;
    }
    if (c->reading == RELAY_HEAD && c->head_ms != 0 && at_ms - c->head_ms > options->head_ms) {
        if (c->up_ready == c->up_end) /* not a byte since the accept: nobody waits for an answer */
            c->dead = true;
        else
            relay_refuse(c, 408, "The header block comes too slowly");
    }
    judge_pace(options, c, at_ms);
    if (c->stalled_ms != 0 && at_ms - c->stalled_ms > options->stall_ms) c->dead = true;
    if (relay_is_idle(c) && c->head_ms == 0 && at_ms - c->active_ms > options->idle_ms)
        c->dead = true;
}
