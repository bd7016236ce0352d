/* SPDX-License-Identifier: Apache-2.0 */
#include "store/answers_forget.h"

#include "base/log.h"
#include "store/store_internal.h"

/* A batch that has not published yet has no output file, and keeps its answers. */
#define KEEPS                                                                                      \
    "SELECT 1 FROM batches WHERE id = ?1 AND"                                                      \
    " (coalesce(output_file_id, '') = '' OR EXISTS"                                                \
    " (SELECT 1 FROM files WHERE files.id = output_file_id))"

/* The first column of the first row; an empty text without one. */
static enum err ask(struct store *store, const char *sql, const char *id,
                    char ret_text[STORE_ID_BYTES], struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    ret_text[0] = '\0';
    pthread_mutex_lock(&store->lock);
    enum err err = database_prepare(store, &statement, sql, error);
    if (err == OK) {
        database_bind_str(statement, 1, str_from(id));
        err = database_step(store, statement, &row, error);
        if (err == OK && row) database_column(statement, 0, ret_text, STORE_ID_BYTES);
        sqlite3_finalize(statement);
    }
    pthread_mutex_unlock(&store->lock);
    return err;
}

enum err store_keeps_answers(struct store *store, const char *batch_id, bool *ret_keeps,
                             struct error *error) {
    char found[STORE_ID_BYTES];
    enum err err = ask(store, KEEPS, batch_id, found, error);
    if (err == OK) *ret_keeps = found[0] != '\0';
    return err;
}

static enum err forget_unless_kept(void *context, const char *file, const char *batch_id,
                                   struct error *error) {
    struct store *store = context;
    bool is_kept = true;
    (void)file;
    if (!store_id_is_sane(str_from(batch_id))) return OK; /* damage: a miss for every reader */
    enum err err = store_keeps_answers(store, batch_id, &is_kept, error);
    return err == OK && !is_kept ? result_cache_forget(store->cache, batch_id, error) : err;
}

void store_use_cache(struct store *store, struct result_cache *cache) {
    struct error error;
    store->cache = cache;
    if (cache && result_cache_tell(store->dir, false, forget_unless_kept, store, &error) != OK)
        log_warn("event=cache_forget error=\"%s\"", error.text);
}

enum err store_forget_answers(struct store *store, const char *batch_id, struct error *error) {
    return result_cache_forget(store->cache, batch_id, error);
}

enum err store_forget_answers_of_file(struct store *store, const char *file_id,
                                      struct error *error) {
    char batch_id[STORE_ID_BYTES];
    if (!store->cache) return OK;
    enum err err =
        ask(store, "SELECT id FROM batches WHERE output_file_id = ?1", file_id, batch_id, error);
    return err == OK && batch_id[0] ? store_forget_answers(store, batch_id, error) : err;
}
