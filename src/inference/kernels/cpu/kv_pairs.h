/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kv_pairs: how attention_body.inc multiplies by a cache of bf16 with vdpbf16ps: a lane multiplies
 * two elements at once, of a key or of two neighbouring tokens' values, which lie together in the
 * cache. Queries and weights are rounded to bf16. kv_halves.h has the other form.
 *
 * Only for files compiled with AVX-512 BF16; include it behind vec_avx512.h and math_body.inc.
 *
 * Thread: any.
 * Memory: none. */

#include "kernels/cpu/exp2_avx512.h"
#include "kernels/cpu/inline.h"
#include "kernels/quant.h"

#include <string.h>

#define KV_TYPE TENSOR_BF16
#define KV_PAIR 2 /* elements that a lane multiplies at once */

typedef __m512i kv_vec;   /* pairs of keys' or values' elements, one per lane */
typedef uint32_t kv_word; /* what all lanes are multiplied by: two of a query, or two weights */

#include "kernels/cpu/kv_floats.h"

static inline __m512bh kv_as_bf16(kv_vec bits) {
    __m512bh result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

static inline kv_vec kv_load(const kv_element *at) {
    return _mm512_loadu_si512((const void *)at);
}

/* The first 8 lanes only. */
static inline kv_vec kv_load_8(const kv_element *at) {
    return _mm512_zextsi256_si512(_mm256_loadu_si256((const void *)at));
}

static inline kv_vec kv_set(kv_word word) {
    return _mm512_set1_epi32((int)word);
}

/* The first element of a pair is the lower half of its lane. */
static inline kv_vec kv_and(kv_vec x, uint32_t bits) {
    return _mm512_and_si512(x, _mm512_set1_epi32((int)bits));
}

static inline vec kv_dot(kv_vec a, kv_vec b, vec sum) {
    return _mm512_dpbf16_ps(sum, kv_as_bf16(a), kv_as_bf16(b));
}

/* `count` elements of a query as words. room: (count, rounded up to a vector) / 2 */
static inline struct kv_query kv_query(const float *q, uint32_t count, kv_word *room) {
    for (uint32_t i = 0; i < count; i += VEC_LANES) {
        __m256bh rounded = _mm512_cvtneps_pbh(vec_load(q + i, count - i));
        memcpy(room + i / 2, &rounded, sizeof rounded);
    }
    return (struct kv_query){room};
}

/* 2^x, for x <= 0, of which bf16 keeps 2^-9. */
static inline vec kv_exp2(vec x) {
    return exp2_coarse(x);
}

/* The weights of keys in order, as words. Returns `totals` and the sums of what the weights are
 * rounded to, lane by lane, which vectors of zeros do not change. kv_halves.h has the rest. */
ALWAYS_INLINE vec kv_weigh(vec *weights, const int vectors, vec totals, const kv_element *const *v,
                           uint64_t seen, kv_word *ret_words, float *ret_step) {
    (void)v;
    (void)seen;
    (void)ret_step;
    const kv_vec ones = _mm512_set1_epi32(0x3f803f80);
    UNROLL for (int w = 0; w < vectors; w += 2) {
        __m512bh rounded = _mm512_cvtne2ps_pbh(weights[w + 1], weights[w]);
        kv_vec words;
        memcpy(&words, &rounded, sizeof words);
        _mm512_storeu_si512((void *)(ret_words + w * VEC_LANES / 2), words);
        totals = kv_dot(words, ones, totals);
    }
    return totals;
}
