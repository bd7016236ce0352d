/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/job_set.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>

#define CAPACITY_MIN 64

/* Where the search for the number begins. */
static size_t home_of(const struct job_set *set, uint64_t id) {
    return (size_t)((id * UINT64_C(0x9E3779B97F4A7C15)) >> 20) & (set->capacity - 1);
}

/* The place of the number, or the free one where it would be. */
static size_t place_of(const struct job_set *set, uint64_t id) {
    size_t at = home_of(set, id);
    while (set->entries[at].id != 0 && set->entries[at].id != id)
        at = (at + 1) & (set->capacity - 1);
    return at;
}

void job_set_release(struct job_set *set) {
    free(set->entries);
    *set = (struct job_set){0};
}

static void grow(struct job_set *set) {
    struct job_set old = *set;
    set->capacity = old.capacity ? old.capacity * 2 : CAPACITY_MIN;
    set->entries = mem_new(set->capacity, sizeof *set->entries);
    for (size_t i = 0; i < old.capacity; i++)
        if (old.entries[i].id) set->entries[place_of(set, old.entries[i].id)] = old.entries[i];
    free(old.entries);
}

void job_set_put(struct job_set *set, uint64_t id, uint64_t value) {
    assert(id != 0);
    if (set->count + 1 > set->capacity / 4 * 3) grow(set);
    size_t at = place_of(set, id);
    assert(set->entries[at].id == 0);
    set->entries[at] = (struct job_entry){id, value};
    set->count++;
}

uint64_t *job_set_find(const struct job_set *set, uint64_t id) {
    if (set->count == 0 || id == 0) return NULL;
    size_t at = place_of(set, id);
    return set->entries[at].id == id ? &set->entries[at].value : NULL;
}

bool job_set_take(struct job_set *set, uint64_t id, uint64_t *ret_value) {
    if (set->count == 0 || id == 0) return false;
    size_t mask = set->capacity - 1, free_at = place_of(set, id);
    if (set->entries[free_at].id != id) return false;
    *ret_value = set->entries[free_at].value;
    set->count--;
    /* Moves those behind it that could not be found over the gap. */
    for (size_t at = (free_at + 1) & mask; set->entries[at].id; at = (at + 1) & mask) {
        size_t home = home_of(set, set->entries[at].id);
        if (((at - home) & mask) < ((at - free_at) & mask)) continue;
        set->entries[free_at] = set->entries[at];
        free_at = at;
    }
    set->entries[free_at] = (struct job_entry){0};
    return true;
}
