/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* map: from byte strings to 64-bit values, with open addressing. The hash is keyed (SipHash through
 * libsodium), so that keys which a stranger chose cannot make it slow.
 *
 * Thread: one at a time.
 * Memory: keys are copied into the map's own arena; map_release frees all. */

#include "base/arena.h"

struct map_slot;

struct map {
    struct map_slot *slots;
    size_t slot_count; /* a power of two, or 0 */
    size_t count;
    unsigned char key[16];
    struct arena keys;
};

void map_init(struct map *map);
void map_release(struct map *map);
/* True, with *ret_value (NULL allowed), if the map has the key. */
bool map_get(const struct map *map, struct str key, uint64_t *ret_value);
/* Puts or replaces the value. True if the key is new. */
bool map_put(struct map *map, struct str key, uint64_t value);
/* Puts the value if the key is new. Else false, and *ret_old (NULL allowed) is the old value. */
bool map_put_new(struct map *map, struct str key, uint64_t value, uint64_t *ret_old);
