/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* files: immutable bytes under an id, with one row each.
 *
 * A spool makes a file: bytes are written to tmp/ and hashed on the way. Committing syncs them,
 * renames them into place, syncs the directory and adds the row, and only then returns OK. A file
 * that is deleted or past its expiry is not found; its bytes stay while a batch that has not ended
 * uses them.
 *
 * Thread: any; one spool belongs to one thread at a time.
 * Memory: rows are plain structs; a spool is freed by commit, place or abort. */

#include "base/hash.h"
#include "store/store.h"

#define STORE_FILENAME_BYTES 512

struct store_file {
    uint64_t sequence; /* unique; grows with each file created */
    char id[STORE_ID_BYTES];
    char owner[OWNER_BYTES];
    char purpose[32];
    char filename[STORE_FILENAME_BYTES]; /* UTF-8; a longer name is cut between characters */
    uint64_t bytes;
    unsigned char sha256[SHA256_BYTES];
    int64_t created_unix_s;
    int64_t expires_unix_s;   /* 0: never */
    uint64_t owner_bytes_max; /* not stored: the owner's bound for the file's row; 0: none */
};

struct store_spool;

/* Starts a file in tmp/. ERR_UNAVAILABLE while the disk is full. */
enum err store_spool_open(struct store_spool **ret_spool, struct store *store,
                          struct error *error) MUST_CHECK;
enum err store_spool_write(struct store_spool *spool, const void *bytes, size_t count,
                           struct error *error) MUST_CHECK;
/* Reads back bytes that were written. */
enum err store_spool_read(struct store_spool *spool, void *ret_bytes, size_t count, uint64_t offset,
                          struct error *error) MUST_CHECK;
uint64_t store_spool_bytes(const struct store_spool *spool);
/* The file, for a process that reads the bytes; borrowed. */
int store_spool_fd(const struct store_spool *spool);
/* Discards the bytes and frees the spool. NULL is allowed. */
void store_spool_abort(struct store_spool *spool);
/* Makes the file durable and adds its row. The caller sets owner, purpose, filename,
 * created_unix_s, expires_unix_s and perhaps id and owner_bytes_max (ERR_LIMIT above it); an empty
 * id becomes "file-" and 22 alphanumerics. All other fields are filled in. The spool is freed, also
 * after an error. */
enum err store_spool_commit(struct store_spool *spool, struct store_file *file,
                            struct error *error) MUST_CHECK;
/* store_spool_commit without the row, which a later transaction adds (store_batch_update): the
 * bytes are durable, but no client can see them yet. Placing the same id again replaces them. */
enum err store_spool_place(struct store_spool *spool, struct store_file *file,
                           struct error *error) MUST_CHECK;

/* Removes the bytes of a file that was placed and gets no row. */
void store_file_unplace(struct store *store, const char *id);

/* ERR_NOT_FOUND for an id that is unknown, deleted or past its expiry at `now_unix_s`. */
enum err store_file_get(struct store *store, struct str id, int64_t now_unix_s,
                        struct store_file *ret_file, struct error *error) MUST_CHECK;
/* A descriptor for reading, which the caller closes, and the row (NULL is allowed). */
enum err store_file_open(struct store *store, struct str id, int64_t now_unix_s, int *ret_fd,
                         struct store_file *ret_file, struct error *error) MUST_CHECK;
/* store_file_open for the input of a batch: the file must have existed at `alive_unix_s`, when the
 * batch was created. It may have been deleted or have expired since. */
enum err store_input_open(struct store *store, struct str id, int64_t alive_unix_s, int *ret_fd,
                          struct store_file *ret_file, struct error *error) MUST_CHECK;

/* Bytes of an owner's files that clients can see, of its uploads under way as they were announced
 * or as their parts are, if these are more, and of the judgements of its batches. */
enum err store_owner_bytes(struct store *store, const char *owner, int64_t now_unix_s,
                           uint64_t *ret_bytes, struct error *error) MUST_CHECK;

struct store_file_list {
    struct str after; /* id of the last file of the page before; empty: the first page */
    size_t limit;
    bool ascending;     /* by creation; ties by sequence */
    struct str purpose; /* empty: all purposes */
    const char *owner;  /* NULL: all owners */
    int64_t now_unix_s;
};

/* Fills at most `limit` rows. ERR_INVALID when `after` is no file of this list. */
enum err store_file_list(struct store *store, const struct store_file_list *list,
                         struct store_file *ret_files, size_t *ret_count, bool *ret_has_more,
                         struct error *error) MUST_CHECK;
/* ERR_NOT_FOUND as for store_file_get. */
enum err store_file_delete(struct store *store, struct str id, int64_t now_unix_s,
                           struct error *error) MUST_CHECK;
/* Removes rows and bytes of files that are expired or deleted and that no unfinished batch uses.
 * Then runs store_upload_sweep. */
enum err store_file_sweep(struct store *store, int64_t now_unix_s, struct error *error) MUST_CHECK;
