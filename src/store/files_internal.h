/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* files_internal: rows of files as the other parts of store/ use them. The database's lock is
 * held. */

#include "store/files.h"
#include "store/store_internal.h"

/* Adds the row and fills in its sequence. */
enum err store_file_add_row(struct store *store, struct store_file *file,
                            struct error *error) MUST_CHECK;
/* Columns of `SELECT` STORE_FILE_COLUMNS. */
#define STORE_FILE_COLUMNS "sequence, id, purpose, filename, bytes, sha256, created, expires, owner"
void store_file_read_row(sqlite3_stmt *statement, struct store_file *ret_file);
