/* SPDX-License-Identifier: Apache-2.0 */

/* attention_body.inc over a cache of bf16, at the width of AVX-512. */

#define ROWS_MAX 6       /* 6 x 4 sums, 4 keys or values, a broadcast: 29 of 32 registers */
#define BLOCKS_AT_ONCE 4 /* blocks of scores */
#define VALUES_AT_ONCE 4 /* vectors of values */

#include "kernels/cpu/avx512.h"

#include "kernels/cpu/vec_avx512.h"

#undef VEC_NAME
#define VEC_NAME(name) avx512_bf16_##name

#include "kernels/cpu/math_body.inc"

#include "kernels/cpu/kv_pairs.h"

#include "kernels/cpu/attention_body.inc"

/* ---- storing ---- */

#define BF16_MAX 3.38953139e38f

/* Saturated: an infinity among the values would spread to rows that give it the weight 0. */
static __m256i round_saturated(vec x) {
    __m256bh rounded =
        _mm512_cvtneps_pbh(vec_max(vec_set(-BF16_MAX), vec_min(vec_set(BF16_MAX), x)));
    __m256i bits;
    memcpy(&bits, &rounded, sizeof bits);
    return bits;
}

/* One token's key of one head: each pair of elements is a word of its column. */
static void store_key(const float *k, uint32_t dim, uint32_t *ret_column) {
    for (uint32_t i = 0; i < dim; i += VEC_LANES) {
        uint32_t words[VEC_LANES / 2];
        __m256i bits = round_saturated(vec_load(k + i, dim - i));
        memcpy(words, &bits, sizeof words);
        for (uint32_t e = 0; e < VEC_LANES / 2 && i + 2 * e < dim; e++)
            ret_column[(size_t)(i / 2 + e) * KV_BLOCK_TOKENS] = words[e];
    }
}

/* One token's value of one head: each element is a half of a word of the pair of tokens. The other
 * halves, which another thread may be writing, are left alone. */
static void store_value(const float *v, uint32_t dim, bool is_second, uint16_t *ret_pairs) {
    for (uint32_t i = 0; i < dim; i += VEC_LANES) {
        uint16_t elements[VEC_LANES];
        __m256i bits = round_saturated(vec_load(v + i, dim - i));
        memcpy(elements, &bits, sizeof elements);
        for (uint32_t e = 0; e < VEC_LANES && i + e < dim; e++)
            ret_pairs[2 * (i + e) + is_second] = elements[e];
    }
}

void avx512_bf16_kv_store(const struct kv_store *call, uint32_t kv_head_begin,
                          uint32_t kv_head_end) {
    const struct kv_cache *cache = call->cache;
    const uint32_t dim = cache->head_dim;
    assert(kv_head_begin <= kv_head_end && kv_head_end <= cache->kv_heads);
    assert(cache->type == TENSOR_BF16 && dim % 8 == 0);
    for (size_t row = 0; row < call->rows; row++) {
        const uint32_t offset = call->slots[row] % KV_BLOCK_TOKENS;
        const size_t block = call->slots[row] / KV_BLOCK_TOKENS * kv_block_elements(cache);
        for (uint32_t head = kv_head_begin; head < kv_head_end; head++) {
            const size_t at = block + (size_t)head * dim * KV_BLOCK_TOKENS;
            const size_t from = (size_t)head * dim;
            uint16_t *v = (uint16_t *)cache->v + at + (size_t)(offset - offset % 2) * dim;
            store_key(call->k + row * call->k_stride + from, dim,
                      (uint32_t *)(void *)((uint16_t *)cache->k + at) + offset);
            store_value(call->v + row * call->v_stride + from, dim, offset % 2 == 1, v);
        }
    }
}
