/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kv_pages: which pages of the KV cache each block has.
 *
 * A block (kv_pool.h) is 16 positions of a token prefix. Its keys and values lie in pages, each
 * with room for 16 positions of some layers. All pages have one size, so that memory which one kind
 * of layer gives back serves the other. A block has its full pages, of layers that see every
 * position, from take to free. Its window pages, of layers that see only the last positions, are
 * given back when no running sequence holds them. A block in the prefix tree keeps them as cached,
 * like the block itself, until pages run out: a new sequence may begin there.
 *
 * It knows no tokens and no sequences.
 *
 * Thread: the scheduler's only.
 * Memory: allocated once, in kv_pages_open.
 * Invariant: each page is free or belongs to one block; a block has its window pages while they are
 *     held. */

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct kv_shape {
    uint32_t page_count;
    uint32_t full_pages;   /* per block; full_pages + window_pages > 0 */
    uint32_t window_pages; /* per block */
};

struct kv_pages;

/* ERR_LIMIT without memory. */
enum err kv_pages_open(struct kv_pages **ret_pages, const struct kv_shape *shape,
                       uint32_t block_count, struct error *error) MUST_CHECK;
void kv_pages_close(struct kv_pages *pages); /* NULL is allowed */

/* Pages of a block that has all its pages, and how many of them are full pages. */
uint32_t kv_pages_per_block(const struct kv_pages *pages);
uint32_t kv_pages_full_per_block(const struct kv_pages *pages);
/* Gives a block without pages all its pages, the window pages with one hold. False, and no page is
 * given, when too few are free. */
bool kv_pages_give(struct kv_pages *pages, uint32_t block) MUST_CHECK;
/* Frees all pages of a block, whose window pages nothing holds. */
void kv_pages_take_back(struct kv_pages *pages, uint32_t block);
/* The page of layer group `group`; the groups of full pages come first. A block whose window pages
 * are gone still has numbers for them, of pages that are not its own. */
uint32_t kv_pages_of(const struct kv_pages *pages, uint32_t block, uint32_t group);

/* Window pages. In a cache without window groups every block counts as having them, and the calls
 * do nothing. */

bool kv_pages_has_window(const struct kv_pages *pages, uint32_t block);
uint32_t kv_pages_window_holds(const struct kv_pages *pages, uint32_t block);
void kv_pages_hold_window(struct kv_pages *pages, uint32_t block);
/* Takes one hold off. After the last one they are cached as of `now` (`keep`), or freed. */
void kv_pages_drop_window(struct kv_pages *pages, uint32_t block, bool keep, uint64_t now);
/* Gives the window pages of `from`, with their holds, to `to`, which has none. */
void kv_pages_move_window(struct kv_pages *pages, uint32_t from, uint32_t to);
/* The block whose window pages were cached first, and when. False when none are cached. */
bool kv_pages_oldest_window(const struct kv_pages *pages, uint32_t *ret_block, uint64_t *ret_since);
/* Frees cached window pages. */
void kv_pages_forget_window(struct kv_pages *pages, uint32_t block);

uint32_t kv_pages_free_count(const struct kv_pages *pages);
/* Pages of all cached window pages, which kv_pages_forget_window would free. */
uint32_t kv_pages_cached_count(const struct kv_pages *pages);
/* Asserts the invariants; `blocks_taken` have full pages. Returns the sum of all window holds. */
uint64_t kv_pages_check(const struct kv_pages *pages, uint32_t blocks_taken);
