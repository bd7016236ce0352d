/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* draws: the seed of a test that draws its cases, and the deaths that it dies.
 *
 * QUERN_SEED repeats a seed that was printed. QUERN_DRAW is what .ci/run makes of the sources:
 * where they are the same the cases are, so that a gate that has passed does not fail over another
 * draw.
 *
 * Thread: any. */

#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static inline uint64_t draws_seed(void) {
    const char *words = getenv("QUERN_SEED");
    if (!words) words = getenv("QUERN_DRAW");
    return words ? strtoull(words, NULL, 10) : (uint64_t)time(NULL) * 1000003 + (uint64_t)getpid();
}

/* The calls from one death to the next: every call has one, or with QUERN_KILLS (default
 * `usual_share`) below 1 a share. *ret_first is the first call that has one. */
static inline int draws_calls_between(double usual_share, int *ret_first) {
    const char *words = getenv("QUERN_KILLS");
    const double share = words ? strtod(words, NULL) : usual_share;
    const int every = share > 0 && share < 1 ? (int)(1 / share + 0.5) : 1;
    *ret_first = 1 + (int)(draws_seed() % (uint64_t)every);
    return every;
}
