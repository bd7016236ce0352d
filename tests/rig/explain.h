/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* explain: a run that failed, as few events and a drawing: what the client did, the last calls to
 * the disk before each death, the faults, and the violation.
 *
 * Thread: one.
 * Memory: none kept. */

#include "plan.h"

/* Shrinks the plan of the last run, which failed, and prints it as "# " lines. Returns how many
 * events are left. */
unsigned explain(struct plan *plan);
