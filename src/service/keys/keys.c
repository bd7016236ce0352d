/* SPDX-License-Identifier: Apache-2.0 */
#include "keys/keys.h"

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

struct keys {
    struct key_set *set;
    unsigned char (*told)[SHA256_BYTES]; /* (told_count) */
    size_t told_count;
    bool are_gone; /* the fixed keys that are not told ones */
};

static enum err take_told(struct keys *keys, const struct keys_places *places,
                          struct error *error) {
    keys->told = mem_new(places->told_count + 1, sizeof *keys->told);
    for (size_t i = 0; i < places->told_count; i++) {
        struct str key = str_from(places->told[i]);
        if (key.bytes == 0) return err_set(error, ERR_INVALID, "--api-key: the key is empty");
        add_key(key, keys->told[keys->told_count++]);
        /* The text is an argument of the process, which /proc shows to others. */
        explicit_bzero((char *)(uintptr_t)key.at, key.bytes);
    }
    return OK;
}

/* Reads one key per line as its digest. */
static enum err read_lines(const struct secret *secret, struct keys_fixed *fixed,
                           struct error *error) {
    struct str rest = {secret->text, secret->bytes};
    fixed->digests = mem_new(KEYS_MAX, sizeof *fixed->digests);
    while (rest.bytes > 0) {
        size_t end = str_find_byte(rest, '\n', 0);
        struct str key = str_trim((struct str){rest.at, end == SIZE_MAX ? rest.bytes : end});
        rest = str_skip(rest, end == SIZE_MAX ? rest.bytes : end + 1);
        if (key.bytes == 0 || key.at[0] == '#') continue;
        if (fixed->count == KEYS_MAX)
            return err_set(error, ERR_LIMIT, "%s has more than %d keys", secret->where, KEYS_MAX);
        add_key(key, fixed->digests[fixed->count++]);
    }
    if (fixed->count > 0) return OK;
    return err_set(error, ERR_INVALID, "%s has no key", secret->where);
}

enum err keys_read(struct keys_fixed *ret_fixed, const char *file,
                   const struct secret_variables *variables, struct error *error) {
    struct secret secret;
    struct keys_fixed fixed = {0};
    const struct secret_place place = {file, "QUERN_API_KEYS", "api-keys"};
    enum err err = secret_read(&secret, &place, variables, error);
    if (err != OK) return err;
    fixed.is_gone = secret.is_gone;
    if (secret.text) err = read_lines(&secret, &fixed, error);
    secret_release(&secret);
    if (err == OK)
        *ret_fixed = fixed;
    else
        keys_fixed_release(&fixed);
    return err;
}

void keys_fixed_release(struct keys_fixed *fixed) {
    free(fixed->digests);
    *fixed = (struct keys_fixed){0};
}

/* The told keys and the fixed ones behind each other, for the caller to free. */
static unsigned char (*join(const struct keys *keys,
                            const struct keys_fixed *fixed))[SHA256_BYTES] {
    unsigned char(*all)[SHA256_BYTES] = mem_new(keys->told_count + fixed->count + 1, sizeof *all);
    memcpy(all, keys->told, keys->told_count * sizeof *all);
    if (fixed->count > 0) memcpy(all[keys->told_count], fixed->digests, fixed->count * sizeof *all);
    return all;
}

void keys_take(struct keys *keys, const struct keys_fixed *fixed) {
    if (fixed->count == 0 && keys->are_gone) return;
    unsigned char(*all)[SHA256_BYTES] = join(keys, fixed);
    key_set_fix(keys->set, (const unsigned char(*)[SHA256_BYTES])all,
                keys->told_count + fixed->count);
    keys->are_gone = fixed->is_gone;
    free(all);
}

static enum err open_set(struct keys *keys, const struct keys_fixed *fixed, const char *state_dir,
                         struct error *error) {
    char path[PATH_MAX];
    int bytes = snprintf(path, sizeof path, "%s/" KEY_FILE_NAME, state_dir);
    if (bytes < 0 || (size_t)bytes >= sizeof path)
        return err_set(error, ERR_INVALID, "the state directory's name is too long");
    unsigned char(*all)[SHA256_BYTES] = join(keys, fixed);
    const struct key_set_options options = {.digests = (const unsigned char(*)[SHA256_BYTES])all,
                                            .digest_count = keys->told_count + fixed->count,
                                            .path = path,
                                            .report = report};
    enum err err = key_set_open(&keys->set, &options, error);
    free(all);
    return err;
}

enum err keys_open(struct keys **ret_keys, const struct keys_places *places, const char *state_dir,
                   const struct secret_variables *variables, struct error *error) {
    struct keys *keys = mem_new(1, sizeof *keys);
    struct keys_fixed fixed = {0};
    enum err err = key_file_check_lost(state_dir, error);
    if (err == OK) err = keys_read(&fixed, places->file, variables, error);
    if (err == OK) err = take_told(keys, places, error);
    if (err == OK) err = open_set(keys, &fixed, state_dir, error);
    keys->are_gone = fixed.is_gone;
    keys_fixed_release(&fixed);
    if (err == OK)
        *ret_keys = keys;
    else
        keys_close(keys);
    return err;
}

void keys_close(struct keys *keys) {
    if (!keys) return;
    key_set_close(keys->set);
    free(keys->told);
    free(keys);
}

struct key_set *keys_set(const struct keys *keys) {
    return keys ? keys->set : NULL;
}
