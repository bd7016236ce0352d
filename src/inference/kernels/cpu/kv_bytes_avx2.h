/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kv_bytes_avx2: kv_bytes_avx512.h at the width of AVX2, without vpdpbusd. vpmaddubsw adds pairs of
 * products in 16 bits: of a key's size and a query with the key's sign, and of values and weights
 * that are 127ths of the largest, so none is beyond them.
 *
 * Include it behind vec_avx2.h and math_body.inc.
 *
 * Thread: any.
 * Memory: none. */

#include "kernels/cpu/inline.h"
#include "kernels/kv_int8.h"
#include "kernels/quant.h"

#include <string.h>

#define KV_TYPE TENSOR_KV_INT8
#define KV_PAIR 4 /* elements that a lane multiplies at once */
#define KV_STEPS_BYTES KV_INT8_STEPS_BYTES
#define KV_WEIGHT_VECS (64 / VEC_LANES) /* a chunk of attention_body.inc */
#define KV_WEIGHT_MOST 127.0f

typedef uint8_t kv_element;
typedef __m256i kv_vec;
typedef uint32_t kv_word;
typedef __m256i kv_sum;

/* Keys as their sizes, and with their signs. */
typedef struct {
    __m256i sizes;
    __m256i keys;
} kv_keys;

struct kv_query {
    const kv_word *words;
    float step;
};

static inline kv_vec kv_load(const kv_element *at) {
    return _mm256_loadu_si256((const void *)at);
}

static inline kv_vec kv_load_8(const kv_element *at) {
    return kv_load(at);
}

static inline kv_keys kv_load_keys(const kv_element *at) {
    const __m256i keys = _mm256_xor_si256(kv_load(at), _mm256_set1_epi8((char)KV_INT8_ZERO));
    return (kv_keys){_mm256_abs_epi8(keys), keys};
}

static inline kv_vec kv_set(kv_word word) {
    return _mm256_set1_epi32((int)word);
}

/* A weight of zero leaves a value out, whatever it is. */
static inline kv_vec kv_and(kv_vec x, uint32_t bits) {
    (void)bits;
    return x;
}

/* Adds four products per lane to its sum. */
static inline kv_sum kv_add_products(__m256i without_signs, __m256i with_signs, kv_sum sum) {
    const __m256i pairs = _mm256_maddubs_epi16(without_signs, with_signs);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

static inline kv_sum kv_dot_keys(kv_vec q, kv_keys keys, kv_sum sum) {
    return kv_add_products(keys.sizes, _mm256_sign_epi8(q, keys.keys), sum);
}

static inline kv_sum kv_dot_values(kv_vec weight, kv_vec values, kv_sum sum) {
    return kv_add_products(weight, values, sum);
}

static inline kv_sum kv_score_begin(const struct kv_query *query) {
    (void)query;
    return _mm256_setzero_si256();
}

/* lane: the first of 8 keys, whose steps lie before the block's bytes. */
static inline vec kv_score_end(kv_sum sum, const struct kv_query *query, const kv_element *keys,
                               size_t lane) {
    const float *steps = (const void *)(keys - KV_STEPS_BYTES);
    return vec_mul(_mm256_cvtepi32_ps(sum),
                   vec_mul(vec_load_all(steps + lane), vec_set(query->step)));
}

static inline kv_sum kv_values_begin(const float *sums, float factor) {
    (void)sums;
    (void)factor;
    return _mm256_setzero_si256();
}

static inline void kv_values_end(float *sums, kv_sum sum, float factor, float step) {
    vec before = vec_mul(vec_load_all(sums), vec_set(factor));
    vec_store_all(sums, vec_fma(_mm256_cvtepi32_ps(sum), vec_set(step), before));
}

/* The largest of floats without signs: NaN is above all. */
static inline float kv_largest(__m256i bits) {
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(most));
}

/* Four vectors of integers as bytes, in order. */
static inline __m256i kv_pack(const __m256i *x) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i first = _mm256_packs_epi32(x[0], x[1]), second = _mm256_packs_epi32(x[2], x[3]);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(first, second), order);
}

/* `count` elements, a multiple of 8, as whole steps. Returns their step. */
ALWAYS_INLINE float kv_round_row(const float *x, uint32_t count, int8_t *ret_steps,
                                 int32_t *ret_sum) {
    __m256i most = _mm256_setzero_si256();
    *ret_sum = 0; /* the other width needs it */
    for (uint32_t i = 0; i < count; i += VEC_LANES)
        most = _mm256_max_epi32(most, _mm256_castps_si256(vec_abs(vec_load_all(x + i))));
    float per_one;
    const float step = kv_int8_step(kv_largest(most), &per_one);
    const vec bound = vec_set(KV_INT8_MOST);
    for (uint32_t i = 0; i < count; i += VEC_LANES) {
        vec steps = vec_mul(vec_load_all(x + i), vec_set(per_one));
        steps = vec_min(bound, vec_max(vec_set(-KV_INT8_MOST), steps));
        __m256i whole[4] = {_mm256_cvtps_epi32(steps)};
        whole[1] = whole[2] = whole[3] = whole[0];
        const __m256i bytes = kv_pack(whole);
        memcpy(ret_steps + i, &bytes, VEC_LANES);
    }
    return step;
}

/* `count` elements of a query as words. room: (count, rounded up to a vector) / 4 */
static inline struct kv_query kv_query(const float *q, uint32_t count, kv_word *room) {
    int32_t sum;
    const float step = kv_round_row(q, count, (int8_t *)room, &sum);
    return (struct kv_query){room, step};
}

/* 2^x, for x <= 0. */
static inline vec kv_exp2(vec x) {
    return exp2_of(x);
}

/* The weights of keys in order, times the steps of their values, as words of bytes;
 * kv_bytes_avx512.h has the rest. */
ALWAYS_INLINE vec kv_weigh(vec *weights, const int vectors, vec totals, const kv_element *const *v,
                           uint64_t seen, kv_word *ret_words, float *ret_step) {
    const int block_vecs = KV_INT8_STEPS_BYTES / (int)sizeof(float) / VEC_LANES;
    vec shares[KV_WEIGHT_VECS];
    __m256i most = _mm256_setzero_si256(), whole[KV_WEIGHT_VECS];
    UNROLL for (int w = 0; w < vectors; w++) {
        const float *steps = (const void *)(v[w / block_vecs] - KV_STEPS_BYTES);
        shares[w] = vec_mul(weights[w], vec_load_all(steps + w % block_vecs * VEC_LANES));
        shares[w] = vec_select((uint32_t)(seen >> (w * VEC_LANES)) & 0xff, shares[w], vec_set(0));
        most = _mm256_max_epi32(most, _mm256_castps_si256(shares[w]));
    }
    const float largest = kv_largest(most);
    const vec per_one = vec_set(largest >= KV_INT8_LEAST ? KV_WEIGHT_MOST / largest : 0);
    *ret_step = largest * (1.0f / KV_WEIGHT_MOST);
    UNROLL for (int w = 0; w < vectors; w++) whole[w] =
        _mm256_cvtps_epi32(vec_mul(shares[w], per_one));
    UNROLL for (int w = 0; w < vectors; w += 4)
        _mm256_storeu_si256((void *)(ret_words + w * VEC_LANES / KV_PAIR), kv_pack(whole + w));
    UNROLL for (int half = vectors / 2; half > 0; half /= 2) {
        UNROLL for (int w = 0; w < half; w++) weights[w] = vec_add(weights[w], weights[w + half]);
    }
    return vec_add(totals, weights[0]);
}
