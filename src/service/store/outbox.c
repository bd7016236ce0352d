/* SPDX-License-Identifier: Apache-2.0 */
#include "store/outbox.h"

#include "base/buf.h"
#include "base/id.h"
#include "base/mem.h"
#include "store/outbox_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENT_ID_CHARACTERS 32
#define OPEN "state = 0" /* the same words as in the index outbox_open, so that SQLite uses it */

static const char *const event_names[OUTBOX_EVENT_COUNT] = {
#define OUTBOX_NAME(event, name) name,
    OUTBOX_EVENTS(OUTBOX_NAME)
#undef OUTBOX_NAME
};

_Static_assert(OUTBOX_BATCH_COMPLETED == 0 && OUTBOX_BATCH_CANCELLED == 3 &&
                   BATCH_CANCELLED - BATCH_COMPLETED == 3,
               "the first events are the terminal states in their order");

const char *outbox_event_name(enum outbox_event event) {
    return event_names[event];
}

bool outbox_event_find(struct str name, enum outbox_event *ret_event) {
    for (int i = 0; i < OUTBOX_EVENT_COUNT; i++) {
        if (!str_is(name, event_names[i])) continue;
        *ret_event = (enum outbox_event)i;
        return true;
    }
    return false;
}

void store_outbox_set_rules(struct store *store, const struct store_outbox_rules *rules) {
    pthread_mutex_lock(&store->lock);
    store->outbox = *rules;
    pthread_mutex_unlock(&store->lock);
}

void store_outbox_release(struct store_outbox_row *row) {
    free(row->url);
    row->url = NULL;
}

/* --- adding --- */

struct add {
    enum outbox_event event;
    struct str subject;
    int64_t created_unix_s;
    const char *own_url; /* NULL: none */
};

/* "https://host:port" of a URL that was checked when the batch was created. */
static struct str receiver_of(const char *url) {
    size_t start = strcspn(url, ":");
    if (strncmp(url + start, "://", 3) == 0) start += 3;
    size_t bytes = start + strcspn(url + start, "/?#");
    return (struct str){url, bytes < 255 ? bytes : 255};
}

static enum err add_row(struct store *store, const struct add *add, const char *event_id,
                        const char *url, struct error *error) {
    sqlite3_stmt *statement;
    enum err err =
        database_prepare(store, &statement,
                         "INSERT INTO outbox (event_id, type, subject, url, receiver, created,"
                         " due, attempts, state) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0)",
                         error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(event_id));
    database_bind_str(statement, 2, str_from(event_names[add->event]));
    database_bind_str(statement, 3, add->subject);
    database_bind_text_or_null(statement, 4, url);
    database_bind_str(statement, 5, url ? receiver_of(url) : STR(""));
    sqlite3_bind_int64(statement, 6, add->created_unix_s);
    sqlite3_bind_int64(statement, 7, add->created_unix_s * 1000);
    return database_run(store, statement, NULL, error);
}

static enum err add_rows(struct store *store, const struct add *add, struct error *error) {
    char event_id[STORE_ID_BYTES];
    enum err err = OK;
    bool to_config = store->outbox.config_events >> add->event & 1;
    if (!to_config && !add->own_url) return OK;
    id_hex(event_id, sizeof event_id, "evt_", EVENT_ID_CHARACTERS);
    if (to_config) err = add_row(store, add, event_id, NULL, error);
    if (err == OK && add->own_url) err = add_row(store, add, event_id, add->own_url, error);
    /* The thread that delivers needs the lock to look, so that it looks after the commit. */
    if (err == OK && store->outbox.added) store->outbox.added(store->outbox.context);
    return err;
}

int64_t store_batch_end_unix_s(const struct store_batch *batch) {
    switch (batch->status) {
    case BATCH_COMPLETED: return batch->completed_unix_s;
    case BATCH_FAILED: return batch->failed_unix_s;
    case BATCH_EXPIRED: return batch->expired_unix_s;
    case BATCH_CANCELLED: return batch->cancelled_unix_s;
    case BATCH_VALIDATING:
    case BATCH_IN_PROGRESS:
    case BATCH_FINALIZING:
    case BATCH_CANCELLING:
    case BATCH_STATUS_COUNT: break;
    }
    return 0;
}

enum err outbox_add_end(struct store *store, const struct store_batch *batch, struct error *error) {
    struct add add = {.event = (enum outbox_event)(batch->status - BATCH_COMPLETED),
                      .subject = str_from(batch->id),
                      .created_unix_s = store_batch_end_unix_s(batch),
                      .own_url = batch->webhook_url};
    return add_rows(store, &add, error);
}

static enum err add_in_transaction(struct store *store, void *context, struct error *error) {
    return add_rows(store, context, error);
}

enum err store_outbox_add(struct store *store, enum outbox_event event, struct str subject,
                          int64_t now_unix_s, struct error *error) {
    struct add add = {.event = event, .subject = subject, .created_unix_s = now_unix_s};
    return database_transact(store, add_in_transaction, &add, error);
}

/* --- delivering --- */

/* Writes ["https://a","https://b"]. Receivers come from URLs that were parsed, so that they hold no
 * control characters. One with a quote or a backslash is left out, and its rows are not skipped. */
static void write_busy(struct buf *buf, const char *const *busy, size_t busy_count) {
    buf_add_byte(buf, '[');
    for (size_t i = 0, written = 0; i < busy_count; i++) {
        if (strpbrk(busy[i], "\"\\")) continue;
        buf_printf(buf, "%s\"%s\"", written++ ? "," : "", busy[i]);
    }
    buf_add_byte(buf, ']');
}

static void read_row(sqlite3_stmt *statement, struct store_outbox_row *ret_row) {
    *ret_row = (struct store_outbox_row){
        .sequence = (uint64_t)sqlite3_column_int64(statement, 0),
        .created_unix_s = sqlite3_column_int64(statement, 6),
        .due_unix_ms = sqlite3_column_int64(statement, 7),
        .attempts = (uint32_t)sqlite3_column_int64(statement, 8),
    };
    database_column(statement, 1, ret_row->event_id, sizeof ret_row->event_id);
    database_column(statement, 2, ret_row->type, sizeof ret_row->type);
    database_column(statement, 3, ret_row->subject, sizeof ret_row->subject);
    database_column(statement, 5, ret_row->receiver, sizeof ret_row->receiver);
    ret_row->url = mem_text((const char *)sqlite3_column_text(statement, 4));
}

enum err store_outbox_next(struct store *store, int64_t now_unix_ms, const char *const *busy,
                           size_t busy_count, struct store_outbox_row *ret_row,
                           struct error *error) {
    sqlite3_stmt *statement;
    struct buf list;
    bool row = false;
    buf_init(&list, (size_t)1 << 20);
    write_busy(&list, busy, busy_count);
    pthread_mutex_lock(&store->lock);
    enum err err = database_prepare(
        store, &statement,
        "SELECT sequence, event_id, type, subject, url, receiver, created, due, attempts"
        " FROM outbox WHERE " OPEN " AND due <= ?1"
        " AND receiver NOT IN (SELECT value FROM json_each(?2)) ORDER BY due, sequence LIMIT 1",
        error);
    if (err == OK) {
        sqlite3_bind_int64(statement, 1, now_unix_ms);
        database_bind_str(statement, 2, buf_str(&list));
        err = database_step(store, statement, &row, error);
        if (err == OK && !row) err = err_set(error, ERR_NOT_FOUND, "nothing is due");
        if (err == OK) read_row(statement, ret_row);
        sqlite3_finalize(statement);
    }
    pthread_mutex_unlock(&store->lock);
    buf_release(&list);
    return err;
}

/* Reads one number; ERR_NOT_FOUND when it is NULL. */
static enum err read_number(struct store *store, const char *sql, int64_t *ret_value,
                            struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    pthread_mutex_lock(&store->lock);
    enum err err = database_prepare(store, &statement, sql, error);
    if (err == OK) {
        err = database_step(store, statement, &row, error);
        if (err == OK && (!row || sqlite3_column_type(statement, 0) == SQLITE_NULL))
            err = err_set(error, ERR_NOT_FOUND, "the outbox is empty");
        if (err == OK) *ret_value = sqlite3_column_int64(statement, 0);
        sqlite3_finalize(statement);
    }
    pthread_mutex_unlock(&store->lock);
    return err;
}

enum err store_outbox_due(struct store *store, int64_t *ret_due_unix_ms, struct error *error) {
    return read_number(store, "SELECT min(due) FROM outbox WHERE " OPEN, ret_due_unix_ms, error);
}

enum err store_outbox_open_count(struct store *store, uint64_t *ret_count, struct error *error) {
    int64_t count = 0;
    enum err err = read_number(store, "SELECT count(*) FROM outbox WHERE " OPEN, &count, error);
    if (err == OK) *ret_count = (uint64_t)count;
    return err;
}

static enum err pull_in(struct store *store, void *context, struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(store, &statement,
                                    "UPDATE outbox SET due = ?1 WHERE due > ?1 AND " OPEN, error);
    if (err != OK) return err;
    sqlite3_bind_int64(statement, 1, *(const int64_t *)context);
    return database_run(store, statement, NULL, error);
}

enum err store_outbox_pull_in(struct store *store, int64_t latest_unix_ms, struct error *error) {
    return database_transact(store, pull_in, &latest_unix_ms, error);
}

static enum err settle(struct store *store, void *context, struct error *error) {
    const struct store_outbox_attempt *attempt = context;
    sqlite3_stmt *statement;
    enum err err = database_prepare(store, &statement,
                                    "UPDATE outbox SET state = ?1, due = ?2, attempts = attempts"
                                    " + 1 WHERE sequence = ?3 AND " OPEN,
                                    error);
    if (err != OK) return err;
    sqlite3_bind_int(statement, 1, (int)attempt->state);
    sqlite3_bind_int64(statement, 2, attempt->due_unix_ms);
    sqlite3_bind_int64(statement, 3, (sqlite3_int64)attempt->sequence);
    err = database_run(store, statement, NULL, error);
    if (err != OK || attempt->state != OUTBOX_OPEN || !attempt->unreachable) return err;
    err = database_prepare(store, &statement,
                           "UPDATE outbox SET due = ?1 WHERE receiver = ?2 AND due < ?1 AND " OPEN,
                           error);
    if (err != OK) return err;
    sqlite3_bind_int64(statement, 1, attempt->due_unix_ms);
    database_bind_str(statement, 2, str_from(attempt->unreachable));
    return database_run(store, statement, NULL, error);
}

enum err store_outbox_settle(struct store *store, const struct store_outbox_attempt *attempt,
                             struct error *error) {
    struct store_outbox_attempt copy = *attempt;
    return database_transact(store, settle, &copy, error);
}

/* --- checking --- */

enum err store_outbox_count(struct store *store, const char *batch_id, enum outbox_event event,
                            uint64_t *ret_own, uint64_t *ret_foreign, struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    pthread_mutex_lock(&store->lock);
    enum err err = database_prepare(store, &statement,
                                    "SELECT coalesce(sum(type = ?2 AND url IS NOT NULL), 0),"
                                    " coalesce(sum(type <> ?2 AND type GLOB 'batch.*'), 0)"
                                    " FROM outbox WHERE subject = ?1",
                                    error);
    if (err == OK) {
        database_bind_str(statement, 1, str_from(batch_id));
        database_bind_str(statement, 2,
                          str_from(event == OUTBOX_EVENT_COUNT ? "" : event_names[event]));
        err = database_step(store, statement, &row, error);
        if (err == OK) {
            *ret_own = row ? (uint64_t)sqlite3_column_int64(statement, 0) : 0;
            *ret_foreign = row ? (uint64_t)sqlite3_column_int64(statement, 1) : 0;
        }
        sqlite3_finalize(statement);
    }
    pthread_mutex_unlock(&store->lock);
    return err;
}
