/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* proofs: the sums over lines of the files of an ended batch, with their salts, and the records of
 * what was erased of them (proof/line_sum.h, proof/run_salts.h).
 *
 * The rows are written in the transaction that ends the batch and go with it. A batch that ended
 * before quern wrote them has none. Where the row of a file goes, its salts go in the same
 * transaction, so that nobody can test guesses of its lines any more. The store knows no meaning of
 * the texts; batch/proofs.h does.
 *
 * Thread: any.
 * Memory: the rows own their texts; store_proofs_release wipes and frees them.
 * Invariant: `name`, `lines` and `lines_sha256` of a row never change. */

#include "store/files.h"

#define STORE_PROOFS_MAX 3 /* input, output, errors */
#define STORE_PROOF_WHAT_BYTES 16

struct store_proof {
    char what[STORE_PROOF_WHAT_BYTES]; /* "input", "output" or "errors" */
    char name[STORE_FILENAME_BYTES];   /* the file's, when the batch ended */
    char file_id[STORE_ID_BYTES];      /* the file as it is now */
    uint64_t lines;
    unsigned char lines_sha256[SHA256_BYTES];
    char *salts; /* JSON text of line_salts.h; NULL: they went with the file */
};

struct store_proofs {
    struct store_proof files[STORE_PROOFS_MAX]; /* input, output, errors, without those not there */
    size_t count;                               /* 0: the batch has no rows */
    char *erasures;                             /* JSON text: the list of the records; or NULL */
};

/* Reads the rows of a batch, which may have none. After OK the caller releases them. */
enum err store_proofs_get(struct store *store, const char *batch_id,
                          struct store_proofs *ret_proofs, struct error *error) MUST_CHECK;
void store_proofs_release(struct store_proofs *proofs);
