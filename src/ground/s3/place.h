/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* place: an object as users name it, `s3://BUCKET/KEY`, in its parts.
 *
 * The key is any run of bytes; the name is not percent-encoded. Refused are keys that an HTTP
 * client would change on their way: those with a segment "." or "..", or with a control character.
 *
 * Thread: any.
 * Memory: the caller's struct. */

#include "base/err.h"
#include "base/str.h"

#define S3_BUCKET_BYTES 256
#define S3_KEY_BYTES 1025 /* S3's own limit, and a NUL */

struct s3_place {
    char bucket[S3_BUCKET_BYTES], key[S3_KEY_BYTES];
};

/* True for a name that begins with s3://, whether or not it is a good one. */
bool s3_is_place(const char *name);
/* ERR_INVALID for a name without bucket or key, or with one that cannot be used. */
enum err s3_place_read(struct s3_place *ret_place, const char *name,
                       struct error *error) MUST_CHECK;
