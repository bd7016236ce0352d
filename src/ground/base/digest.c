/* SPDX-License-Identifier: Apache-2.0 */
#include "base/digest.h"

#include "base/no_memory.h"

#include <assert.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>

static pthread_once_t fetched = PTHREAD_ONCE_INIT;
static EVP_MD *algorithms[DIGEST_KIND_COUNT];

/* The context and the algorithms live as long as the process. */
static void fetch(void) {
    OSSL_LIB_CTX *library = OSSL_LIB_CTX_new();
    if (!library) no_memory();
    algorithms[DIGEST_MD5] = EVP_MD_fetch(library, "MD5", NULL);
    algorithms[DIGEST_SHA1] = EVP_MD_fetch(library, "SHA1", NULL);
    algorithms[DIGEST_SHA256] = EVP_MD_fetch(library, "SHA256", NULL);
    for (size_t i = 0; i < DIGEST_KIND_COUNT; i++)
        if (!algorithms[i]) no_memory();
}

void digest_begin(struct digest *digest, enum digest_kind kind) {
    assert(kind < DIGEST_KIND_COUNT);
    pthread_once(&fetched, fetch);
    digest->context = EVP_MD_CTX_new();
    if (!digest->context || !EVP_DigestInit_ex2(digest->context, algorithms[kind], NULL))
        no_memory();
}

void digest_add(struct digest *digest, const void *bytes, size_t count) {
    assert(digest->context);
    if (!EVP_DigestUpdate(digest->context, bytes, count)) no_memory();
}

void digest_end_hex(struct digest *digest, char ret_hex[DIGEST_HEX_BYTES]) {
    static const char digits[] = "0123456789abcdef";
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned bytes = 0;
    assert(digest->context);
    if (!EVP_DigestFinal_ex(digest->context, sum, &bytes)) no_memory();
    assert(2 * bytes < DIGEST_HEX_BYTES);
    for (unsigned i = 0; i < bytes; i++) {
        ret_hex[2 * i] = digits[sum[i] >> 4];
        ret_hex[2 * i + 1] = digits[sum[i] & 15];
    }
    ret_hex[2 * bytes] = '\0';
    digest_release(digest);
}

void digest_release(struct digest *digest) {
    EVP_MD_CTX_free(digest->context);
    digest->context = NULL;
}
