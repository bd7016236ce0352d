/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* notify: tells receivers what the outbox holds (store/outbox.h), with signed POSTs in the shape of
 * Standard Webhooks, again and again with growing pauses until one answers 2xx or 72 hours have
 * passed. At least once: a crash between answer and row sends the same event, under the same id,
 * once more.
 *
 * A receiver gets one event at a time and a dead one costs nobody but itself: others have their own
 * places, and batches never wait for any.
 *
 * Thread: its own ("notify"); all functions from any thread but open and close, which belong to
 * one.  Memory: borrows the store; copies the options' texts and keys. */

#include "notify/signature.h"
#include "store/outbox.h"

struct notify;

/* Zero means the default behind it; there must be a key. */
struct notify_options {
    struct store *store;
    const char *url;                 /* of the configuration; NULL: batches' own URLs only */
    uint32_t events;                 /* for it, bit i: event i; OUTBOX_EVENTS_DEFAULT */
    const struct webhook_keys *keys; /* copied */
    bool allow_private;              /* private addresses and plain http */
    int64_t retry_s;                 /* the first pause, doubled each time; 5 */
    int64_t give_up_s;               /* after the event; 72 h */
};

/* ERR_INVALID when the URL is none a webhook may have. */
enum err notify_open(struct notify **ret_notify, const struct notify_options *options,
                     struct error *error) MUST_CHECK;
/* Waits up to `deadline_ms` for attempts on their way; the next start makes the others. NULL is
 * allowed. */
void notify_close(struct notify *notify, int64_t deadline_ms);

/* Whether a batch may name this URL: ERR_INVALID with a sentence for the client. */
enum err notify_check_url(const struct notify *notify, const char *url,
                          struct error *error) MUST_CHECK;

struct notify_status {
    uint64_t delivered;
    uint64_t failed;  /* attempts that will be made again */
    uint64_t refused; /* of them, for the address of the receiver */
    uint64_t given_up;
    uint64_t open; /* events that wait */
};

void notify_status(struct notify *notify, struct notify_status *ret_status);
