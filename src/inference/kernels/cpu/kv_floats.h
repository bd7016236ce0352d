/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* kv_floats: what kv_halves.h and kv_pairs.h have in common: products are summed up in float32, so
 * a score and a sum are what the lanes hold, keys are multiplied as they are loaded, and elements
 * have no steps.
 *
 * Include it where kv_vec and kv_word are known.
 *
 * Thread: any.
 * Memory: none. */

typedef uint16_t kv_element;
#define KV_STEPS_BYTES 0

typedef kv_vec kv_keys;
typedef vec kv_sum; /* products of keys or values, one sum per lane */

struct kv_query {
    const kv_word *words;
};

/* The including file defines these. */
static inline kv_vec kv_load(const kv_element *at);
static inline vec kv_dot(kv_vec a, kv_vec b, vec sum);

static inline kv_keys kv_load_keys(const kv_element *at) {
    return kv_load(at);
}

static inline kv_sum kv_dot_keys(kv_vec q, kv_keys keys, kv_sum sum) {
    return kv_dot(q, keys, sum);
}

static inline kv_sum kv_dot_values(kv_vec weight, kv_vec values, kv_sum sum) {
    return kv_dot(weight, values, sum);
}

static inline kv_sum kv_score_begin(const struct kv_query *query) {
    (void)query;
    return vec_set(0);
}

static inline vec kv_score_end(kv_sum sum, const struct kv_query *query, const kv_element *keys,
                               size_t lane) {
    (void)query;
    (void)keys;
    (void)lane;
    return sum;
}

static inline kv_sum kv_values_begin(const float *sums, float factor) {
    return vec_mul(vec_load_all(sums), vec_set(factor));
}

static inline void kv_values_end(float *sums, kv_sum sum, float factor, float step) {
    (void)factor;
    (void)step;
    vec_store_all(sums, sum);
}
