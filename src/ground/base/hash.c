/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include "base/mem.h"
#include "base/os.h"

#include <fcntl.h>
#include <stdlib.h>

void sha256_init(struct sha256 *hash) {
    crypto_hash_sha256_init(&hash->state);
}

void sha256_add(struct sha256 *hash, const void *bytes, size_t count) {
    crypto_hash_sha256_update(&hash->state, bytes, count);
}

void sha256_end(struct sha256 *hash, unsigned char ret_digest[SHA256_BYTES]) {
    crypto_hash_sha256_final(&hash->state, ret_digest);
}

void sha256_hex(const unsigned char digest[SHA256_BYTES], char ret_hex[SHA256_HEX_BYTES]) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        ret_hex[2 * i] = digits[digest[i] >> 4];
        ret_hex[2 * i + 1] = digits[digest[i] & 15];
    }
    ret_hex[2 * SHA256_BYTES] = '\0';
}

enum err sha256_file(const char *path, unsigned char ret_digest[SHA256_BYTES],
                     struct error *error) {
    int fd;
    enum err err = os_open(&fd, path, O_RDONLY, 0, error);
    if (err != OK) return err;
    struct sha256 hash;
    sha256_init(&hash);
    const size_t chunk_bytes = (size_t)1 << 20;
    char *chunk = mem_alloc(chunk_bytes);
    for (;;) {
        size_t count;
        err = os_read(fd, chunk, chunk_bytes, &count, error);
        if (err != OK || count == 0) break;
        sha256_add(&hash, chunk, count);
    }
    if (err == OK) sha256_end(&hash, ret_digest);
    free(chunk);
    os_close(fd);
    return err;
}
