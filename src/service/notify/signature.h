/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* signature: Standard Webhooks signatures: HMAC-SHA256 over "id.timestamp.body".
 *
 * Thread: any.
 * Memory: keys are plain structs; webhook_keys_wipe wipes them. */

#include "base/buf.h"
#include "base/err.h"

/* The current key, and the previous one while receivers change over. */
#define WEBHOOK_KEYS_MAX 2
#define WEBHOOK_KEY_BYTES_MAX 512

struct webhook_keys {
    struct {
        unsigned char bytes[WEBHOOK_KEY_BYTES_MAX];
        size_t count;
    } at[WEBHOOK_KEYS_MAX];
    size_t count;
};

/* Reads one secret per line, at most WEBHOOK_KEYS_MAX: `whsec_` and base64, or the bytes of the
 * line. Blank lines and lines that start with '#' are left out. ERR_INVALID or ERR_LIMIT with a
 * sentence that never has the secret. */
enum err webhook_keys_read(struct webhook_keys *ret_keys, struct str text,
                           struct error *error) MUST_CHECK;
void webhook_keys_wipe(struct webhook_keys *keys);

/* Appends the value of the header webhook-signature: one "v1,…" per key, with a space between. */
void webhook_sign(struct buf *header, const struct webhook_keys *keys, struct str id,
                  int64_t timestamp_unix_s, struct str body);
