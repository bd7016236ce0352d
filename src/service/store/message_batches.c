/* SPDX-License-Identifier: Apache-2.0 */

/* The list of batches for /v1/messages, which goes in both directions. Its index has only these
 * batches, so that a page costs nothing for the others. */

#include "base/mem.h"
#include "store/batches_internal.h"

#include <stdlib.h>
#include <string.h>

#define THESE                                                                                      \
    " FROM batches INDEXED BY batches_messages WHERE endpoint = '/v1/messages'"                    \
    " AND deleted IS NULL AND (?3 IS NULL OR owner = ?3)"

/* The place of a batch in the list. */
static enum err find_place(struct store *store, const char *owner, struct str id,
                           sqlite3_int64 *ret_sequence, struct error *error) {
    struct store_batch batch;
    enum err err = store_batch_get(store, id, &batch, error);
    if (err == OK) {
        bool is_one = strcmp(batch.endpoint, "/v1/messages") == 0 &&
                      (!owner || strcmp(owner, batch.owner) == 0);
        *ret_sequence = (sqlite3_int64)batch.sequence;
        store_batch_release(&batch);
        if (!is_one) err = ERR_NOT_FOUND;
    }
    if (err != ERR_NOT_FOUND) return err;
    return err_set(error, ERR_INVALID, "there is no batch '%.*s' in the list",
                   (int)(id.bytes < 80 ? id.bytes : 80), id.at);
}

static void reverse(struct store_batch *batches, size_t count) {
    for (size_t i = 0; i < count / 2; i++) {
        struct store_batch other = batches[i];
        batches[i] = batches[count - 1 - i];
        batches[count - 1 - i] = other;
    }
}

/* Reads one row more than the page has. The lock is held. */
static enum err read_rows(struct store *store, const struct store_message_page *page,
                          bool is_upwards, sqlite3_int64 place, struct store_batch *ret_batches,
                          size_t *ret_count, bool *ret_has_more, struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(
        store, &statement,
        is_upwards ? "SELECT " BATCH_COLUMNS THESE " AND sequence > ?1 ORDER BY sequence LIMIT ?2"
                   : "SELECT " BATCH_COLUMNS THESE
                     " AND sequence < ?1 ORDER BY sequence DESC LIMIT ?2",
        error);
    if (err != OK) return err;
    sqlite3_bind_int64(statement, 1, place);
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)page->limit + 1);
    if (page->owner)
        database_bind_str(statement, 3, str_from(page->owner));
    else
        sqlite3_bind_null(statement, 3);
    size_t count = 0;
    bool row, has_more = false;
    while ((err = database_step(store, statement, &row, error)) == OK && row) {
        has_more = count == page->limit;
        if (has_more) break;
        batches_read_row(statement, &ret_batches[count++]);
    }
    sqlite3_finalize(statement);
    if (err != OK) {
        while (count > 0) store_batch_release(&ret_batches[--count]);
        return err;
    }
    if (is_upwards) reverse(ret_batches, count);
    *ret_count = count;
    *ret_has_more = has_more;
    return OK;
}

enum err store_message_batch_list(struct store *store, const struct store_message_page *page,
                                  struct store_batch *ret_batches, size_t *ret_count,
                                  bool *ret_has_more, struct error *error) {
    bool is_upwards = page->before.bytes > 0;
    struct str from = is_upwards ? page->before : page->after;
    sqlite3_int64 place = INT64_MAX;
    enum err err = from.bytes > 0 ? find_place(store, page->owner, from, &place, error) : OK;
    if (err != OK) return err;
    pthread_mutex_lock(&store->lock);
    err = read_rows(store, page, is_upwards, place, ret_batches, ret_count, ret_has_more, error);
    pthread_mutex_unlock(&store->lock);
    return err;
}
