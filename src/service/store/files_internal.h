/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* files_internal: rows of files, spools and parts, for the files of store/ alone.
 *
 * Thread: any; functions on rows are called with the database's lock held.
 * Memory: the caller's structs; store_spool_place_at frees the spool. */

#include "store/files.h"
#include "store/store_internal.h"

/* ERR_LIMIT if an owner that may have `bytes_max` bytes (0: any number) has no room for more. */
enum err store_owner_has_room(struct store *store, const char *owner, int64_t now_unix_s,
                              uint64_t bytes, uint64_t bytes_max, struct error *error) MUST_CHECK;
/* Adds the row and fills in its sequence; ERR_LIMIT above file->owner_bytes_max. */
enum err store_file_add_row(struct store *store, struct store_file *file,
                            struct error *error) MUST_CHECK;
#define STORE_FILE_COLUMNS "sequence, id, purpose, filename, bytes, sha256, created, expires, owner"
/* Reads the row of a statement that selects STORE_FILE_COLUMNS. */
void store_file_read_row(sqlite3_stmt *statement, struct store_file *ret_file);

/* After the transaction that adds the row of a placed file: marks the file as known, or removes it
 * if the row was not added. */
void store_file_settle(struct store *store, const char *id, enum err added);

/* --- spools and parts, for uploads.c --- */

struct store *store_spool_store(const struct store_spool *spool);
/* Syncs the bytes and renames them to `path`, whose folder exists or is one of files/. The spool is
 * freed, also after an error. */
enum err store_spool_place_at(struct store_spool *spool, const char *path,
                              unsigned char ret_sha256[SHA256_BYTES],
                              struct error *error) MUST_CHECK;
