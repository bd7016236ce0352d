/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* mem: memory from the heap for callers that could not go on without it.
 *
 * quern plans its large memory at start and bounds everything that grows, so that a small
 * allocation that fails is a machine at its end: every function here aborts then, and the next
 * start resumes from disk. Code that can refuse a request instead calls malloc itself.
 *
 * Thread: any.
 * Memory: the caller frees with free(). */

#include "base/str.h"

/* Makes large pieces go back to the machine when they are freed. Once, at the start of a process.
 */
void mem_set_up(void);
/* Gives back what is free between smaller pieces; after work that took many of them. */
void mem_trim(void);

/* Zeroed room for `count` items. */
void *mem_new(size_t count, size_t item_bytes);
/* Room for `bytes`, not zeroed. */
void *mem_alloc(size_t bytes);
/* `at` with room for `count` items; the items that it had are kept. */
void *mem_resize(void *at, size_t count, size_t item_bytes);
/* A copy of the text; NULL for NULL. */
char *mem_text(const char *text);
/* A copy of the text with a NUL behind it. */
char *mem_str(struct str text);

/* A growing array: `at` with room for at least one item more than `count`. *capacity, in items, at
 * least doubles when it is too small, so that n appends cost O(n). NULL and 0 are the empty array.
 *
 *     list->at = vec_grow(list->at, list->count, &list->capacity, sizeof *list->at);
 *     list->at[list->count++] = item; */
void *vec_grow(void *at, size_t count, size_t *capacity, size_t item_bytes);
