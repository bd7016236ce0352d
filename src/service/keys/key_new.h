/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* key_new: the properties of a new key, from a command line or a page, and the row made from them.
 *
 * One function checks both, so that a page can make no key that `quern key create` refuses.
 *
 * Thread: any; pure.
 * Memory: the texts are borrowed. */

#include "keys/key_file.h"

/* Zero is a valid start. A text whose `at` is NULL is absent. */
struct key_new {
    struct str name;             /* required */
    struct str owner;            /* absent, or "default": the default owner */
    struct str scopes;           /* "files,batches" (default KEY_SCOPES_DEFAULT) */
    struct str expires;          /* "90d", "12h" or "30m" from now (default: never) */
    int64_t requests_per_minute; /* 0: no limit; the same for the next three */
    int64_t queued_tokens_max;
    int64_t batches_max; /* the caller's default is KEY_BATCHES_MAX */
    int64_t stored_bytes_max;
};
#define KEY_LIMIT_MAX 1e15 /* the largest of these limits */

/* Makes the row of a key without its id and secret. ERR_INVALID: *ret_field is the name of the
 * wrong member, which the sentence does not repeat. */
enum err key_new_read(const struct key_new *key, int64_t now_unix_s, struct key_row *ret_row,
                      const char **ret_field, struct error *error) MUST_CHECK;
