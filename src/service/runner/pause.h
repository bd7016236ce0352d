/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pause: active batches that wait for their owner, by request or because their answers look wrong.
 *
 * Thread: the runner's lock.
 * Memory: none kept.
 * Invariant: a paused batch keeps its status; the pause is in its stored row. */

#include "runner/active_batch.h"

bool active_is_paused(const struct active_batch *batch);
/* Looks at the marks of its answers; may pause it. */
void active_judge(struct runner *runner, struct active_batch *batch);
/* The shares of marked answers, as JSON text that the caller frees. */
char *active_quality(struct active_batch *batch);
