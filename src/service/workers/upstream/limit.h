/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* upstream_limit: how many requests may be in flight at an upstream, found by trying: additive
 * increase, multiplicative decrease (Chiu and Jain 1989), with a fast start like TCP's.
 *
 * The level starts at 8 and doubles every 50 ms while it is in full use and no request is refused.
 * After the first bad sign it grows by one per round. Bad signs are a refusal (429, 503), a
 * timeout, and two windows of answers in a row that came slower and in which less was done. An
 * upstream that only queues costs nothing; one that does less with more in flight is overloaded. As
 * long as a cut for that reason lets more be done, the next one follows. A request that was sent
 * before a cut tells nothing new.
 *
 * A refusal also pauses the upstream: as long as it asks for, or a random part of a time that
 * doubles. The limit knows no socket and no clock.
 *
 * Thread: one.
 * Memory: none.
 * Invariant: 1 <= level <= max. */

#include <stdbool.h>
#include <stdint.h>

struct upstream_limit {
    uint32_t max;
    double level;
    bool is_ramping;
    int64_t ramped_ns; /* when the fast start last doubled */
    int64_t cut_ns;    /* when the level last fell; 0: never */
    int64_t pause_until_ns;
    uint32_t refusals; /* cuts by a refusal since the last answer */

    /* The window: answers since `window_ns` while the level was in full use. */
    int64_t window_ns;
    uint32_t answers;
    double work, latency_s;
    bool is_suspect;      /* the last window was the first bad one */
    double overload_rate; /* work per second before the cut on trial; 0: none is on trial */
    double best_rate, low_latency_s; /* the best window since the last cut; 0: none yet */
};

void upstream_limit_init(struct upstream_limit *limit, uint32_t max);
/* Requests that may be in flight. */
uint32_t upstream_limit_level(const struct upstream_limit *limit);
bool upstream_limit_is_paused(const struct upstream_limit *limit, int64_t now_ns);
/* Lets time pass; called at every tick of the loop. `is_full`: requests wait for the level. */
void upstream_limit_tick(struct upstream_limit *limit, bool is_full, int64_t now_ns);
/* A request was answered. `work` is its cost, in any unit that compares requests. `is_full`: the
 * level was in full use, or more requests wait. */
void upstream_limit_answered(struct upstream_limit *limit, int64_t sent_ns, int64_t now_ns,
                             double work, bool is_full);
/* A request was refused. The upstream asks for a pause of `retry_after_ms`; negative: for none.
 * `jitter` is random in [0, 1). */
void upstream_limit_refused(struct upstream_limit *limit, int64_t sent_ns, int64_t now_ns,
                            int64_t retry_after_ms, double jitter);
