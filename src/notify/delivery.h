/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* delivery: one attempt to hand one event to its receiver: a POST that follows no redirect, uses no
 * proxy, connects to no address that address.h refuses, and ends after DELIVERY_MS or
 * DELIVERY_REPLY_BYTES_MAX of an answer nobody reads.
 *
 * Thread: notify's own.  Memory: a delivery owns its row and its handles. */

#include "notify/signature.h"
#include "store/outbox.h"

#include <curl/curl.h>

#define DELIVERY_MS 10000
#define DELIVERY_REPLY_BYTES_MAX ((size_t)64 << 10)

/* Zero is an empty place. */
struct delivery {
    struct store_outbox_row row;
    CURL *easy; /* NULL: it is not on its way (any more) */
    CURLU *url;
    struct curl_slist *headers;
    struct buf body;
    bool allow_private;
    bool was_refused; /* an address it resolved to is none a webhook may go to */
    size_t reply_bytes;
};

/* What became of it. */
struct delivery_end {
    bool is_delivered;   /* the receiver said 2xx */
    bool is_unreachable; /* it said nothing: other events would fare no better now */
    bool was_refused;
    long status;      /* 0: no answer */
    const char *text; /* for the log: why there is no answer; borrowed for ever */
};

/* What all attempts have in common. Borrowed. */
struct delivery_way {
    CURLM *multi;
    const char *url; /* for rows without their own; empty: none is configured */
    const struct webhook_keys *keys;
    bool allow_private;
};

/* Takes the row over, signs its event for `now_unix_s` and sends it off. ERR_INVALID: there is no
 * URL, or none a webhook may have; the row is taken all the same. */
enum err delivery_start(struct delivery *delivery, const struct delivery_way *way,
                        const struct store_outbox_row *row, int64_t now_unix_s,
                        struct error *error) MUST_CHECK;
/* `result` is what the library says of the transfer. The row stays. */
struct delivery_end delivery_finish(struct delivery *delivery, CURLM *multi, CURLcode result);
/* Gives everything back; an attempt that is on its way is cut off. */
void delivery_release(struct delivery *delivery, CURLM *multi);

/* Appends the event's JSON: the bytes that are signed. */
void delivery_write_event(struct buf *body, const struct store_outbox_row *row);
