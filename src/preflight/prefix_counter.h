/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* seen: a growing set of 64-bit hashes.
 *
 * Thread: one at a time.  Memory: 16 bytes or so an entry; seen_release frees. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero is an empty set. */
struct seen {
    uint64_t *slots; /* 0: free */
    size_t slot_count;
    size_t count;
};

/* True when the hash was not there before. */
bool seen_add(struct seen *seen, uint64_t hash);
bool seen_has(const struct seen *seen, uint64_t hash);
void seen_release(struct seen *seen);
