/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* arena: memory that is given back all at once. One line of a batch, or one request, has an arena;
 * its cap bounds the memory that a hostile line can take.
 *
 * Thread: one at a time; an arena may change threads as a whole.
 * Memory: owns its chunks until arena_release.
 * Invariant: arena_alloc returns zeroed, 16-byte aligned memory, or NULL past the cap. */

#include "base/str.h"

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks; /* newest first */
    size_t bytes_used;          /* over all chunks */
    size_t bytes_max;
};

void arena_init(struct arena *arena, size_t bytes_max);
void arena_release(struct arena *arena);
void *arena_alloc(struct arena *arena, size_t bytes);
/* Room for `count` elements; NULL also if their size overflows. */
void *arena_array(struct arena *arena, size_t count, size_t bytes_each);
/* A copy with a NUL behind it; `at` is NULL past the cap. */
struct str arena_copy(struct arena *arena, struct str text);
