/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* table: from byte strings to token ids, by open addressing over an array of strings that the owner
 * keeps. It is sized once and never grows.
 *
 * The hash is keyed with random bits, so that a hostile vocabulary cannot aim at one slot.
 *
 * Thread: any; immutable once filled.
 * Memory: owns its slots, borrows the strings.
 * Invariant: at most half of the slots are used. */

#include "base/str.h"

#include <string.h>

struct hash_key {
    uint64_t at[2];
};

struct hash_key hash_key_new(void);

static inline uint64_t hash_mix(uint64_t a, uint64_t b) {
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t hash_load(const char *at, size_t bytes) {
    uint64_t word = 0;
    memcpy(&word, at, bytes);
    return word;
}

/* Multiplies and folds, 16 bytes per round. */
static inline uint64_t hash_bytes(const struct hash_key *key, struct str text) {
    uint64_t hash = key->at[0] ^ text.bytes;
    const char *at = text.at;
    size_t left = text.bytes;
    for (; left > 16; at += 16, left -= 16)
        hash = hash_mix(hash_load(at, 8) ^ key->at[1], hash_load(at + 8, 8) ^ hash);
    uint64_t low = 0, high = 0;
    if (left >= 8) {
        low = hash_load(at, 8);
        high = hash_load(at + left - 8, 8);
    } else if (left >= 4) {
        low = hash_load(at, 4);
        high = hash_load(at + left - 4, 4);
    } else if (left > 0) {
        low = (uint64_t)(unsigned char)at[0] << 16 | (uint64_t)(unsigned char)at[left / 2] << 8 |
              (unsigned char)at[left - 1];
    }
    hash = hash_mix(low ^ key->at[1], high ^ hash);
    return hash_mix(hash, key->at[1]);
}

struct table {
    struct hash_key key;
    uint64_t *slots; /* upper half: bits of the hash; lower half: id + 1; 0 is a free slot */
    size_t mask;
};

/* Opens a table for up to `count` strings. False without memory. */
bool table_open(struct table *table, size_t count);
void table_close(struct table *table);
/* Adds keys[id] and returns -1; when the table has that text, returns its id instead. */
int32_t table_add(struct table *table, const struct str *keys, int32_t id);
/* Puts keys[id] in the place of an equal text. */
void table_replace(struct table *table, const struct str *keys, int32_t id);

/* The slot of `text`, or the free slot where it belongs. */
static inline uint64_t *table_slot(const struct table *table, const struct str *keys,
                                   struct str text, uint64_t hash) {
    size_t at = hash & table->mask;
    for (;; at = (at + 1) & table->mask) {
        uint64_t slot = table->slots[at];
        if (slot == 0) break;
        if (slot >> 32 != hash >> 32) continue;
        const struct str *key = &keys[(slot & UINT32_MAX) - 1];
        if (key->bytes == text.bytes && memcmp(key->at, text.at, text.bytes) == 0) break;
    }
    return &table->slots[at];
}

/* The id of `text`, which is not empty; -1 without one. */
static inline int32_t table_find(const struct table *table, const struct str *keys,
                                 struct str text) {
    uint64_t slot = *table_slot(table, keys, text, hash_bytes(&table->key, text));
    return (int32_t)(slot & UINT32_MAX) - 1;
}
