/* SPDX-License-Identifier: Apache-2.0 */
#include "http/key.h"

#include <sodium/utils.h>
#include <strings.h>

enum key_answer key_check(const struct key_set *keys, struct str authorization) {
    if (keys->count == 0) return KEY_GOOD;
    authorization = str_trim(authorization);
    if (authorization.bytes == 0) return KEY_MISSING;
    if (authorization.bytes < 7 || strncasecmp(authorization.at, "bearer ", 7) != 0)
        return KEY_WRONG;
    struct str key = str_trim(str_skip(authorization, 7));
    struct sha256 hash;
    unsigned char digest[SHA256_BYTES];
    sha256_init(&hash);
    sha256_add(&hash, key.at, key.bytes);
    sha256_end(&hash, digest);
    bool good = false;
    /* Every sum is looked at, also after one has fitted. */
    for (size_t i = 0; i < keys->count; i++)
        good |= sodium_memcmp(digest, keys->digests[i], SHA256_BYTES) == 0;
    sodium_memzero(digest, sizeof digest);
    return good && key.bytes > 0 ? KEY_GOOD : KEY_WRONG;
}
