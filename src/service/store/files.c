/* SPDX-License-Identifier: Apache-2.0 */
#include "store/files.h"

#include "base/os.h"
#include "store/files_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* The condition for a file that clients can see at time ?. */
#define VISIBLE "deleted IS NULL AND (expires IS NULL OR expires > ?)"

void store_file_read_row(sqlite3_stmt *statement, struct store_file *ret_file) {
    *ret_file = (struct store_file){
        .sequence = (uint64_t)sqlite3_column_int64(statement, 0),
        .bytes = (uint64_t)sqlite3_column_int64(statement, 4),
        .created_unix_s = sqlite3_column_int64(statement, 6),
        .expires_unix_s = sqlite3_column_int64(statement, 7),
    };
    database_column(statement, 1, ret_file->id, sizeof ret_file->id);
    database_column(statement, 2, ret_file->purpose, sizeof ret_file->purpose);
    database_column(statement, 3, ret_file->filename, sizeof ret_file->filename);
    database_column(statement, 8, ret_file->owner, sizeof ret_file->owner);
    const void *digest = sqlite3_column_blob(statement, 5);
    if (digest && sqlite3_column_bytes(statement, 5) == SHA256_BYTES)
        memcpy(ret_file->sha256, digest, SHA256_BYTES);
}

/* The lock is held. */
static enum err read_owner_bytes(struct store *store, const char *owner, int64_t now_unix_s,
                                 uint64_t *ret_bytes, struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    enum err err = database_prepare(
        store, &statement,
        "SELECT coalesce((SELECT sum(bytes) FROM files WHERE owner = ?1 AND deleted IS NULL"
        " AND (expires IS NULL OR expires > ?2)), 0)"
        " + coalesce((SELECT sum(max(bytes, part_bytes)) FROM uploads WHERE owner = ?1"
        " AND status = 0 AND expires > ?2), 0)"
        " + coalesce((SELECT sum(bytes) FROM judgement_sums WHERE owner = ?1), 0)",
        error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(owner));
    sqlite3_bind_int64(statement, 2, now_unix_s);
    err = database_step(store, statement, &row, error);
    if (err == OK) *ret_bytes = row ? (uint64_t)sqlite3_column_int64(statement, 0) : 0;
    sqlite3_finalize(statement);
    return err;
}

enum err store_owner_bytes(struct store *store, const char *owner, int64_t now_unix_s,
                           uint64_t *ret_bytes, struct error *error) {
    pthread_mutex_lock(&store->lock);
    enum err err = read_owner_bytes(store, owner, now_unix_s, ret_bytes, error);
    pthread_mutex_unlock(&store->lock);
    return err;
}

enum err store_owner_has_room(struct store *store, const char *owner, int64_t now_unix_s,
                              uint64_t bytes, uint64_t bytes_max, struct error *error) {
    uint64_t used = 0;
    if (!bytes_max) return OK;
    enum err err = read_owner_bytes(store, owner, now_unix_s, &used, error);
    if (err != OK || (used <= bytes_max && bytes <= bytes_max - used)) return err;
    return err_set(error, ERR_LIMIT,
                   "Storage quota exceeded: %llu of %llu bytes are stored, and this takes %llu "
                   "more. Delete files first.",
                   (unsigned long long)used, (unsigned long long)bytes_max,
                   (unsigned long long)bytes);
}

enum err store_file_add_row(struct store *store, struct store_file *file, struct error *error) {
    sqlite3_stmt *statement;
    enum err err = store_owner_has_room(store, file->owner, file->created_unix_s, file->bytes,
                                        file->owner_bytes_max, error);
    if (err != OK) return err;
    err = database_prepare(store, &statement,
                           "INSERT INTO files (id, purpose, filename, bytes, sha256,"
                           " created, expires, owner) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                           error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(file->id));
    database_bind_str(statement, 2, str_from(file->purpose));
    database_bind_str(statement, 3, str_from(file->filename));
    sqlite3_bind_int64(statement, 4, (sqlite3_int64)file->bytes);
    sqlite3_bind_blob(statement, 5, file->sha256, SHA256_BYTES, SQLITE_TRANSIENT);
    sqlite3_bind_int64(statement, 6, file->created_unix_s);
    database_bind_i64_or_null(statement, 7, file->expires_unix_s);
    database_bind_str(statement, 8, str_from(file->owner));
    err = database_run(store, statement, NULL, error);
    if (err == OK) file->sequence = (uint64_t)sqlite3_last_insert_rowid(store->db);
    return err;
}

/* Reads the row of `id` by a statement that names it and then the time `when` twice. The lock is
 * held. */
static enum err get_row(struct store *store, struct str id, const char *sql, int64_t when,
                        struct store_file *ret_file, struct error *error) {
    sqlite3_stmt *statement;
    bool row;
    enum err err = database_prepare(store, &statement, sql, error);
    if (err != OK) return err;
    database_bind_str(statement, 1, id);
    sqlite3_bind_int64(statement, 2, when);
    err = database_step(store, statement, &row, error);
    if (err == OK && !row)
        err = err_set(error, ERR_NOT_FOUND, "No such File object: %.*s",
                      (int)(id.bytes < 80 ? id.bytes : 80), id.bytes ? id.at : "");
    if (err == OK) store_file_read_row(statement, ret_file);
    sqlite3_finalize(statement);
    return err;
}

enum err store_file_get(struct store *store, struct str id, int64_t now_unix_s,
                        struct store_file *ret_file, struct error *error) {
    pthread_mutex_lock(&store->lock);
    enum err err =
        get_row(store, id, "SELECT " STORE_FILE_COLUMNS " FROM files WHERE id = ? AND " VISIBLE,
                now_unix_s, ret_file, error);
    pthread_mutex_unlock(&store->lock);
    return err;
}

static enum err open_bytes(struct store *store, const struct store_file *file, int *ret_fd,
                           struct error *error) {
    if (!store_id_is_sane(str_from(file->id)))
        return err_set(error, ERR_CORRUPT, "a row of meta.db names a file '%s'", file->id);
    char path[STORE_PATH_BYTES];
    store_file_path(store, path, file->id);
    enum err err = os_open(ret_fd, path, O_RDONLY, 0, error);
    if (err == ERR_NOT_FOUND)
        err = err_set(error, ERR_CORRUPT, "the bytes of %s are gone from the disk", file->id);
    return err;
}

enum err store_file_open(struct store *store, struct str id, int64_t now_unix_s, int *ret_fd,
                         struct store_file *ret_file, struct error *error) {
    struct store_file file;
    enum err err = store_file_get(store, id, now_unix_s, &file, error);
    if (err == OK) err = open_bytes(store, &file, ret_fd, error);
    if (err == OK && ret_file) *ret_file = file;
    return err;
}

enum err store_input_open(struct store *store, struct str id, int64_t alive_unix_s, int *ret_fd,
                          struct store_file *ret_file, struct error *error) {
    struct store_file file;
    pthread_mutex_lock(&store->lock);
    enum err err = get_row(store, id,
                           "SELECT " STORE_FILE_COLUMNS " FROM files WHERE id = ?1"
                           " AND (deleted IS NULL OR deleted >= ?2)"
                           " AND (expires IS NULL OR expires > ?2)",
                           alive_unix_s, &file, error);
    pthread_mutex_unlock(&store->lock);
    if (err == OK) err = open_bytes(store, &file, ret_fd, error);
    if (err == OK && ret_file) *ret_file = file;
    return err;
}

/* Reads the page that starts after sequence `after` (with the list's order). The lock is held. */
static enum err read_page(struct store *store, const struct store_file_list *list, uint64_t after,
                          struct store_file *ret_files, size_t *ret_count, bool *ret_has_more,
                          struct error *error) {
    sqlite3_stmt *statement;
    char sql[512];
    /* One of the indexes files_list (owner, sequence), files_purposes (owner, purpose, sequence)
     * and files_of_purpose (purpose, sequence) gives the rows in order, and no others. */
    snprintf(sql, sizeof sql,
             "SELECT " STORE_FILE_COLUMNS " FROM files WHERE sequence %s ?2%s%s AND deleted IS NULL"
             " AND (expires IS NULL OR expires > ?1) ORDER BY sequence %s LIMIT ?4",
             list->ascending ? ">" : "<", list->owner ? " AND owner = ?5" : "",
             list->purpose.bytes ? " AND purpose = ?3" : "", list->ascending ? "ASC" : "DESC");
    enum err err = database_prepare(store, &statement, sql, error);
    if (err != OK) return err;
    sqlite3_bind_int64(statement, 1, list->now_unix_s);
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)after);
    if (list->purpose.bytes) database_bind_str(statement, 3, list->purpose);
    sqlite3_bind_int64(statement, 4, (sqlite3_int64)list->limit + 1);
    if (list->owner) database_bind_str(statement, 5, str_from(list->owner));
    size_t count = 0;
    bool row, has_more = false;
    while ((err = database_step(store, statement, &row, error)) == OK && row) {
        has_more = count == list->limit;
        if (has_more) break;
        store_file_read_row(statement, &ret_files[count++]);
    }
    sqlite3_finalize(statement);
    if (err != OK) return err;
    *ret_count = count;
    *ret_has_more = has_more;
    return OK;
}

enum err store_file_list(struct store *store, const struct store_file_list *list,
                         struct store_file *ret_files, size_t *ret_count, bool *ret_has_more,
                         struct error *error) {
    uint64_t after = list->ascending ? 0 : INT64_MAX;
    enum err err = OK;
    pthread_mutex_lock(&store->lock);
    if (list->after.bytes > 0) {
        struct store_file file;
        err = get_row(store, list->after,
                      "SELECT " STORE_FILE_COLUMNS " FROM files WHERE id = ? AND " VISIBLE,
                      list->now_unix_s, &file, error);
        bool is_foreign = err == OK && list->owner && strcmp(list->owner, file.owner) != 0;
        if (err == ERR_NOT_FOUND || is_foreign)
            err = err_set(error, ERR_INVALID, "after: there is no file '%.*s' to go on from",
                          (int)(list->after.bytes < 80 ? list->after.bytes : 80), list->after.at);
        after = err == OK ? file.sequence : 0;
    }
    if (err == OK) err = read_page(store, list, after, ret_files, ret_count, ret_has_more, error);
    pthread_mutex_unlock(&store->lock);
    return err;
}

struct delete_call {
    struct str id;
    int64_t now_unix_s;
};

static enum err mark_deleted(struct store *store, void *context, struct error *error) {
    const struct delete_call *call = context;
    sqlite3_stmt *statement;
    int changes = 0;
    enum err err = database_prepare(store, &statement,
                                    "UPDATE files SET deleted = ?2 WHERE id = ?1 AND deleted IS"
                                    " NULL AND (expires IS NULL OR expires > ?2)",
                                    error);
    if (err != OK) return err;
    database_bind_str(statement, 1, call->id);
    sqlite3_bind_int64(statement, 2, call->now_unix_s);
    err = database_run(store, statement, &changes, error);
    if (err == OK && changes == 0)
        err = err_set(error, ERR_NOT_FOUND, "No such File object: %.*s",
                      (int)(call->id.bytes < 80 ? call->id.bytes : 80),
                      call->id.bytes ? call->id.at : "");
    return err;
}

enum err store_file_delete(struct store *store, struct str id, int64_t now_unix_s,
                           struct error *error) {
    struct delete_call call = {id, now_unix_s};
    enum err err = database_transact(store, mark_deleted, &call, error);
    return err == OK ? store_file_sweep(store, now_unix_s, error) : err;
}
