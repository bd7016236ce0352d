/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* files: immutable bytes under an id, with one row each.
 *
 * A file comes to be through a spool: bytes are written to tmp/ and hashed on the way; committing
 * syncs them, renames them into place, syncs the directory and adds the row, and only then answers
 * OK. A file past its expiry or deleted is not found; its bytes live on while a batch that is not
 * terminal uses them.
 *
 * Thread: any; one spool belongs to one thread at a time.  Memory: rows are plain structs. */

#include "base/hash.h"
#include "store/store.h"

#define STORE_FILENAME_BYTES 512

struct store_file {
    uint64_t sequence; /* order of creation; unique */
    char id[STORE_ID_BYTES];
    char owner[OWNER_BYTES];
    char purpose[32];
    char
        filename[STORE_FILENAME_BYTES]; /* UTF-8, cut at a character when the client's was longer */
    uint64_t bytes;
    unsigned char sha256[SHA256_BYTES];
    int64_t created_unix_s;
    int64_t expires_unix_s; /* 0: never */
};

struct store_spool;

/* Starts a file in tmp/. ERR_UNAVAILABLE while the disk is full. */
enum err store_spool_open(struct store_spool **ret_spool, struct store *store,
                          struct error *error) MUST_CHECK;
enum err store_spool_write(struct store_spool *spool, const void *bytes, size_t count,
                           struct error *error) MUST_CHECK;
/* Appends all bytes of another spool, which stays as it is: parts of an upload. */
enum err store_spool_add(struct store_spool *spool, struct store_spool *part,
                         struct error *error) MUST_CHECK;
/* Reads back what was written. */
enum err store_spool_read(struct store_spool *spool, void *ret_bytes, size_t count, uint64_t offset,
                          struct error *error) MUST_CHECK;
uint64_t store_spool_bytes(const struct store_spool *spool);
/* Gives the bytes up. NULL is allowed. */
void store_spool_abort(struct store_spool *spool);
/* Makes the file durable. From *file are taken owner, purpose, filename, created_unix_s,
 * expires_unix_s and, when it is not empty, id (else `file-` + 22 alphanumerics); the rest is
 * filled in. The spool is gone afterwards, whatever is returned. */
enum err store_spool_commit(struct store_spool *spool, struct store_file *file,
                            struct error *error) MUST_CHECK;
/* As commit but without the row, which a later transaction adds (store_batch_update): the bytes are
 * in place and durable, and nobody can see them yet. Putting the same id again replaces them. */
enum err store_spool_place(struct store_spool *spool, struct store_file *file,
                           struct error *error) MUST_CHECK;

/* ERR_NOT_FOUND for an id that is unknown, deleted or past its expiry at `now_unix_s`. */
enum err store_file_get(struct store *store, struct str id, int64_t now_unix_s,
                        struct store_file *ret_file, struct error *error) MUST_CHECK;
/* A file descriptor for reading (the caller closes it) and the row (NULL allowed). */
enum err store_file_open(struct store *store, struct str id, int64_t now_unix_s, int *ret_fd,
                         struct store_file *ret_file, struct error *error) MUST_CHECK;
/* As store_file_open for the input of a batch: the file must have been there at `alive_unix_s`,
 * when the batch was created; what happened to its row later does not matter. */
enum err store_input_open(struct store *store, struct str id, int64_t alive_unix_s, int *ret_fd,
                          struct store_file *ret_file, struct error *error) MUST_CHECK;

struct store_file_list {
    struct str after; /* the id after which to go on; empty: from the start */
    size_t limit;
    bool ascending;     /* by creation; ties by sequence */
    struct str purpose; /* empty: all */
    const char *owner;  /* NULL: everybody's */
    int64_t now_unix_s;
};

/* Fills at most `limit` rows. ERR_INVALID when `after` is not a file that this list has. */
enum err store_file_list(struct store *store, const struct store_file_list *list,
                         struct store_file *ret_files, size_t *ret_count, bool *ret_has_more,
                         struct error *error) MUST_CHECK;
/* ERR_NOT_FOUND as store_file_get. */
enum err store_file_delete(struct store *store, struct str id, int64_t now_unix_s,
                           struct error *error) MUST_CHECK;
/* Removes rows and bytes of files that are expired or deleted and that no live batch uses. */
enum err store_file_sweep(struct store *store, int64_t now_unix_s, struct error *error) MUST_CHECK;
