/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* batches_remove: deletes ended batches with all that they have.
 *
 * One transaction marks the row (`deleted`), its result files, and its input unless another batch
 * has the same; from then on no client sees any of them, and the batch's idempotency key is free.
 * What is left goes in this order, each step once more after a kill: its answers in the result
 * cache, its judgements in pieces, its folder and its files of label_studio/, the bytes of its
 * files, and in a last transaction the row with its events and proofs. The folder is gone, durably,
 * before the row, because a folder without a row is damage (store.md, I15). A start and each sweep
 * go on with what a kill has left.
 *
 * Things in lost/ and backups are not the batch's, and stay.
 *
 * Thread: any, also two at a time on one batch.
 * Memory: fixed buffers.
 * Invariant: a row that is marked is removed, and never seen again. */

#include "store/batches.h"

/* What a deletion frees. */
struct store_freed {
    uint64_t files;      /* the input, if no other batch has it, and the result files */
    uint64_t bytes;      /* these files, the order of the results, and the judgements */
    uint64_t judgements; /* rows */
};

/* Marks an ended batch as deleted. ERR_NOT_FOUND; ERR_CONFLICT "Cannot delete a batch with status
 * '…'." before its end. */
enum err store_batch_delete(struct store *store, struct str id, int64_t now_unix_s,
                            struct store_freed *ret_freed, struct error *error) MUST_CHECK;
/* Removes what has expired (store_file_sweep) and what marked batches have, in at most `pieces`
 * transactions of judgements, of which each batch takes one or more. *ret_has_more: batches are
 * left for the next call. */
enum err store_batch_sweep(struct store *store, int64_t now_unix_s, uint64_t pieces,
                           bool *ret_has_more, struct error *error) MUST_CHECK;
/* The batch that ended first of those before `before_unix_s`; ERR_NOT_FOUND without one. */
enum err store_batch_oldest_ended(struct store *store, int64_t before_unix_s,
                                  char ret_id[STORE_ID_BYTES], struct error *error) MUST_CHECK;
/* True while clients see the batch; also if the database cannot be read. */
bool store_batch_exists(struct store *store, const char *id);
