/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* snapshot: a copy of meta.db as of one moment, and the bytes that its rows promise.
 *
 * The copy is taken through a connection of its own, next to the server's: SQLite gives it one
 * state of the database, with every transaction that was committed before the call. So it needs no
 * lock of the state directory and stops no server.
 *
 * The copy is older than the files that are copied after it. Bytes are durable before their row, so
 * that each row's bytes exist, unless the server has removed both since: snapshot_file_exists,
 * asked of the live database, tells.
 *
 * Thread: one per struct.
 * Memory: snapshot_close frees it. */

#include "store/batches.h"

struct snapshot;

struct snapshot_summary {
    int64_t schema;      /* version of the database's tables */
    uint64_t batches;    /* all */
    uint64_t unfinished; /* batches that a start goes on with */
};

/* A file, or a part of an upload. */
struct snapshot_file {
    char id[STORE_ID_BYTES];
    bool is_part;
    uint64_t bytes;
    unsigned char sha256[SHA256_BYTES];
};

typedef enum err (*snapshot_file_fn)(void *context, const struct snapshot_file *file,
                                     struct error *error);
struct snapshot_batch {
    char id[STORE_ID_BYTES];
    char input_file_id[STORE_ID_BYTES];
    bool is_finished;
};
typedef enum err (*snapshot_batch_fn)(void *context, const struct snapshot_batch *batch,
                                      struct error *error);

/* Version of the tables that this quern makes. */
int64_t snapshot_schema_known(void);

/* Opens the database of a state directory, which a server may have open. ERR_NOT_FOUND if the
 * directory has none. */
enum err snapshot_open_live(struct snapshot **ret_live, const char *state_dir,
                            struct error *error) MUST_CHECK;
/* Copies a live database to the new file `path`, which the caller syncs. */
enum err snapshot_take(struct snapshot *live, const char *path, struct error *error) MUST_CHECK;
/* Opens a copy. ERR_CORRUPT if it is no database of quern, or a newer quern's. */
enum err snapshot_open(struct snapshot **ret_snapshot, const char *path,
                       struct error *error) MUST_CHECK;
/* Checks the pages of a copy. */
enum err snapshot_check(struct snapshot *snapshot, struct error *error) MUST_CHECK;
void snapshot_close(struct snapshot *snapshot); /* NULL is allowed */

enum err snapshot_summary(struct snapshot *snapshot, struct snapshot_summary *ret_summary,
                          struct error *error) MUST_CHECK;
/* Calls `each` for all files and parts, until an error. */
enum err snapshot_each_file(struct snapshot *snapshot, snapshot_file_fn each, void *context,
                            struct error *error) MUST_CHECK;
/* Calls `each` for the batches that may have a folder: those that have not ended, and ended ones
 * with a result file. */
enum err snapshot_each_batch(struct snapshot *snapshot, snapshot_batch_fn each, void *context,
                             struct error *error) MUST_CHECK;

/* --- of a copy, or of a live database as it is at the call --- */

enum err snapshot_file_exists(struct snapshot *snapshot, const struct snapshot_file *file,
                              bool *ret_exists, struct error *error) MUST_CHECK;
enum err snapshot_is_unfinished(struct snapshot *snapshot, const char *batch_id,
                                bool *ret_unfinished, struct error *error) MUST_CHECK;
/* True if the file is the input of a batch that has not ended. */
enum err snapshot_needs_input(struct snapshot *snapshot, const char *file_id, bool *ret_needed,
                              struct error *error) MUST_CHECK;

/* Removes the rows of files from a copy that nothing has open, as the server has removed them from
 * its database: `ids` are `count` texts of STORE_ID_BYTES each. */
enum err snapshot_forget_files(const char *path, const char *ids, size_t count,
                               struct error *error) MUST_CHECK;
