/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* step_trials: the most rows of a step that this machine computes fastest, by trials.
 *
 * Rows share what is read of the weights, and the pool's threads wait for each other once per
 * operation: both ask for many rows. But the activations of many rows leave the caches of a core.
 * Which of these counts more depends on the caches, the threads and the model's widths.
 *
 * Trials are measured in processor time, which other work on the machine disturbs least. The
 * numbers take turns, and each is compared with the default in the same round. The median of the
 * rounds counts, if three of four rounds agree; else, and for a small gain, the default stays. With
 * too few rounds nothing is known. It knows no model: the caller runs the steps.
 *
 * Thread: the caller's.
 * Memory: none is kept. */

#include <stdbool.h>
#include <stdint.h>

#define STEP_TRIALS_NUMBERS 3u          /* the default, a half and a quarter of it */
#define STEP_TRIALS_ROUNDS 8u           /* most trials of each number */
#define STEP_TRIALS_ROUNDS_LEAST 4u     /* fewer tell nothing */
#define STEP_TRIALS_BUDGET_NS 450000000 /* time on the clock; none begins after it */
#define STEP_TRIALS_GAIN 1.03           /* a smaller gain than this is noise: the default stays */

struct step_trials {
    uint32_t most;  /* the default, which is tried first */
    uint32_t least; /* numbers below it are not tried */
    /* Computes rows as in a step of `rows`. Returns ns of processor time; 0: it cannot tell. */
    int64_t (*run)(void *context, uint32_t rows);
    int64_t (*now_ns)(void); /* monotonic */
    void *context;
};

/* The number with the most rows per processor time. False if the trials told nothing. */
bool step_trials_choose(const struct step_trials *trials, uint32_t *ret_rows);
