/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* batches_internal: how a row of a batch is read, shared by batches.c, batch_find.c and
 * message_batches.c. For this folder only.
 *
 * Thread: any; the caller of batches_read_row holds the store's lock.
 * Memory: the caller owns the rows. */

#include "store/batches.h"
#include "store/store_internal.h"

/* The columns that batches_read_row reads, in this order. */
#define BATCH_COLUMNS                                                                              \
    "sequence, id, endpoint, input_file_id, completion_window, metadata, webhook_url,"             \
    " service_tier, priority, output_expires_after, created, expires, idempotency_key,"            \
    " parameters_sha256, status, final_status, in_progress, finalizing, completed_at, failed_at,"  \
    " expired_at, cancelling, cancelled_at, model, errors, output_file_id, error_file_id, total,"  \
    " completed, failed, has_usage, input_tokens, cached_tokens, output_tokens, reasoning_tokens," \
    " epoch, reused_input_tokens, reused_output_tokens, owner,"                                    \
    " retry_of, extras, paused, quality, inline_requests"

void batches_read_row(sqlite3_stmt *statement, struct store_batch *ret_batch);
/* The sequence number of the batch `after`, which is one of `owner` (NULL: any); INT64_MAX if it is
 * empty. ERR_INVALID if there is none. */
enum err batches_find_place(struct store *store, const char *owner, struct str after,
                            uint64_t *ret_before, struct error *error) MUST_CHECK;
