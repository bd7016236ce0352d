/* SPDX-License-Identifier: Apache-2.0 */
#include "server/keys.h"

#include "base/log.h"
#include "base/mem.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX 1024

static void report(const char *sentence) {
    if (sentence)
        log_error("event=keys_unreadable error=\"%s\"; the keys read before stay in use", sentence);
    else
        log_info("event=keys_readable");
}

static void add_key(struct str key, unsigned char ret_digest[SHA256_BYTES]) {
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, key.at, key.bytes);
    sha256_end(&hash, ret_digest);
    explicit_bzero(&hash, sizeof hash);
}

static enum err take_told(const struct keys_places *places,
                          unsigned char (*ret_digests)[SHA256_BYTES], size_t *ret_count,
                          struct error *error) {
    for (size_t i = 0; i < places->told_count; i++) {
        struct str key = str_from(places->told[i]);
        if (key.bytes == 0) return err_set(error, ERR_INVALID, "--api-key: the key is empty");
        add_key(key, ret_digests[(*ret_count)++]);
        /* The text is an argument of the process, which /proc shows to others. */
        explicit_bzero((char *)(uintptr_t)key.at, key.bytes);
    }
    return OK;
}

/* Reads one key per line as its digest. */
static enum err read_keys(const struct secret *secret, unsigned char (*ret_digests)[SHA256_BYTES],
                          size_t *ret_count, struct error *error) {
    struct str rest = {secret->text, secret->bytes};
    while (rest.bytes > 0) {
        size_t end = str_find_byte(rest, '\n', 0);
        struct str key = str_trim((struct str){rest.at, end == SIZE_MAX ? rest.bytes : end});
        rest = str_skip(rest, end == SIZE_MAX ? rest.bytes : end + 1);
        if (key.bytes == 0 || key.at[0] == '#') continue;
        if (*ret_count == KEYS_MAX)
            return err_set(error, ERR_LIMIT, "%s has more than %d keys", secret->where, KEYS_MAX);
        add_key(key, ret_digests[(*ret_count)++]);
    }
    if (*ret_count > 0) return OK;
    return err_set(error, ERR_INVALID, "%s has no key", secret->where);
}

enum err keys_open(struct key_set **ret_keys, const struct keys_places *places,
                   const char *state_dir, const struct secret_variables *variables,
                   struct error *error) {
    char path[PATH_MAX];
    struct secret secret;
    const struct secret_place place = {places->file, "QUERN_API_KEYS", "api-keys"};
    struct key_set_options options = {.path = path, .report = report};
    int bytes = snprintf(path, sizeof path, "%s/" KEY_FILE_NAME, state_dir);
    if (bytes < 0 || (size_t)bytes >= sizeof path)
        return err_set(error, ERR_INVALID, "the state directory's name is too long");
    enum err err = key_file_check_lost(state_dir, error);
    if (err == OK) err = secret_read(&secret, &place, variables, error);
    if (err != OK) return err;
    unsigned char(*digests)[SHA256_BYTES] = mem_new(KEYS_MAX + places->told_count, sizeof *digests);
    if (secret.text) err = read_keys(&secret, digests, &options.digest_count, error);
    secret_release(&secret);
    if (err == OK) err = take_told(places, digests, &options.digest_count, error);
    options.digests = (const unsigned char(*)[SHA256_BYTES])digests;
    if (err == OK) err = key_set_open(ret_keys, &options, error);
    free(digests);
    return err;
}
