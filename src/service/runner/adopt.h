/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* adopt: lines that workers have since a former start of the runner.
 *
 * A worker that outlives the server (a node) tells the names of the lines that it has, and puts
 * them to their answers. Until all workers have told them (runner_adopted), no line of a batch that
 * runner_start took up is given out. An adopted line is in a slot as if it had just been submitted
 * to its seat, so a second worker with the same line finds it taken.
 *
 * Thread: runner_adopt and runner_jobs_ended belong to one thread; adopt_* as they say.
 * Memory: a bit per line of a batch that has adopted any, until it ends.
 * Invariant: no line is adopted twice, or leased after it was adopted. */

#include "runner/line_reader.h"
#include "runner/runner.h"

struct active_batch;

/* Writes the name of a line. */
void adopt_write_name(char ret_name[WORKER_LINE_BYTES], const struct active_batch *batch,
                      uint32_t number);
/* Whether the line was adopted, and so has left its place for good. The lock is held. */
bool adopt_has(const struct active_batch *batch, uint32_t number);
