/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* notify: tells receivers of the events in the outbox (store/outbox.h), with signed POSTs in the
 * shape of Standard Webhooks.
 *
 * It sends an event again, with growing pauses, until the receiver answers with a 2xx status or 72
 * hours have passed. An event comes at least once: after a crash between the answer and its row,
 * the same event is sent once more, under the same id.
 *
 * A receiver gets one event at a time: a dead receiver holds one of 32 places, for ten seconds per
 * attempt, and the others go on. No batch waits for a receiver.
 *
 * Thread: its own ("notify"). Open and close belong to one thread; the other functions to any.
 * Memory: borrows the store; copies the options' texts and keys. */

#include "base/histogram.h"
#include "notify/signature.h"
#include "store/outbox.h"

struct notify;

/* Zero means the default. At least one key is required. */
struct notify_options {
    struct store *store;
    const char *url;                 /* for events of all batches; NULL: only batches' own URLs */
    uint32_t events;                 /* for `url`, bit i: event i (default OUTBOX_EVENTS_DEFAULT) */
    const struct webhook_keys *keys; /* copied */
    bool allow_private;              /* allows private addresses and plain http */
    int64_t retry_s;                 /* the first pause, doubled with each attempt (default 5 s) */
    int64_t give_up_s;               /* the age at which an event is given up (default 72 h) */
};

/* ERR_INVALID: target.h refuses the URL. */
enum err notify_open(struct notify **ret_notify, const struct notify_options *options,
                     struct error *error) MUST_CHECK;
/* Waits up to `deadline_ms` for the attempts under way. Other events stay due for the next start.
 * NULL is allowed. */
void notify_close(struct notify *notify, int64_t deadline_ms);

/* Signs every later attempt with these keys. */
void notify_set_keys(struct notify *notify, const struct webhook_keys *keys);

/* Whether a batch may have this URL: ERR_INVALID with a sentence for the client. */
enum err notify_check_url(const struct notify *notify, const char *url,
                          struct error *error) MUST_CHECK;

extern const struct histogram_bounds notify_bounds;

struct notify_status {
    uint64_t delivered;
    uint64_t failed;  /* attempts that failed and will be repeated */
    uint64_t refused; /* attempts in which address.h refused an address of the receiver */
    uint64_t given_up;
    struct histogram seconds; /* per attempt, from its start to its end (notify_bounds) */
    uint64_t open;            /* events not yet delivered or given up, per receiver */
};

void notify_status(struct notify *notify, struct notify_status *ret_status);
