/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* proofs_internal: rows of proofs inside the transactions of others, for the files of store/ alone.
 *
 * Thread: any; the database's lock is held.
 * Memory: none. */

#include "store/proofs.h"
#include "store/store_internal.h"

/* Adds a row, or gives it another file and other salts. */
enum err proofs_put_row(struct store *store, const char *batch_id, const struct store_proof *proof,
                        struct error *error) MUST_CHECK;
/* Adds the record of an erasure, a JSON object. */
enum err erasures_add_row(struct store *store, const char *batch_id, int64_t erased_unix_s,
                          const char *record, struct error *error) MUST_CHECK;
/* Takes the salts of a file out, whose row goes. */
enum err proofs_forget_file(struct store *store, const char *file_id,
                            struct error *error) MUST_CHECK;
