/* SPDX-License-Identifier: Apache-2.0 */
#include "store/judgements_internal.h"
#include "store/schema.h"
#include "store/snapshot.h"

#include "base/os.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* One entry per version: entry i takes user_version i to i + 1, in one transaction. A released
 * entry is never edited. */
static const char *const migrations[] = {
    "CREATE TABLE files ("
    " sequence INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " purpose TEXT NOT NULL,"
    " filename TEXT NOT NULL,"
    " bytes INTEGER NOT NULL,"
    " sha256 BLOB NOT NULL CHECK (length(sha256) = 32),"
    " created INTEGER NOT NULL,"
    " expires INTEGER,"
    " deleted INTEGER) STRICT;"
    "CREATE TABLE batches ("
    " sequence INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " endpoint TEXT NOT NULL,"
    " input_file_id TEXT NOT NULL,"
    " completion_window TEXT NOT NULL,"
    " metadata TEXT,"
    " webhook_url TEXT,"
    " service_tier TEXT,"
    " priority INTEGER NOT NULL,"
    " output_expires_after INTEGER,"
    " created INTEGER NOT NULL,"
    " expires INTEGER NOT NULL,"
    " idempotency_key TEXT UNIQUE,"
    " parameters_sha256 BLOB NOT NULL,"
    " status INTEGER NOT NULL CHECK (status BETWEEN 0 AND 7),"
    " final_status INTEGER NOT NULL CHECK (final_status BETWEEN 0 AND 7),"
    " in_progress INTEGER, finalizing INTEGER, completed_at INTEGER, failed_at INTEGER,"
    " expired_at INTEGER, cancelling INTEGER, cancelled_at INTEGER,"
    " model TEXT,"
    " errors TEXT,"
    " output_file_id TEXT,"
    " error_file_id TEXT,"
    " total INTEGER NOT NULL, completed INTEGER NOT NULL, failed INTEGER NOT NULL,"
    " has_usage INTEGER NOT NULL,"
    " input_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,"
    " output_tokens INTEGER NOT NULL, reasoning_tokens INTEGER NOT NULL,"
    " epoch INTEGER NOT NULL) STRICT;"
    "CREATE INDEX batches_live ON batches (sequence) WHERE status < 4;",
    /* Ends of batches from before the outbox are not delivered: state 2, given up. */
    "CREATE TABLE outbox ("
    " sequence INTEGER PRIMARY KEY AUTOINCREMENT,"
    " event_id TEXT NOT NULL,"
    " type TEXT NOT NULL,"
    " subject TEXT NOT NULL,"
    " url TEXT,"
    " receiver TEXT NOT NULL,"
    " created INTEGER NOT NULL,"
    " due INTEGER NOT NULL,"
    " attempts INTEGER NOT NULL,"
    " state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 2)) STRICT;"
    "CREATE INDEX outbox_open ON outbox (due, sequence) WHERE state = 0;"
    "CREATE INDEX outbox_subject ON outbox (subject);"
    "INSERT INTO outbox (event_id, type, subject, url, receiver, created, due, attempts, state)"
    " SELECT 'evt_' || lower(hex(randomblob(16))), CASE status WHEN 4 THEN 'batch.completed'"
    " WHEN 5 THEN 'batch.failed' WHEN 6 THEN 'batch.expired' ELSE 'batch.cancelled' END, id,"
    " webhook_url, '', created, 0, 0, 2 FROM batches"
    " WHERE status >= 4 AND webhook_url IS NOT NULL;",
    "ALTER TABLE batches ADD COLUMN reused_input_tokens INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE batches ADD COLUMN reused_output_tokens INTEGER NOT NULL DEFAULT 0;",
    /* Existing rows belong to the default owner. */
    "ALTER TABLE files ADD COLUMN owner TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE batches ADD COLUMN owner TEXT NOT NULL DEFAULT '';"
    "CREATE INDEX batches_live_owner ON batches (owner) WHERE status < 4;",
    "ALTER TABLE batches ADD COLUMN retry_of TEXT;"
    "ALTER TABLE batches ADD COLUMN extras TEXT;"
    "ALTER TABLE batches ADD COLUMN paused INTEGER NOT NULL DEFAULT 0"
    " CHECK (paused BETWEEN 0 AND 3);"
    "ALTER TABLE batches ADD COLUMN quality TEXT;",
    "CREATE TABLE uploads ("
    " sequence INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " owner TEXT NOT NULL,"
    " purpose TEXT NOT NULL,"
    " filename TEXT NOT NULL,"
    " bytes INTEGER NOT NULL,"
    " created INTEGER NOT NULL,"
    " expires INTEGER NOT NULL,"
    " file_expires_after INTEGER NOT NULL,"
    " status INTEGER NOT NULL CHECK (status BETWEEN 0 AND 2),"
    " file_id TEXT) STRICT;"
    "CREATE TABLE upload_parts ("
    " sequence INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL UNIQUE,"
    " upload_id TEXT NOT NULL,"
    " bytes INTEGER NOT NULL,"
    " sha256 BLOB NOT NULL CHECK (length(sha256) = 32),"
    " created INTEGER NOT NULL) STRICT;"
    "CREATE INDEX upload_parts_of ON upload_parts (upload_id);",
    "CREATE TABLE judgements ("
    " seq INTEGER PRIMARY KEY AUTOINCREMENT,"
    " id TEXT NOT NULL,"
    " batch_id TEXT NOT NULL,"
    " line INTEGER NOT NULL CHECK (line >= 1),"
    " custom_id TEXT NOT NULL,"
    " curator TEXT NOT NULL,"
    " key_id TEXT NOT NULL,"
    " created INTEGER NOT NULL,"
    " version INTEGER NOT NULL CHECK (version >= 1),"
    " verdict INTEGER NOT NULL CHECK (verdict BETWEEN 0 AND 2),"
    " flagged INTEGER NOT NULL CHECK (flagged BETWEEN 0 AND 1),"
    " rating INTEGER CHECK (rating BETWEEN 1 AND 5),"
    " fields TEXT,"
    " comment TEXT,"
    " UNIQUE (batch_id, id),"
    " UNIQUE (batch_id, line, curator, version)) STRICT;"
    "CREATE INDEX judgements_trail ON judgements (batch_id, seq);"
    /* The trail is append-only: even this code cannot change it. */
    "CREATE TRIGGER judgements_unchanged BEFORE UPDATE ON judgements"
    " BEGIN SELECT RAISE(ABORT, 'a judgement is never changed'); END;"
    "CREATE TRIGGER judgements_kept BEFORE DELETE ON judgements"
    " BEGIN SELECT RAISE(ABORT, 'a judgement is never removed'); END;",
    /* Sums by which a bound is checked without a walk (judgement_sums.c). */
    "CREATE TABLE judgement_sums ("
    " batch_id TEXT PRIMARY KEY,"
    " owner TEXT NOT NULL,"
    " judgements INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL,"
    " curators INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE INDEX judgement_sums_of ON judgement_sums (owner, bytes);"
    "CREATE TABLE judgement_curators ("
    " batch_id TEXT NOT NULL,"
    " curator TEXT NOT NULL,"
    " PRIMARY KEY (batch_id, curator)) STRICT, WITHOUT ROWID;"
    "INSERT INTO judgement_curators SELECT DISTINCT batch_id, curator FROM judgements;"
    "INSERT INTO judgement_sums SELECT batch_id,"
    " coalesce((SELECT owner FROM batches WHERE id = batch_id), ''), count(*), sum" JUDGEMENT_BYTES
    ", count(DISTINCT curator) FROM judgements GROUP BY batch_id;"
    "CREATE INDEX judgements_first ON judgements (batch_id, curator, line) WHERE version = 1;"
    "ALTER TABLE uploads ADD COLUMN part_count INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE uploads ADD COLUMN part_bytes INTEGER NOT NULL DEFAULT 0;"
    "UPDATE uploads SET"
    " part_count = (SELECT count(*) FROM upload_parts WHERE upload_id = uploads.id),"
    " part_bytes = (SELECT coalesce(sum(p.bytes), 0) FROM upload_parts AS p"
    " WHERE p.upload_id = uploads.id);"
    "CREATE INDEX uploads_pending ON uploads (owner, expires, bytes, part_bytes) WHERE status = 0;"
    "CREATE INDEX uploads_ended ON uploads (owner, sequence) WHERE status <> 0;"
    /* What an owner has is found and added up without the rows of others. */
    "CREATE INDEX files_sum ON files (owner, expires, bytes) WHERE deleted IS NULL;"
    "CREATE INDEX files_list ON files (owner, sequence) WHERE deleted IS NULL;"
    "CREATE INDEX files_purposes ON files (owner, purpose, sequence) WHERE deleted IS NULL;"
    "CREATE INDEX files_of_purpose ON files (purpose, sequence) WHERE deleted IS NULL;"
    "CREATE INDEX batches_of ON batches (owner, sequence);",
    /* A batch that is deleted keeps a row that no client sees until all that it had is gone. */
    "ALTER TABLE batches ADD COLUMN deleted INTEGER;"
    "CREATE INDEX batches_ended ON batches"
    " (coalesce(completed_at, failed_at, expired_at, cancelled_at))"
    " WHERE status >= 4 AND deleted IS NULL;"
    "CREATE INDEX batches_leaving ON batches (sequence) WHERE deleted IS NOT NULL;"
    "CREATE INDEX batches_input ON batches (input_file_id);"
    "CREATE INDEX batches_output ON batches (output_file_id) WHERE output_file_id IS NOT NULL;"
    "CREATE INDEX batches_errors ON batches (error_file_id) WHERE error_file_id IS NOT NULL;"
    "DROP TRIGGER judgements_kept;"
    "CREATE TRIGGER judgements_kept BEFORE DELETE ON judgements WHEN NOT EXISTS"
    " (SELECT 1 FROM batches WHERE id = OLD.batch_id AND deleted IS NOT NULL)"
    " BEGIN SELECT RAISE(ABORT, 'a judgement goes with its batch only'); END;",
    /* Batches whose requests come with the call, and the list of those of one API. */
    "ALTER TABLE batches ADD COLUMN inline_requests INTEGER NOT NULL DEFAULT 0;"
    "CREATE INDEX batches_messages ON batches (sequence)"
    " WHERE endpoint = '/v1/messages' AND deleted IS NULL;",
    /* Further names of models, that clients have given. */
    "CREATE TABLE model_names ("
    " name TEXT PRIMARY KEY,"
    " model TEXT NOT NULL,"
    " created INTEGER NOT NULL) STRICT, WITHOUT ROWID;",
    /* Sums over lines of ended batches, and what was erased of them (proofs.h). */
    "CREATE TABLE proofs ("
    " batch_id TEXT NOT NULL,"
    " what TEXT NOT NULL CHECK (what IN ('input', 'output', 'errors')),"
    " name TEXT NOT NULL,"
    " file_id TEXT NOT NULL,"
    " lines INTEGER NOT NULL CHECK (lines >= 0),"
    " lines_sha256 BLOB NOT NULL CHECK (length(lines_sha256) = 32),"
    " salts TEXT,"
    " PRIMARY KEY (batch_id, what)) STRICT;"
    "CREATE INDEX proofs_file ON proofs (file_id);"
    "CREATE TABLE erasures ("
    " sequence INTEGER PRIMARY KEY AUTOINCREMENT,"
    " batch_id TEXT NOT NULL,"
    " erased INTEGER NOT NULL,"
    " record TEXT NOT NULL) STRICT;"
    "CREATE INDEX erasures_of ON erasures (batch_id);",
    /* Lines that were erased (erased.h), and their judgements with them. */
    "CREATE TABLE erased_lines ("
    " batch_id TEXT NOT NULL,"
    " line INTEGER NOT NULL CHECK (line >= 1),"
    " result INTEGER NOT NULL CHECK (result BETWEEN 0 AND 2),"
    " PRIMARY KEY (batch_id, line)) STRICT, WITHOUT ROWID;"
    "DROP TRIGGER judgements_kept;"
    "CREATE TRIGGER judgements_kept BEFORE DELETE ON judgements WHEN NOT EXISTS"
    " (SELECT 1 FROM batches WHERE id = OLD.batch_id AND deleted IS NOT NULL) AND NOT EXISTS"
    " (SELECT 1 FROM erased_lines WHERE batch_id = OLD.batch_id AND line = OLD.line)"
    " BEGIN SELECT RAISE(ABORT, 'a judgement goes with its batch or its line only'); END;",
};
#define MIGRATION_COUNT ((int)(sizeof migrations / sizeof *migrations))

const char *database_migration(int at) {
    assert(at >= 0 && at < MIGRATION_COUNT);
    return migrations[at];
}

int64_t snapshot_schema_known(void) {
    return MIGRATION_COUNT;
}

/* Translates the error of the last call on the connection. A full disk removes the ballast. */
static enum err last_error(struct store *store, struct error *error, const char *what) {
    int code = sqlite3_errcode(store->db), extended = sqlite3_extended_errcode(store->db);
    const char *text = sqlite3_errmsg(store->db);
    /* SQLite reports a full disk as SQLITE_FULL when it writes pages, but not when it creates
     * files. */
    int reason = sqlite3_system_errno(store->db);
    bool is_os = code == SQLITE_IOERR || code == SQLITE_CANTOPEN;
    if (is_os && (reason == ENOSPC || reason == EDQUOT)) code = SQLITE_FULL;
    if (code == SQLITE_NOMEM ||
        (code == SQLITE_CANTOPEN && (reason == EMFILE || reason == ENFILE || reason == ENOMEM)))
        return err_set(error, ERR_EXHAUSTED, "%s: %s", what,
                       code == SQLITE_NOMEM ? "no memory" : strerror(reason));
    switch (code) {
    case SQLITE_FULL:
        store_disk_filled(store);
        return err_set(error, ERR_UNAVAILABLE, "%s: the disk is full", what);
    case SQLITE_CONSTRAINT: return err_set(error, ERR_CONFLICT, "%s: %s", what, text);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return err_set(error, ERR_CORRUPT, "%s: %s/meta.db is damaged (%s)", what, store->dir,
                       text);
    case SQLITE_IOERR:
        if (extended == SQLITE_IOERR_FSYNC || extended == SQLITE_IOERR_DIR_FSYNC) {
            struct error sync;
            return store_sync_result(store, err_set(&sync, ERR_IO, "%s: %s", what, text), &sync);
        }
        return err_set(error, ERR_IO, "%s: %s", what, text);
    default: return err_set(error, ERR_IO, "%s: %s", what, text);
    }
}

static enum err exec_sql(struct store *store, const char *sql, struct error *error) {
    if (sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK) return OK;
    return last_error(store, error, "database");
}

enum err database_prepare(struct store *store, sqlite3_stmt **ret_statement, const char *sql,
                          struct error *error) {
    if (sqlite3_prepare_v2(store->db, sql, -1, ret_statement, NULL) == SQLITE_OK) return OK;
    return last_error(store, error, "database");
}

enum err database_step(struct store *store, sqlite3_stmt *statement, bool *ret_row,
                       struct error *error) {
    int code = sqlite3_step(statement);
    if (code != SQLITE_ROW && code != SQLITE_DONE) return last_error(store, error, "database");
    *ret_row = code == SQLITE_ROW;
    return OK;
}

enum err database_run(struct store *store, sqlite3_stmt *statement, int *ret_changes,
                      struct error *error) {
    bool row;
    enum err err = database_step(store, statement, &row, error);
    if (err == OK && ret_changes) *ret_changes = sqlite3_changes(store->db);
    sqlite3_finalize(statement);
    return err;
}

void database_bind_str(sqlite3_stmt *statement, int at, struct str text) {
    sqlite3_bind_text64(statement, at, text.bytes ? text.at : "", text.bytes, SQLITE_TRANSIENT,
                        SQLITE_UTF8);
}

void database_bind_text_or_null(sqlite3_stmt *statement, int at, const char *text) {
    if (text && *text)
        sqlite3_bind_text(statement, at, text, -1, SQLITE_TRANSIENT);
    else
        sqlite3_bind_null(statement, at);
}

void database_bind_i64_or_null(sqlite3_stmt *statement, int at, int64_t value) {
    if (value != 0)
        sqlite3_bind_int64(statement, at, value);
    else
        sqlite3_bind_null(statement, at);
}

void database_column(sqlite3_stmt *statement, int at, char *ret_text, size_t text_bytes) {
    const char *text = (const char *)sqlite3_column_text(statement, at);
    snprintf(ret_text, text_bytes, "%s", text ? text : "");
}

static enum err transact_once(struct store *store, database_work_fn work, void *context,
                              struct error *error) {
    enum err err = exec_sql(store, "BEGIN IMMEDIATE", error);
    if (err != OK) return err;
    err = work(store, context, error);
    if (err == OK) err = exec_sql(store, "COMMIT", error);
    if (err != OK && !sqlite3_get_autocommit(store->db)) {
        struct error ignored;
        if (exec_sql(store, "ROLLBACK", &ignored) != OK) return err;
    }
    return err;
}

enum err database_transact(struct store *store, database_work_fn work, void *context,
                           struct error *error) {
    assert(!store->read_only);
    pthread_mutex_lock(&store->lock);
    enum err err = transact_once(store, work, context, error);
    if (err == ERR_UNAVAILABLE) err = transact_once(store, work, context, error);
    pthread_mutex_unlock(&store->lock);
    return err;
}

static enum err read_number(struct store *store, const char *sql, int64_t *ret_value,
                            struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    enum err err = database_prepare(store, &statement, sql, error);
    if (err != OK) return err;
    err = database_step(store, statement, &row, error);
    if (err == OK) *ret_value = row ? sqlite3_column_int64(statement, 0) : 0;
    sqlite3_finalize(statement);
    return err;
}

static enum err check_whole(struct store *store, struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    enum err err = database_prepare(store, &statement, "PRAGMA quick_check(1)", error);
    if (err != OK) return err;
    err = database_step(store, statement, &row, error);
    if (err == OK) {
        char said[256] = "the check gave no answer";
        if (row) database_column(statement, 0, said, sizeof said);
        for (char *at = said; *at; at++) /* one sentence, one line */
            if (*at == '\n') *at = ' ';
        if (strcmp(said, "ok") != 0)
            err = err_set(error, ERR_CORRUPT, "%s/meta.db is damaged: %s", store->dir, said);
    }
    sqlite3_finalize(statement);
    return err;
}

static enum err migrate_one(struct store *store, void *context, struct error *error) {
    int version = *(const int *)context;
    enum err err = exec_sql(store, migrations[version], error);
    char sql[64];
    snprintf(sql, sizeof sql, "PRAGMA user_version = %d", version + 1);
    return err == OK ? exec_sql(store, sql, error) : err;
}

/* Refuses another program's database, or a newer quern's, before the first write. */
static enum err check_version(struct store *store, int64_t *ret_version, struct error *error) {
    int64_t version;
    enum err err = read_number(store, "PRAGMA user_version", &version, error);
    if (err != OK) return err;
    if (version < 0 || version > MIGRATION_COUNT)
        return err_set(error, ERR_CORRUPT,
                       "%s/meta.db has version %lld; this quern knows versions up to %d",
                       store->dir, (long long)version, MIGRATION_COUNT);
    if (version == 0) {
        int64_t tables;
        err = read_number(store, "SELECT count(*) FROM sqlite_schema", &tables, error);
        if (err != OK) return err;
        if (tables != 0)
            return err_set(error, ERR_CORRUPT, "%s/meta.db is a database of something else",
                           store->dir);
    }
    char path[STORE_PATH_BYTES];
    store_path(store, path, "meta.db");
    err = schema_check(store->db, (int)version, path, error);
    if (err != OK) return err;
    if (store->read_only && version < MIGRATION_COUNT)
        return err_set(error, ERR_CONFLICT,
                       "%s/meta.db has version %lld and must be opened by the server first",
                       store->dir, (long long)version);
    *ret_version = version;
    return OK;
}

static enum err migrate(struct store *store, int64_t version, struct error *error) {
    for (int at = (int)version; at < MIGRATION_COUNT; at++) {
        enum err err = database_transact(store, migrate_one, &at, error);
        if (err != OK) return err_prefix(error, "migrating %s/meta.db", store->dir);
    }
    return OK;
}

/* Makes meta.db, or closes it and its companions to other users: SQLite itself would make it with
 * mode 0644, and gives its companions the mode of meta.db. */
static enum err close_to_others(const struct store *store, struct error *error) {
    static const char *const names[] = {"meta.db", "meta.db-wal", "meta.db-shm"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[STORE_PATH_BYTES];
        struct stat status;
        int fd;
        store_path(store, path, "%s", names[i]);
        enum err err =
            os_open(&fd, path, O_RDWR | O_NOFOLLOW | (i == 0 ? O_CREAT : 0), 0600, error);
        if (err == ERR_NOT_FOUND) continue;
        if (err != OK) return err;
        if (fstat(fd, &status) != 0 || ((status.st_mode & 077) && fchmod(fd, 0600) != 0))
            err = err_from_errno(error, errno, "cannot close %s to others", path);
        os_close(fd);
        if (err != OK) return err;
    }
    return OK;
}

enum err database_open(struct store *store, struct error *error) {
    char path[STORE_PATH_BYTES];
    enum err closed = store->read_only ? OK : close_to_others(store, error);
    if (closed != OK) return closed;
    store_path(store, path, "meta.db");
    int flags =
        store->read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    if (sqlite3_open_v2(path, &store->db, flags | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        return last_error(store, error, "cannot open meta.db");
    sqlite3_extended_result_codes(store->db, 0);
    sqlite3_busy_timeout(store->db, STORE_BUSY_MS);
    sqlite3_db_config(store->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(store->db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
    int64_t version = 0;
    enum err err = exec_sql(store,
                            "PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;"
                            "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON;"
                            "PRAGMA mmap_size=0; PRAGMA secure_delete=ON;",
                            error);
    if (err == OK) err = check_whole(store, error);
    if (err == OK) err = check_version(store, &version, error);
    if (err == OK && !store->read_only) err = exec_sql(store, "PRAGMA journal_mode=WAL", error);
    if (err == OK) err = migrate(store, version, error);
    if (err != OK || store->read_only) return err;
    /* The change to WAL mode removes a journal and does not sync that. If a power cut brought it
     * back, it would undo what was committed since. */
    return store_sync_result(store, os_fsync_dir(store->dir, error), error);
}

void database_close(struct store *store) {
    if (!store->db) return;
    int code = sqlite3_close(store->db);
    assert(code == SQLITE_OK); /* a statement was left open */
    store->db = NULL;
}
