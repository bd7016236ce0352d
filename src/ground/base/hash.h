/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* hash: SHA-256 over a stream, through libsodium: the sum that promises of quern rest on.
 *
 * Thread: one struct, one thread.
 * Memory: the caller's struct; sha256_file reads through 1 MiB, which it frees. */

#include "base/err.h"
#include "base/str.h"

#include <sodium/crypto_hash_sha256.h>

#define SHA256_BYTES 32
#define SHA256_HEX_BYTES (2 * SHA256_BYTES + 1) /* with the final NUL */

struct sha256 {
    crypto_hash_sha256_state state;
};

void sha256_init(struct sha256 *hash);
void sha256_add(struct sha256 *hash, const void *bytes, size_t count);
void sha256_end(struct sha256 *hash, unsigned char ret_digest[SHA256_BYTES]);
void sha256_hex(const unsigned char digest[SHA256_BYTES], char ret_hex[SHA256_HEX_BYTES]);
/* The sum of a whole file. */
enum err sha256_file(const char *path, unsigned char ret_digest[SHA256_BYTES],
                     struct error *error) MUST_CHECK;
