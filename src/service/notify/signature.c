/* SPDX-License-Identifier: Apache-2.0 */
#include "notify/signature.h"

#include <inttypes.h>
#include <sodium/crypto_auth_hmacsha256.h>
#include <sodium/utils.h>
#include <stdio.h>
#include <string.h>

static enum err read_secret(struct webhook_keys *keys, struct str secret, unsigned line,
                            struct error *error) {
    if (keys->count == WEBHOOK_KEYS_MAX)
        return err_set(error, ERR_LIMIT, "line %u is one secret too many; at most %d are in use",
                       line, WEBHOOK_KEYS_MAX);
    unsigned char *bytes = keys->at[keys->count].bytes;
    size_t *count = &keys->at[keys->count].count;
    if (str_starts_with(secret, STR("whsec_"))) {
        struct str text = str_skip(secret, strlen("whsec_"));
        const char *end;
        while (str_ends_with(text, STR("="))) text.bytes--;
        if (sodium_base642bin(bytes, WEBHOOK_KEY_BYTES_MAX, text.at, text.bytes, NULL, count, &end,
                              sodium_base64_VARIANT_ORIGINAL_NO_PADDING) != 0 ||
            end != text.at + text.bytes || *count == 0)
            return err_set(error, ERR_INVALID, "what follows whsec_ in line %u is not base64",
                           line);
    } else {
        if (secret.bytes > WEBHOOK_KEY_BYTES_MAX)
            return err_set(error, ERR_LIMIT, "the secret in line %u is longer than %d bytes", line,
                           WEBHOOK_KEY_BYTES_MAX);
        memcpy(bytes, secret.at, secret.bytes);
        *count = secret.bytes;
    }
    keys->count++;
    return OK;
}

enum err webhook_keys_read(struct webhook_keys *ret_keys, struct str text, struct error *error) {
    enum err err = OK;
    *ret_keys = (struct webhook_keys){0};
    for (unsigned line = 1; err == OK && text.bytes > 0; line++) {
        size_t end = str_find_byte(text, '\n', 0);
        struct str secret = str_trim((struct str){text.at, end == SIZE_MAX ? text.bytes : end});
        text = str_skip(text, end == SIZE_MAX ? text.bytes : end + 1);
        if (secret.bytes > 0 && secret.at[0] != '#')
            err = read_secret(ret_keys, secret, line, error);
    }
    if (err == OK && ret_keys->count == 0) err = err_set(error, ERR_INVALID, "there is no secret");
    if (err != OK) webhook_keys_wipe(ret_keys);
    return err;
}

void webhook_keys_wipe(struct webhook_keys *keys) {
    sodium_memzero(keys, sizeof *keys);
}

void webhook_sign(struct buf *header, const struct webhook_keys *keys, struct str id,
                  int64_t timestamp_unix_s, struct str body) {
    char timestamp[32];
    int bytes = snprintf(timestamp, sizeof timestamp, ".%" PRId64 ".", timestamp_unix_s);
    for (size_t i = 0; i < keys->count; i++) {
        crypto_auth_hmacsha256_state state;
        unsigned char digest[crypto_auth_hmacsha256_BYTES];
        char text[sodium_base64_ENCODED_LEN(sizeof digest, sodium_base64_VARIANT_ORIGINAL)];
        crypto_auth_hmacsha256_init(&state, keys->at[i].bytes, keys->at[i].count);
        crypto_auth_hmacsha256_update(&state, (const unsigned char *)id.at, id.bytes);
        crypto_auth_hmacsha256_update(&state, (const unsigned char *)timestamp,
                                      (unsigned long long)bytes);
        crypto_auth_hmacsha256_update(&state, (const unsigned char *)body.at, body.bytes);
        crypto_auth_hmacsha256_final(&state, digest);
        sodium_memzero(&state, sizeof state);
        sodium_bin2base64(text, sizeof text, digest, sizeof digest, sodium_base64_VARIANT_ORIGINAL);
        buf_printf(header, "%sv1,%s", i > 0 ? " " : "", text);
    }
}
