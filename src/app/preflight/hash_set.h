/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* hash_set: a growing set of 64-bit hashes.
 *
 * The counter of requests keeps two of them: keys of requests, to find duplicates, and hashes of
 * token blocks, to find shared prefixes. A set does not know what was hashed; two things with the
 * same hash count as one: among 2^20 hashes, any two meet with a chance of 1 in 33 million.
 *
 * Thread: one at a time.
 * Memory: 11 to 21 bytes per hash once it holds thousands (a load of 3/8 to 3/4); hash_set_release
 *         frees it. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero is an empty set. */
struct hash_set {
    uint64_t *slots; /* (slot_count) 0: free; the hash 0 is stored as 1 */
    size_t slot_count;
    size_t count;
};

/* True if the hash was not in the set before. */
bool hash_set_add(struct hash_set *set, uint64_t hash);
bool hash_set_has(const struct hash_set *set, uint64_t hash);
void hash_set_release(struct hash_set *set);
