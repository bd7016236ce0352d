/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kv_int8.h"
#include "kernels/ref/ref.h"

#include <assert.h>
#include <math.h>
#include <string.h>

const char *kv_type_name(enum tensor_type type) {
    return type == TENSOR_KV_INT8 ? "INT8" : tensor_type_name(type);
}

size_t kv_block_bytes(const struct kv_cache *cache) {
    if (cache->type == TENSOR_KV_INT8) return kv_block_elements(cache);
    assert(cache->type == TENSOR_F32 || cache->type == TENSOR_F16 || cache->type == TENSOR_BF16);
    return kv_block_elements(cache) * tensor_type_block_bytes(cache->type);
}

/* Element numbers of a (block, KV head): where its 16 x head_dim elements begin. */
static size_t head_begin(const struct kv_cache *cache, uint32_t block, uint32_t kv_head) {
    const size_t steps = cache->type == TENSOR_KV_INT8 ? KV_INT8_STEPS_BYTES : 0;
    return block * kv_block_elements(cache) + kv_head * kv_head_elements(cache) + steps;
}

/* Neighbours that lie together. */
static size_t pair_of(const struct kv_cache *cache) {
    return cache->type == TENSOR_KV_INT8 ? 4 : cache->type == TENSOR_BF16 ? 2 : 1;
}

/* Where element `i` of a token's key or value lies behind head_begin. */
static size_t key_at(const struct kv_cache *cache, uint32_t offset, size_t i) {
    const size_t pair = pair_of(cache);
    return (i - i % pair) * KV_BLOCK_TOKENS + offset * pair + i % pair;
}

static size_t value_at(const struct kv_cache *cache, uint32_t offset, size_t i) {
    const size_t pair = pair_of(cache);
    return (offset - offset % pair) * cache->head_dim + i * pair + offset % pair;
}

/* A cache of 8 bits has the steps of a block's tokens before a head's elements. */
static float step_of(const void *elements, size_t begin, uint32_t offset) {
    float step;
    memcpy(&step, (const uint8_t *)elements + begin - KV_INT8_STEPS_BYTES + offset * sizeof step,
           sizeof step);
    return step;
}

/* Rounds a token's key or value of one head to whole steps, and writes their size. */
static void round_row(void *elements, size_t begin, uint32_t offset, const float *x, size_t count,
                      int8_t *ret_steps) {
    float largest = 0, per_one;
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(x[i]) <= largest)) largest = fabsf(x[i]); /* NaN is above all */
    const float step = kv_int8_step(largest, &per_one);
    memcpy((uint8_t *)elements + begin - KV_INT8_STEPS_BYTES + offset * sizeof step, &step,
           sizeof step);
    for (size_t i = 0; i < count; i++) {
        const float steps = fminf(fmaxf(x[i] * per_one, -KV_INT8_MOST), KV_INT8_MOST);
        ret_steps[i] = (int8_t)rintf(steps);
    }
}

/* The bytes of one token and head. */
static void store_bytes(const struct kv_cache *cache, size_t begin, uint32_t offset, const float *k,
                        const float *v) {
    int8_t steps[HEAD_DIM_MAX];
    round_row(cache->k, begin, offset, k, cache->head_dim, steps);
    for (size_t i = 0; i < cache->head_dim; i++)
        ((uint8_t *)cache->k)[begin + key_at(cache, offset, i)] =
            (uint8_t)(steps[i] + KV_INT8_ZERO);
    round_row(cache->v, begin, offset, v, cache->head_dim, steps);
    for (size_t i = 0; i < cache->head_dim; i++)
        ((uint8_t *)cache->v)[begin + value_at(cache, offset, i)] = (uint8_t)steps[i];
}

static void put(void *elements, enum tensor_type type, size_t at, float value) {
    if (type == TENSOR_F32)
        ((float *)elements)[at] = value;
    else
        ((uint16_t *)elements)[at] =
            type == TENSOR_BF16 ? bf16_from_f32(value) : half_from_f32(value);
}

static float get(const void *elements, enum tensor_type type, size_t at) {
    if (type == TENSOR_F32) return ((const float *)elements)[at];
    const uint16_t bits = ((const uint16_t *)elements)[at];
    return type == TENSOR_BF16 ? bf16_to_f32(bits) : half_to_f32(bits);
}

void ref_kv_store(const struct kv_store *call, uint32_t kv_head_begin, uint32_t kv_head_end) {
    const struct kv_cache *cache = call->cache;
    uint32_t dim = cache->head_dim;
    assert(kv_head_begin <= kv_head_end && kv_head_end <= cache->kv_heads);
    for (size_t row = 0; row < call->rows; row++) {
        uint32_t offset = call->slots[row] % KV_BLOCK_TOKENS;
        for (uint32_t head = kv_head_begin; head < kv_head_end; head++) {
            size_t begin = head_begin(cache, call->slots[row] / KV_BLOCK_TOKENS, head);
            const float *k = call->k + row * call->k_stride + (size_t)head * dim;
            const float *v = call->v + row * call->v_stride + (size_t)head * dim;
            if (cache->type == TENSOR_KV_INT8) {
                store_bytes(cache, begin, offset, k, v);
                continue;
            }
            for (size_t i = 0; i < dim; i++) {
                put(cache->k, cache->type, begin + key_at(cache, offset, i), k[i]);
                put(cache->v, cache->type, begin + value_at(cache, offset, i), v[i]);
            }
        }
    }
}

/* `count` elements from `at` on, each `apart` behind the one before, as float32; of a cache of 8
 * bits without their steps: keys have `zero` added. */
static void get_run(const void *elements, enum tensor_type type, size_t at, size_t count,
                    size_t apart, int zero, float *ret_values) {
    const uint8_t *bytes = elements;
    if (type == TENSOR_KV_INT8)
        for (size_t i = 0; i < count; i++) {
            const uint8_t byte = bytes[at + i * apart];
            ret_values[i] = zero > 0 ? (float)(byte - zero) : (float)(int8_t)byte;
        }
    else if (type == TENSOR_F32 && apart == 1)
        memcpy(ret_values, (const float *)elements + at, count * sizeof *ret_values);
    else
        for (size_t i = 0; i < count; i++) ret_values[i] = get(elements, type, at + i * apart);
}

/* Scores of all keys of one block, seen or not. */
static void score_block(const struct attention *call, const float *q, size_t begin,
                        float *ret_scores) {
    const struct kv_cache *cache = call->cache;
    const size_t apart = key_at(cache, 1, 0);
    float sums[KV_BLOCK_TOKENS] = {0};
    for (size_t i = 0; i < cache->head_dim; i++) {
        float keys[KV_BLOCK_TOKENS];
        get_run(cache->k, cache->type, begin + key_at(cache, 0, i), KV_BLOCK_TOKENS, apart,
                KV_INT8_ZERO, keys);
        for (size_t j = 0; j < KV_BLOCK_TOKENS; j++) sums[j] += q[i] * keys[j];
    }
    for (uint32_t j = 0; cache->type == TENSOR_KV_INT8 && j < KV_BLOCK_TOKENS; j++)
        sums[j] *= step_of(cache->k, begin, j);
    for (size_t j = 0; j < KV_BLOCK_TOKENS; j++) ret_scores[j] = sums[j] * call->scale;
    for (size_t j = 0; call->softcap > 0 && j < KV_BLOCK_TOKENS; j++)
        ret_scores[j] = call->softcap * tanhf(ret_scores[j] / call->softcap);
}

/* Adds what the scores of a block get by their keys' distances from the query. */
static void add_bias(const struct attention *call, uint32_t head, uint32_t position, uint32_t block,
                     float *scores) {
    const size_t row = head * call->bias_stride + call->bias_zero - position;
    for (size_t j = 0; call->bias && j < KV_BLOCK_TOKENS; j++)
        scores[j] += call->bias[row + (size_t)block * KV_BLOCK_TOKENS + j];
}

/* One query of `head` over keys key_begin..key_end-1: the largest score first, then the sums. */
static void attend(const struct attention *call, const uint32_t *blocks, const float *q, float *y,
                   uint32_t head, uint32_t position, uint32_t key_begin, uint32_t key_end) {
    const struct kv_cache *cache = call->cache;
    const uint32_t kv_head = head / (call->head_count / cache->kv_heads);
    uint32_t dim = cache->head_dim;
    float sums[HEAD_DIM_MAX] = {0};
    float scores[KV_BLOCK_TOKENS];
    float total = 0;
    float largest = call->sinks ? call->sinks[head] : -INFINITY;
    for (uint32_t j = key_begin; j < key_end; j++) {
        size_t begin = head_begin(cache, blocks[j / KV_BLOCK_TOKENS], kv_head);
        if (j == key_begin || j % KV_BLOCK_TOKENS == 0) {
            score_block(call, q, begin, scores);
            add_bias(call, head, position, j / KV_BLOCK_TOKENS, scores);
        }
        largest = fmaxf(largest, scores[j % KV_BLOCK_TOKENS]);
    }
    if (call->sinks) total = expf(call->sinks[head] - largest);
    for (uint32_t j = key_begin; j < key_end; j++) {
        uint32_t offset = j % KV_BLOCK_TOKENS;
        size_t begin = head_begin(cache, blocks[j / KV_BLOCK_TOKENS], kv_head);
        if (j == key_begin || offset == 0) {
            score_block(call, q, begin, scores);
            add_bias(call, head, position, j / KV_BLOCK_TOKENS, scores);
        }
        float weight = expf(scores[offset] - largest);
        float values[HEAD_DIM_MAX];
        get_run(cache->v, cache->type, begin + value_at(cache, offset, 0), dim,
                value_at(cache, 0, 1), 0, values);
        total += weight;
        if (cache->type == TENSOR_KV_INT8) weight *= step_of(cache->v, begin, offset);
        for (size_t i = 0; i < dim; i++) sums[i] += weight * values[i];
    }
    for (size_t i = 0; i < dim; i++) y[i] = total > 0 ? sums[i] / total : 0;
}

static void attend_item(const struct attention *call, const struct attention_item *item,
                        uint32_t head_begin, uint32_t head_end) {
    for (uint32_t r = 0; r < item->row_count; r++) {
        uint32_t position = item->position + r;
        uint32_t key_end = call->causal ? position + 1 : item->key_count;
        uint32_t key_begin =
            call->window && position + 1 > call->window ? position + 1 - call->window : 0;
        if (!call->causal && call->window > 0 && key_end - position > call->window)
            key_end = position + call->window;
        for (uint32_t head = head_begin; head < head_end; head++) {
            size_t at = (size_t)head * call->cache->head_dim;
            attend(call, item->blocks, call->q + (item->row + r) * call->q_stride + at,
                   call->y + (item->row + r) * call->y_stride + at, head, position, key_begin,
                   key_end);
        }
    }
}

void ref_attention(const struct attention *call, const struct attention_group *group,
                   uint32_t kv_head_begin, uint32_t kv_head_end) {
    const struct kv_cache *cache = call->cache;
    assert(kv_head_begin <= kv_head_end && kv_head_end <= cache->kv_heads);
    assert(call->head_count % cache->kv_heads == 0 && cache->head_dim <= HEAD_DIM_MAX);
    uint32_t heads = call->head_count / cache->kv_heads;
    for (uint32_t i = 0; i < group->item_count; i++)
        attend_item(call, &group->items[i], kv_head_begin * heads, kv_head_end * heads);
}
