/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kv_pool: which KV-cache blocks are free, which are used and by how many sequences, and which are
 * cached: kept for later without a user.
 *
 * The pool deals in block numbers. The bytes behind a number live on the device and belong to the
 * backend; prefix_tree knows the tokens they stand for. So the scheduler can be tested without a
 * model and without a GPU.
 *
 *              take               last drop, not kept
 *     free ───────────▶ used ─────────────────────────▶ free
 *       ▲                ▲ │ last drop, kept
 *       │ forget    hold │ ▼
 *       └────────────── cached    oldest first; a list with its links inside the blocks
 *
 * Thread: the scheduler's only; no locks.
 * Memory: allocated once, in kv_pool_open.
 * Invariant: free + cached + used is the number of blocks; a block is used exactly when its hold
 *     count is not zero. */

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define KV_BLOCKS_MAX (1u << 24)

struct kv_pool;

/* Opens a pool of `block_count` free blocks. ERR_INVALID outside 1..KV_BLOCKS_MAX. */
enum err kv_pool_open(struct kv_pool **ret_pool, uint32_t block_count,
                      struct error *error) MUST_CHECK;
/* Every used block must have been dropped; cached ones may remain. NULL is allowed. */
void kv_pool_close(struct kv_pool *pool);

/* Takes a free block with one hold. False when none is free: then the caller forgets a cached block
 * or preempts a sequence, and calls again. */
bool kv_pool_take(struct kv_pool *pool, uint32_t *ret_block) MUST_CHECK;
/* Adds a hold to a used or cached block. */
void kv_pool_hold(struct kv_pool *pool, uint32_t number);
/* Takes a hold off. The last drop makes the block free, or with `keep` the youngest cached one. */
void kv_pool_drop(struct kv_pool *pool, uint32_t number, bool keep);

/* The cached block that was dropped first. False when no block is cached. */
bool kv_pool_oldest(const struct kv_pool *pool, uint32_t *ret_block);
/* Makes a cached block free. */
void kv_pool_forget(struct kv_pool *pool, uint32_t number);

uint32_t kv_pool_holds(const struct kv_pool *pool, uint32_t block);
uint32_t kv_pool_block_count(const struct kv_pool *pool);
uint32_t kv_pool_free_count(const struct kv_pool *pool);
uint32_t kv_pool_cached_count(const struct kv_pool *pool);
uint32_t kv_pool_used_count(const struct kv_pool *pool);

/* Asserts that each block is in one state and the counts are right: O(blocks). Returns the sum of
 * all holds, which must be the number of entries in all block tables. */
uint64_t kv_pool_check(const struct kv_pool *pool);
