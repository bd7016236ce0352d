/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* fsck: checks what the store can know by itself: that the bytes of every file are those of its row
 * (invariants I1 and I7) and that nothing lies about without a row. What batches promise is checked
 * by batch/fsck.h.
 *
 * Thread: one.  Memory: none kept. */

#include "store/files.h"

/* One violated invariant; `sentence` names the file, or the batch and the line. */
typedef void (*fsck_report_fn)(void *context, const char *sentence);

/* Checks all files of a store opened read-only. Violations are no error: they are reported. */
enum err store_fsck(struct store *store, fsck_report_fn report, void *context,
                    struct error *error) MUST_CHECK;
/* Rows of all files, deleted and expired ones too, after `after_sequence`. ERR_NOT_FOUND at the
 * end. */
enum err store_file_next(struct store *store, uint64_t after_sequence, struct store_file *ret_file,
                         struct error *error) MUST_CHECK;
/* As store_batch_next_live, for batches in every state. */
struct store_batch;
enum err store_batch_next(struct store *store, uint64_t after_sequence,
                          struct store_batch *ret_batch, struct error *error) MUST_CHECK;
