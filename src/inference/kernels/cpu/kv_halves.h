/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kv_halves: how attention_body.inc multiplies by a cache of f16, for both widths of vec: an
 * element is widened as it is loaded, and a lane multiplies one element at a time in float32.
 * kv_pairs.h has the other form.
 *
 * Include it behind one of vec_*.h and math_body.inc.
 *
 * Thread: any.
 * Memory: none. */

#include "kernels/cpu/inline.h"
#include "kernels/quant.h"

#define KV_TYPE TENSOR_F16
#define KV_PAIR 1 /* elements that a lane multiplies at once */

typedef vec kv_vec;    /* keys or values, one per lane */
typedef float kv_word; /* what all lanes are multiplied by: an element of a query, or a weight */

#include "kernels/cpu/kv_floats.h"

static inline kv_vec kv_load(const kv_element *at) {
    return vec_load_halves(at);
}

/* The first 8 lanes only. */
static inline kv_vec kv_load_8(const kv_element *at) {
    return vec_load_8_halves(at);
}

static inline kv_vec kv_set(kv_word word) {
    return vec_set(word);
}

/* No lane has two elements, of which one might not count. */
static inline kv_vec kv_and(kv_vec x, uint32_t bits) {
    (void)bits;
    return x;
}

static inline vec kv_dot(kv_vec a, kv_vec b, vec sum) {
    return vec_fma(a, b, sum);
}

/* `count` elements of a query as words. room: (count, rounded up to a vector) */
static inline struct kv_query kv_query(const float *q, uint32_t count, kv_word *room) {
    (void)count;
    (void)room;
    return (struct kv_query){q};
}

/* 2^x, for x <= 0. */
static inline vec kv_exp2(vec x) {
    return exp2_of(x);
}

/* The weights of keys in order, as words. Returns `totals` and their sums, lane by lane, which
 * vectors of zeros do not change. It changes `weights`. v: the blocks of values; seen: bits of the
 * keys that the row sees; ret_step: of the words, if they have one. */
ALWAYS_INLINE vec kv_weigh(vec *weights, const int vectors, vec totals, const kv_element *const *v,
                           uint64_t seen, kv_word *ret_words, float *ret_step) {
    (void)v;
    (void)seen;
    (void)ret_step;
    UNROLL for (int w = 0; w < vectors; w++) vec_store_all(ret_words + w * VEC_LANES, weights[w]);
    UNROLL for (int half = vectors / 2; half > 0; half /= 2) {
        UNROLL for (int w = 0; w < half; w++) weights[w] = vec_add(weights[w], weights[w + half]);
    }
    return vec_add(totals, weights[0]);
}
