/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* fsck: checks of the store that need no meaning of a batch.
 *
 * The bytes of every file and of every part of an upload must be those of its row (invariants I1
 * and I7). Bytes that were acknowledged, and folders of runs, must have a row, and no whole
 * transaction may stand after a damaged frame of the database's log (I15). The result cache
 * has no answers of a batch without a row (I16). No salts are left of a file without a row (I17).
 * Bytes that were never acknowledged violate nothing: the next start removes them. batch/fsck.h
 * checks the invariants of batches.
 *
 * Thread: one.
 * Memory: none kept. */

#include "store/files.h"

/* Receives one violated invariant; `sentence` names the file, or the batch and the line. */
typedef void (*fsck_report_fn)(void *context, const char *sentence);

/* Checks all files and parts of a store opened read-only. A violation is reported and no error. */
enum err store_fsck(struct store *store, fsck_report_fn report, void *context,
                    struct error *error) MUST_CHECK;
/* Checks all judgements (I14): the versions of each line and curator, their order, and their batch.
 * *ret_count is the number of judgements. */
enum err store_fsck_judgements(struct store *store, fsck_report_fn report, void *context,
                               uint64_t *ret_count, struct error *error) MUST_CHECK;
/* Reports files, parts and folders of runs that have lost their row. */
enum err store_tell_unknown(struct store *store, fsck_report_fn report, void *context,
                            struct error *error) MUST_CHECK;
/* The next batch after `after_sequence`, in any state. ERR_NOT_FOUND at the end. */
struct store_batch;
enum err store_batch_next(struct store *store, uint64_t after_sequence,
                          struct store_batch *ret_batch, struct error *error) MUST_CHECK;
