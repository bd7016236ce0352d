/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_limit: how many requests may be in flight at an upstream, found by trying: additive
 * increase, multiplicative decrease (Chiu and Jain 1989), with a fast start as TCP has one.
 *
 * It begins at a few and doubles every 50 ms while that many are in use and nobody refuses; after
 * the first bad sign it grows by one a round. Bad signs are a refusal (429, 503) and two windows of
 * answers that came slower and in which less was done: an upstream that only queues costs nothing,
 * one that does less with more in flight is overloaded. As long as a
 * cut for that reason lets more be done, the next follows. What was sent before a cut says nothing
 * new. A refusal also pauses the upstream: as long as it asks for, or a random part of a time that
 * doubles.
 *
 * Knows no socket and no clock.  Thread: one.  Memory: none.  Invariant: 1 <= level <= max. */

#include <stdbool.h>
#include <stdint.h>

struct upstream_limit {
    uint32_t max;
    double level;
    bool is_ramping;
    int64_t ramped_ns; /* when the fast start last doubled */
    int64_t cut_ns;    /* when the level last fell; 0: never */
    int64_t pause_until_ns;
    uint32_t refusals; /* cuts since something was answered */

    /* The window: answers since `window_ns` while the level was in full use. */
    int64_t window_ns;
    uint32_t answers;
    double work, latency_s;
    bool is_suspect;      /* the last window was bad, the first one to be so */
    double overload_rate; /* of the window that led to a cut; 0: no such cut is on trial */
    double best_rate, low_latency_s; /* of the windows since the last cut; 0: none yet */
};

void upstream_limit_init(struct upstream_limit *limit, uint32_t max);
/* Requests that may be in flight. */
uint32_t upstream_limit_level(const struct upstream_limit *limit);
bool upstream_limit_is_paused(const struct upstream_limit *limit, int64_t now_ns);
/* To be called often: `is_full` when more wait and the level does not let them go. */
void upstream_limit_tick(struct upstream_limit *limit, bool is_full, int64_t now_ns);
/* A request was answered. `work` is what it cost, in any unit that compares requests; `is_full`
 * when the level was in full use, or more wait. */
void upstream_limit_answered(struct upstream_limit *limit, int64_t sent_ns, int64_t now_ns,
                             double work, bool is_full);
/* A request was refused: it asks to wait `retry_after_ms` (negative: it does not say). `jitter` is
 * random in [0, 1). */
void upstream_limit_refused(struct upstream_limit *limit, int64_t sent_ns, int64_t now_ns,
                            int64_t retry_after_ms, double jitter);
