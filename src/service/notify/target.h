/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* target: which URLs a webhook may have.
 *
 * The URL is read once, by net/url.h, and the delivery uses what was read: checker and client never
 * disagree about the host. A host name is not resolved here, since it may resolve to another
 * address a moment later: delivery.h checks each address it is about to connect to.
 *
 * Thread: any.
 * Memory: the caller frees the URL. */

#include "base/err.h"
#include "base/str.h"
#include "net/url.h"

#define TARGET_URL_BYTES_MAX 2048

/* Takes an https URL with a host and without user, password and zone. Refuses a host that is a
 * private address or `localhost`, and a host whose last label begins with a digit; `allow_private`
 * allows these and plain http. ERR_INVALID with a sentence that does not repeat the URL. `ret_url`
 * may be NULL. */
enum err target_read(struct net_url **ret_url, struct str text, bool allow_private,
                     struct error *error) MUST_CHECK;
