/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* vec: 8 floats of AVX2 with FMA and F16C; vec_avx512.h has the meaning of each name.
 *
 * Only for files compiled with these instructions.
 *
 * Thread: any.
 * Memory: none. */

#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define VEC_LANES 8
#define VEC_NAME(name) avx2_##name

typedef __m256 vec; /* a register, not a struct */

static inline __m256i vec_lanes(size_t left) {
    int count = left >= 8 ? 8 : (int)left;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline vec vec_load(const float *at, size_t left) {
    if (left >= 8) return _mm256_loadu_ps(at);
    return _mm256_maskload_ps(at, vec_lanes(left));
}

static inline void vec_store(float *at, size_t left, vec x) {
    if (left >= 8)
        _mm256_storeu_ps(at, x);
    else
        _mm256_maskstore_ps(at, vec_lanes(left), x);
}

static inline vec vec_load_or(const float *at, size_t left, vec other) {
    if (left >= 8) return _mm256_loadu_ps(at);
    __m256i lanes = vec_lanes(left);
    return _mm256_blendv_ps(other, _mm256_maskload_ps(at, lanes), _mm256_castsi256_ps(lanes));
}

static inline vec vec_first(vec x, size_t left) {
    return _mm256_and_ps(x, _mm256_castsi256_ps(vec_lanes(left)));
}

static inline vec vec_load_all(const float *at) {
    return _mm256_loadu_ps(at);
}

static inline void vec_store_all(float *at, vec x) {
    _mm256_storeu_ps(at, x);
}

static inline vec vec_load_halves(const uint16_t *at) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)at));
}

static inline vec vec_load_8_halves(const uint16_t *at) {
    return vec_load_halves(at);
}

static inline vec vec_set(float x) {
    return _mm256_set1_ps(x);
}

static inline vec vec_add(vec a, vec b) {
    return _mm256_add_ps(a, b);
}

static inline vec vec_sub(vec a, vec b) {
    return _mm256_sub_ps(a, b);
}

static inline vec vec_mul(vec a, vec b) {
    return _mm256_mul_ps(a, b);
}

static inline vec vec_div(vec a, vec b) {
    return _mm256_div_ps(a, b);
}

static inline vec vec_fma(vec a, vec b, vec c) {
    return _mm256_fmadd_ps(a, b, c);
}

static inline vec vec_fms(vec a, vec b, vec c) {
    return _mm256_fmsub_ps(a, b, c);
}

static inline vec vec_fnma(vec a, vec b, vec c) {
    return _mm256_fnmadd_ps(a, b, c);
}

static inline vec vec_fma_turn(vec a, vec b, vec c) {
    return _mm256_fmaddsub_ps(a, b, c);
}

static inline vec vec_max(vec a, vec b) {
    return _mm256_max_ps(a, b);
}

static inline vec vec_min(vec a, vec b) {
    return _mm256_min_ps(a, b);
}

static inline vec vec_abs(vec x) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

static inline vec vec_with_sign(vec x, vec sign) {
    return _mm256_or_ps(x, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}

static inline vec vec_round(vec x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* In two halves, each of which is a normal number. */
static inline vec vec_scale(vec x, vec n) {
    __m256i whole = _mm256_cvtps_epi32(n);
    __m256i half = _mm256_srai_epi32(whole, 1);
    __m256i rest = _mm256_sub_epi32(whole, half);
    __m256i bias = _mm256_set1_epi32(127);
    vec first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    vec second = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(x, first), second);
}

static inline float vec_sum(vec x) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline float vec_largest(vec x) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

static inline uint32_t vec_bits_greater(vec a, vec b) {
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ));
}

static inline uint32_t vec_bits_equal(vec a, vec b) {
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ));
}

static inline vec vec_select(uint32_t bits, vec x, vec other) {
    const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i chosen = _mm256_and_si256(_mm256_set1_epi32((int)(bits & 0xff)), each);
    return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(_mm256_cmpeq_epi32(chosen, each)));
}

static inline vec vec_load_twice(const float *at, size_t left) {
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    vec x = _mm256_maskload_ps(at, vec_lanes(left < 4 ? left : 4));
    return _mm256_permutevar8x32_ps(x, twice);
}

static inline vec vec_swap(vec x) {
    return _mm256_permute_ps(x, 0xb1);
}

static inline void vec_to_halves(vec x, uint16_t *ret_halves) {
    _mm_storeu_si128((void *)ret_halves,
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
