/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* step_costs: how long a step takes by its number of rows, learned from steps that have ended.
 *
 * A step reads all weights, however few rows it has, so that the first rows cost little. Where that
 * ends depends on the model, the machine and what else runs there. It is measured by the steps
 * themselves: no trial is needed, and a machine that changes is noticed. Times go down at once and
 * up slowly, because other work only ever adds to them. A time that was not measured for long is
 * forgotten, so that a bad one does not stay because its number of rows is avoided.
 *
 * Thread: the scheduler's only.
 * Memory: the caller's; all zero knows nothing. */

#include <stdint.h>

#define STEP_COSTS_ROWS 64u /* steps of more rows tell only what a row costs */

struct step_costs {
    float ns[STEP_COSTS_ROWS + 1];          /* by rows */
    uint64_t noted_at[STEP_COSTS_ROWS + 1]; /* value of `count` then; 0: never */
    uint64_t count;                         /* steps noted */
    float row_ns;                           /* per row of a larger step; 0: not known */
};

/* A step of `rows` rows took `ns`. */
void step_costs_note(struct step_costs *costs, uint32_t rows, int64_t ns);
/* The time of a step of `rows` rows, 1..STEP_COSTS_ROWS: measured, or between those of fewer and of
 * more rows. 1 while nothing is known: then every step costs the same. */
double step_costs_of(const struct step_costs *costs, uint32_t rows);
