/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* arena: memory that is given back all at once, with a cap; one line's or one request's lifetime.
 *
 * Thread: one at a time; may be handed on whole.  Memory: owns its chunks until arena_release.
 * Invariant: arena_alloc returns zeroed, 16-byte aligned memory, or NULL when the cap would be
 * passed. */

#include "base/str.h"

struct arena_chunk;

struct arena {
    struct arena_chunk *chunks; /* newest first */
    size_t bytes_used;          /* over all chunks */
    size_t bytes_max;
};

void arena_init(struct arena *arena, size_t bytes_max);
void arena_release(struct arena *arena);
/* Frees all but one chunk, which the next user starts in. */
void arena_reset(struct arena *arena);
void *arena_alloc(struct arena *arena, size_t bytes);
/* `count` elements of `bytes_each`, checked for overflow. */
void *arena_array(struct arena *arena, size_t count, size_t bytes_each);
/* A NUL-terminated copy; at is NULL when the cap would be passed. */
struct str arena_copy(struct arena *arena, struct str text);
