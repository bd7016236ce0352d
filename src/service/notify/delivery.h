/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* delivery: one attempt to hand one event to its receiver: a signed POST.
 *
 * It follows no redirect, uses no proxy, connects to no address that address.h refuses, and ends
 * after DELIVERY_MS. An answer beyond DELIVERY_REPLY_BYTES_MAX is cut off; its status counts.
 *
 * Thread: notify's own.
 * Memory: a delivery owns its row and its URL. */

#include "net/client.h"
#include "notify/signature.h"
#include "store/outbox.h"

#define DELIVERY_MS 10000
#define DELIVERY_REPLY_BYTES_MAX ((size_t)64 << 10)

/* Zero is an empty place. */
struct delivery {
    struct store_outbox_row row;
    struct net_url *url;
    bool allow_private;
    bool was_refused; /* address.h refused an address that the host resolved to */
};

struct delivery_end {
    bool is_delivered;   /* the receiver answered with a 2xx status */
    bool is_unreachable; /* the receiver did not answer: its other events would fare no better */
    bool was_refused;
    int status;       /* 0: no answer */
    const char *text; /* for the log: why no answer came; never freed */
};

/* Common to all attempts. Borrowed. */
struct delivery_way {
    struct net_client *client; /* its `may_connect` is delivery_may_connect */
    const char *url;           /* for rows without a URL; empty: none is configured */
    const struct webhook_keys *keys;
    bool allow_private;
};

/* Takes the row over, signs its event for `now_unix_s` and starts an exchange whose owner is the
 * delivery. ERR_INVALID: no URL, or one that target.h refuses; the row is taken over all the
 * same. */
enum err delivery_start(struct delivery *delivery, const struct delivery_way *way,
                        const struct store_outbox_row *row, int64_t now_unix_s,
                        struct error *error) MUST_CHECK;
/* For net_client_options: refuses the addresses that address.h refuses, and notes the refusal. */
bool delivery_may_connect(void *context, void *owner, const struct sockaddr *address,
                          socklen_t bytes);
/* What an answer means for the delivery. */
struct delivery_end delivery_read_answer(const struct delivery *delivery,
                                         const struct net_answer *answer);
/* Frees the row and the URL. The exchange must be over. */
void delivery_release(struct delivery *delivery);
