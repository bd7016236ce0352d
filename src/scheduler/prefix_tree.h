/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* prefix_tree: which full KV block stands for which tokens after which prefix, and what is
 * forgotten when blocks or pages run out.
 *
 * A node is one full block: its parent block and the 16 tokens that follow the parent's. The blocks
 * from the root to a node stand for one token prefix, so a sequence that starts with the same
 * tokens uses the same blocks. Children are looked up through a keyed hash table, and a hit is a
 * hit only when parent and all tokens are equal: there are no collisions, whatever a client sends.
 *
 * A node is added as soon as the step that fills its block is composed. It stays while sequences
 * use it, and after that as long as there are other blocks and pages to give. Its window pages
 * (kv_pages.h) may be gone before it; whichever was used longest ago, of nodes and of window pages,
 * goes first.
 *
 * Thread: the scheduler's only.  Memory: allocated once, in prefix_tree_open; the pool and the
 * pages are borrowed. Invariants: (1) a node is in the tree exactly once and its block is used or
 * cached, never free. (2) Whoever holds a node holds its ancestors, and drops them after it. (3)
 * Hence in the pool's list of cached blocks children come before their parent, and the oldest one
 * is always a leaf. */

#include "base/err.h"
#include "scheduler/backend.h"

#include <stdbool.h>
#include <stdint.h>

struct kv_pages;
struct kv_pool;
struct prefix_tree;

#define PREFIX_ROOT UINT32_MAX /* the parent of first blocks */

/* `pages` are those of the pool's blocks. */
enum err prefix_tree_open(struct prefix_tree **ret_tree, struct kv_pool *pool,
                          struct kv_pages *pages, struct error *error) MUST_CHECK;
void prefix_tree_close(struct prefix_tree *tree); /* NULL is allowed */

/* The block that holds `tokens` after `parent`; false when there is none. `salt` divides the first
 * blocks, and so all that follows them; it counts after PREFIX_ROOT only. */
bool prefix_tree_find(const struct prefix_tree *tree, uint32_t parent, uint64_t salt,
                      const int32_t tokens[BACKEND_BLOCK_TOKENS], uint32_t *ret_block);
/* Makes a used block a node. There must be no node for these tokens, and `block` must not be one.
 */
void prefix_tree_add(struct prefix_tree *tree, uint32_t parent, uint64_t salt,
                     const int32_t tokens[BACKEND_BLOCK_TOKENS], uint32_t block);
bool prefix_tree_has(const struct prefix_tree *tree, uint32_t block);

/* A free block with all its pages; what is cached goes for it. False when all is used. */
bool prefix_tree_take(struct prefix_tree *tree, uint32_t *ret_block) MUST_CHECK;
/* One user less; a node stays as cached, another block becomes free with its pages. Drop a
 * sequence's blocks last to first, and the hold of a block's window pages before it. */
void prefix_tree_drop(struct prefix_tree *tree, uint32_t block);
/* One user of its window pages less; those of a node stay as cached. */
void prefix_tree_drop_window(struct prefix_tree *tree, uint32_t block);

/* Pages that are free, or would be if all that is cached were forgotten. */
uint32_t prefix_tree_available_pages(const struct prefix_tree *tree);
uint64_t prefix_tree_evictions(const struct prefix_tree *tree); /* of nodes */
/* Asserts the invariants above: O(blocks). */
void prefix_tree_check(const struct prefix_tree *tree);
