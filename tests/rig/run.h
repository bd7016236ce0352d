/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* run: one plan from its first life to its last, and the smallest plan that fails in the same way.
 *
 * Thread: one; each life is a child process.
 * Memory: the world, and a copy of the formatted disk. */

#include "world.h"

/* Maps the world and formats the disk that most plans begin with. */
void run_begin(void);
/* Runs the plan. False: a violation, whose sentence is in world->wrong. */
bool run_plan(const struct plan *plan);
/* Takes events out of a plan that fails, and makes the others plainer, as long as it fails with the
 * same kind of violation. Returns the number of runs that it took. */
unsigned run_shrink(struct plan *plan);
/* What a death leaves: the disk after a power cut, the next life. */
void run_bury(bool is_cut);
/* What the last life wrote to standard error. */
const char *run_said(void);
