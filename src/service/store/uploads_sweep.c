/* SPDX-License-Identifier: Apache-2.0 */

/* The end of uploads: parts that no pending upload needs, and rows long past their expiry. */

#include "base/mem.h"
#include "base/os.h"
#include "store/files_internal.h"
#include "store/lost.h"
#include "store/uploads.h"

#include <stdlib.h>

#define SWEEP_MAX 256                 /* rows per transaction */
#define KEPT_AFTER_END_S (30 * 86400) /* how long rows of uploads outlive their expiry */

struct upload_sweep {
    int64_t now_unix_s;
    size_t count;
    char ids[SWEEP_MAX][STORE_ID_BYTES];
};

static enum err forget_uploads(struct store *store, int64_t now_unix_s, struct error *error) {
    sqlite3_stmt *statement;
    enum err err =
        database_prepare(store, &statement, "DELETE FROM uploads WHERE expires <= ?", error);
    if (err != OK) return err;
    sqlite3_bind_int64(statement, 1, now_unix_s - KEPT_AFTER_END_S);
    return database_run(store, statement, NULL, error);
}

/* Deletes the rows of parts that no pending upload needs, also of parts without an upload, though
 * no call leaves such parts. */
static enum err take_rows(struct store *store, void *context, struct error *error) {
    struct upload_sweep *sweep = context;
    sqlite3_stmt *statement;
    bool row;
    sweep->count = 0;
    enum err err =
        database_prepare(store, &statement,
                         "SELECT id FROM upload_parts WHERE upload_id NOT IN"
                         " (SELECT id FROM uploads WHERE status = 0 AND expires > ?) LIMIT 256",
                         error);
    if (err != OK) return err;
    sqlite3_bind_int64(statement, 1, sweep->now_unix_s);
    while ((err = database_step(store, statement, &row, error)) == OK && row)
        database_column(statement, 0, sweep->ids[sweep->count++], STORE_ID_BYTES);
    sqlite3_finalize(statement);
    for (size_t i = 0; i < sweep->count && err == OK; i++) {
        char path[STORE_PATH_BYTES];
        struct error ignored;
        if (store_part_path(store, path, sweep->ids[i], &ignored) == OK)
            err = lost_mark_leaving(store, path, error);
        if (err == OK)
            err =
                database_prepare(store, &statement, "DELETE FROM upload_parts WHERE id = ?", error);
        if (err != OK) break;
        database_bind_str(statement, 1, str_from(sweep->ids[i]));
        err = database_run(store, statement, NULL, error);
    }
    return err == OK ? forget_uploads(store, sweep->now_unix_s, error) : err;
}

/* True when a sweep would remove a row, so that most sweeps write nothing. The lock is held. */
static enum err has_work(struct store *store, int64_t now_unix_s, bool *ret_has,
                         struct error *error) {
    sqlite3_stmt *statement;
    bool row;
    enum err err =
        database_prepare(store, &statement,
                         "SELECT EXISTS (SELECT 1 FROM upload_parts WHERE upload_id NOT IN"
                         " (SELECT id FROM uploads WHERE status = 0 AND expires > ?1))"
                         " OR EXISTS (SELECT 1 FROM uploads WHERE expires <= ?2)",
                         error);
    if (err != OK) return err;
    sqlite3_bind_int64(statement, 1, now_unix_s);
    sqlite3_bind_int64(statement, 2, now_unix_s - KEPT_AFTER_END_S);
    err = database_step(store, statement, &row, error);
    if (err == OK) *ret_has = sqlite3_column_int(statement, 0) != 0;
    sqlite3_finalize(statement);
    return err;
}

enum err store_upload_sweep(struct store *store, int64_t now_unix_s, struct error *error) {
    bool has = false;
    pthread_mutex_lock(&store->lock);
    enum err err = has_work(store, now_unix_s, &has, error);
    pthread_mutex_unlock(&store->lock);
    if (err != OK || !has) return err;
    struct upload_sweep *sweep = mem_new(1, sizeof *sweep);
    sweep->now_unix_s = now_unix_s;
    do {
        err = database_transact(store, take_rows, sweep, error);
        for (size_t i = 0; i < sweep->count && err == OK; i++) {
            char path[STORE_PATH_BYTES];
            err = store_part_path(store, path, sweep->ids[i], error);
            if (err == OK) err = os_unlink(path, error);
        }
    } while (err == OK && sweep->count == SWEEP_MAX);
    free(sweep);
    return err;
}
