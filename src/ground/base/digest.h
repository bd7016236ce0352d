/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* digest: SHA-1, MD5 and SHA-256 over a stream, through OpenSSL's libcrypto. Others chose the first
 * two: git names its blobs by SHA-1, and clients send an MD5 to have their bytes compared. Both
 * guard against accidents only; every promise of quern rests on the SHA-256 of hash.h. OpenSSL's
 * has the same sums, and is several times as fast on processors that have instructions for it.
 *
 * The algorithms come from a library context of their own, since a machine whose OpenSSL is set to
 * FIPS refuses MD5 in the default one.
 *
 * Thread: one struct, one thread.
 * Memory: digest_begin takes it, digest_end_hex and digest_release give it back. */

#include <stddef.h>

enum digest_kind { DIGEST_MD5, DIGEST_SHA1, DIGEST_SHA256, DIGEST_KIND_COUNT };

#define DIGEST_HEX_BYTES 65 /* SHA-256's digits and a NUL; SHA-1 takes 41 of them, MD5 33 */

/* Zero is a digest that was not begun. */
struct digest {
    void *context; /* EVP_MD_CTX */
};

void digest_begin(struct digest *digest, enum digest_kind kind);
void digest_add(struct digest *digest, const void *bytes, size_t count);
/* Writes the sum in lower case and releases the digest. */
void digest_end_hex(struct digest *digest, char ret_hex[DIGEST_HEX_BYTES]);
/* Drops a digest whose sum is not wanted. One that was not begun, or is released, is allowed. */
void digest_release(struct digest *digest);
