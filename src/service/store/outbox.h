/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* outbox: events that webhooks must report, one row per event and receiver.
 *
 * The rows of a batch's end are added in the transaction that ends the batch (store_batch_update).
 * So a crash forgets no end, and no end is reported before it is durable. notify/ delivers them.
 *
 * Two receivers exist: the URL of the configuration gets the events that the rules name, and a
 * batch's own URL gets that batch's end. Rows stay after delivery, as rows of batches do.
 *
 * A row of the table `outbox`:
 *
 *   sequence  number of the row, growing
 *   event_id  "evt_" and 32 hexadecimal digits; rows of one event share it
 *   type      the event's name, as in OUTBOX_EVENTS
 *   subject   id of the batch
 *   url       the batch's own URL; NULL: the URL of the configuration
 *   receiver  scheme, host and port of `url`; empty for the configuration
 *   created   time of the event, Unix seconds
 *   due       time of the next attempt, Unix milliseconds
 *   attempts  attempts made
 *   state     enum outbox_state: 0 open, 1 delivered, 2 given up
 *
 * Thread: any.
 * Memory: a row owns its URL; store_outbox_release frees it.
 * Invariant: all rows of one event have one event id, which never changes. */

#include "store/batches.h"

/* Event types and their names on the wire. The first four are the terminal states in their order.
 * The others are quern's own; only the configured URL gets them. */
#define OUTBOX_EVENTS(X)                                                                           \
    X(OUTBOX_BATCH_COMPLETED, "batch.completed")                                                   \
    X(OUTBOX_BATCH_FAILED, "batch.failed")                                                         \
    X(OUTBOX_BATCH_EXPIRED, "batch.expired")                                                       \
    X(OUTBOX_BATCH_CANCELLED, "batch.cancelled")                                                   \
    X(OUTBOX_BATCH_STUCK, "quern.batch.stuck")                                                     \
    X(OUTBOX_BATCH_AT_RISK, "quern.batch.deadline_at_risk")

enum outbox_event {
#define OUTBOX_ENUM(event, name) event,
    OUTBOX_EVENTS(OUTBOX_ENUM)
#undef OUTBOX_ENUM
        OUTBOX_EVENT_COUNT
};

/* Events that the configured URL gets by default: the four ends of a batch. */
#define OUTBOX_EVENTS_DEFAULT 0xFu

const char *outbox_event_name(enum outbox_event event);
bool outbox_event_find(struct str name, enum outbox_event *ret_event);

/* All zero: only the batches' own URLs get events. */
struct store_outbox_rules {
    uint32_t config_events; /* bit i: event i goes to the URL of the configuration */
    void *context;
    /* Called on any thread, with the store's lock held, when rows were added. NULL is allowed. */
    void (*added)(void *context);
};

/* Applies from the next transaction on. */
void store_outbox_set_rules(struct store *store, const struct store_outbox_rules *rules);

struct store_outbox_row {
    uint64_t sequence;
    char event_id[STORE_ID_BYTES];
    char type[48];
    char subject[STORE_ID_BYTES]; /* id of the batch */
    char *url;                    /* NULL: the URL of the configuration */
    char receiver[256];           /* scheme, host and port of the URL; empty without one */
    int64_t created_unix_s;
    int64_t due_unix_ms;
    uint32_t attempts; /* made so far */
};

void store_outbox_release(struct store_outbox_row *row);

/* Adds an event that is not the end of a batch; no row when the rules do not name it. */
enum err store_outbox_add(struct store *store, enum outbox_event event, struct str subject,
                          int64_t now_unix_s, struct error *error) MUST_CHECK;
/* The row that has been due longest at `now_unix_ms` and whose receiver is not in `busy`.
 * ERR_NOT_FOUND without such a row. The caller releases the row. */
enum err store_outbox_next(struct store *store, int64_t now_unix_ms, const char *const *busy,
                           size_t busy_count, struct store_outbox_row *ret_row,
                           struct error *error) MUST_CHECK;
/* The earliest time at which an open row is due, over all receivers; ERR_NOT_FOUND without one. */
enum err store_outbox_due(struct store *store, int64_t *ret_due_unix_ms,
                          struct error *error) MUST_CHECK;
/* Counts the rows that are neither delivered nor given up. */
enum err store_outbox_open_count(struct store *store, uint64_t *ret_count,
                                 struct error *error) MUST_CHECK;

/* Makes open rows that are due later than `latest_unix_ms` due then: a clock that was far ahead has
 * put them there. */
enum err store_outbox_pull_in(struct store *store, int64_t latest_unix_ms,
                              struct error *error) MUST_CHECK;

enum outbox_state { OUTBOX_OPEN, OUTBOX_DELIVERED, OUTBOX_GIVEN_UP };

struct store_outbox_attempt {
    uint64_t sequence;
    enum outbox_state state;
    int64_t due_unix_ms; /* time of the next attempt if the row stays open */
    /* The receiver that no connection reached: its other rows wait until due_unix_ms too. NULL: the
     * attempt reached a receiver. */
    const char *unreachable;
};

/* Counts an attempt and records its result. */
enum err store_outbox_settle(struct store *store, const struct store_outbox_attempt *attempt,
                             struct error *error) MUST_CHECK;

/* For fsck: counts the rows of the batch's own URL for `event` (OUTBOX_EVENT_COUNT: the batch has
 * not ended), and the rows that name another end of this batch. */
enum err store_outbox_count(struct store *store, const char *batch_id, enum outbox_event event,
                            uint64_t *ret_own, uint64_t *ret_foreign,
                            struct error *error) MUST_CHECK;
