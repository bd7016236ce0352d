/* SPDX-License-Identifier: Apache-2.0 */
#include "store/snapshot.h"

#include "base/mem.h"
#include "base/os.h"
#include "store/schema.h"
#include "store/store_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BUSY_MS 10000 /* the longest wait for a server that recovers or checkpoints its database */

struct snapshot {
    sqlite3 *db;
    char path[STORE_PATH_BYTES];
};

static enum err fault(sqlite3 *db, const char *path, struct error *error) {
    int code = sqlite3_errcode(db);
    const char *text = sqlite3_errmsg(db);
    switch (code) {
    case SQLITE_FULL: return err_set(error, ERR_UNAVAILABLE, "%s: the disk is full", path);
    case SQLITE_BUSY: return err_set(error, ERR_UNAVAILABLE, "%s: %s", path, text);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return err_set(error, ERR_CORRUPT, "%s is damaged (%s)", path, text);
    default: return err_set(error, ERR_IO, "%s: %s", path, text);
    }
}

static enum err open_database(struct snapshot **ret_snapshot, const char *path, int flags,
                              struct error *error) {
    if (strlen(path) >= STORE_PATH_BYTES)
        return err_set(error, ERR_INVALID, "the name of a database is too long");
    struct snapshot *snapshot = mem_new(1, sizeof *snapshot);
    memcpy(snapshot->path, path, strlen(path) + 1);
    struct stat status;
    enum err err = OK;
    /* Opening the file here and closing it would drop the locks of another connection. */
    if (stat(path, &status) != 0) err = err_from_errno(error, errno, "cannot look at %s", path);
    if (err == OK &&
        sqlite3_open_v2(path, &snapshot->db, flags | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        err = fault(snapshot->db, path, error);
    if (err != OK) {
        snapshot_close(snapshot);
        return err;
    }
    sqlite3_busy_timeout(snapshot->db, BUSY_MS);
    sqlite3_db_config(snapshot->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(snapshot->db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
    sqlite3_db_config(snapshot->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    *ret_snapshot = snapshot;
    return OK;
}

void snapshot_close(struct snapshot *snapshot) {
    if (!snapshot) return;
    sqlite3_close(snapshot->db);
    free(snapshot);
}

static enum err prepare(struct snapshot *snapshot, sqlite3_stmt **ret_statement, const char *sql,
                        struct error *error) {
    if (sqlite3_prepare_v2(snapshot->db, sql, -1, ret_statement, NULL) == SQLITE_OK) return OK;
    return fault(snapshot->db, snapshot->path, error);
}

static enum err step(struct snapshot *snapshot, sqlite3_stmt *statement, bool *ret_row,
                     struct error *error) {
    int code = sqlite3_step(statement);
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        return fault(snapshot->db, snapshot->path, error);
    *ret_row = code == SQLITE_ROW;
    return OK;
}

/* The first column of the first row, for a statement that names `text` (NULL: nothing). */
static enum err read_number(struct snapshot *snapshot, const char *sql, const char *text,
                            int64_t *ret_value, struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    enum err err = prepare(snapshot, &statement, sql, error);
    if (err != OK) return err;
    if (text) sqlite3_bind_text(statement, 1, text, -1, SQLITE_TRANSIENT);
    err = step(snapshot, statement, &row, error);
    if (err == OK) *ret_value = row ? sqlite3_column_int64(statement, 0) : -1;
    sqlite3_finalize(statement);
    return err;
}

enum err snapshot_open_live(struct snapshot **ret_live, const char *state_dir,
                            struct error *error) {
    char path[STORE_PATH_BYTES];
    int bytes = snprintf(path, sizeof path, "%s/meta.db", state_dir);
    if (bytes < 0 || (size_t)bytes >= sizeof path)
        return err_set(error, ERR_INVALID, "the state directory's name is too long");
    enum err err = open_database(ret_live, path, SQLITE_OPEN_READONLY, error);
    if (err != ERR_NOT_FOUND) return err;
    return err_set(error, err, "%s is not a state directory of quern: it has no meta.db",
                   state_dir);
}

enum err snapshot_take(struct snapshot *live, const char *path, struct error *error) {
    sqlite3_stmt *statement;
    bool row;
    int fd;
    /* SQLite fills an empty file, and would make one that others can read. */
    enum err err = os_create(&fd, path, 0600, error);
    if (err != OK) return err;
    os_close(fd);
    err = prepare(live, &statement, "VACUUM INTO ?1", error);
    if (err != OK) return err;
    sqlite3_bind_text(statement, 1, path, -1, SQLITE_TRANSIENT);
    err = step(live, statement, &row, error);
    sqlite3_finalize(statement);
    return err == OK ? OK : err_prefix(error, "copying the database to %s", path);
}

enum err snapshot_check(struct snapshot *snapshot, struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    enum err err = prepare(snapshot, &statement, "PRAGMA quick_check(1)", error);
    if (err != OK) return err;
    err = step(snapshot, statement, &row, error);
    const char *said = err == OK && row ? (const char *)sqlite3_column_text(statement, 0) : NULL;
    if (err == OK && (!said || strcmp(said, "ok") != 0))
        err = err_set(error, ERR_CORRUPT, "%s is damaged", snapshot->path);
    sqlite3_finalize(statement);
    return err;
}

enum err snapshot_open(struct snapshot **ret_snapshot, const char *path, struct error *error) {
    struct snapshot *snapshot;
    int64_t schema = 0;
    enum err err = open_database(&snapshot, path, SQLITE_OPEN_READONLY, error);
    if (err != OK) return err;
    err = read_number(snapshot, "PRAGMA user_version", NULL, &schema, error);
    if (err == OK && (schema < 1 || schema > snapshot_schema_known()))
        err = err_set(error, ERR_CORRUPT, "%s has version %lld; this quern knows versions up to %d",
                      path, (long long)schema, (int)snapshot_schema_known());
    if (err == OK) err = schema_check(snapshot->db, (int)schema, path, error);
    if (err != OK) {
        snapshot_close(snapshot);
        return err;
    }
    *ret_snapshot = snapshot;
    return OK;
}

enum err snapshot_summary(struct snapshot *snapshot, struct snapshot_summary *ret_summary,
                          struct error *error) {
    int64_t batches = 0, unfinished = 0;
    enum err err = read_number(snapshot, "PRAGMA user_version", NULL, &ret_summary->schema, error);
    if (err == OK)
        err = read_number(snapshot, "SELECT count(*) FROM batches", NULL, &batches, error);
    if (err == OK)
        err = read_number(snapshot, "SELECT count(*) FROM batches WHERE status < 4", NULL,
                          &unfinished, error);
    ret_summary->batches = (uint64_t)batches;
    ret_summary->unfinished = (uint64_t)unfinished;
    return err;
}

/* Calls `each` for the rows of a statement that gives id, bytes and sum. */
static enum err each_row(struct snapshot *snapshot, const char *sql, bool is_part,
                         snapshot_file_fn each, void *context, struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    enum err err = prepare(snapshot, &statement, sql, error);
    if (err != OK) return err;
    while ((err = step(snapshot, statement, &row, error)) == OK && row) {
        struct snapshot_file file = {.is_part = is_part,
                                     .bytes = (uint64_t)sqlite3_column_int64(statement, 1)};
        const void *sum = sqlite3_column_blob(statement, 2);
        database_column(statement, 0, file.id, sizeof file.id);
        if (!store_id_is_sane(str_from(file.id)) || !sum ||
            sqlite3_column_bytes(statement, 2) != SHA256_BYTES)
            err = err_set(error, ERR_CORRUPT, "a row of %s names a file '%s'", snapshot->path,
                          file.id);
        if (err != OK) break;
        memcpy(file.sha256, sum, SHA256_BYTES);
        err = each(context, &file, error);
        if (err != OK) break;
    }
    sqlite3_finalize(statement);
    return err;
}

enum err snapshot_each_file(struct snapshot *snapshot, snapshot_file_fn each, void *context,
                            struct error *error) {
    int64_t has_parts = 0;
    enum err err =
        each_row(snapshot, "SELECT id, bytes, sha256 FROM files", false, each, context, error);
    /* Databases before version 6 have no uploads. */
    if (err == OK)
        err =
            read_number(snapshot, "SELECT count(*) FROM sqlite_schema WHERE name = 'upload_parts'",
                        NULL, &has_parts, error);
    if (err != OK || has_parts <= 0) return err;
    return each_row(snapshot, "SELECT id, bytes, sha256 FROM upload_parts", true, each, context,
                    error);
}

enum err snapshot_each_batch(struct snapshot *snapshot, snapshot_batch_fn each, void *context,
                             struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    enum err err = prepare(snapshot, &statement,
                           "SELECT id, input_file_id, status >= 4 FROM batches WHERE status < 4"
                           " OR output_file_id IN (SELECT id FROM files)"
                           " OR error_file_id IN (SELECT id FROM files)",
                           error);
    if (err != OK) return err;
    while ((err = step(snapshot, statement, &row, error)) == OK && row) {
        struct snapshot_batch batch = {.is_finished = sqlite3_column_int(statement, 2) != 0};
        database_column(statement, 0, batch.id, sizeof batch.id);
        database_column(statement, 1, batch.input_file_id, sizeof batch.input_file_id);
        if (!store_id_is_sane(str_from(batch.id)))
            err = err_set(error, ERR_CORRUPT, "a row of %s names a batch '%s'", snapshot->path,
                          batch.id);
        else
            err = each(context, &batch, error);
        if (err != OK) break;
    }
    sqlite3_finalize(statement);
    return err;
}

/* --- of a copy, or of a live database --- */

static enum err ask(struct snapshot *snapshot, const char *sql, const char *id, bool *ret_yes,
                    struct error *error) {
    int64_t count = 0;
    enum err err = read_number(snapshot, sql, id, &count, error);
    if (err == OK) *ret_yes = count > 0;
    return err;
}

enum err snapshot_file_exists(struct snapshot *snapshot, const struct snapshot_file *file,
                              bool *ret_exists, struct error *error) {
    return ask(snapshot,
               file->is_part ? "SELECT count(*) FROM upload_parts WHERE id = ?1"
                             : "SELECT count(*) FROM files WHERE id = ?1",
               file->id, ret_exists, error);
}

enum err snapshot_is_unfinished(struct snapshot *snapshot, const char *batch_id,
                                bool *ret_unfinished, struct error *error) {
    return ask(snapshot, "SELECT count(*) FROM batches WHERE id = ?1 AND status < 4", batch_id,
               ret_unfinished, error);
}

enum err snapshot_needs_input(struct snapshot *snapshot, const char *file_id, bool *ret_needed,
                              struct error *error) {
    return ask(snapshot, "SELECT count(*) FROM batches WHERE input_file_id = ?1 AND status < 4",
               file_id, ret_needed, error);
}

static enum err run_on(struct snapshot *copy, const char *sql, const char *id,
                       struct error *error) {
    sqlite3_stmt *statement;
    bool row;
    enum err err = prepare(copy, &statement, sql, error);
    if (err != OK) return err;
    sqlite3_bind_text(statement, 1, id, -1, SQLITE_TRANSIENT);
    err = step(copy, statement, &row, error);
    sqlite3_finalize(statement);
    return err;
}

/* The server that runs may be an older quern, whose database has no proofs yet. */
static enum err forget_file(struct snapshot *copy, const char *id, bool has_proofs,
                            struct error *error) {
    enum err err = run_on(copy, "DELETE FROM files WHERE id = ?1", id, error);
    if (err != OK || !has_proofs) return err;
    return run_on(copy, "UPDATE proofs SET salts = NULL WHERE file_id = ?1", id, error);
}

enum err snapshot_forget_files(const char *path, const char *ids, size_t count,
                               struct error *error) {
    struct snapshot *copy;
    bool has_proofs = false;
    enum err err = open_database(&copy, path, SQLITE_OPEN_READWRITE, error);
    if (err != OK) return err;
    err = ask(copy, "SELECT count(*) FROM sqlite_schema WHERE name = ?1", "proofs", &has_proofs,
              error);
    /* A copy whose change is cut off is thrown away, so that it needs no journal on the disk. */
    if (err == OK &&
        sqlite3_exec(copy->db, "PRAGMA journal_mode=MEMORY; BEGIN", NULL, NULL, NULL) != SQLITE_OK)
        err = fault(copy->db, path, error);
    for (size_t i = 0; i < count && err == OK; i++)
        err = forget_file(copy, ids + i * STORE_ID_BYTES, has_proofs, error);
    if (err == OK && sqlite3_exec(copy->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        err = fault(copy->db, path, error);
    snapshot_close(copy);
    return err;
}
