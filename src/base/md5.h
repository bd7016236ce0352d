/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* md5: MD5 over a stream (RFC 1321), for clients that send one to have their bytes compared. It
 * guards against accidents only; whatever a promise rests on is hash.h's SHA-256.
 *
 * Thread: one struct, one thread.  Memory: none. */

#include <stddef.h>
#include <stdint.h>

#define MD5_HEX_BYTES 33 /* with the final NUL */

struct md5 {
    uint32_t state[4];
    uint64_t bytes;
    unsigned char block[64];
};

void md5_init(struct md5 *md5);
void md5_add(struct md5 *md5, const void *bytes, size_t count);
/* In lower case. The struct is used up. */
void md5_end_hex(struct md5 *md5, char ret_hex[MD5_HEX_BYTES]);
