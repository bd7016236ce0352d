/* SPDX-License-Identifier: Apache-2.0 */
#include "store/batches_internal.h"

#include "base/mem.h"
#include "store/files_internal.h"
#include "store/fsck.h"
#include "store/outbox_internal.h"
#include "store/proofs_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void store_batch_release(struct store_batch *batch) {
    free(batch->metadata);
    free(batch->webhook_url);
    free(batch->errors);
    free(batch->extras);
    free(batch->quality);
    batch->metadata = batch->webhook_url = batch->errors = batch->extras = batch->quality = NULL;
}

static char *column_copy(sqlite3_stmt *statement, int at) {
    return mem_text((const char *)sqlite3_column_text(statement, at));
}

static uint64_t column_u64(sqlite3_stmt *statement, int at) {
    int64_t value = sqlite3_column_int64(statement, at);
    return value < 0 ? 0 : (uint64_t)value;
}

/* The column is unique over all owners, so it holds "owner US key", and the key alone for the
 * default owner, whose keys hold no US (unit separator). */
#define KEY_COLUMN_BYTES (OWNER_BYTES + 256)

static const char *write_key(char ret_column[KEY_COLUMN_BYTES], const char *owner,
                             const char *key) {
    ret_column[0] = '\0';
    if (*key) snprintf(ret_column, KEY_COLUMN_BYTES, "%s%s%s", owner, *owner ? "\x1f" : "", key);
    return ret_column;
}

static void read_key(sqlite3_stmt *statement, int at, struct store_batch *batch) {
    char column[KEY_COLUMN_BYTES];
    database_column(statement, at, column, sizeof column);
    const char *separator = strchr(column, '\x1f');
    snprintf(batch->idempotency_key, sizeof batch->idempotency_key, "%.255s",
             separator ? separator + 1 : column);
}

static void read_fixed(sqlite3_stmt *statement, struct store_batch *batch) {
    batch->sequence = column_u64(statement, 0);
    database_column(statement, 1, batch->id, sizeof batch->id);
    database_column(statement, 2, batch->endpoint, sizeof batch->endpoint);
    database_column(statement, 3, batch->input_file_id, sizeof batch->input_file_id);
    database_column(statement, 4, batch->completion_window, sizeof batch->completion_window);
    batch->metadata = column_copy(statement, 5);
    batch->webhook_url = column_copy(statement, 6);
    database_column(statement, 7, batch->service_tier, sizeof batch->service_tier);
    batch->priority = (int32_t)sqlite3_column_int64(statement, 8);
    batch->output_expires_after_s = sqlite3_column_int64(statement, 9);
    batch->created_unix_s = sqlite3_column_int64(statement, 10);
    batch->expires_unix_s = sqlite3_column_int64(statement, 11);
    database_column(statement, 38, batch->owner, sizeof batch->owner);
    read_key(statement, 12, batch);
    const void *digest = sqlite3_column_blob(statement, 13);
    if (digest && sqlite3_column_bytes(statement, 13) == SHA256_BYTES)
        memcpy(batch->parameters_sha256, digest, SHA256_BYTES);
}

void batches_read_row(sqlite3_stmt *statement, struct store_batch *ret_batch) {
    struct store_batch batch = {0};
    read_fixed(statement, &batch);
    /* The table's CHECK keeps both in range. */
    batch.status = (enum batch_status)sqlite3_column_int(statement, 14);
    batch.final_status = (enum batch_status)sqlite3_column_int(statement, 15);
    batch.in_progress_unix_s = sqlite3_column_int64(statement, 16);
    batch.finalizing_unix_s = sqlite3_column_int64(statement, 17);
    batch.completed_unix_s = sqlite3_column_int64(statement, 18);
    batch.failed_unix_s = sqlite3_column_int64(statement, 19);
    batch.expired_unix_s = sqlite3_column_int64(statement, 20);
    batch.cancelling_unix_s = sqlite3_column_int64(statement, 21);
    batch.cancelled_unix_s = sqlite3_column_int64(statement, 22);
    database_column(statement, 23, batch.model, sizeof batch.model);
    batch.errors = column_copy(statement, 24);
    database_column(statement, 25, batch.output_file_id, sizeof batch.output_file_id);
    database_column(statement, 26, batch.error_file_id, sizeof batch.error_file_id);
    batch.total = column_u64(statement, 27);
    batch.completed = column_u64(statement, 28);
    batch.failed = column_u64(statement, 29);
    batch.has_usage = sqlite3_column_int(statement, 30) != 0;
    batch.usage = (struct usage){column_u64(statement, 31), column_u64(statement, 32),
                                 column_u64(statement, 33), column_u64(statement, 34),
                                 column_u64(statement, 36), column_u64(statement, 37)};
    batch.epoch = (uint32_t)sqlite3_column_int64(statement, 35);
    database_column(statement, 39, batch.retry_of, sizeof batch.retry_of);
    batch.extras = column_copy(statement, 40);
    batch.paused = (enum batch_paused)sqlite3_column_int(statement, 41);
    batch.quality = column_copy(statement, 42);
    batch.inline_requests = column_u64(statement, 43);
    *ret_batch = batch;
}

/* The columns that store_batch_update changes. */
#define CHANGING                                                                                   \
    "status = ?1, final_status = ?2, in_progress = ?3, finalizing = ?4, completed_at = ?5,"        \
    " failed_at = ?6, expired_at = ?7, cancelling = ?8, cancelled_at = ?9, model = ?10,"           \
    " errors = ?11, output_file_id = ?12, error_file_id = ?13, total = ?14, completed = ?15,"      \
    " failed = ?16, has_usage = ?17, input_tokens = ?18, cached_tokens = ?19,"                     \
    " output_tokens = ?20, reasoning_tokens = ?21, epoch = ?22"
#define CHANGING_LATER                                                                             \
    " , reused_input_tokens = ?36, reused_output_tokens = ?37, paused = ?38, quality = ?39"

static void bind_changing(sqlite3_stmt *statement, const struct store_batch *batch) {
    sqlite3_bind_int(statement, 1, (int)batch->status);
    sqlite3_bind_int(statement, 2, (int)batch->final_status);
    database_bind_i64_or_null(statement, 3, batch->in_progress_unix_s);
    database_bind_i64_or_null(statement, 4, batch->finalizing_unix_s);
    database_bind_i64_or_null(statement, 5, batch->completed_unix_s);
    database_bind_i64_or_null(statement, 6, batch->failed_unix_s);
    database_bind_i64_or_null(statement, 7, batch->expired_unix_s);
    database_bind_i64_or_null(statement, 8, batch->cancelling_unix_s);
    database_bind_i64_or_null(statement, 9, batch->cancelled_unix_s);
    database_bind_text_or_null(statement, 10, batch->model);
    database_bind_text_or_null(statement, 11, batch->errors);
    database_bind_text_or_null(statement, 12, batch->output_file_id);
    database_bind_text_or_null(statement, 13, batch->error_file_id);
    sqlite3_bind_int64(statement, 14, (sqlite3_int64)batch->total);
    sqlite3_bind_int64(statement, 15, (sqlite3_int64)batch->completed);
    sqlite3_bind_int64(statement, 16, (sqlite3_int64)batch->failed);
    sqlite3_bind_int(statement, 17, batch->has_usage);
    sqlite3_bind_int64(statement, 18, (sqlite3_int64)batch->usage.input_tokens);
    sqlite3_bind_int64(statement, 19, (sqlite3_int64)batch->usage.cached_tokens);
    sqlite3_bind_int64(statement, 20, (sqlite3_int64)batch->usage.output_tokens);
    sqlite3_bind_int64(statement, 21, (sqlite3_int64)batch->usage.reasoning_tokens);
    sqlite3_bind_int64(statement, 22, batch->epoch);
}

static enum err insert_row(struct store *store, void *context, struct error *error) {
    struct store_batch *batch = context;
    char key[KEY_COLUMN_BYTES];
    sqlite3_stmt *statement;
    enum err err = database_prepare(
        store, &statement,
        "INSERT INTO batches (status, final_status, in_progress, finalizing, completed_at,"
        " failed_at, expired_at, cancelling, cancelled_at, model, errors, output_file_id,"
        " error_file_id, total, completed, failed, has_usage, input_tokens, cached_tokens,"
        " output_tokens, reasoning_tokens, epoch, id, endpoint, input_file_id, completion_window,"
        " metadata, webhook_url, service_tier, priority, output_expires_after, created, expires,"
        " idempotency_key, parameters_sha256, owner, retry_of, extras, inline_requests)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,"
        " ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, "
        "?36, ?37, ?38, ?39)",
        error);
    if (err != OK) return err;
    bind_changing(statement, batch);
    database_bind_str(statement, 23, str_from(batch->id));
    database_bind_str(statement, 24, str_from(batch->endpoint));
    database_bind_str(statement, 25, str_from(batch->input_file_id));
    database_bind_str(statement, 26, str_from(batch->completion_window));
    database_bind_text_or_null(statement, 27, batch->metadata);
    database_bind_text_or_null(statement, 28, batch->webhook_url);
    database_bind_text_or_null(statement, 29, batch->service_tier);
    sqlite3_bind_int64(statement, 30, batch->priority);
    database_bind_i64_or_null(statement, 31, batch->output_expires_after_s);
    sqlite3_bind_int64(statement, 32, batch->created_unix_s);
    sqlite3_bind_int64(statement, 33, batch->expires_unix_s);
    database_bind_text_or_null(statement, 34, write_key(key, batch->owner, batch->idempotency_key));
    sqlite3_bind_blob(statement, 35, batch->parameters_sha256, SHA256_BYTES, SQLITE_TRANSIENT);
    database_bind_str(statement, 36, str_from(batch->owner));
    database_bind_text_or_null(statement, 37, batch->retry_of);
    database_bind_text_or_null(statement, 38, batch->extras);
    sqlite3_bind_int64(statement, 39, (sqlite3_int64)batch->inline_requests);
    err = database_run(store, statement, NULL, error);
    if (err == OK) batch->sequence = (uint64_t)sqlite3_last_insert_rowid(store->db);
    return err;
}

enum err store_batch_insert(struct store *store, struct store_batch *batch, struct error *error) {
    return database_transact(store, insert_row, batch, error);
}

struct insert_call {
    struct store_batch *batch;
    const struct store_batch_limits *limits;
    struct store_file *input; /* the input file to add with the batch, or NULL */
};

/* Counts the owner's unfinished batches, and the bytes of their inputs and of a new one (empty:
 * none). The caller holds the lock. */
static enum err read_load(struct store *store, const char *owner, const char *new_input_id,
                          uint64_t *ret_batches, uint64_t *ret_bytes, struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    enum err err =
        database_prepare(store, &statement,
                         "SELECT count(*), coalesce(sum(f.bytes), 0)"
                         " + coalesce((SELECT bytes FROM files WHERE id = ?2 AND owner = ?1), 0)"
                         " FROM batches b LEFT JOIN files f ON f.id = b.input_file_id"
                         " WHERE b.owner = ?1 AND b.status < 4",
                         error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(owner));
    database_bind_str(statement, 2, str_from(new_input_id));
    err = database_step(store, statement, &row, error);
    if (err == OK) {
        *ret_batches = row ? column_u64(statement, 0) : 0;
        *ret_bytes = row ? column_u64(statement, 1) : 0;
    }
    sqlite3_finalize(statement);
    return err;
}

enum err store_owner_load(struct store *store, const char *owner, uint64_t *ret_batches,
                          uint64_t *ret_input_bytes, struct error *error) {
    pthread_mutex_lock(&store->lock);
    enum err err = read_load(store, owner, "", ret_batches, ret_input_bytes, error);
    pthread_mutex_unlock(&store->lock);
    return err;
}

static enum err insert_within(struct store *store, void *context, struct error *error) {
    const struct insert_call *call = context;
    struct store_batch *batch = call->batch;
    uint64_t batches = 0, bytes = 0;
    enum err err = call->input ? store_file_add_row(store, call->input, error) : OK;
    if (err == OK)
        err = read_load(store, batch->owner, batch->input_file_id, &batches, &bytes, error);
    if (err != OK) return err;
    if (call->limits->batches_max && batches >= call->limits->batches_max)
        return err_set(error, ERR_LIMIT, "%llu %s under way already, as many as allowed",
                       (unsigned long long)batches, plural(batches, "batch is", "batches are"));
    bool is_over = call->limits->input_bytes_max && bytes > call->limits->input_bytes_max;
    if (is_over && !call->limits->over_bytes)
        return err_set(error, ERR_LIMIT,
                       "the inputs of unfinished batches have %llu bytes, and at "
                       "most %llu are allowed",
                       (unsigned long long)bytes,
                       (unsigned long long)call->limits->input_bytes_max);
    if (is_over && batch->status == BATCH_VALIDATING) {
        batch->status = BATCH_FAILED;
        batch->failed_unix_s = batch->created_unix_s;
        batch->errors = mem_text(call->limits->over_bytes);
    }
    err = insert_row(store, batch, error);
    return err == OK && is_over ? outbox_add_end(store, batch, error) : err;
}

enum err store_batch_insert_within(struct store *store, struct store_batch *batch,
                                   const struct store_batch_limits *limits, struct error *error) {
    if (!limits->batches_max && !limits->input_bytes_max)
        return store_batch_insert(store, batch, error);
    struct insert_call call = {batch, limits, NULL};
    return database_transact(store, insert_within, &call, error);
}

enum err store_batch_insert_with_input(struct store *store, struct store_batch *batch,
                                       const struct store_batch_limits *limits,
                                       struct store_spool *spool, struct store_file *file,
                                       struct error *error) {
    struct insert_call call = {batch, limits, file};
    enum err err = store_spool_place(spool, file, error);
    if (err != OK) return err;
    memcpy(batch->input_file_id, file->id, sizeof batch->input_file_id);
    err = database_transact(store, insert_within, &call, error);
    store_file_settle(store, file->id, err);
    return err;
}

/* Reads the first row of a statement and finalizes it. */
static enum err first_row(struct store *store, sqlite3_stmt *statement,
                          struct store_batch *ret_batch, struct error *error) {
    bool row;
    enum err err = database_step(store, statement, &row, error);
    if (err == OK && !row) err = err_set(error, ERR_NOT_FOUND, "there is no such batch");
    if (err == OK) batches_read_row(statement, ret_batch);
    sqlite3_finalize(statement);
    return err;
}

static enum err get_by_text(struct store *store, const char *sql, struct str text,
                            struct store_batch *ret_batch, struct error *error) {
    sqlite3_stmt *statement;
    pthread_mutex_lock(&store->lock);
    enum err err = database_prepare(store, &statement, sql, error);
    if (err == OK) {
        database_bind_str(statement, 1, text);
        err = first_row(store, statement, ret_batch, error);
    }
    pthread_mutex_unlock(&store->lock);
    return err;
}

enum err store_batch_get(struct store *store, struct str id, struct store_batch *ret_batch,
                         struct error *error) {
    enum err err =
        get_by_text(store, "SELECT " BATCH_COLUMNS " FROM batches WHERE id = ? AND deleted IS NULL",
                    id, ret_batch, error);
    if (err == ERR_NOT_FOUND)
        err_set(error, err, "No batch found with id '%.*s'.", (int)(id.bytes < 80 ? id.bytes : 80),
                id.bytes ? id.at : "");
    return err;
}

enum err store_batch_get_by_key(struct store *store, const char *owner, const char *idempotency_key,
                                struct store_batch *ret_batch, struct error *error) {
    char key[KEY_COLUMN_BYTES];
    return get_by_text(store, "SELECT " BATCH_COLUMNS " FROM batches WHERE idempotency_key = ?",
                       str_from(write_key(key, owner, idempotency_key)), ret_batch, error);
}

/* Rows older than `before`, newest first. The lock is held. */
static enum err read_page(struct store *store, const char *owner, uint64_t before, size_t limit,
                          struct store_batch *ret_batches, size_t *ret_count, bool *ret_has_more,
                          struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(
        store, &statement,
        owner ? "SELECT " BATCH_COLUMNS " FROM batches INDEXED BY batches_of WHERE sequence < ?1"
                " AND owner = ?3 AND deleted IS NULL ORDER BY sequence DESC LIMIT ?2"
              : "SELECT " BATCH_COLUMNS " FROM batches WHERE sequence < ?1 AND deleted IS NULL"
                " ORDER BY sequence DESC LIMIT ?2",
        error);
    if (err != OK) return err;
    sqlite3_bind_int64(statement, 1, (sqlite3_int64)before);
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)limit + 1);
    if (owner) database_bind_str(statement, 3, str_from(owner));
    size_t count = 0;
    bool row, has_more = false;
    while ((err = database_step(store, statement, &row, error)) == OK && row) {
        has_more = count == limit;
        if (has_more) break;
        batches_read_row(statement, &ret_batches[count++]);
    }
    sqlite3_finalize(statement);
    if (err != OK) {
        while (count > 0) store_batch_release(&ret_batches[--count]);
        return err;
    }
    *ret_count = count;
    *ret_has_more = has_more;
    return OK;
}

enum err batches_find_place(struct store *store, const char *owner, struct str after,
                            uint64_t *ret_before, struct error *error) {
    struct store_batch batch;
    *ret_before = INT64_MAX;
    if (after.bytes == 0) return OK;
    enum err err = store_batch_get(store, after, &batch, error);
    if (err == OK && owner && strcmp(owner, batch.owner) != 0) {
        store_batch_release(&batch);
        err = ERR_NOT_FOUND;
    }
    if (err == ERR_NOT_FOUND)
        return err_set(error, ERR_INVALID, "after: there is no batch '%.*s' to go on from",
                       (int)(after.bytes < 80 ? after.bytes : 80), after.at);
    if (err != OK) return err;
    *ret_before = batch.sequence;
    store_batch_release(&batch);
    return OK;
}

enum err store_batch_list(struct store *store, const char *owner, struct str after, size_t limit,
                          struct store_batch *ret_batches, size_t *ret_count, bool *ret_has_more,
                          struct error *error) {
    uint64_t before;
    enum err err = batches_find_place(store, owner, after, &before, error);
    if (err != OK) return err;
    pthread_mutex_lock(&store->lock);
    err = read_page(store, owner, before, limit, ret_batches, ret_count, ret_has_more, error);
    pthread_mutex_unlock(&store->lock);
    return err;
}

static enum err next_row(struct store *store, const char *sql, uint64_t after_sequence,
                         struct store_batch *ret_batch, struct error *error) {
    sqlite3_stmt *statement;
    pthread_mutex_lock(&store->lock);
    enum err err = database_prepare(store, &statement, sql, error);
    if (err == OK) {
        sqlite3_bind_int64(statement, 1, (sqlite3_int64)after_sequence);
        err = first_row(store, statement, ret_batch, error);
    }
    pthread_mutex_unlock(&store->lock);
    return err;
}

enum err store_batch_next_live(struct store *store, uint64_t after_sequence,
                               struct store_batch *ret_batch, struct error *error) {
    return next_row(store,
                    "SELECT " BATCH_COLUMNS " FROM batches WHERE sequence > ? AND status < 4"
                    " ORDER BY sequence LIMIT 1",
                    after_sequence, ret_batch, error);
}

enum err store_batch_next(struct store *store, uint64_t after_sequence,
                          struct store_batch *ret_batch, struct error *error) {
    return next_row(store,
                    "SELECT " BATCH_COLUMNS " FROM batches WHERE sequence > ? AND deleted IS NULL"
                    " ORDER BY sequence LIMIT 1",
                    after_sequence, ret_batch, error);
}

struct update_call {
    const struct store_batch *batch;
    enum batch_status from;
    const struct store_published *published; /* NULL: nothing */
};

/* The rows of files and proofs. */
static enum err add_published(struct store *store, const struct update_call *call,
                              struct error *error) {
    const struct store_published *published = call->published;
    enum err err = OK;
    for (size_t i = 0; published && i < published->file_count && err == OK; i++) {
        struct store_file file = published->files[i];
        err = store_file_add_row(store, &file, error);
    }
    for (size_t i = 0; published && i < published->proof_count && err == OK; i++)
        err = proofs_put_row(store, call->batch->id, &published->proofs[i], error);
    return err;
}

static enum err update_row(struct store *store, void *context, struct error *error) {
    const struct update_call *call = context;
    sqlite3_stmt *statement;
    int changes = 0;
    enum err err = database_prepare(
        store, &statement,
        "UPDATE batches SET " CHANGING CHANGING_LATER " WHERE id = ?23 AND status = ?24", error);
    if (err != OK) return err;
    bind_changing(statement, call->batch);
    database_bind_str(statement, 23, str_from(call->batch->id));
    sqlite3_bind_int(statement, 24, (int)call->from);
    sqlite3_bind_int64(statement, 36, (sqlite3_int64)call->batch->usage.reused_input_tokens);
    sqlite3_bind_int64(statement, 37, (sqlite3_int64)call->batch->usage.reused_output_tokens);
    sqlite3_bind_int(statement, 38, (int)call->batch->paused);
    database_bind_text_or_null(statement, 39, call->batch->quality);
    err = database_run(store, statement, &changes, error);
    if (err == OK && changes == 0)
        err = err_set(error, ERR_CONFLICT, "batch %s is in another state by now", call->batch->id);
    if (err == OK) err = add_published(store, call, error);
    if (err == OK && call->from < BATCH_COMPLETED && call->batch->status >= BATCH_COMPLETED)
        err = outbox_add_end(store, call->batch, error);
    return err;
}

enum err store_batch_update(struct store *store, const struct store_batch *batch,
                            enum batch_status from, const struct store_published *published,
                            struct error *error) {
    struct update_call call = {batch, from, published};
    enum err err = database_transact(store, update_row, &call, error);
    if (err != OK) return err;
    for (size_t i = 0; published && i < published->file_count; i++)
        store_file_settle(store, published->files[i].id, OK);
    if (from < BATCH_COMPLETED && batch->status >= BATCH_COMPLETED) store_note_end(store, batch);
    return OK;
}

enum err store_batch_counts(struct store *store, uint64_t ret_counts[BATCH_STATUS_COUNT],
                            struct error *error) {
    uint64_t counts[BATCH_STATUS_COUNT] = {0};
    sqlite3_stmt *statement;
    pthread_mutex_lock(&store->lock);
    enum err err = database_prepare(store, &statement,
                                    "SELECT status, count(*) FROM batches WHERE deleted IS NULL"
                                    " GROUP BY status",
                                    error);
    if (err == OK) {
        bool row;
        while ((err = database_step(store, statement, &row, error)) == OK && row)
            counts[sqlite3_column_int(statement, 0) & (BATCH_STATUS_COUNT - 1)] =
                column_u64(statement, 1);
        sqlite3_finalize(statement);
    }
    pthread_mutex_unlock(&store->lock);
    if (err == OK) memcpy(ret_counts, counts, sizeof counts);
    return err;
}
