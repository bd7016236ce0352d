/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* sha1: SHA-1 over a stream (FIPS 180-4), since git names its blobs by it. It guards against
 * accidents only; whatever a promise rests on is hash.h's SHA-256.
 *
 * Thread: one struct, one thread.  Memory: none. */

#include <stddef.h>
#include <stdint.h>

#define SHA1_HEX_BYTES 41 /* with the final NUL */

struct sha1 {
    uint32_t state[5];
    uint64_t bytes;
    unsigned char block[64];
};

void sha1_init(struct sha1 *sha1);
void sha1_add(struct sha1 *sha1, const void *bytes, size_t count);
/* In lower case. The struct is used up. */
void sha1_end_hex(struct sha1 *sha1, char ret_hex[SHA1_HEX_BYTES]);
