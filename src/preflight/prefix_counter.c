/* SPDX-License-Identifier: Apache-2.0 */
#include "preflight/prefix_counter.h"

#include <stdlib.h>

#define FIRST_SLOTS ((size_t)4096)

/* Where the hash is, or would be. There is always a free slot. */
static size_t find(const struct seen *seen, uint64_t hash) {
    size_t at = (size_t)(hash * 0x9E3779B97F4A7C15u >> 20) & (seen->slot_count - 1);
    while (seen->slots[at] != 0 && seen->slots[at] != hash) at = (at + 1) & (seen->slot_count - 1);
    return at;
}

static void grow(struct seen *seen) {
    struct seen old = *seen;
    seen->slot_count = old.slot_count ? 2 * old.slot_count : FIRST_SLOTS;
    seen->slots = calloc(seen->slot_count, sizeof *seen->slots);
    if (!seen->slots) abort();
    for (size_t i = 0; i < old.slot_count; i++)
        if (old.slots[i]) seen->slots[find(seen, old.slots[i])] = old.slots[i];
    free(old.slots);
}

bool seen_has(const struct seen *seen, uint64_t hash) {
    return seen->count > 0 && seen->slots[find(seen, hash ? hash : 1)] != 0;
}

bool seen_add(struct seen *seen, uint64_t hash) {
    if (hash == 0) hash = 1;
    if (4 * (seen->count + 1) > 3 * seen->slot_count) grow(seen);
    size_t at = find(seen, hash);
    if (seen->slots[at]) return false;
    seen->slots[at] = hash;
    seen->count++;
    return true;
}

void seen_release(struct seen *seen) {
    free(seen->slots);
    *seen = (struct seen){0};
}
