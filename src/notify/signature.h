/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* signature: Standard Webhooks signatures: HMAC-SHA256 over "id.timestamp.body".
 *
 * Thread: any.  Memory: keys are plain structs, to be wiped with webhook_keys_wipe. */

#include "base/buf.h"
#include "base/err.h"

/* The current one, and the one before it while receivers change over. */
#define WEBHOOK_KEYS_MAX 2
#define WEBHOOK_KEY_BYTES_MAX 512

struct webhook_keys {
    struct {
        unsigned char bytes[WEBHOOK_KEY_BYTES_MAX];
        size_t count;
    } at[WEBHOOK_KEYS_MAX];
    size_t count;
};

/* One secret a line, at most WEBHOOK_KEYS_MAX, blank lines and those that start with '#' left out:
 * `whsec_` and base64, or the bytes themselves. ERR_INVALID with a sentence that names the line and
 * never the secret. */
enum err webhook_keys_read(struct webhook_keys *ret_keys, struct str text,
                           struct error *error) MUST_CHECK;
void webhook_keys_wipe(struct webhook_keys *keys);

/* Appends the value of the header webhook-signature: one "v1,…" a key, with single spaces between.
 */
void webhook_sign(struct buf *header, const struct webhook_keys *keys, struct str id,
                  int64_t timestamp_unix_s, struct str body);
