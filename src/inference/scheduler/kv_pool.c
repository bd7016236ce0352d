/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/kv_pool.h"

#include <assert.h>
#include <stdlib.h>

#define NO_BLOCK UINT32_MAX

enum block_state { BLOCK_FREE, BLOCK_USED, BLOCK_CACHED };

struct kv_block {
    uint32_t holds;
    enum block_state state;
    uint32_t older; /* neighbours in the list of cached blocks, or NO_BLOCK at its ends */
    uint32_t younger;
};

struct kv_pool {
    uint32_t block_count;
    uint32_t free_count;
    uint32_t cached_count;
    uint32_t oldest;
    uint32_t youngest;
    uint32_t *free_blocks; /* a stack; no order is promised */
    struct kv_block *blocks;
};

enum err kv_pool_open(struct kv_pool **ret_pool, uint32_t block_count, struct error *error) {
    if (block_count == 0 || block_count > KV_BLOCKS_MAX)
        return err_set(error, ERR_INVALID, "kv blocks: %u is outside 1..%u", block_count,
                       KV_BLOCKS_MAX);

    struct kv_pool *pool = calloc(1, sizeof *pool);
    if (!pool) goto out_of_memory;
    pool->free_blocks = calloc(block_count, sizeof *pool->free_blocks);
    pool->blocks = calloc(block_count, sizeof *pool->blocks);
    if (!pool->free_blocks || !pool->blocks) goto out_of_memory;

    /* Filled backwards, so that block 0 is taken first and a trace reads in order. */
    for (uint32_t i = 0; i < block_count; i++) pool->free_blocks[i] = block_count - 1 - i;
    pool->block_count = pool->free_count = block_count;
    pool->oldest = pool->youngest = NO_BLOCK;
    *ret_pool = pool;
    return OK;

out_of_memory:
    kv_pool_close(pool);
    return err_set(error, ERR_LIMIT, "kv blocks: no memory for %u blocks", block_count);
}

void kv_pool_close(struct kv_pool *pool) {
    if (!pool) return;
    assert(kv_pool_used_count(pool) == 0); /* a sequence outlived the scheduler */
    free(pool->blocks);
    free(pool->free_blocks);
    free(pool);
}

static void list_remove(struct kv_pool *pool, uint32_t number) {
    struct kv_block *block = &pool->blocks[number];
    assert(block->state == BLOCK_CACHED && pool->cached_count > 0);
    if (block->older != NO_BLOCK)
        pool->blocks[block->older].younger = block->younger;
    else
        pool->oldest = block->younger;
    if (block->younger != NO_BLOCK)
        pool->blocks[block->younger].older = block->older;
    else
        pool->youngest = block->older;
    pool->cached_count--;
}

static void list_add_youngest(struct kv_pool *pool, uint32_t number) {
    struct kv_block *block = &pool->blocks[number];
    block->older = pool->youngest;
    block->younger = NO_BLOCK;
    if (pool->youngest != NO_BLOCK)
        pool->blocks[pool->youngest].younger = number;
    else
        pool->oldest = number;
    pool->youngest = number;
    pool->cached_count++;
}

static void make_free(struct kv_pool *pool, uint32_t number) {
    assert(pool->free_count < pool->block_count);
    pool->blocks[number].state = BLOCK_FREE;
    pool->free_blocks[pool->free_count++] = number;
}

bool kv_pool_take(struct kv_pool *pool, uint32_t *ret_block) {
    if (pool->free_count == 0) return false;
    uint32_t number = pool->free_blocks[--pool->free_count];
    struct kv_block *block = &pool->blocks[number];
    assert(block->state == BLOCK_FREE && block->holds == 0);
    block->state = BLOCK_USED;
    block->holds = 1;
    *ret_block = number;
    return true;
}

void kv_pool_hold(struct kv_pool *pool, uint32_t number) {
    assert(number < pool->block_count);
    struct kv_block *block = &pool->blocks[number];
    assert(block->state != BLOCK_FREE);
    if (block->state == BLOCK_CACHED) {
        list_remove(pool, number);
        block->state = BLOCK_USED;
    }
    block->holds++;
}

void kv_pool_drop(struct kv_pool *pool, uint32_t number, bool keep) {
    assert(number < pool->block_count);
    struct kv_block *block = &pool->blocks[number];
    assert(block->state == BLOCK_USED && block->holds > 0);
    if (--block->holds > 0) return;
    if (keep) {
        block->state = BLOCK_CACHED;
        list_add_youngest(pool, number);
    } else {
        make_free(pool, number);
    }
}

bool kv_pool_oldest(const struct kv_pool *pool, uint32_t *ret_block) {
    if (pool->oldest == NO_BLOCK) return false;
    *ret_block = pool->oldest;
    return true;
}

void kv_pool_forget(struct kv_pool *pool, uint32_t number) {
    assert(number < pool->block_count);
    list_remove(pool, number);
    make_free(pool, number);
}

uint32_t kv_pool_holds(const struct kv_pool *pool, uint32_t block) {
    assert(block < pool->block_count);
    return pool->blocks[block].holds;
}

uint32_t kv_pool_block_count(const struct kv_pool *pool) {
    return pool->block_count;
}

uint32_t kv_pool_free_count(const struct kv_pool *pool) {
    return pool->free_count;
}

uint32_t kv_pool_cached_count(const struct kv_pool *pool) {
    return pool->cached_count;
}

uint32_t kv_pool_used_count(const struct kv_pool *pool) {
    return pool->block_count - pool->free_count - pool->cached_count;
}

uint64_t kv_pool_check(const struct kv_pool *pool) {
    uint32_t counts[3] = {0, 0, 0};
    uint64_t holds = 0;
    for (uint32_t i = 0; i < pool->block_count; i++) {
        const struct kv_block *block = &pool->blocks[i];
        assert((block->holds > 0) == (block->state == BLOCK_USED));
        counts[block->state]++;
        holds += block->holds;
    }
    assert(counts[BLOCK_FREE] == pool->free_count);
    assert(counts[BLOCK_CACHED] == pool->cached_count);
    for (uint32_t i = 0; i < pool->free_count; i++)
        assert(pool->blocks[pool->free_blocks[i]].state == BLOCK_FREE);

    uint32_t listed = 0;
    uint32_t older = NO_BLOCK;
    for (uint32_t at = pool->oldest; at != NO_BLOCK; at = pool->blocks[at].younger) {
        assert(pool->blocks[at].state == BLOCK_CACHED && pool->blocks[at].older == older);
        assert(listed < pool->cached_count); /* else the list has a loop */
        listed++;
        older = at;
    }
    assert(listed == pool->cached_count && pool->youngest == older);
    return holds;
}
