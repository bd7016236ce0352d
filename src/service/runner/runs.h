/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* runs: stretches of a batch's places whose lines begin with the same bytes (batch/index.h), so
 * that batches with a common beginning run it at the same time.
 *
 * At the end of a run a worker goes on with a run whose group it had lately from any batch, if
 * there is one, else with the next place. Only the order inside the batch changes, so no other
 * batch loses.
 *
 * Short runs are not worth it: at most RUNS_MAX runs of at least RUN_PLACES_MIN places are kept.
 *
 * Thread: the runner's lock.
 * Memory: 16 bytes per run.
 * Invariant: runs are in order and do not overlap. */

#include "batch/index.h"

#define RUNS_MAX 1024
#define RUN_PLACES_MIN 32
#define RUNS_WARM_MAX 4

struct run {
    uint32_t first;
    uint32_t count;
    uint32_t group;
    bool is_begun;
};

struct runs {
    struct run *at; /* NULL: none */
    uint32_t count;
};

/* The groups that a worker's lines had last, the newest first; 0: none. Zero is a valid start. */
struct runs_warm {
    uint32_t groups[RUNS_WARM_MAX];
};

void runs_make(struct runs *ret_runs, const struct line_index *index);
void runs_release(struct runs *runs);
/* Whether the place is in a run and not its first. */
bool runs_are_inside(const struct runs *runs, uint32_t place);
/* Where a worker whose groups are warm begins, when all before `place` is begun: with a run of such
 * a group that nobody has begun, else at the place, or after the runs there that are begun. */
uint32_t runs_next(const struct runs *runs, const struct runs_warm *warm, uint32_t place);
/* Notes that `count` places from `first` on are leased. Returns how many of them lie in one run, or
 * outside of all runs. Sets *ret_end to the end of that run, or leaves it. */
uint32_t runs_lease(struct runs *runs, struct runs_warm *warm, uint32_t first, uint32_t count,
                    uint32_t *ret_end);
