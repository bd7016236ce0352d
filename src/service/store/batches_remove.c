/* SPDX-License-Identifier: Apache-2.0 */
#include "store/batches_remove.h"

#include "base/os.h"
#include "store/answers_forget.h"
#include "store/erased_pages.h"
#include "store/store_internal.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PIECE_ROWS 4096 /* judgements per transaction, as many as a reader takes at once */

/* Runs a statement whose only parameter ?1 is the batch's id. */
static enum err run_on(struct store *store, const char *sql, const char *id, int *ret_changes,
                       struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(store, &statement, sql, error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(id));
    return database_run(store, statement, ret_changes, error);
}

/* --- the mark --- */

struct mark {
    char id[STORE_ID_BYTES];
    int64_t now_unix_s;
    struct store_freed freed;
};

/* The files that go with a batch: of its owner, and its input only if no other batch has it. */
#define ITS_FILES                                                                                  \
    " FROM files WHERE deleted IS NULL AND id IN (SELECT output_file_id FROM batches WHERE id = "  \
    "?1"                                                                                           \
    " UNION SELECT error_file_id FROM batches WHERE id = ?1"                                       \
    " UNION SELECT input_file_id FROM batches AS b WHERE b.id = ?1 AND NOT EXISTS"                 \
    " (SELECT 1 FROM batches AS o WHERE o.input_file_id = b.input_file_id AND o.id <> ?1"          \
    " AND o.deleted IS NULL))"                                                                     \
    " AND owner = (SELECT owner FROM batches WHERE id = ?1)"

static enum err read_freed(struct store *store, struct mark *mark, struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    enum err err =
        database_prepare(store, &statement,
                         "SELECT count(*), coalesce(sum(bytes), 0),"
                         " (SELECT judgements FROM judgement_sums WHERE batch_id = ?1),"
                         " (SELECT bytes FROM judgement_sums WHERE batch_id = ?1)" ITS_FILES,
                         error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(mark->id));
    err = database_step(store, statement, &row, error);
    if (err == OK && row)
        mark->freed =
            (struct store_freed){.files = (uint64_t)sqlite3_column_int64(statement, 0),
                                 .bytes = (uint64_t)(sqlite3_column_int64(statement, 1) +
                                                     sqlite3_column_int64(statement, 3)),
                                 .judgements = (uint64_t)sqlite3_column_int64(statement, 2)};
    sqlite3_finalize(statement);
    return err;
}

static enum err mark_files(struct store *store, const struct mark *mark, struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(
        store, &statement, "UPDATE files SET deleted = ?2 WHERE id IN (SELECT id" ITS_FILES ")",
        error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(mark->id));
    sqlite3_bind_int64(statement, 2, mark->now_unix_s);
    return database_run(store, statement, NULL, error);
}

static enum err mark_row(struct store *store, const struct mark *mark, struct error *error) {
    sqlite3_stmt *statement;
    int changes = 0;
    enum err err = database_prepare(store, &statement,
                                    "UPDATE batches SET deleted = ?2, idempotency_key = NULL"
                                    " WHERE id = ?1 AND status >= 4 AND deleted IS NULL",
                                    error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(mark->id));
    sqlite3_bind_int64(statement, 2, mark->now_unix_s);
    err = database_run(store, statement, &changes, error);
    if (err == OK && changes == 0)
        err = err_set(error, ERR_CONFLICT, "The batch has not ended, or does not exist.");
    return err;
}

/* The row goes last, because the others look for its files. */
static enum err mark_all(struct store *store, void *context, struct error *error) {
    struct mark *mark = context;
    enum err err = read_freed(store, mark, error);
    if (err == OK) err = mark_files(store, mark, error);
    if (err == OK)
        err =
            run_on(store, "DELETE FROM judgement_sums WHERE batch_id = ?1", mark->id, NULL, error);
    return err == OK ? mark_row(store, mark, error) : err;
}

static uint64_t order_bytes(const struct store *store, const struct store_batch *batch) {
    char name[STORE_ORDER_NAME_BYTES], path[STORE_PATH_BYTES];
    struct stat status;
    (void)store_order_find(store, batch, name);
    store_path(store, path, "batches/%s/%s", batch->id, name);
    return stat(path, &status) == 0 ? (uint64_t)status.st_size : 0;
}

enum err store_batch_delete(struct store *store, struct str id, int64_t now_unix_s,
                            struct store_freed *ret_freed, struct error *error) {
    struct mark mark = {.now_unix_s = now_unix_s};
    struct store_batch batch;
    enum err err = store_batch_get(store, id, &batch, error);
    if (err != OK) return err;
    memcpy(mark.id, batch.id, sizeof mark.id);
    uint64_t bytes = order_bytes(store, &batch);
    store_batch_release(&batch);
    err = database_transact(store, mark_all, &mark, error);
    if (err != OK) return err;
    mark.freed.bytes += bytes;
    *ret_freed = mark.freed;
    return OK;
}

/* --- what a marked batch has --- */

struct piece {
    const char *id;
    int changes;
};

/* The latest rows go first, so that the versions of a line stay 1 to their number. */
static enum err remove_piece(struct store *store, void *context, struct error *error) {
    struct piece *piece = context;
    sqlite3_stmt *statement;
    enum err err = database_prepare(store, &statement,
                                    "DELETE FROM judgements WHERE seq IN (SELECT seq FROM"
                                    " judgements WHERE batch_id = ?1 ORDER BY seq DESC LIMIT ?2)",
                                    error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(piece->id));
    sqlite3_bind_int64(statement, 2, PIECE_ROWS);
    return database_run(store, statement, &piece->changes, error);
}

static enum err remove_rows(struct store *store, void *context, struct error *error) {
    static const char *const statements[] = {
        "DELETE FROM judgement_curators WHERE batch_id = ?1",
        "DELETE FROM erased_lines WHERE batch_id = ?1",
        "DELETE FROM outbox WHERE subject = ?1",
        "DELETE FROM proofs WHERE batch_id = ?1",
        "DELETE FROM erasures WHERE batch_id = ?1",
        "DELETE FROM batches WHERE id = ?1 AND deleted IS NOT NULL",
    };
    const char *id = context;
    enum err err = OK;
    for (size_t i = 0; i < sizeof statements / sizeof *statements && err == OK; i++)
        err = run_on(store, statements[i], id, NULL, error);
    return err;
}

/* The folder, and that its name is gone. */
static enum err remove_folder(struct store *store, const char *id, struct error *error) {
    char path[STORE_PATH_BYTES];
    store_path(store, path, "batches/%s", id);
    enum err err = store_remove_run(store, id, false, error);
    if (err == OK) err = store_sync_result(store, os_fsync_parent(path, error), error);
    return err == OK ? store_remove_studio(store, id, error) : err;
}

/* Removes all that the batch has. *pieces is 0 if some of it is left. */
static enum err remove_one(struct store *store, char *id, int64_t now_unix_s, uint64_t *pieces,
                           struct error *error) {
    struct piece piece = {id, PIECE_ROWS};
    enum err err = store_forget_answers(store, id, error);
    while (err == OK && piece.changes == PIECE_ROWS) {
        if (*pieces == 0) return OK;
        (*pieces)--;
        err = database_transact(store, remove_piece, &piece, error);
    }
    if (err == OK) err = remove_folder(store, id, error);
    if (err == OK) err = store_file_sweep(store, now_unix_s, error);
    return err == OK ? database_transact(store, remove_rows, id, error) : err;
}

/* The first marked batch behind *sequence; an empty id: there is none. */
static enum err next_marked(struct store *store, int64_t *sequence, char ret_id[STORE_ID_BYTES],
                            struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    ret_id[0] = '\0';
    pthread_mutex_lock(&store->lock);
    enum err err = database_prepare(store, &statement,
                                    "SELECT sequence, id FROM batches WHERE deleted IS NOT NULL"
                                    " AND sequence > ?1 ORDER BY sequence LIMIT 1",
                                    error);
    if (err == OK) {
        sqlite3_bind_int64(statement, 1, *sequence);
        err = database_step(store, statement, &row, error);
        if (err == OK && row) {
            *sequence = sqlite3_column_int64(statement, 0);
            database_column(statement, 1, ret_id, STORE_ID_BYTES);
        }
        sqlite3_finalize(statement);
    }
    pthread_mutex_unlock(&store->lock);
    return err;
}

enum err store_batch_sweep(struct store *store, int64_t now_unix_s, uint64_t pieces,
                           bool *ret_has_more, struct error *error) {
    char id[STORE_ID_BYTES];
    int64_t sequence = 0;
    erased_pages_retry(store);
    enum err err = store_file_sweep(store, now_unix_s, error);
    *ret_has_more = false;
    while (err == OK && !*ret_has_more) {
        err = next_marked(store, &sequence, id, error);
        if (err != OK || !*id) break;
        if (store_id_is_sane(str_from(id))) err = remove_one(store, id, now_unix_s, &pieces, error);
        *ret_has_more = pieces == 0;
    }
    return err;
}

/* --- questions --- */

enum err store_batch_oldest_ended(struct store *store, int64_t before_unix_s,
                                  char ret_id[STORE_ID_BYTES], struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    pthread_mutex_lock(&store->lock);
    /* The words of the index batches_ended, so that SQLite uses it. */
    enum err err = database_prepare(
        store, &statement,
        "SELECT id FROM batches WHERE status >= 4 AND deleted IS NULL"
        " AND coalesce(completed_at, failed_at, expired_at, cancelled_at) < ?1"
        " ORDER BY coalesce(completed_at, failed_at, expired_at, cancelled_at) LIMIT 1",
        error);
    if (err == OK) {
        sqlite3_bind_int64(statement, 1, before_unix_s);
        err = database_step(store, statement, &row, error);
        if (err == OK && row) database_column(statement, 0, ret_id, STORE_ID_BYTES);
        if (err == OK && !row) err = err_set(error, ERR_NOT_FOUND, "no batch ended before that");
        sqlite3_finalize(statement);
    }
    pthread_mutex_unlock(&store->lock);
    return err;
}

bool store_batch_exists(struct store *store, const char *id) {
    struct store_batch batch;
    struct error error;
    enum err err = store_batch_get(store, str_from(id), &batch, &error);
    if (err == OK) store_batch_release(&batch);
    return err != ERR_NOT_FOUND;
}
