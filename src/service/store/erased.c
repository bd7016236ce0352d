/* SPDX-License-Identifier: Apache-2.0 */
#include "store/erased.h"

#include "base/mem.h"
#include "base/os.h"
#include "store/files_internal.h"
#include "store/judgements_internal.h"
#include "store/proofs_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what was erased --- */

/* The lock is held. */
static enum err read_lines(struct store *store, const char *batch_id,
                           struct store_erased_lines *lines, struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    enum err err = database_prepare(
        store, &statement,
        "SELECT line, result FROM erased_lines WHERE batch_id = ?1 ORDER BY line", error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(batch_id));
    while ((err = database_step(store, statement, &row, error)) == OK && row) {
        lines->at = vec_grow(lines->at, lines->count, &lines->capacity, sizeof *lines->at);
        /* The table's CHECK keeps the result in range. */
        lines->at[lines->count++] =
            (struct store_erased_line){(uint64_t)sqlite3_column_int64(statement, 0),
                                       (enum erased_result)sqlite3_column_int(statement, 1)};
    }
    sqlite3_finalize(statement);
    return err;
}

enum err store_erased_lines(struct store *store, const char *batch_id,
                            struct store_erased_lines *ret_lines, struct error *error) {
    struct store_erased_lines lines = {0};
    pthread_mutex_lock(&store->lock);
    enum err err = read_lines(store, batch_id, &lines, error);
    pthread_mutex_unlock(&store->lock);
    if (err == OK)
        *ret_lines = lines;
    else
        store_erased_lines_release(&lines);
    return err;
}

void store_erased_lines_release(struct store_erased_lines *lines) {
    free(lines->at);
    *lines = (struct store_erased_lines){0};
}

void store_erased_skip(const struct store_erased_lines *lines, size_t *at, uint64_t *number) {
    while (*at < lines->count && lines->at[*at].line <= *number + 1) {
        if (lines->at[*at].line == *number + 1) (*number)++;
        (*at)++;
    }
}

/* --- the transaction --- */

/* Runs a statement whose parameters are ?1, the batch's id, and ?2. */
static enum err run_on(struct store *store, const char *sql, const char *batch_id, int64_t second,
                       int *ret_changes, struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(store, &statement, sql, error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(batch_id));
    if (sqlite3_bind_parameter_count(statement) > 1) sqlite3_bind_int64(statement, 2, second);
    return database_run(store, statement, ret_changes, error);
}

static enum err name_files(struct store *store, const struct store_erasing *erasing,
                           struct error *error) {
    const struct store_batch *batch = erasing->batch;
    sqlite3_stmt *statement;
    int changes = 0;
    enum err err = database_prepare(
        store, &statement,
        "UPDATE batches SET input_file_id = ?2, output_file_id = ?3, error_file_id = ?4"
        " WHERE id = ?1 AND status >= 4 AND deleted IS NULL AND input_file_id = ?5"
        " AND coalesce(output_file_id, '') = ?6 AND coalesce(error_file_id, '') = ?7",
        error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(batch->id));
    database_bind_str(statement, 2, str_from(erasing->input_id));
    database_bind_text_or_null(statement, 3, erasing->output_id);
    database_bind_text_or_null(statement, 4, erasing->error_id);
    database_bind_str(statement, 5, str_from(batch->input_file_id));
    database_bind_str(statement, 6, str_from(batch->output_file_id));
    database_bind_str(statement, 7, str_from(batch->error_file_id));
    err = database_run(store, statement, &changes, error);
    if (err == OK && changes == 0)
        err = err_set(error, ERR_CONFLICT, "Batch %s was changed or deleted meanwhile.", batch->id);
    return err;
}

/* Marks a file that the batch had, unless it stays. */
static enum err mark_file(struct store *store, const char *old, const char *now, int64_t now_unix_s,
                          struct error *error) {
    if (!*old || strcmp(old, now) == 0) return OK;
    return run_on(store, "UPDATE files SET deleted = ?2 WHERE id = ?1 AND deleted IS NULL", old,
                  now_unix_s, NULL, error);
}

static enum err add_lines(struct store *store, const struct store_erasing *erasing,
                          struct error *error) {
    sqlite3_stmt *statement;
    enum err err = OK;
    for (size_t i = 0; i < erasing->line_count && err == OK; i++) {
        err = database_prepare(
            store, &statement,
            "INSERT INTO erased_lines (batch_id, line, result) VALUES (?1, ?2, ?3)", error);
        if (err != OK) return err;
        database_bind_str(statement, 1, str_from(erasing->batch->id));
        sqlite3_bind_int64(statement, 2, (sqlite3_int64)erasing->lines[i].line);
        sqlite3_bind_int(statement, 3, (int)erasing->lines[i].result);
        err = database_run(store, statement, NULL, error);
    }
    return err;
}

#define OF_ERASED_LINES                                                                            \
    " FROM judgements WHERE batch_id = ?1 AND line IN"                                             \
    " (SELECT line FROM erased_lines WHERE batch_id = ?1)"

static enum err judgement_bytes(struct store *store, const char *batch_id, int64_t *ret_bytes,
                                struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    enum err err = database_prepare(
        store, &statement, "SELECT coalesce(sum" JUDGEMENT_BYTES ", 0)" OF_ERASED_LINES, error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(batch_id));
    err = database_step(store, statement, &row, error);
    if (err == OK) *ret_bytes = row ? sqlite3_column_int64(statement, 0) : 0;
    sqlite3_finalize(statement);
    return err;
}

static enum err remove_judgements(struct store *store, struct store_erasing *erasing,
                                  struct error *error) {
    const char *id = erasing->batch->id;
    int64_t bytes = 0;
    int rows = 0;
    enum err err = judgement_bytes(store, id, &bytes, error);
    if (err == OK) err = run_on(store, "DELETE" OF_ERASED_LINES, id, 0, &rows, error);
    erasing->judgements = (uint64_t)rows;
    if (err != OK || rows == 0) return err;
    err = run_on(store,
                 "DELETE FROM judgement_curators WHERE batch_id = ?1 AND NOT EXISTS"
                 " (SELECT 1 FROM judgements AS j WHERE j.batch_id = ?1 AND j.version = 1"
                 " AND j.curator = judgement_curators.curator)",
                 id, 0, NULL, error);
    if (err == OK)
        err = run_on(store, "UPDATE judgement_sums SET bytes = bytes - ?2 WHERE batch_id = ?1", id,
                     bytes, NULL, error);
    if (err == OK)
        err = run_on(store,
                     "UPDATE judgement_sums SET judgements = judgements - ?2, curators ="
                     " (SELECT count(*) FROM judgement_curators WHERE batch_id = ?1)"
                     " WHERE batch_id = ?1",
                     id, rows, NULL, error);
    if (err == OK)
        err = run_on(store, "DELETE FROM judgement_sums WHERE batch_id = ?1 AND judgements = 0", id,
                     0, NULL, error);
    return err;
}

/* Writes the rows that the proof rests on, and the record. */
static enum err write_proofs(struct store *store, const struct store_erasing *erasing,
                             int64_t now_unix_s, struct error *error) {
    enum err err = OK;
    for (size_t i = 0; i < erasing->proofs->count && err == OK; i++)
        err = proofs_put_row(store, erasing->batch->id, &erasing->proofs->files[i], error);
    if (err != OK) return err;
    struct buf record;
    buf_init(&record, BUF_UNLIMITED);
    buf_add_text(&record, erasing->record);
    buf_add_text(&record, ",\"others\":[");
    if (erasing->judgements)
        buf_printf(&record, "{\"name\":\"judgements\",\"lines\":%" PRIu64 "}", erasing->judgements);
    buf_add_text(&record, "]}");
    buf_add_byte(&record, '\0');
    err = erasures_add_row(store, erasing->batch->id, now_unix_s, record.at, error);
    buf_release(&record);
    return err;
}

static enum err erase_one(struct store *store, struct store_erasing *erasing, int64_t now_unix_s,
                          struct error *error) {
    const struct store_batch *batch = erasing->batch;
    enum err err = name_files(store, erasing, error);
    if (err == OK)
        err = mark_file(store, batch->output_file_id, erasing->output_id, now_unix_s, error);
    if (err == OK)
        err = mark_file(store, batch->error_file_id, erasing->error_id, now_unix_s, error);
    if (err == OK)
        err = mark_file(store, batch->input_file_id, erasing->input_id, now_unix_s, error);
    if (err == OK) err = add_lines(store, erasing, error);
    if (err == OK) err = remove_judgements(store, erasing, error);
    return err == OK ? write_proofs(store, erasing, now_unix_s, error) : err;
}

/* Refuses a batch that has the file still, once all that are erased have other ones. */
static enum err check_file(struct store *store, const char *owner, const char *old, const char *now,
                           struct error *error) {
    sqlite3_stmt *statement;
    char id[STORE_ID_BYTES] = "";
    bool row = false;
    if (!*old || strcmp(old, now) == 0) return OK;
    enum err err = database_prepare(store, &statement,
                                    "SELECT id FROM batches WHERE (input_file_id = ?1 OR"
                                    " output_file_id = ?1 OR error_file_id = ?1) AND owner = ?2"
                                    " AND deleted IS NULL ORDER BY sequence LIMIT 1",
                                    error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(old));
    database_bind_str(statement, 2, str_from(owner));
    err = database_step(store, statement, &row, error);
    if (err == OK && row) database_column(statement, 0, id, sizeof id);
    sqlite3_finalize(statement);
    if (err == OK && row)
        err =
            err_set(error, ERR_CONFLICT,
                    "Batch %s has the same file %s: name it as well, or delete it first.", id, old);
    return err;
}

static enum err check_files(struct store *store, const struct store_erasing *erasing,
                            struct error *error) {
    const struct store_batch *batch = erasing->batch;
    const char *const old[] = {batch->input_file_id, batch->output_file_id, batch->error_file_id};
    const char *const now[] = {erasing->input_id, erasing->output_id, erasing->error_id};
    enum err err = OK;
    for (size_t i = 0; i < sizeof old / sizeof *old && err == OK; i++)
        err = check_file(store, batch->owner, old[i], now[i], error);
    return err;
}

static enum err erase_all(struct store *store, void *context, struct error *error) {
    struct store_erasure *erasure = context;
    enum err err = OK;
    for (size_t i = 0; i < erasure->file_count && err == OK; i++)
        err = store_file_add_row(store, &erasure->files[i], error);
    for (size_t i = 0; i < erasure->batch_count && err == OK; i++)
        err = erase_one(store, &erasure->batches[i], erasure->now_unix_s, error);
    for (size_t i = 0; i < erasure->batch_count && err == OK; i++)
        err = check_files(store, &erasure->batches[i], error);
    return err;
}

enum err store_erase(struct store *store, struct store_erasure *erasure, struct error *error) {
    enum err err = database_transact(store, erase_all, erasure, error);
    for (size_t i = 0; i < erasure->file_count; i++)
        store_file_settle(store, erasure->files[i].id, err);
    return err;
}

enum err store_erase_notes(struct store *store, const char *batch_id, struct error *error) {
    enum err err = store_remove_studio(store, batch_id, error);
    if (err != OK) return err;
    char path[STORE_PATH_BYTES];
    int fd;
    store_path(store, path, "label_studio");
    err = os_open_dir(&fd, path, error);
    if (err != OK) return err == ERR_NOT_FOUND ? OK : err;
    err = store_sync_result(store, os_fsync(fd, error), error);
    os_close(fd);
    return err;
}
