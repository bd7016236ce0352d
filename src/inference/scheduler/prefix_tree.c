/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/prefix_tree.h"

#include "base/id.h"
#include "scheduler/kv_pages.h"
#include "scheduler/kv_pool.h"
#include "scheduler/state_places.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A list of nodes with the same parent. */
struct children {
    uint32_t first, last; /* PREFIX_NONE: none */
};

/* By block number; the block is the node. */
struct prefix_node {
    uint32_t parent; /* block, or PREFIX_ROOT */
    struct children children;
    uint32_t before, behind; /* siblings under the same parent, or PREFIX_NONE */
    uint32_t next;           /* in the same bucket, or PREFIX_NONE */
    uint32_t bucket;
    bool is_member;
    uint64_t salt;  /* 0 but for first blocks */
    uint64_t since; /* when it was last cached */
    int32_t tokens[BACKEND_BLOCK_TOKENS];
};

static const struct children NO_CHILDREN = {PREFIX_NONE, PREFIX_NONE};

struct prefix_tree {
    struct kv_pool *pool;
    struct kv_pages *pages;
    struct state_places *states; /* or NULL */
    struct prefix_node *nodes;   /* (block_count of the pool) */
    struct children firsts;      /* whose parent is PREFIX_ROOT */
    uint32_t *buckets;           /* (bucket_mask + 1) first node, or PREFIX_NONE */
    uint32_t bucket_mask;
    uint32_t member_count;
    uint64_t hash_key; /* random, so that a client cannot choose prompts that share a bucket */
    uint64_t now;      /* clock of last use: the number of drops */
    uint64_t evictions;
};

enum err prefix_tree_open(struct prefix_tree **ret_tree, struct kv_pool *pool,
                          struct kv_pages *pages, struct state_places *states,
                          struct error *error) {
    uint32_t block_count = kv_pool_block_count(pool);
    uint32_t bucket_count = 1;
    while (bucket_count < block_count) bucket_count *= 2;

    struct prefix_tree *tree = calloc(1, sizeof *tree);
    if (!tree) goto out_of_memory;
    tree->nodes = calloc(block_count, sizeof *tree->nodes);
    tree->buckets = calloc(bucket_count, sizeof *tree->buckets);
    if (!tree->nodes || !tree->buckets) goto out_of_memory;
    for (uint32_t i = 0; i < bucket_count; i++) tree->buckets[i] = PREFIX_NONE;
    tree->firsts = NO_CHILDREN;
    tree->pool = pool;
    tree->pages = pages;
    tree->states = states;
    tree->bucket_mask = bucket_count - 1;
    tree->hash_key = id_u64();
    *ret_tree = tree;
    return OK;

out_of_memory:
    prefix_tree_close(tree);
    return err_set(error, ERR_LIMIT, "prefix tree: no memory for %u blocks", block_count);
}

void prefix_tree_close(struct prefix_tree *tree) {
    if (!tree) return;
    free(tree->buckets);
    free(tree->nodes);
    free(tree);
}

/* Multiply and fold over pairs of tokens, after wyhash. Only speed depends on its quality. */
static uint32_t bucket_of(const struct prefix_tree *tree, uint32_t parent, uint64_t salt,
                          const int32_t tokens[BACKEND_BLOCK_TOKENS]) {
    uint64_t hash = tree->hash_key ^ salt ^ (parent * 0x9E3779B97F4A7C15ull);
    for (uint32_t i = 0; i < BACKEND_BLOCK_TOKENS; i += 2) {
        uint64_t pair = (uint64_t)(uint32_t)tokens[i] << 32 | (uint32_t)tokens[i + 1];
        __uint128_t product = (__uint128_t)(hash ^ pair) * 0xE7037ED1A0B428DBull;
        hash = (uint64_t)product ^ (uint64_t)(product >> 64) ^ 0x8EBC6AF09C88C6E3ull;
    }
    return (uint32_t)(hash ^ hash >> 32) & tree->bucket_mask;
}

static uint32_t find_in(const struct prefix_tree *tree, uint32_t bucket, uint32_t parent,
                        uint64_t salt, const int32_t tokens[BACKEND_BLOCK_TOKENS]) {
    uint32_t at = tree->buckets[bucket];
    while (at != PREFIX_NONE) {
        const struct prefix_node *node = &tree->nodes[at];
        if (node->parent == parent && node->salt == salt &&
            memcmp(node->tokens, tokens, sizeof node->tokens) == 0)
            break;
        at = node->next;
    }
    return at;
}

bool prefix_tree_find(const struct prefix_tree *tree, uint32_t parent, uint64_t salt,
                      const int32_t tokens[BACKEND_BLOCK_TOKENS], uint32_t *ret_block) {
    if (parent != PREFIX_ROOT) salt = 0;
    uint32_t bucket = bucket_of(tree, parent, salt, tokens);
    uint32_t found = find_in(tree, bucket, parent, salt, tokens);
    if (found == PREFIX_NONE) return false;
    *ret_block = found;
    return true;
}

/* ---- children ---- */

static struct children *children_of(struct prefix_tree *tree, uint32_t parent) {
    return parent == PREFIX_ROOT ? &tree->firsts : &tree->nodes[parent].children;
}

static void append_child(struct prefix_tree *tree, uint32_t parent, uint32_t block) {
    struct children *children = children_of(tree, parent);
    struct prefix_node *node = &tree->nodes[block];
    node->before = children->last;
    node->behind = PREFIX_NONE;
    if (children->last == PREFIX_NONE)
        children->first = block;
    else
        tree->nodes[children->last].behind = block;
    children->last = block;
}

static void remove_child(struct prefix_tree *tree, uint32_t parent, uint32_t block) {
    struct children *children = children_of(tree, parent);
    const struct prefix_node *node = &tree->nodes[block];
    if (node->before == PREFIX_NONE)
        children->first = node->behind;
    else
        tree->nodes[node->before].behind = node->behind;
    if (node->behind == PREFIX_NONE)
        children->last = node->before;
    else
        tree->nodes[node->behind].before = node->before;
}

uint32_t prefix_tree_first_child(const struct prefix_tree *tree, uint32_t parent) {
    return parent == PREFIX_ROOT ? tree->firsts.first : tree->nodes[parent].children.first;
}

uint32_t prefix_tree_next_child(const struct prefix_tree *tree, uint32_t block) {
    return tree->nodes[block].behind;
}

uint32_t prefix_tree_common(const struct prefix_tree *tree, uint32_t block, uint64_t salt,
                            const int32_t *tokens, uint32_t count) {
    const struct prefix_node *node = &tree->nodes[block];
    assert(node->is_member && count <= BACKEND_BLOCK_TOKENS);
    if (node->parent == PREFIX_ROOT && node->salt != salt) return 0;
    uint32_t common = 0;
    while (common < count && node->tokens[common] == tokens[common]) common++;
    return common;
}

/* ---- nodes ---- */

void prefix_tree_add(struct prefix_tree *tree, uint32_t parent, uint64_t salt,
                     const int32_t tokens[BACKEND_BLOCK_TOKENS], uint32_t block) {
    if (parent != PREFIX_ROOT) salt = 0;
    struct prefix_node *node = &tree->nodes[block];
    uint32_t bucket = bucket_of(tree, parent, salt, tokens);
    assert(!node->is_member && kv_pool_holds(tree->pool, block) > 0);
    assert(find_in(tree, bucket, parent, salt, tokens) == PREFIX_NONE);
    assert(parent == PREFIX_ROOT ||
           (tree->nodes[parent].is_member && kv_pool_holds(tree->pool, parent) > 0));
    append_child(tree, parent, block);
    node->is_member = true;
    node->parent = parent;
    node->salt = salt;
    node->children = NO_CHILDREN;
    node->bucket = bucket;
    node->next = tree->buckets[bucket];
    memcpy(node->tokens, tokens, sizeof node->tokens);
    tree->buckets[bucket] = block;
    tree->member_count++;
}

bool prefix_tree_has(const struct prefix_tree *tree, uint32_t block) {
    return tree->nodes[block].is_member;
}

static void remove_leaf(struct prefix_tree *tree, uint32_t block) {
    struct prefix_node *node = &tree->nodes[block];
    assert(node->is_member && node->children.first == PREFIX_NONE);
    uint32_t *link = &tree->buckets[node->bucket];
    while (*link != block) link = &tree->nodes[*link].next;
    *link = node->next;
    remove_child(tree, node->parent, block);
    node->is_member = false;
    tree->member_count--;
}

/* Forgets the window pages or the node, with all its pages, that were used longest ago. With
 * `must_be_node` it forgets a node, to free a block. False without a cached one. */
static bool forget_oldest(struct prefix_tree *tree, bool must_be_node) {
    uint32_t node, windowed;
    uint64_t since;
    bool has_node = kv_pool_oldest(tree->pool, &node);
    if (!must_be_node && kv_pages_oldest_window(tree->pages, &windowed, &since) &&
        (!has_node || since < tree->nodes[node].since)) {
        kv_pages_forget_window(tree->pages, windowed);
        return true;
    }
    if (!has_node) return false;
    remove_leaf(tree, node);
    if (tree->states) state_places_forget_node(tree->states, node);
    kv_pool_forget(tree->pool, node);
    kv_pages_take_back(tree->pages, node);
    tree->evictions++;
    return true;
}

bool prefix_tree_take(struct prefix_tree *tree, uint32_t *ret_block) {
    uint32_t wanted = kv_pages_per_block(tree->pages);
    if (prefix_tree_available_pages(tree) < wanted) return false;
    while (kv_pool_free_count(tree->pool) == 0 || kv_pages_free_count(tree->pages) < wanted)
        if (!forget_oldest(tree, kv_pool_free_count(tree->pool) == 0)) return false;
    bool taken = kv_pool_take(tree->pool, ret_block);
    bool given = taken && kv_pages_give(tree->pages, *ret_block);
    assert(given);
    return given;
}

void prefix_tree_drop(struct prefix_tree *tree, uint32_t block) {
    bool keep = tree->nodes[block].is_member;
    kv_pool_drop(tree->pool, block, keep);
    if (kv_pool_holds(tree->pool, block) > 0) return;
    if (keep)
        tree->nodes[block].since = ++tree->now;
    else
        kv_pages_take_back(tree->pages, block);
}

void prefix_tree_drop_window(struct prefix_tree *tree, uint32_t block) {
    kv_pages_drop_window(tree->pages, block, tree->nodes[block].is_member, ++tree->now);
}

uint32_t prefix_tree_available_pages(const struct prefix_tree *tree) {
    uint32_t full_pages = kv_pages_full_per_block(tree->pages);
    return kv_pages_free_count(tree->pages) + kv_pages_cached_count(tree->pages) +
           kv_pool_cached_count(tree->pool) * full_pages;
}

uint64_t prefix_tree_evictions(const struct prefix_tree *tree) {
    return tree->evictions;
}

/* The length of a list of children, each of which must name `parent`. */
static uint64_t count_children(const struct prefix_tree *tree, uint32_t parent) {
    uint64_t count = 0;
    uint32_t before = PREFIX_NONE;
    for (uint32_t at = prefix_tree_first_child(tree, parent); at != PREFIX_NONE; count++) {
        const struct prefix_node *node = &tree->nodes[at];
        assert(node->is_member && node->parent == parent && node->before == before);
        before = at;
        at = node->behind;
    }
    return count;
}

void prefix_tree_check(const struct prefix_tree *tree) {
    uint32_t members = 0;
    uint64_t listed = count_children(tree, PREFIX_ROOT);
    uint32_t block_count = kv_pool_block_count(tree->pool);
    for (uint32_t i = 0; i < block_count; i++) {
        const struct prefix_node *node = &tree->nodes[i];
        if (!node->is_member) continue;
        members++;
        listed += count_children(tree, i);
        assert(find_in(tree, node->bucket, node->parent, node->salt, node->tokens) == i);
        if (node->parent == PREFIX_ROOT) continue;
        assert(tree->nodes[node->parent].is_member);
        assert(kv_pool_holds(tree->pool, node->parent) >= 1 || kv_pool_holds(tree->pool, i) == 0);
    }
    assert(members == tree->member_count && listed == members);
    /* Every cached block is a node, and every node is cached or used. */
    assert(members >= kv_pool_cached_count(tree->pool));
    assert(members <= kv_pool_cached_count(tree->pool) + kv_pool_used_count(tree->pool));
}
