/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* results: what workers and the segment log report about jobs, and the commit of lines.
 *
 * A result that ends a line becomes a record. The record, once durable, frees the slot; until then
 * a crash makes the line run again.
 *
 * Thread: runner_on_* on threads of workers and of the log's writer; the others as they say.
 * Memory: none kept.
 * Invariant: a slot is committed at most once. */

#include "json/envelope.h"
#include "protocol/worker.h"
#include "runner/slot.h"
#include "store/seglog_writer.h"

/* The events of a worker; the context is its seat. */
void runner_on_result(void *context, const struct worker_result *result);
void runner_on_delta(void *context, const struct worker_delta *delta);
void runner_on_down(void *context, const char *reason);
void runner_on_room(void *context);
/* The context is the runner. */
void runner_on_durable(void *context, const struct seglog_done *done, size_t count);

/* --- without the lock --- */
/* Commits the answer of an equal request; the slot is COMMITTING. */
void commit_reused(struct runner *runner, struct slot *slot, struct str body,
                   const struct result_cache_facts *facts);
/* Commit a refusal or an error of quern's own; the slot is COMMITTING. */
void commit_refusal(struct runner *runner, struct slot *slot, const struct refusal *refusal);
void commit_error(struct runner *runner, struct slot *slot, int32_t status, const char *code,
                  const char *message);
/* Ends the try of a line that no worker can take with an error, as if a worker had answered so: the
 * batch may have it tried again. The slot is PLACING. */
void line_refuse(struct runner *runner, struct slot *slot, int32_t status, const char *code,
                 const char *message);
