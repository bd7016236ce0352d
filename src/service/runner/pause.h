/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* pause: active batches that wait for their owner, by request or because their answers look wrong.
 *
 * Thread: the runner's lock.
 * Memory: none kept.
 * Invariant: a paused batch keeps its status; the pause is in its stored row. */

#include "runner/active_batch.h"

/* Lines in flight end and count; no other is given. */
enum err active_pause(struct runner *runner, struct active_batch *batch, enum batch_paused why,
                      struct error *error) MUST_CHECK;
enum err active_resume(struct runner *runner, struct active_batch *batch,
                       struct error *error) MUST_CHECK;
/* Looks at the marks of its answers; may pause it. */
void active_judge(struct runner *runner, struct active_batch *batch);
