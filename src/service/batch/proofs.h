/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* proofs: the salted sums over the lines of a batch's files, which its manifest has (ADR 33), made
 * while the batch is published, and read again when somebody asks or erases.
 *
 * A batch has rows for all of its files or none: without an input that is still what was uploaded
 * there is nothing to prove.
 *
 * Thread: one per struct.
 * Memory: batch_proofs_release wipes and frees all that was read; a maker has two digests. */

#include "proof/run_salts.h"
#include "store/batches.h"
#include "store/fsck.h"

/* --- making: one file --- */

struct proof_maker {
    struct line_salts salts;
    struct line_summer summer;
};

/* Salts of a new file. */
void proof_maker_begin(struct proof_maker *maker);
/* Takes the next bytes of the file. */
void proof_maker_add(struct proof_maker *maker, struct str bytes);
/* The row, but for its name and file_id; its text of salts belongs to the caller. Ends the maker.
 */
void proof_maker_end(struct proof_maker *maker, const char *what, struct store_proof *ret_proof);
/* Drops what was made. One that was not begun, or has ended, is allowed. */
void proof_maker_release(struct proof_maker *maker);

/* Makes the row of an input from its open file. ERR_CORRUPT if its bytes are not those of `file`;
 * ERR_CANCELLED if `stopped`, asked now and then, said so; NULL is allowed. */
enum err proof_of_input(int fd, const struct store_file *file, bool (*stopped)(void *context),
                        void *context, struct store_proof *ret_proof,
                        struct error *error) MUST_CHECK;

/* --- what an ended batch has --- */

struct batch_proofs {
    struct store_proofs rows;
    /* The salts and erased lines of each file, in the order of the rows; the records. */
    struct run_salts salts;
};

/* ERR_NOT_FOUND: the batch has no rows. ERR_CORRUPT: their texts are damaged. After OK the caller
 * releases it. */
enum err batch_proofs_read(struct store *store, const char *batch_id,
                           struct batch_proofs *ret_proofs, struct error *error) MUST_CHECK;
void batch_proofs_release(struct batch_proofs *proofs);
/* The row of a file; NULL: there is none. */
struct store_proof *batch_proofs_row(struct batch_proofs *proofs, const char *what);
/* Takes the salts of lines out of a file, notes their leaves, and makes the row's new text. The
 * lines are in order, and were not erased before. */
void batch_proofs_erase(struct batch_proofs *proofs, const char *what,
                        const struct line_erased *lines, size_t count);
/* Whether the salts with the records still fit into the file that clients get (run_salts.h). */
bool batch_proofs_fit(const struct batch_proofs *proofs);
/* Reports where the rows do not fit a batch, ended or not, or its files (I17). */
void batch_proofs_check(struct store *store, const struct store_batch *batch, fsck_report_fn report,
                        void *context);
