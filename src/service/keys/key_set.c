/* SPDX-License-Identifier: Apache-2.0 */
#include "keys/key_set.h"

#include "base/clock.h"
#include "base/mem.h"
#include <pthread.h>
#include <sodium/utils.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define LOOK_NS 1000000000 /* default of the time between two looks at the file */

/* A row of the file with its use of the rate limit. */
struct entry {
    struct key_row row;
    double left; /* requests that it may make at once now */
    int64_t left_at_ns;
};

/* The facts that distinguish one state of the file from another. */
struct stamp {
    ino_t inode;
    off_t bytes;
    struct timespec changed;
};

struct key_set {
    char *path; /* NULL: no file */
    int64_t look_ns;
    void (*report)(const char *sentence);
    pthread_mutex_t lock; /* guards the members below */
    unsigned char (*digests)[SHA256_BYTES];
    size_t digest_count;
    struct entry *entries;
    size_t count;
    bool had_keys;
    bool is_broken; /* the trouble was reported */
    struct stamp stamp;
    int64_t looked_ns;
};

/* --- the file --- */

static bool read_stamp(const char *path, struct stamp *ret_stamp) {
    struct stat status;
    memset(ret_stamp, 0, sizeof *ret_stamp);
    if (stat(path, &status) != 0) return false;
    ret_stamp->inode = status.st_ino;
    ret_stamp->bytes = status.st_size;
    ret_stamp->changed = status.st_mtim;
    return true;
}

static struct entry *find_entry(const struct key_set *keys, const char *id) {
    for (size_t i = 0; i < keys->count; i++)
        if (strcmp(keys->entries[i].row.id, id) == 0) return &keys->entries[i];
    return NULL;
}

/* Takes over the rows of a changed file; keys keep their use of the rate limit. */
static void take_rows(struct key_set *keys, const struct key_file *file) {
    struct entry *entries = mem_new(file->count + 1, sizeof *entries);
    for (size_t i = 0; i < file->count; i++) {
        const struct entry *old = find_entry(keys, file->rows[i].id);
        if (old) entries[i] = *old;
        if (!old) entries[i].left = (double)file->rows[i].requests_per_minute;
        entries[i].row = file->rows[i];
    }
    free(keys->entries);
    keys->entries = entries;
    keys->count = file->count;
    if (file->count > 0) keys->had_keys = true;
}

/* Reads the file if it has changed. The lock is held, or no other thread has the set yet. */
static enum err look(struct key_set *keys, struct error *error) {
    struct stamp stamp;
    struct key_file file;
    if (!keys->path) return OK;
    bool is_there = read_stamp(keys->path, &stamp);
    if (memcmp(&stamp, &keys->stamp, sizeof stamp) == 0 && !keys->is_broken) return OK;
    keys->stamp = stamp;
    if (!is_there) file = (struct key_file){0};
    enum err err = is_there ? key_file_read(&file, keys->path, error) : OK;
    if (err == ERR_NOT_FOUND) { /* between two looks */
        file = (struct key_file){0};
        err = OK;
    }
    if (err != OK) return err;
    take_rows(keys, &file);
    key_file_release(&file);
    return OK;
}

static void look_now_and_then(struct key_set *keys) {
    struct error error;
    int64_t now_ns = clock_monotonic_ns();
    if (now_ns - keys->looked_ns < keys->look_ns) return;
    keys->looked_ns = now_ns;
    bool was_broken = keys->is_broken;
    keys->is_broken = look(keys, &error) != OK;
    if (keys->report && keys->is_broken != was_broken)
        keys->report(keys->is_broken ? error.text : NULL);
}

/* --- checking --- */

bool key_caller_has(const struct key_caller *caller, enum key_scope scope) {
    if (scope == KEY_SCOPE_OPEN || scope == KEY_SCOPE_ANY) return true;
    return caller->scopes >> scope & 1 || caller->scopes >> KEY_SCOPE_ADMIN & 1;
}

/* The KEY of "Bearer KEY"; empty for any other text. */
static struct str bearer_of(struct str authorization) {
    if (authorization.bytes < 7 || strncasecmp(authorization.at, "bearer ", 7) != 0)
        return (struct str){NULL, 0};
    return str_trim(str_skip(authorization, 7));
}

/* Reads the eight public characters of a key in quern's form; false for other keys. */
static bool read_public_id(struct str key, char ret_id[KEY_ID_CHARACTERS + 1]) {
    if (key.bytes != KEY_TEXT_BYTES - 1 || !str_starts_with(key, STR("sk-")) ||
        key.at[3 + KEY_ID_CHARACTERS] != '_')
        return false;
    memcpy(ret_id, key.at + 3, KEY_ID_CHARACTERS);
    ret_id[KEY_ID_CHARACTERS] = '\0';
    return true;
}

static bool is_in_force(const struct key_row *row, int64_t now_unix_s) {
    return !row->revoked_unix_s && (!row->expires_unix_s || row->expires_unix_s > now_unix_s);
}

/* The row of the key, or NULL. It makes one comparison for every key, good or wrong. */
static struct entry *match_entry(struct key_set *keys, struct str key,
                                 const unsigned char digest[SHA256_BYTES]) {
    static const unsigned char nobody[SHA256_BYTES] = {0};
    char id[KEY_ID_CHARACTERS + 1] = "";
    struct entry *found = NULL;
    if (read_public_id(key, id)) found = find_entry(keys, id);
    bool equal = sodium_memcmp(digest, found ? found->row.sha256 : nobody, SHA256_BYTES) == 0;
    bool in_force = found && is_in_force(&found->row, clock_unix_s());
    return equal && in_force ? found : NULL;
}

/* True if a fixed key has this sum. It compares with all of them, also after one has fitted. */
static bool match_fixed(const struct key_set *keys, const unsigned char digest[SHA256_BYTES]) {
    bool good = false;
    for (size_t i = 0; i < keys->digest_count; i++)
        good |= sodium_memcmp(digest, keys->digests[i], SHA256_BYTES) == 0;
    return good;
}

/* Fills the bucket of an entry that has a limit. The bucket holds the requests of a minute, and
 * fills steadily. */
static void refill(struct entry *entry) {
    double per_minute = (double)entry->row.requests_per_minute;
    int64_t now_ns = clock_monotonic_ns();
    if (entry->left_at_ns)
        entry->left += (double)(now_ns - entry->left_at_ns) / 1e9 * per_minute / 60;
    if (entry->left > per_minute) entry->left = per_minute;
    entry->left_at_ns = now_ns;
}

/* Takes one request from the bucket. */
static bool take_request(struct entry *entry, uint32_t *ret_retry_s) {
    if (entry->row.requests_per_minute == 0) return true;
    refill(entry);
    if (entry->left >= 1) {
        entry->left -= 1;
        return true;
    }
    *ret_retry_s = 1 + (uint32_t)((1 - entry->left) * 60 / (double)entry->row.requests_per_minute);
    return false;
}

static enum key_answer answer_entry(struct entry *entry, unsigned manner, struct key_caller *caller,
                                    uint32_t *ret_retry_s) {
    const struct key_row *row = &entry->row;
    memcpy(caller->id, row->id, sizeof caller->id);
    memcpy(caller->owner, row->owner, sizeof caller->owner);
    caller->scopes = row->scopes;
    caller->queued_tokens_max = row->queued_tokens_max;
    caller->batches_max = row->batches_max;
    caller->stored_bytes_max = row->stored_bytes_max;
    if (manner & KEY_LOOK) return KEY_GOOD;
    return take_request(entry, ret_retry_s) ? KEY_GOOD : KEY_LATER;
}

/* key_check, with the lock held. */
static enum key_answer check(struct key_set *keys, struct str authorization, unsigned manner,
                             struct key_caller *caller, uint32_t *ret_retry_s) {
    unsigned char digest[SHA256_BYTES];
    struct sha256 hash;
    caller->scopes = KEY_SCOPES_ALL;
    if (!keys->had_keys) return KEY_GOOD;
    caller->scopes = 0;
    authorization = str_trim(authorization);
    if (authorization.bytes == 0) return KEY_MISSING;
    struct str key = bearer_of(authorization);
    sha256_init(&hash);
    sha256_add(&hash, key.at, key.bytes);
    sha256_end(&hash, digest);
    sodium_memzero(&hash, sizeof hash);
    struct entry *entry = match_entry(keys, key, digest);
    bool is_fixed = match_fixed(keys, digest) && key.bytes > 0;
    if (entry) return answer_entry(entry, manner, caller, ret_retry_s);
    if (manner & KEY_NO_GUESS) return KEY_UNSEEN;
    if (!is_fixed) return KEY_WRONG;
    caller->scopes = KEY_SCOPES_ALL & ~(1u << KEY_SCOPE_ADMIN);
    caller->is_fixed = true;
    memcpy(caller->digest, digest, sizeof caller->digest);
    return KEY_GOOD;
}

enum key_answer key_check(struct key_set *keys, struct str authorization, unsigned manner,
                          struct key_caller *ret_caller, uint32_t *ret_retry_s) {
    struct key_caller caller = {.scopes = KEY_SCOPES_ALL, .batches_max = KEY_BATCHES_MAX};
    enum key_answer answer = KEY_GOOD;
    if (keys) {
        pthread_mutex_lock(&keys->lock);
        look_now_and_then(keys);
        answer = check(keys, authorization, manner, &caller, ret_retry_s);
        pthread_mutex_unlock(&keys->lock);
    }
    *ret_caller = caller;
    return answer;
}

bool key_set_still_knows(struct key_set *keys, const struct key_caller *caller) {
    bool is_known;
    if (!keys) return true;
    pthread_mutex_lock(&keys->lock);
    look_now_and_then(keys);
    if (*caller->id) {
        const struct entry *entry = find_entry(keys, caller->id);
        is_known = entry && is_in_force(&entry->row, clock_unix_s());
    } else {
        is_known = caller->is_fixed ? match_fixed(keys, caller->digest) : !keys->had_keys;
    }
    pthread_mutex_unlock(&keys->lock);
    return is_known;
}

bool key_set_asks(struct key_set *keys) {
    pthread_mutex_lock(&keys->lock);
    bool asks = keys->had_keys;
    pthread_mutex_unlock(&keys->lock);
    return asks;
}

void key_set_look(struct key_set *keys) {
    pthread_mutex_lock(&keys->lock);
    keys->looked_ns = clock_monotonic_ns() - keys->look_ns;
    look_now_and_then(keys);
    pthread_mutex_unlock(&keys->lock);
}

bool key_set_left(struct key_set *keys, const char *id, uint64_t *ret_left) {
    pthread_mutex_lock(&keys->lock);
    struct entry *entry = find_entry(keys, id);
    bool is_limited = entry && entry->row.requests_per_minute > 0;
    if (is_limited) {
        refill(entry);
        *ret_left = (uint64_t)entry->left;
    }
    pthread_mutex_unlock(&keys->lock);
    return is_limited;
}

/* --- opening and closing --- */

void key_set_fix(struct key_set *keys, const unsigned char (*digests)[SHA256_BYTES], size_t count) {
    unsigned char(*copy)[SHA256_BYTES] = mem_new(count + 1, sizeof *copy);
    for (size_t i = 0; i < count; i++) memcpy(copy[i], digests[i], SHA256_BYTES);
    pthread_mutex_lock(&keys->lock);
    free(keys->digests);
    keys->digests = copy;
    keys->digest_count = count;
    if (count > 0) keys->had_keys = true;
    pthread_mutex_unlock(&keys->lock);
}

enum err key_set_open(struct key_set **ret_keys, const struct key_set_options *options,
                      struct error *error) {
    struct key_set *keys = mem_new(1, sizeof *keys);
    pthread_mutex_init(&keys->lock, NULL);
    key_set_fix(keys, options->digests, options->digest_count);
    keys->path = mem_text(options->path);
    keys->report = options->report;
    keys->look_ns = options->look_ns ? options->look_ns : LOOK_NS;
    keys->looked_ns = clock_monotonic_ns();
    enum err err = look(keys, error);
    if (err == OK)
        *ret_keys = keys;
    else
        key_set_close(keys);
    return err;
}

void key_set_close(struct key_set *keys) {
    if (!keys) return;
    pthread_mutex_destroy(&keys->lock);
    free(keys->digests);
    free(keys->entries);
    free(keys->path);
    free(keys);
}
