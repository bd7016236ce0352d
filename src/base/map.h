/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* map: from byte strings to 64-bit values; open addressing, keyed hash (SipHash through libsodium),
 * so that keys chosen by a stranger cannot make it slow.
 *
 * Thread: one at a time.  Memory: keys are copied into the map's own arena; map_release frees all.
 */

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
/* True and *ret_value (NULL allowed) when the key is there. */
bool map_get(const struct map *map, struct str key, uint64_t *ret_value);
/* Puts or replaces. True when the key is new. */
bool map_put(struct map *map, struct str key, uint64_t value);
/* Puts only when the key is new; else false and *ret_old (NULL allowed) is what stands there. */
bool map_put_new(struct map *map, struct str key, uint64_t value, uint64_t *ret_old);
