/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include "base/mem.h"

#include <sodium/crypto_shorthash.h>
#include <sodium/randombytes.h>
#include <stdlib.h>
#include <string.h>

struct map_slot {
    struct str key; /* at is NULL when the slot is free */
    uint64_t hash;
    uint64_t value;
};

static const char empty_key[1];

void map_init(struct map *map) {
    *map = (struct map){0};
    _Static_assert(sizeof map->key == crypto_shorthash_KEYBYTES, "the key is libsodium's");
    randombytes_buf(map->key, sizeof map->key);
    arena_init(&map->keys, SIZE_MAX / 2);
}

void map_release(struct map *map) {
    free(map->slots);
    arena_release(&map->keys);
    *map = (struct map){0};
}

static uint64_t hash_of(const struct map *map, struct str key) {
    unsigned char digest[crypto_shorthash_BYTES];
    crypto_shorthash(digest, (const unsigned char *)(key.at ? key.at : empty_key), key.bytes,
                     map->key);
    uint64_t hash;
    memcpy(&hash, digest, sizeof hash);
    return hash;
}

/* The slot that holds the key, or the free one where it would go. */
static struct map_slot *slot_of(const struct map *map, struct str key, uint64_t hash) {
    size_t mask = map->slot_count - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        struct map_slot *slot = &map->slots[i];
        if (!slot->key.at || (slot->hash == hash && str_equals(slot->key, key))) return slot;
    }
}

static void grow(struct map *map) {
    struct map old = *map;
    map->slot_count = old.slot_count ? old.slot_count * 2 : 64;
    map->slots = mem_new(map->slot_count, sizeof *map->slots);
    for (size_t i = 0; i < old.slot_count; i++)
        if (old.slots[i].key.at) *slot_of(map, old.slots[i].key, old.slots[i].hash) = old.slots[i];
    free(old.slots);
}

bool map_get(const struct map *map, struct str key, uint64_t *ret_value) {
    if (map->count == 0) return false;
    const struct map_slot *slot = slot_of(map, key, hash_of(map, key));
    if (!slot->key.at) return false;
    if (ret_value) *ret_value = slot->value;
    return true;
}

bool map_put_new(struct map *map, struct str key, uint64_t value, uint64_t *ret_old) {
    if (map->count * 4 >= map->slot_count * 3) grow(map);
    uint64_t hash = hash_of(map, key);
    struct map_slot *slot = slot_of(map, key, hash);
    if (slot->key.at) {
        if (ret_old) *ret_old = slot->value;
        return false;
    }
    *slot = (struct map_slot){.key = arena_copy(&map->keys, key), .hash = hash, .value = value};
    map->count++;
    return true;
}

bool map_put(struct map *map, struct str key, uint64_t value) {
    if (map_put_new(map, key, value, NULL)) return true;
    slot_of(map, key, hash_of(map, key))->value = value;
    return false;
}
