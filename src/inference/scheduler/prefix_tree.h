/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* prefix_tree: which full KV block stands for which tokens after which prefix, and which blocks are
 * forgotten when blocks or pages run out.
 *
 * A node is one full block: its parent block and the 16 tokens that follow the parent's. The blocks
 * from the root to a node stand for one token prefix, so a sequence that starts with the same
 * tokens uses the same blocks. Children are looked up through a keyed hash table, and a hit is a
 * hit only when parent and all tokens are equal: there are no collisions, whatever a client sends.
 * The children of a node are a list as well, in which a block is found by its first tokens.
 *
 * A node is added as soon as the step that fills its block is composed. It stays while sequences
 * use it, and after that until its block or its pages are needed. Its window pages (kv_pages.h) may
 * go before it. Of nodes and window pages, the one that was used longest ago goes first.
 *
 * Thread: the scheduler's only.
 * Memory: allocated once, in prefix_tree_open; pool, pages and states are borrowed.
 * Invariant: (1) A node is in the tree exactly once, and its block is used or cached, never free.
 *     (2) A sequence that holds a node holds its ancestors, and drops them after it.
 *     (3) Hence children come before their parent in the pool's list of cached blocks, and the
 *     oldest cached block is always a leaf. */

#include "base/err.h"
#include "scheduler/backend.h"

#include <stdbool.h>
#include <stdint.h>

struct kv_pages;
struct kv_pool;
struct prefix_tree;
struct state_places;

#define PREFIX_ROOT UINT32_MAX /* the parent of first blocks */
#define PREFIX_NONE UINT32_MAX /* behind the last child */

/* `pages` are those of the pool's blocks. `states` lose those of a node that is forgotten; NULL:
 * there are none. */
enum err prefix_tree_open(struct prefix_tree **ret_tree, struct kv_pool *pool,
                          struct kv_pages *pages, struct state_places *states,
                          struct error *error) MUST_CHECK;
void prefix_tree_close(struct prefix_tree *tree); /* NULL is allowed */

/* The block that holds `tokens` after `parent`; false without one. `salt` tells first blocks apart,
 * and so all blocks after them; it counts only after PREFIX_ROOT. */
bool prefix_tree_find(const struct prefix_tree *tree, uint32_t parent, uint64_t salt,
                      const int32_t tokens[BACKEND_BLOCK_TOKENS], uint32_t *ret_block);
/* The children of a node, or of PREFIX_ROOT, in the order in which they were added; PREFIX_NONE
 * behind the last. */
uint32_t prefix_tree_first_child(const struct prefix_tree *tree, uint32_t parent);
uint32_t prefix_tree_next_child(const struct prefix_tree *tree, uint32_t block);
/* How many leading tokens of a node are tokens[0..count), count <= BACKEND_BLOCK_TOKENS. `salt` is
 * that of prefix_tree_find. */
uint32_t prefix_tree_common(const struct prefix_tree *tree, uint32_t block, uint64_t salt,
                            const int32_t *tokens, uint32_t count);
/* Makes a used block a node. No node may exist for these tokens, and `block` must not be a node. */
void prefix_tree_add(struct prefix_tree *tree, uint32_t parent, uint64_t salt,
                     const int32_t tokens[BACKEND_BLOCK_TOKENS], uint32_t block);
bool prefix_tree_has(const struct prefix_tree *tree, uint32_t block);

/* Takes a free block with all its pages, and forgets cached ones for it. False when sequences use
 * so many that none can be freed. */
bool prefix_tree_take(struct prefix_tree *tree, uint32_t *ret_block) MUST_CHECK;
/* Takes a hold off. After the last one a node stays as cached; any other block becomes free with
 * its pages. Drop a sequence's blocks last to first, and the hold on a block's window pages before
 * the block. */
void prefix_tree_drop(struct prefix_tree *tree, uint32_t block);
/* Takes a hold off a block's window pages; a node's stay as cached. */
void prefix_tree_drop_window(struct prefix_tree *tree, uint32_t block);

/* Pages that are free or cached. */
uint32_t prefix_tree_available_pages(const struct prefix_tree *tree);
uint64_t prefix_tree_evictions(const struct prefix_tree *tree); /* nodes forgotten so far */
/* Asserts the invariants above: O(blocks). */
void prefix_tree_check(const struct prefix_tree *tree);
