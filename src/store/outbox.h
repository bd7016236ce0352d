/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* outbox: events that have to be told to somebody outside, one row for each event and receiver. The
 * rows of a batch's end are written in the transaction that ends it (store_batch_update), so that
 * no end is forgotten by a crash and none is told before it is durable. notify/ delivers them.
 *
 * Who gets what is a small set of rules, given by the opener: the URL of the configuration for the
 * events it asks for, and a batch's own URL for that batch's end. Rows stay after their delivery,
 * as those of batches do.
 *
 * Thread: any.  Memory: a row owns its URL; store_outbox_release frees it.
 * Invariant: all rows of one event have one event id, which never changes. */

#include "store/batches.h"

/* The types of events and their names on the wire; the first four are the terminal states in their
 * order, the others are quern's own and told to the configured URL only. */
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

/* What every configured URL gets unless it asks otherwise. */
#define OUTBOX_EVENTS_DEFAULT 0xFu

const char *outbox_event_name(enum outbox_event event);
bool outbox_event_find(struct str name, enum outbox_event *ret_event);

/* Zero: only the batches' own URLs. */
struct store_outbox_rules {
    uint32_t config_events; /* bit i: event i goes to the URL of the configuration */
    void *context;
    /* NULL allowed. Rows have been added: any thread, the store's lock held. */
    void (*added)(void *context);
};

/* Holds from the next transaction on. */
void store_outbox_set_rules(struct store *store, const struct store_outbox_rules *rules);

struct store_outbox_row {
    uint64_t sequence;
    char event_id[STORE_ID_BYTES];
    char type[48];
    char subject[STORE_ID_BYTES]; /* the batch */
    char *url;                    /* NULL: that of the configuration */
    char receiver[256]; /* scheme, host and port of the URL; empty for the configuration */
    int64_t created_unix_s;
    int64_t due_unix_ms;
    uint32_t attempts; /* made so far */
};

void store_outbox_release(struct store_outbox_row *row);

/* Adds an event that is not the end of a batch; no row when nobody asked for it. */
enum err store_outbox_add(struct store *store, enum outbox_event event, struct str subject,
                          int64_t now_unix_s, struct error *error) MUST_CHECK;
/* The row that has been due longest at `now_unix_ms` and whose receiver is not one of `busy`;
 * ERR_NOT_FOUND when there is none. The caller releases it. */
enum err store_outbox_next(struct store *store, int64_t now_unix_ms, const char *const *busy,
                           size_t busy_count, struct store_outbox_row *ret_row,
                           struct error *error) MUST_CHECK;
/* When the first open row is or was due, whoever receives it; ERR_NOT_FOUND when none is open. */
enum err store_outbox_due(struct store *store, int64_t *ret_due_unix_ms,
                          struct error *error) MUST_CHECK;
/* How many rows are neither delivered nor given up. */
enum err store_outbox_open_count(struct store *store, uint64_t *ret_count,
                                 struct error *error) MUST_CHECK;

enum outbox_state { OUTBOX_OPEN, OUTBOX_DELIVERED, OUTBOX_GIVEN_UP };

struct store_outbox_attempt {
    uint64_t sequence;
    enum outbox_state state;
    int64_t due_unix_ms; /* of the next attempt, when it stays open */
    /* Not even a connection: the other rows of this receiver wait as long. NULL: they do not. */
    const char *unreachable;
};

/* Counts an attempt and says what became of it. */
enum err store_outbox_settle(struct store *store, const struct store_outbox_attempt *attempt,
                             struct error *error) MUST_CHECK;

/* For fsck: how many rows the batch's own URL has for the event, and how many rows name an end of
 * this batch other than `event` (OUTBOX_EVENT_COUNT: it has not ended). */
enum err store_outbox_count(struct store *store, const char *batch_id, enum outbox_event event,
                            uint64_t *ret_own, uint64_t *ret_foreign,
                            struct error *error) MUST_CHECK;
