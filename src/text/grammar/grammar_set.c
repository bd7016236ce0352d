/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/grammar_set.h"

#include "base/hash.h"
#include "base/mem.h"
#include "grammar/grammar_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A source by its sum, and what became of it. */
struct entry {
    unsigned char sum[SHA256_BYTES];
    struct grammar *grammar; /* held; NULL: `error` */
    struct error error;
    uint64_t used_at;
};

struct grammar_set {
    pthread_mutex_t lock;
    struct entry *entries; /* (GRAMMAR_SET_MAX), of which `count` are in use */
    uint32_t count;
    size_t bytes_max;
    uint64_t asked;
};

struct grammar_set *grammar_set_open(size_t bytes_max) {
    struct grammar_set *set = mem_new(1, sizeof *set);
    set->bytes_max = bytes_max;
    set->entries = mem_new(GRAMMAR_SET_MAX, sizeof *set->entries);
    pthread_mutex_init(&set->lock, NULL);
    return set;
}

void grammar_set_close(struct grammar_set *set) {
    if (!set) return;
    for (uint32_t i = 0; i < set->count; i++) grammar_drop(set->entries[i].grammar);
    pthread_mutex_destroy(&set->lock);
    free(set->entries);
    free(set);
}

static int add_dump(const char *bytes, size_t count, void *hash) {
    sha256_add(hash, bytes, count);
    return 0;
}

/* The order of members counts: it is the order of the answer. */
static void sum_of(enum grammar_kind kind, const json_t *source,
                   unsigned char ret_sum[SHA256_BYTES]) {
    struct sha256 hash;
    unsigned char kind_byte = (unsigned char)kind;
    sha256_init(&hash);
    sha256_add(&hash, &kind_byte, 1);
    json_dump_callback(source, add_dump, &hash, JSON_COMPACT | JSON_ENCODE_ANY);
    sha256_end(&hash, ret_sum);
}

static struct entry *find(struct grammar_set *set, const unsigned char sum[SHA256_BYTES]) {
    for (uint32_t i = 0; i < set->count; i++)
        if (memcmp(set->entries[i].sum, sum, SHA256_BYTES) == 0) return &set->entries[i];
    return NULL;
}

/* Drops what no answer holds until a new grammar may be made. False if that is not enough. */
static bool has_bytes(struct grammar_set *set) {
    while (grammar_sealed_bytes() > set->bytes_max / 2) {
        struct entry *oldest = NULL;
        for (uint32_t i = 0; i < set->count; i++) {
            struct entry *one = &set->entries[i];
            bool is_free = one->grammar && atomic_load(&one->grammar->holds) == 1;
            if (is_free && (!oldest || one->used_at < oldest->used_at)) oldest = one;
        }
        if (!oldest) return false;
        grammar_drop(oldest->grammar);
        *oldest = set->entries[--set->count];
    }
    return true;
}

static struct entry *make_room(struct grammar_set *set) {
    if (set->count < GRAMMAR_SET_MAX) return &set->entries[set->count++];
    struct entry *oldest = &set->entries[0];
    for (uint32_t i = 1; i < set->count; i++)
        if (set->entries[i].used_at < oldest->used_at) oldest = &set->entries[i];
    grammar_drop(oldest->grammar);
    return oldest;
}

/* Compiles a source that is new. */
static struct entry *add(struct grammar_set *set, const unsigned char sum[SHA256_BYTES],
                         enum grammar_kind kind, const json_t *source) {
    struct entry entry = {.grammar = NULL};
    memcpy(entry.sum, sum, SHA256_BYTES);
    if (grammar_open(&entry.grammar, kind, source, &entry.error) != OK) entry.grammar = NULL;
    struct entry *place = make_room(set);
    *place = entry;
    return place;
}

enum err grammar_set_take(struct grammar_set *set, enum grammar_kind kind, const json_t *source,
                          struct grammar **ret_grammar, struct error *error) {
    unsigned char sum[SHA256_BYTES];
    enum err err = OK;
    sum_of(kind, source, sum);
    pthread_mutex_lock(&set->lock);
    struct entry *entry = find(set, sum);
    if (!entry && !has_bytes(set))
        err = err_set(error, ERR_UNAVAILABLE, "the grammars of other requests take all the room");
    else if (!entry)
        entry = add(set, sum, kind, source);
    if (entry) entry->used_at = ++set->asked;
    if (entry && entry->grammar) *ret_grammar = grammar_hold(entry->grammar);
    if (entry && !entry->grammar) err = err_set(error, entry->error.code, "%s", entry->error.text);
    pthread_mutex_unlock(&set->lock);
    return err;
}
