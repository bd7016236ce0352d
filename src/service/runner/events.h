/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* events: notes what happened, in the history of the machine, the log, and at the listener.
 *
 * Thread: any, without the runner's lock, except that events_note may be called with it.
 * Memory: the history lives as long as the runner. */

#include "runner/runner.h"

/* Notes an event of a batch or of the whole machine. `batch_id` NULL: the machine; else `owner` is
 * the owner of the batch. */
void events_note(struct runner *runner, enum history_kind kind, const char *batch_id,
                 const char *owner, const char *format, ...) PRINTF_LIKE(5, 6);
/* Writes the event to the log and to the history, and tells the listener. */
void events_tell(struct runner *runner, const struct runner_event *event);
