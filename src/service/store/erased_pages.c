/* SPDX-License-Identifier: Apache-2.0 */
#include "store/erased_pages.h"

#include "base/log.h"
#include "store/store_internal.h"

enum err erased_pages_clear(struct store *store, struct error *error) {
    int code, in_log = 0, done = 0;
    pthread_mutex_lock(&store->lock);
    /* A backup may read for minutes, and others need the database meanwhile. */
    sqlite3_busy_timeout(store->db, 0);
    code = sqlite3_wal_checkpoint_v2(store->db, "main", SQLITE_CHECKPOINT_TRUNCATE, &in_log, &done);
    sqlite3_busy_timeout(store->db, STORE_BUSY_MS);
    pthread_mutex_unlock(&store->lock);
    bool is_done = code == SQLITE_OK && in_log <= 0;
    atomic_store(&store->has_erased_pages, !is_done);
    if (is_done) return OK;
    return err_set(error, ERR_UNAVAILABLE,
                   "%s/meta.db is being read by another process, and its log has what was erased",
                   store->dir);
}

void erased_pages_retry(struct store *store) {
    struct error why;
    if (!atomic_load(&store->has_erased_pages)) return;
    if (erased_pages_clear(store, &why) == OK)
        log_info("store=%s event=erased_pages", store->dir);
    else
        log_debug("store=%s event=erased_pages error=\"%s\"", store->dir, why.text);
}

enum err erased_pages_open(struct store *store, struct error *error) {
    struct error why;
    sqlite3_stmt *statement;
    bool row = false;
    pthread_mutex_lock(&store->lock);
    enum err err = database_prepare(store, &statement, "SELECT 1 FROM erased_lines LIMIT 1", error);
    if (err == OK) {
        err = database_step(store, statement, &row, error);
        sqlite3_finalize(statement);
    }
    pthread_mutex_unlock(&store->lock);
    if (err == OK && row && erased_pages_clear(store, &why) != OK)
        log_warn("store=%s event=erased_pages error=\"%s\"", store->dir, why.text);
    return err;
}
