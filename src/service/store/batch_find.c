/* SPDX-License-Identifier: Apache-2.0 */

/* Batches that a reader looks for, by state and text. */

#include "store/batches_internal.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define FILENAME_AT 44 /* behind those of BATCH_COLUMNS */

static bool has_text(const char *text, struct str wanted) {
    size_t bytes = text ? strlen(text) : 0;
    for (size_t i = 0; i + wanted.bytes <= bytes; i++)
        if (strncasecmp(text + i, wanted.at, wanted.bytes) == 0) return true;
    return false;
}

static bool is_wanted(const struct store_batch_wish *wish, const struct store_batch *batch,
                      const char *filename) {
    if (wish->statuses && !(wish->statuses >> batch->status & 1)) return false;
    return wish->text.bytes == 0 || has_text(batch->id, wish->text) ||
           has_text(batch->metadata, wish->text) || has_text(filename, wish->text);
}

/* Reads rows until `limit` are found, or STORE_BATCH_FIND_ROWS were looked at. The lock is held. */
static enum err find_rows(struct store *store, const struct store_batch_wish *wish, uint64_t before,
                          size_t limit, struct store_batch *ret_batches, size_t *ret_count,
                          bool *ret_has_more, char ret_last[STORE_ID_BYTES], struct error *error) {
    sqlite3_stmt *statement;
    enum err err =
        database_prepare(store, &statement,
                         "SELECT " BATCH_COLUMNS
                         ", (SELECT filename FROM files WHERE files.id = batches.input_file_id)"
                         " FROM batches WHERE sequence < ?1 AND deleted IS NULL"
                         " AND (?2 IS NULL OR owner = ?2)"
                         " ORDER BY sequence DESC LIMIT ?3",
                         error);
    if (err != OK) return err;
    sqlite3_bind_int64(statement, 1, (sqlite3_int64)before);
    if (wish->owner) database_bind_str(statement, 2, str_from(wish->owner));
    sqlite3_bind_int64(statement, 3, STORE_BATCH_FIND_ROWS + 1);
    size_t count = 0, seen = 0;
    bool row, has_more = false;
    while ((err = database_step(store, statement, &row, error)) == OK && row) {
        struct store_batch *batch = &ret_batches[count];
        has_more = count == limit || seen++ == STORE_BATCH_FIND_ROWS;
        if (has_more) break;
        batches_read_row(statement, batch);
        snprintf(ret_last, STORE_ID_BYTES, "%s", batch->id);
        if (is_wanted(wish, batch, (const char *)sqlite3_column_text(statement, FILENAME_AT)))
            count++;
        else
            store_batch_release(batch);
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

enum err store_batch_find(struct store *store, const struct store_batch_wish *wish,
                          struct str after, size_t limit, struct store_batch *ret_batches,
                          size_t *ret_count, bool *ret_has_more, char ret_last[STORE_ID_BYTES],
                          struct error *error) {
    uint64_t before;
    ret_last[0] = '\0';
    enum err err = batches_find_place(store, wish->owner, after, &before, error);
    if (err != OK) return err;
    pthread_mutex_lock(&store->lock);
    err = find_rows(store, wish, before, limit, ret_batches, ret_count, ret_has_more, ret_last,
                    error);
    pthread_mutex_unlock(&store->lock);
    return err;
}
