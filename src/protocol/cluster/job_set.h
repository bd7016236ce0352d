/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* job_set: a set of numbers of jobs, each with a value, for both ends of the bus.
 *
 * Thread: none of its own; the caller's lock.
 * Memory: 16 bytes per place of a table that is at most three quarters full.
 * Invariant: no number is 0. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct job_entry {
    uint64_t id; /* 0: free */
    uint64_t value;
};

/* Zero is a valid start. */
struct job_set {
    struct job_entry *entries;
    size_t capacity; /* a power of two, or 0 */
    size_t count;
};

void job_set_release(struct job_set *set);
/* The number is new. */
void job_set_put(struct job_set *set, uint64_t id, uint64_t value);
/* NULL: the number is not in it. Until the next put or take. */
uint64_t *job_set_find(const struct job_set *set, uint64_t id);
/* Takes it out; false if it is not in it. */
bool job_set_take(struct job_set *set, uint64_t id, uint64_t *ret_value);
