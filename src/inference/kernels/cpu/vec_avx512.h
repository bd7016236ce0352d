/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* vec: 16 floats of AVX-512 under the names that the *_body.inc files use, so that one text serves
 * both widths; vec_avx2.h has the other width. `left` of loads and stores is the number of floats
 * from `at` on, at least 1. Loads give zeros for the lanes beyond, stores do not write them.
 *
 * Only for files compiled with AVX-512.
 *
 * Thread: any.
 * Memory: none. */

#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define VEC_LANES 16
#define VEC_NAME(name) avx512_##name

typedef __m512 vec; /* a register, not a struct */

static inline __mmask16 vec_lanes(size_t left) {
    return (__mmask16)(left >= 16 ? 0xffffu : (1u << left) - 1);
}

static inline vec vec_load(const float *at, size_t left) {
    return _mm512_maskz_loadu_ps(vec_lanes(left), at);
}

static inline void vec_store(float *at, size_t left, vec x) {
    _mm512_mask_storeu_ps(at, vec_lanes(left), x);
}

/* Lanes beyond `left` are `other`. */
static inline vec vec_load_or(const float *at, size_t left, vec other) {
    return _mm512_mask_loadu_ps(other, vec_lanes(left), at);
}

/* x where lane < left, else 0. */
static inline vec vec_first(vec x, size_t left) {
    return _mm512_maskz_mov_ps(vec_lanes(left), x);
}

static inline vec vec_load_all(const float *at) {
    return _mm512_loadu_ps(at);
}

static inline void vec_store_all(float *at, vec x) {
    _mm512_storeu_ps(at, x);
}

static inline vec vec_load_halves(const uint16_t *at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)at));
}

/* The first 8 only. */
static inline vec vec_load_8_halves(const uint16_t *at) {
    return _mm512_cvtph_ps(_mm256_zextsi128_si256(_mm_loadu_si128((const void *)at)));
}

static inline vec vec_set(float x) {
    return _mm512_set1_ps(x);
}

static inline vec vec_add(vec a, vec b) {
    return _mm512_add_ps(a, b);
}

static inline vec vec_sub(vec a, vec b) {
    return _mm512_sub_ps(a, b);
}

static inline vec vec_mul(vec a, vec b) {
    return _mm512_mul_ps(a, b);
}

static inline vec vec_div(vec a, vec b) {
    return _mm512_div_ps(a, b);
}

/* a b + c, rounded once; vec_fms: a b - c; vec_fnma: c - a b. */
static inline vec vec_fma(vec a, vec b, vec c) {
    return _mm512_fmadd_ps(a, b, c);
}

static inline vec vec_fms(vec a, vec b, vec c) {
    return _mm512_fmsub_ps(a, b, c);
}

static inline vec vec_fnma(vec a, vec b, vec c) {
    return _mm512_fnmadd_ps(a, b, c);
}

/* Even lanes a b - c, odd lanes a b + c. */
static inline vec vec_fma_turn(vec a, vec b, vec c) {
    return _mm512_fmaddsub_ps(a, b, c);
}

/* b where a is NaN. */
static inline vec vec_max(vec a, vec b) {
    return _mm512_max_ps(a, b);
}

static inline vec vec_min(vec a, vec b) {
    return _mm512_min_ps(a, b);
}

static inline vec vec_abs(vec x) {
    return _mm512_abs_ps(x);
}

/* x with the sign of `sign`; x must not be negative. */
static inline vec vec_with_sign(vec x, vec sign) {
    return _mm512_or_ps(x, _mm512_and_ps(sign, _mm512_set1_ps(-0.0f)));
}

static inline vec vec_round(vec x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* x · 2^n for a whole n from -200 to 200. */
static inline vec vec_scale(vec x, vec n) {
    return _mm512_scalef_ps(x, n);
}

static inline float vec_sum(vec x) {
    return _mm512_reduce_add_ps(x);
}

static inline float vec_largest(vec x) {
    return _mm512_reduce_max_ps(x);
}

/* Bits of the lanes where a > b; a == b. */
static inline uint32_t vec_bits_greater(vec a, vec b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}

static inline uint32_t vec_bits_equal(vec a, vec b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}

/* x in the lanes whose bits are set, else other. */
static inline vec vec_select(uint32_t bits, vec x, vec other) {
    return _mm512_mask_mov_ps(other, (__mmask16)bits, x);
}

/* Floats 0..7 each twice; only the first `left` are read. */
static inline vec vec_load_twice(const float *at, size_t left) {
    const __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    vec x = _mm512_maskz_loadu_ps(vec_lanes(left) & 0xff, at);
    return _mm512_permutexvar_ps(twice, x);
}

/* Neighbouring lanes change places. */
static inline vec vec_swap(vec x) {
    return _mm512_permute_ps(x, 0xb1);
}

/* f16 bits of the first 8 or all 16 lanes. */
static inline void vec_to_halves(vec x, uint16_t *ret_halves) {
    _mm256_storeu_si256((void *)ret_halves,
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
