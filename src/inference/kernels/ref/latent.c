/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref/ref.h"

#include <assert.h>
#include <math.h>
#include <string.h>

void ref_latent_store(const struct latent_store *call) {
    const struct latent_cache *cache = call->cache;
    assert(cache->type == TENSOR_F32);
    for (size_t i = 0; i < call->rows; i++)
        memcpy((float *)cache->entries + (size_t)call->slots[i] * cache->dim,
               call->entries + i * call->stride, cache->dim * sizeof(float));
}

/* The entry of key j. */
static const float *entry_of(const struct latent_cache *cache, const uint32_t *blocks, uint32_t j) {
    const size_t slot = (size_t)blocks[j / KV_BLOCK_TOKENS] * KV_BLOCK_TOKENS + j % KV_BLOCK_TOKENS;
    return (const float *)cache->entries + slot * cache->dim;
}

static float score_of(const struct latent_attention *call, const float *q, const float *entry) {
    float sum = 0;
    for (uint32_t i = 0; i < call->cache->dim; i++) sum += q[i] * entry[i];
    return sum * call->scale;
}

/* One query: the largest score first, then the sums. */
static void attend(const struct latent_attention *call, const uint32_t *blocks, const float *q,
                   float *y, uint32_t key_end) {
    const struct latent_cache *cache = call->cache;
    float sums[LATENT_RANK_MAX] = {0}, total = 0, largest = -INFINITY;
    for (uint32_t j = 0; j < key_end; j++)
        largest = fmaxf(largest, score_of(call, q, entry_of(cache, blocks, j)));
    for (uint32_t j = 0; j < key_end; j++) {
        const float *entry = entry_of(cache, blocks, j);
        const float weight = expf(score_of(call, q, entry) - largest);
        total += weight;
        for (uint32_t i = 0; i < cache->rank; i++) sums[i] += weight * entry[i];
    }
    for (uint32_t i = 0; i < cache->rank; i++) y[i] = total > 0 ? sums[i] / total : 0;
}

void ref_latent_attend(const struct latent_attention *call, const struct attention_item *item,
                       uint32_t head_begin, uint32_t head_end) {
    const struct latent_cache *cache = call->cache;
    assert(head_begin <= head_end && head_end <= call->head_count && cache->type == TENSOR_F32);
    assert(cache->dim <= LATENT_DIM_MAX && cache->rank <= LATENT_RANK_MAX);
    for (size_t i = 0; i < item->row_count; i++) {
        const uint32_t key_end = call->causal ? item->position + (uint32_t)i + 1 : item->key_count;
        for (size_t head = head_begin; head < head_end; head++)
            attend(call, item->blocks,
                   call->q + (item->row + i) * call->q_stride + head * cache->dim,
                   call->y + (item->row + i) * call->y_stride + head * cache->rank, key_end);
    }
}
