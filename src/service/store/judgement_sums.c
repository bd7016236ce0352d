/* SPDX-License-Identifier: Apache-2.0 */
#include "store/files_internal.h"
#include "store/judgements_internal.h"

#include <inttypes.h>
#include <string.h>

const struct store_judgement_limits store_judgement_limits_usual = {
    .line_rows = 1000,
    .line_bytes = (uint64_t)4 << 20, /* 60 of the largest corrections, or 1,000 of 4 KiB */
    .batch_rows = 1000000,
    .batch_bytes = (uint64_t)1 << 30,
    .batch_curators = 1000,
};

struct sums {
    uint64_t rows, bytes, curators;
};

static uint64_t text_bytes(const char *text) {
    return text ? strlen(text) : 0;
}

static uint64_t bytes_of(const struct store_judgement *judgement) {
    return JUDGEMENT_ROW_BYTES + text_bytes(judgement->custom_id) + text_bytes(judgement->curator) +
           text_bytes(judgement->fields) + text_bytes(judgement->comment);
}

/* Reads three numbers of the statement's only row, zeros if it has none, and finalizes it. */
static enum err read_sums(struct store *store, sqlite3_stmt *statement, struct sums *ret_sums,
                          struct error *error) {
    bool row = false;
    *ret_sums = (struct sums){0};
    enum err err = database_step(store, statement, &row, error);
    if (err == OK && row)
        *ret_sums = (struct sums){(uint64_t)sqlite3_column_int64(statement, 0),
                                  (uint64_t)sqlite3_column_int64(statement, 1),
                                  (uint64_t)sqlite3_column_int64(statement, 2)};
    sqlite3_finalize(statement);
    return err;
}

/* Adds up the rows of the line, which are few: it looks at no more than are allowed. */
static enum err read_line(struct store *store, const struct store_judgement *judgement,
                          uint64_t rows_max, struct sums *ret_sums, struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(
        store, &statement,
        "SELECT count(*), coalesce(sum(bytes), 0), 0 FROM (SELECT " JUDGEMENT_BYTES " AS bytes"
        " FROM judgements WHERE batch_id = ?1 AND line = ?2 LIMIT ?3)",
        error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(judgement->batch_id));
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)judgement->line);
    sqlite3_bind_int64(statement, 3, (sqlite3_int64)rows_max);
    return read_sums(store, statement, ret_sums, error);
}

static enum err read_batch(struct store *store, const char *batch_id, struct sums *ret_sums,
                           struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(
        store, &statement,
        "SELECT judgements, bytes, curators FROM judgement_sums WHERE batch_id = ?1", error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(batch_id));
    return read_sums(store, statement, ret_sums, error);
}

static enum err check_owner(struct store *store, const struct store_judgement *judgement,
                            uint64_t bytes, uint64_t bytes_max, struct error *error) {
    sqlite3_stmt *statement;
    char owner[OWNER_BYTES] = "";
    bool row = false;
    if (!bytes_max) return OK;
    enum err err =
        database_prepare(store, &statement, "SELECT owner FROM batches WHERE id = ?1", error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(judgement->batch_id));
    err = database_step(store, statement, &row, error);
    if (err == OK && row) database_column(statement, 0, owner, sizeof owner);
    sqlite3_finalize(statement);
    if (err != OK) return err;
    return store_owner_has_room(store, owner, judgement->created_unix_s, bytes, bytes_max, error);
}

/* Notes the curator; *ret_changes is 1 for one that is new in the batch. */
static enum err note_curator(struct store *store, const struct store_judgement *judgement,
                             int *ret_changes, struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(store, &statement,
                                    "INSERT INTO judgement_curators (batch_id, curator)"
                                    " VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                                    error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(judgement->batch_id));
    database_bind_str(statement, 2, str_from(judgement->curator));
    return database_run(store, statement, ret_changes, error);
}

static enum err write_sums(struct store *store, const struct store_judgement *judgement,
                           uint64_t bytes, int curators, struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(
        store, &statement,
        "INSERT INTO judgement_sums (batch_id, owner, judgements, bytes, curators)"
        " VALUES (?1, coalesce((SELECT owner FROM batches WHERE id = ?1), ''), 1, ?2, ?3)"
        " ON CONFLICT (batch_id) DO UPDATE SET judgements = judgements + 1,"
        " bytes = bytes + ?2, curators = curators + ?3",
        error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(judgement->batch_id));
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)bytes);
    sqlite3_bind_int(statement, 3, curators);
    return database_run(store, statement, NULL, error);
}

/* Refuses a row that is one too many for its line or its batch. */
static enum err check(const struct store_judgement *judgement, const struct sums *line,
                      const struct sums *batch, uint64_t bytes,
                      const struct store_judgement_limits *limits, struct error *error) {
    if (line->rows >= limits->line_rows)
        return err_set(error, ERR_INVALID,
                       "Line %" PRIu64 " has %" PRIu64 " judgements, which is the limit of a line.",
                       judgement->line, line->rows);
    if (line->bytes + bytes > limits->line_bytes)
        return err_set(error, ERR_INVALID,
                       "The judgements of line %" PRIu64 " have %" PRIu64
                       " bytes, this one has %" PRIu64 ", and the limit of a line is %" PRIu64 ".",
                       judgement->line, line->bytes, bytes, limits->line_bytes);
    if (batch->rows >= limits->batch_rows)
        return err_set(error, ERR_INVALID,
                       "The batch has %" PRIu64 " judgements, which is the limit of a batch.",
                       batch->rows);
    if (batch->bytes + bytes > limits->batch_bytes)
        return err_set(error, ERR_INVALID,
                       "The judgements of the batch have %" PRIu64 " bytes, this one has %" PRIu64
                       ", and the limit of a batch is %" PRIu64 ".",
                       batch->bytes, bytes, limits->batch_bytes);
    return OK;
}

enum err judgement_sums_add(struct store *store, const struct store_judgement *judgement,
                            const struct store_judgement_limits *limits, struct error *error) {
    struct sums line, batch;
    uint64_t bytes = bytes_of(judgement);
    int curators = 0;
    enum err err = read_line(store, judgement, limits->line_rows, &line, error);
    if (err == OK) err = read_batch(store, judgement->batch_id, &batch, error);
    if (err == OK) err = check(judgement, &line, &batch, bytes, limits, error);
    if (err == OK) err = check_owner(store, judgement, bytes, limits->owner_bytes, error);
    if (err == OK) err = note_curator(store, judgement, &curators, error);
    if (err == OK && curators && batch.curators >= limits->batch_curators)
        err = err_set(error, ERR_INVALID,
                      "The batch has judgements of %" PRIu64
                      " curators, which is the limit of a batch.",
                      batch.curators);
    return err == OK ? write_sums(store, judgement, bytes, curators, error) : err;
}
