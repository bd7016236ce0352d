/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* runs: which stretches of a batch's places begin with the same bytes (batch/index.h), so that
 * batches that share a beginning run it at the same time. When a batch has come to the end of a run
 * it goes on with one whose group was leased lately, of whatever batch, if it has one, and else
 * with the next. The order inside a batch is its own affair, so this takes nothing from anybody.
 *
 * Only runs worth it are kept: RUNS_MAX of at least RUN_PLACES_MIN places.
 *
 * Thread: the runner's lock.  Memory: 12 bytes a run.
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

/* The groups leased last, the newest first; 0: none. Zero is a valid start. */
struct runs_warm {
    uint32_t groups[RUNS_WARM_MAX];
};

void runs_make(struct runs *ret_runs, const struct line_index *index);
void runs_release(struct runs *runs);
/* Where a batch that leased up to `place` goes on. */
uint32_t runs_next(const struct runs *runs, const struct runs_warm *warm, uint32_t place);
/* `count` places from `first` on are leased: how many of them stay in one run, or outside of all.
 */
uint32_t runs_lease(struct runs *runs, struct runs_warm *warm, uint32_t first, uint32_t count);
