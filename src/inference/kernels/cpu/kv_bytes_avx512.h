/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kv_bytes_avx512: how attention_body.inc multiplies by a cache of 8 bits with vpdpbusd: a lane
 * multiplies four elements at once, of a key or of four neighbouring tokens' values, which lie
 * together in the cache. A query is whole steps of its largest element / 127. A chunk's weights,
 * times the steps of its values, are whole 255ths of the largest. Sums of a chunk are exact.
 *
 * A key's byte is its steps + 128, so a score begins at -128 times the sum of the query's steps.
 *
 * Include it behind vec_avx512.h and math_body.inc. kv_bytes_avx2.h has the other width.
 *
 * Thread: any.
 * Memory: none. */

#include "kernels/cpu/exp2_avx512.h"
#include "kernels/cpu/inline.h"
#include "kernels/kv_int8.h"
#include "kernels/quant.h"

#include <string.h>

#define KV_TYPE TENSOR_KV_INT8
#define KV_PAIR 4 /* elements that a lane multiplies at once */
#define KV_STEPS_BYTES KV_INT8_STEPS_BYTES
#define KV_WEIGHT_VECS (64 / VEC_LANES) /* a chunk of attention_body.inc */
#define KV_WEIGHT_MOST 255.0f

typedef uint8_t kv_element;
typedef __m512i kv_vec;   /* fours of keys' or values' elements, one per lane */
typedef kv_vec kv_keys;   /* without signs */
typedef uint32_t kv_word; /* what all lanes are multiplied by: four of a query, or four weights */
typedef __m512i kv_sum;   /* exact sums of products */

struct kv_query {
    const kv_word *words;
    int32_t start;
    float step;
};

static inline kv_vec kv_load(const kv_element *at) {
    return _mm512_loadu_si512((const void *)at);
}

/* The first 8 lanes only. */
static inline kv_vec kv_load_8(const kv_element *at) {
    return _mm512_zextsi256_si512(_mm256_loadu_si256((const void *)at));
}

static inline kv_keys kv_load_keys(const kv_element *at) {
    return kv_load(at);
}

static inline kv_vec kv_set(kv_word word) {
    return _mm512_set1_epi32((int)word);
}

/* A weight of zero leaves a value out, whatever it is. */
static inline kv_vec kv_and(kv_vec x, uint32_t bits) {
    (void)bits;
    return x;
}

/* Adds four products per lane to its sum. As an instruction, because GCC 12 copies the sums of its
 * intrinsic, and has no registers left for 24 of them. */
static inline kv_sum kv_add_products(__m512i without_signs, __m512i with_signs, kv_sum sum) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(without_signs), "v"(with_signs));
    return sum;
}

static inline kv_sum kv_dot_keys(kv_vec q, kv_keys keys, kv_sum sum) {
    return kv_add_products(keys, q, sum);
}

static inline kv_sum kv_dot_values(kv_vec weight, kv_vec values, kv_sum sum) {
    return kv_add_products(weight, values, sum);
}

static inline kv_sum kv_score_begin(const struct kv_query *query) {
    return _mm512_set1_epi32(query->start);
}

/* lane: the first of 16 keys, whose steps lie before the block's bytes. */
static inline vec kv_score_end(kv_sum sum, const struct kv_query *query, const kv_element *keys,
                               size_t lane) {
    const float *steps = (const void *)(keys - KV_STEPS_BYTES);
    return vec_mul(_mm512_cvtepi32_ps(sum),
                   vec_mul(vec_load_all(steps + lane), vec_set(query->step)));
}

static inline kv_sum kv_values_begin(const float *sums, float factor) {
    (void)sums;
    (void)factor;
    return _mm512_setzero_si512();
}

static inline void kv_values_end(float *sums, kv_sum sum, float factor, float step) {
    vec before = vec_mul(vec_load_all(sums), vec_set(factor));
    vec_store_all(sums, vec_fma(_mm512_cvtepi32_ps(sum), vec_set(step), before));
}

/* The largest of floats without signs: NaN is above all. */
static inline float kv_largest(__m512i bits) {
    const int most = _mm512_reduce_max_epi32(bits);
    float largest;
    memcpy(&largest, &most, sizeof largest);
    return largest;
}

/* `count` elements, a multiple of 8, as whole steps. Returns their step. */
ALWAYS_INLINE float kv_round_row(const float *x, uint32_t count, int8_t *ret_steps,
                                 int32_t *ret_sum) {
    __m512i most = _mm512_setzero_si512(), sum = most;
    for (uint32_t i = 0; i < count; i += VEC_LANES)
        most = _mm512_max_epi32(most, _mm512_castps_si512(vec_abs(vec_load(x + i, count - i))));
    float per_one;
    const float step = kv_int8_step(kv_largest(most), &per_one);
    const vec bound = vec_set(KV_INT8_MOST);
    for (uint32_t i = 0; i < count; i += VEC_LANES) {
        vec steps = vec_mul(vec_load(x + i, count - i), vec_set(per_one));
        steps = vec_min(bound, vec_max(vec_set(-KV_INT8_MOST), steps));
        const __m512i whole = _mm512_cvtps_epi32(steps);
        sum = _mm512_add_epi32(sum, whole);
        _mm_mask_storeu_epi8(ret_steps + i, vec_lanes(count - i), _mm512_cvtsepi32_epi8(whole));
    }
    *ret_sum = _mm512_reduce_add_epi32(sum);
    return step;
}

/* `count` elements of a query as words. room: (count, rounded up to a vector) / 4 */
static inline struct kv_query kv_query(const float *q, uint32_t count, kv_word *room) {
    int32_t sum;
    const float step = kv_round_row(q, count, (int8_t *)room, &sum);
    return (struct kv_query){room, -KV_INT8_ZERO * sum, step};
}

/* A weight keeps a byte of 2^x. */
static inline vec kv_exp2(vec x) {
    return exp2_coarse(x);
}

/* The weights of keys in order, times the steps of their values, as words of bytes. Returns
 * `totals` and the weights' own sums, lane by lane, which vectors of zeros do not change. It
 * changes `weights`. v: the blocks of values; seen: bits of the keys that the row sees; ret_step:
 * of the bytes. */
ALWAYS_INLINE vec kv_weigh(vec *weights, const int vectors, vec totals, const kv_element *const *v,
                           uint64_t seen, kv_word *ret_words, float *ret_step) {
    const __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    vec shares[KV_WEIGHT_VECS];
    __m512i most = _mm512_setzero_si512(), bytes[KV_WEIGHT_VECS];
    UNROLL for (int w = 0; w < vectors; w++) {
        const float *steps = (const void *)(v[w] - KV_STEPS_BYTES);
        shares[w] = _mm512_maskz_mul_ps((__mmask16)(seen >> (w * VEC_LANES)), weights[w],
                                        vec_load_all(steps));
        most = _mm512_max_epi32(most, _mm512_castps_si512(shares[w]));
    }
    const float largest = kv_largest(most);
    const vec per_one = vec_set(largest >= KV_INT8_LEAST ? KV_WEIGHT_MOST / largest : 0);
    *ret_step = largest * (1.0f / KV_WEIGHT_MOST);
    UNROLL for (int w = 0; w < KV_WEIGHT_VECS; w++) bytes[w] =
        w < vectors ? _mm512_cvtps_epi32(vec_mul(shares[w], per_one)) : _mm512_setzero_si512();
    bytes[0] = _mm512_packus_epi16(_mm512_packus_epi32(bytes[0], bytes[1]),
                                   _mm512_packus_epi32(bytes[2], bytes[3]));
    _mm512_storeu_si512((void *)ret_words, _mm512_permutexvar_epi32(order, bytes[0]));
    UNROLL for (int half = vectors / 2; half > 0; half /= 2) {
        UNROLL for (int w = 0; w < half; w++) weights[w] = vec_add(weights[w], weights[w + half]);
    }
    return vec_add(totals, weights[0]);
}
