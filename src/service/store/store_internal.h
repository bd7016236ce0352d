/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* store_internal: the open directory, the database and its helpers, for the files of store/ alone.
 *
 * Thread: `lock` guards the database and the outbox's rules; all else is fixed at open or atomic.
 * Memory: one struct store, from store_open to store_close. */

#include "store/mirror.h"
#include "store/outbox.h"
#include "store/store.h"

#include <pthread.h>
#include <sqlite3.h>

#define STORE_DIR_BYTES_MAX 2048
#define STORE_BUSY_MS 5000 /* wait for another process that has the database locked */
#define STORE_PATH_BYTES (STORE_DIR_BYTES_MAX + 256)

struct store {
    char dir[STORE_DIR_BYTES_MAX];
    uint64_t ballast_bytes;
    uint64_t step_bytes; /* the space that a log takes from the disk at once */
    uint64_t segment_bytes;
    bool read_only;
    int lock_fd;
    sqlite3 *db;
    pthread_mutex_t lock;
    struct store_outbox_rules outbox; /* guarded by lock */
    atomic_bool disk_full;
    atomic_ullong wanted_bytes; /* highest value of store_wants_room; 0 while the disk has room */
    atomic_ullong spool_count;
    struct result_cache *cache;        /* answers_forget.h; NULL: there is none */
    const struct store_mirror *mirror; /* mirror.h; NULL: nobody copies */
    struct store_wal {                 /* what the mirror was told of meta.db-wal; by lock */
        unsigned char salts[8];
        uint32_t frames;
    } wal;
    atomic_bool has_erased_pages; /* the database's log is to be cut (erased.h) */
    atomic_ullong log_append_bytes;
    pthread_mutex_t
        histograms_lock; /* guards the next members, to `batch_seconds`; held for moments */
    uint64_t log_groups;
    struct histogram log_sync_seconds, log_group_records;
    struct histogram batch_seconds[STORE_ENDS];
    int64_t open_ns; /* constant after store_open */
    atomic_ullong log_corrupt_records;
    atomic_ullong duplicate_results;
};

/* --- paths.c: names of a state directory, and folders whose names are durable --- */

/* Writes "<dir>/<text>". */
void store_path(const struct store *store, char ret_path[STORE_PATH_BYTES], const char *format, ...)
    PRINTF_LIKE(3, 4);
/* Writes the path of a file's bytes: "<dir>/files/ab/<id>". */
void store_file_path(const struct store *store, char ret_path[STORE_PATH_BYTES], const char *id);
/* Writes "<dir>/parts/<id>"; ERR_CORRUPT for an id that quern does not make. */
enum err store_part_path(const struct store *store, char ret_path[STORE_PATH_BYTES], const char *id,
                         struct error *error) MUST_CHECK;
/* Passes OK and ERR_EXHAUSTED on: without a descriptor for it no sync was begun, and it may be
 * tried later. Any other error of a sync is logged and ends the process, because the kernel may
 * have dropped the pages (docs/internals/service/store.md). */
enum err store_sync_result(struct store *store, enum err err, struct error *error);

/* Makes the folder `path` of the folder `parent`, and its name durable, if it does not exist. */
enum err store_make_folder(struct store *store, const char *path, const char *parent,
                           struct error *error) MUST_CHECK;

/* --- ballast.c: a file that gives its place to results when the disk is full --- */

/* Sizes the ballast by the whole disk, not by its free bytes, so that every start gets one size. */
void ballast_size(struct store *store);
/* Creates the ballast; ERR_UNAVAILABLE when the disk has no room for it. */
enum err ballast_make(struct store *store, struct error *error) MUST_CHECK;

/* --- statistics.c --- */

/* Counts one fdatasync of a segment log, and one group commit of `records`. */
void store_note_sync(struct store *store, int64_t ns);
void store_note_group(struct store *store, size_t records);
void store_note_end(struct store *store, const struct store_batch *batch);

/* --- database.c --- */

/* Opens meta.db, checks and migrates it. */
enum err database_open(struct store *store, struct error *error) MUST_CHECK;
void database_close(struct store *store);
/* The statements that take a database from version `at` to `at` + 1. */
const char *database_migration(int at);
enum err database_prepare(struct store *store, sqlite3_stmt **ret_statement, const char *sql,
                          struct error *error) MUST_CHECK;
/* Makes one step; *ret_row is false behind the last row. */
enum err database_step(struct store *store, sqlite3_stmt *statement, bool *ret_row,
                       struct error *error) MUST_CHECK;
/* Steps and finalizes a statement that gives no rows. *ret_changes counts the rows changed; NULL is
 * allowed. */
enum err database_run(struct store *store, sqlite3_stmt *statement, int *ret_changes,
                      struct error *error) MUST_CHECK;
void database_bind_str(sqlite3_stmt *statement, int at, struct str text);
/* Bind SQL's NULL for an empty or NULL text, and for a 0. */
void database_bind_text_or_null(sqlite3_stmt *statement, int at, const char *text);
void database_bind_i64_or_null(sqlite3_stmt *statement, int at, int64_t value);
/* Copies a column, cut to fit; SQL's NULL gives the empty text. */
void database_column(sqlite3_stmt *statement, int at, char *ret_text, size_t text_bytes);

typedef enum err (*database_work_fn)(struct store *store, void *context, struct error *error);
/* Runs `work` in one transaction under the lock. On a full disk, which removes the ballast, it
 * tries once more: bookkeeping must not fail for the lack of a page. */
enum err database_transact(struct store *store, database_work_fn work, void *context,
                           struct error *error) MUST_CHECK;

/* --- files_sweep.c --- */

/* Removes the folder of a run, or all of it but the order of the results. */
enum err store_remove_run(struct store *store, const char *name, bool keep_order,
                          struct error *error) MUST_CHECK;
/* Removes what label_studio/ has of a batch. */
enum err store_remove_studio(struct store *store, const char *batch_id,
                             struct error *error) MUST_CHECK;

/* Called at start: empties tmp/, removes bytes that nobody was told of, and moves to lost/ what was
 * acknowledged and has no row (lost.h). */
enum err store_clean(struct store *store, struct error *error) MUST_CHECK;
