/* SPDX-License-Identifier: Apache-2.0 */
#include "preflight/hash_set.h"

#include "base/mem.h"

#include <stdlib.h>

#define FIRST_SLOTS ((size_t)4096)

/* The slot of the hash, or the free slot for it. A set always has a free slot. */
static size_t find(const struct hash_set *set, uint64_t hash) {
    size_t at = (size_t)(hash * 0x9E3779B97F4A7C15u >> 20) & (set->slot_count - 1);
    while (set->slots[at] != 0 && set->slots[at] != hash) at = (at + 1) & (set->slot_count - 1);
    return at;
}

static void grow(struct hash_set *set) {
    struct hash_set old = *set;
    set->slot_count = old.slot_count ? 2 * old.slot_count : FIRST_SLOTS;
    set->slots = mem_new(set->slot_count, sizeof *set->slots);
    for (size_t i = 0; i < old.slot_count; i++)
        if (old.slots[i]) set->slots[find(set, old.slots[i])] = old.slots[i];
    free(old.slots);
}

bool hash_set_has(const struct hash_set *set, uint64_t hash) {
    return set->count > 0 && set->slots[find(set, hash ? hash : 1)] != 0;
}

bool hash_set_add(struct hash_set *set, uint64_t hash) {
    if (hash == 0) hash = 1;
    if (4 * (set->count + 1) > 3 * set->slot_count) grow(set);
    size_t at = find(set, hash);
    if (set->slots[at]) return false;
    set->slots[at] = hash;
    set->count++;
    return true;
}

void hash_set_release(struct hash_set *set) {
    free(set->slots);
    *set = (struct hash_set){0};
}
