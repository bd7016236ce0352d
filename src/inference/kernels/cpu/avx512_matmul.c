/* SPDX-License-Identifier: Apache-2.0 */

/* The matrix products of the avx512 tables.
 *
 * A register tile is up to ROWS_MAX rows of activations by the 32 columns of a matrix tile: two
 * vectors of 16 columns. For quantised weights vpdpbusd multiplies unsigned weights by signed
 * activations, four products per lane, into exact int32 sums of one group. The group's sum becomes
 * f32 with weight scale · activation scale. Adding -zero · Σ activations takes the weights' zero
 * off. The coarse part of a row's activations (matrix.h) is summed first, over its quads of columns
 * that have one, and shifted.
 *
 * Every output is one chain of the same operations in the same order, for any height of the tile.
 * That makes rows independent of the batch. The functions of one height and one format are the same
 * inline body with constants. */

#include "kernels/cpu/avx512.h"
#include "kernels/cpu/avx512_tile.h"

/* ---- quantised weights ---- */

/* The tile's steps plus 128, in each 128-bit lane. */
ALWAYS_INLINE __m512i load_steps(const struct matrix_tile *tile, const enum weight_kind kind) {
    if (kind != STEPS) return _mm512_setzero_si512();
    __m512i steps = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)tile->steps));
    return _mm512_xor_si512(steps, _mm512_set1_epi8(-128));
}

/* The bytes of four inputs for 32 columns. */
ALWAYS_INLINE void load_quad(const unsigned char *at, const enum weight_kind kind, __m512i steps,
                             __m512i *ret_first, __m512i *ret_second) {
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i bytes = load_512(at);
    if (kind != BYTES) {
        *ret_first = _mm512_and_si512(bytes, nibble);
        *ret_second = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble);
        if (kind == NIBBLES) return;
        *ret_first = _mm512_shuffle_epi8(steps, *ret_first);
        *ret_second = _mm512_shuffle_epi8(steps, *ret_second);
    } else {
        *ret_first = bytes;
        *ret_second = load_512(at + 64);
    }
}

/* dots += the products of one quad; a: the rows, offset: of the quad's activations in them. */
ALWAYS_INLINE void dot_quad(const unsigned char *weights, const enum weight_kind kind,
                            __m512i steps, const unsigned char *const *a, size_t offset,
                            const int rows, __m512i (*dots)[2]) {
    __m512i first;
    __m512i second;
    load_quad(weights, kind, steps, &first, &second);
    UNROLL for (int r = 0; r < rows; r++) {
        __m512i activation = broadcast_i32(a[r] + offset);
        dots[r][0] = _mm512_dpbusd_epi32(dots[r][0], first, activation);
        dots[r][1] = _mm512_dpbusd_epi32(dots[r][1], second, activation);
    }
}

/* dots: zeros, that become the products of a row's coarse part with one group, in units of fine
 * steps. Each row takes the quads that it has itself: six rows have more than twice as many. */
ALWAYS_INLINE void dot_coarse(const unsigned char *weights, const enum weight_kind kind,
                              __m512i steps, const unsigned char *coarse, uint32_t quads,
                              __m512i (*dots)[2]) {
    if (!quads) return;
    for (; quads; quads &= quads - 1) {
        size_t quad = (size_t)__builtin_ctz(quads);
        dot_quad(weights + quad * (kind == BYTES ? 128 : 64), kind, steps, &coarse, 4 * quad, 1,
                 dots);
    }
    UNROLL for (int c = 0; c < 2; c++)(*dots)[c] = _mm512_slli_epi32((*dots)[c], COARSE_SHIFT);
}

ALWAYS_INLINE void bytes_tile(const struct place *place, const int rows,
                              const enum weight_kind kind, const uint32_t group,
                              const bool has_minimum) {
    const struct matrix *matrix = place->call->matrix;
    const struct byte_activations at = byte_activations_of(matrix->cols, group);
    const size_t stride = matrix->activation_bytes;
    const unsigned char *weights = place->weights;
    const size_t quad_bytes = kind == BYTES ? 128 : 64;
    const __m512i steps = load_steps(place->tile, kind);
    const unsigned char *a[TILE_ROWS];
    __m512 sums[TILE_ROWS][2];
    UNROLL for (int r = 0; r < rows; r++) {
        a[r] = place->activations + (size_t)r * stride;
        sums[r][0] = sums[r][1] = _mm512_setzero_ps();
    }
    for (size_t g = 0; g < matrix->cols / group; g++) {
        __m512i dots[TILE_ROWS][2];
        UNROLL for (int r = 0; r < rows; r++) dots[r][0] = dots[r][1] = _mm512_setzero_si512();
        UNROLL for (int r = 0; r < rows; r++)
            dot_coarse(weights, kind, steps, a[r] + at.coarse + g * group,
                       a[r][at.coarse_quads + g], &dots[r]);
        UNROLL for (int r = 0; r < rows && !has_minimum; r++) {
            __m512i zeros = _mm512_slli_epi32(broadcast_i32(a[r] + at.negative_sums + 4 * g),
                                              place->tile->zero_shift);
            UNROLL for (int c = 0; c < 2; c++) dots[r][c] = _mm512_add_epi32(dots[r][c], zeros);
        }
        UNROLL for (uint32_t k = 0; k < group; k += 4, weights += quad_bytes) {
            fetch_weights(weights, place->ahead[k >= group / 2], (int)quad_bytes, rows);
            dot_quad(weights, kind, steps, a, g * group + k, rows, dots);
        }
        fetch_weights(weights, place->ahead[1], has_minimum ? 256 : 128, rows);
        __m512 scales[2] = {load_f32(weights), load_f32(weights + 64)};
        weights += 128;
        UNROLL for (int r = 0; r < rows; r++) {
            __m512 scale = broadcast_f32(a[r] + at.scales + 4 * g);
            UNROLL for (int c = 0; c < 2; c++) sums[r][c] = _mm512_fmadd_ps(
                _mm512_cvtepi32_ps(dots[r][c]), _mm512_mul_ps(scales[c], scale), sums[r][c]);
        }
        if (!has_minimum) continue;
        __m512 minima[2] = {load_f32(weights), load_f32(weights + 64)};
        weights += 128;
        UNROLL for (int r = 0; r < rows; r++) {
            __m512 sum = broadcast_f32(a[r] + at.scaled_sums + 4 * g);
            UNROLL for (int c = 0; c < 2; c++) sums[r][c] =
                _mm512_fmadd_ps(minima[c], sum, sums[r][c]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) store_row(place, (size_t)r, sums[r][0], sums[r][1]);
}

/* ---- float weights ---- */

ALWAYS_INLINE __m512 load_weights(const unsigned char *at, size_t index,
                                  const enum matrix_layout layout) {
    if (layout == MATRIX_F32) return load_f32(at + index * 64);
    __m256i half = _mm256_loadu_si256((const void *)(at + index * 32));
    if (layout == MATRIX_F16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

ALWAYS_INLINE void float_tile(const struct place *place, const int rows,
                              const enum matrix_layout layout) {
    const struct matrix *matrix = place->call->matrix;
    const unsigned char *a[TILE_ROWS];
    __m512 sums[TILE_ROWS][2];
    UNROLL for (int r = 0; r < rows; r++) {
        a[r] = place->activations + (size_t)r * matrix->activation_bytes;
        sums[r][0] = sums[r][1] = _mm512_setzero_ps();
    }
    for (size_t k = 0; k < matrix->cols; k++) {
        if (layout != MATRIX_F32)
            fetch_weights(place->weights + k * 64, place->ahead[k % 2], 64, rows);
        __m512 first = load_weights(place->weights, 2 * k, layout);
        __m512 second = load_weights(place->weights, 2 * k + 1, layout);
        UNROLL for (int r = 0; r < rows; r++) {
            __m512 activation = broadcast_f32(a[r] + 4 * k);
            sums[r][0] = _mm512_fmadd_ps(first, activation, sums[r][0]);
            sums[r][1] = _mm512_fmadd_ps(second, activation, sums[r][1]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) store_row(place, (size_t)r, sums[r][0], sums[r][1]);
}

#define TILE_HEIGHTS TILE_HEIGHTS_6
#include "kernels/cpu/matmul_body.inc"

void avx512_matmul(const struct matmul *call, uint32_t tile_begin, uint32_t tile_end) {
    run_tiles(call, tile_begin, tile_end, heights_of);
}

/* ---- activations ---- */

#define GROUPS 4 /* whose largest values, scales and sums are found together */

/* Lane i of the result is the largest lane of x[i]. On the bits of floats without sign this orders
 * as the floats do, with NaN above all, so that a NaN reaches the group's scale. */
static inline __m128i largest_of_each(const __m512i *x) {
    __m512i pair =
        _mm512_max_epi32(_mm512_unpacklo_epi32(x[0], x[1]), _mm512_unpackhi_epi32(x[0], x[1]));
    __m512i other =
        _mm512_max_epi32(_mm512_unpacklo_epi32(x[2], x[3]), _mm512_unpackhi_epi32(x[2], x[3]));
    __m512i four =
        _mm512_max_epi32(_mm512_unpacklo_epi64(pair, other), _mm512_unpackhi_epi64(pair, other));
    __m256i half =
        _mm256_max_epi32(_mm512_castsi512_si256(four), _mm512_extracti32x8_epi32(four, 1));
    return _mm_max_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/* Lane i of the result is the sum of the lanes of x[i]. */
static inline __m128i sum_of_each(const __m512i *x) {
    __m512i pair =
        _mm512_add_epi32(_mm512_unpacklo_epi32(x[0], x[1]), _mm512_unpackhi_epi32(x[0], x[1]));
    __m512i other =
        _mm512_add_epi32(_mm512_unpacklo_epi32(x[2], x[3]), _mm512_unpackhi_epi32(x[2], x[3]));
    __m512i four =
        _mm512_add_epi32(_mm512_unpacklo_epi64(pair, other), _mm512_unpackhi_epi64(pair, other));
    __m256i half =
        _mm256_add_epi32(_mm512_castsi512_si256(four), _mm512_extracti32x8_epi32(four, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

/* 64 int32 of x[0..3] to the bytes of one vector, in order; saturated. */
static inline __m512i to_bytes(const __m512i *x) {
    /* Each packing interleaves runs of four within 128-bit lanes. */
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i bytes =
        _mm512_packs_epi16(_mm512_packs_epi32(x[0], x[1]), _mm512_packs_epi32(x[2], x[3]));
    return _mm512_permutexvar_epi32(order, bytes);
}

static inline __mmask64 first_bytes(uint32_t count) {
    return count >= 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
}

/* Where one row's activations go. */
struct quantised {
    unsigned char *fine;
    unsigned char *coarse;
    unsigned char *coarse_quads;
    float *scales;
    float *scaled_sums;
    int32_t *negative_sums;
};

/* Splits steps in place: steps beyond ±127 go to ret_coarse as multiples of 128. */
static inline void split(__m512i *steps, __m512i *ret_coarse) {
    const __m512i most = _mm512_set1_epi32(127);
    __mmask16 beyond = _mm512_cmpgt_epi32_mask(_mm512_abs_epi32(*steps), most);
    __m512i rounded = _mm512_add_epi32(*steps, _mm512_set1_epi32(1 << (COARSE_SHIFT - 1)));
    *ret_coarse = _mm512_maskz_srai_epi32(beyond, rounded, COARSE_SHIFT);
    *steps = _mm512_sub_epi32(*steps, _mm512_slli_epi32(*ret_coarse, COARSE_SHIFT));
}

/* Stores the activations of 64 columns or fewer (count) and which quads have a coarse part. */
ALWAYS_INLINE void store_bytes(__m512i *steps, const uint32_t count, const uint32_t group,
                               const uint32_t first, const struct quantised *ret_at) {
    __m512i coarse[4];
    UNROLL for (int i = 0; i < 4; i++) split(&steps[i], &coarse[i]);
    __m512i coarse_bytes = to_bytes(coarse);
    _mm512_mask_storeu_epi8(ret_at->fine + first, first_bytes(count), to_bytes(steps));
    _mm512_mask_storeu_epi8(ret_at->coarse + first, first_bytes(count), coarse_bytes);
    uint32_t quads = _mm512_test_epi32_mask(coarse_bytes, coarse_bytes);
    for (uint32_t at = 0; at < count; at += group, quads >>= group / 4)
        ret_at->coarse_quads[(first + at) / group] =
            (unsigned char)(quads & ((1u << group / 4) - 1));
}

/* Up to GROUPS groups from x on, each of one or two vectors. */
ALWAYS_INLINE void quantise_groups(const float *x, const uint32_t count, const uint32_t vectors,
                                   const float step_most, const struct quantised *ret_at) {
    const __m512i no_sign = _mm512_set1_epi32(INT32_MAX);
    const __mmask8 present = (__mmask8)((1u << count) - 1);
    __m512 values[GROUPS * 2];
    __m512i q[GROUPS * 2];
    __m512i groups[GROUPS];
    UNROLL for (uint32_t i = 0; i < GROUPS * vectors; i++) {
        values[i] = _mm512_setzero_ps();
        if (i < count * vectors) values[i] = _mm512_loadu_ps(x + 16 * i);
        q[i] = _mm512_and_si512(_mm512_castps_si512(values[i]), no_sign);
    }
    UNROLL for (uint32_t g = 0; g < GROUPS; g++) groups[g] =
        _mm512_max_epi32(q[g * vectors], q[(g + 1) * vectors - 1]);
    __m128 largest = _mm_castsi128_ps(largest_of_each(groups));
    __mmask8 is_some = _mm_cmp_ps_mask(largest, _mm_set1_ps(LARGEST_MIN), _CMP_NLT_UQ);
    /* When the row has a NaN so has step_most, and the minimum is its second operand. */
    __m128 reach = _mm_max_ps(_mm_mul_ps(largest, _mm_set1_ps(1.0f / COARSE_REACH)),
                              _mm_min_ps(largest, _mm_set1_ps(step_most)));
    __m128 scales = _mm_maskz_div_ps(is_some, reach, _mm_set1_ps(127.0f));
    float inverse[GROUPS];
    _mm_storeu_ps(inverse, _mm_maskz_div_ps(is_some, _mm_set1_ps(127.0f), reach));
    UNROLL for (uint32_t i = 0; i < GROUPS * vectors; i++) q[i] =
        _mm512_cvtps_epi32(_mm512_mul_ps(values[i], _mm512_set1_ps(inverse[i / vectors])));
    UNROLL for (uint32_t g = 0; g < GROUPS; g++) groups[g] =
        vectors == 1 ? q[g] : _mm512_add_epi32(q[2 * g], q[2 * g + 1]);
    __m128i sum = sum_of_each(groups);
    UNROLL for (uint32_t i = 0; i < vectors; i++) {
        uint32_t bytes = 16 * count * vectors;
        if (bytes > 64 * i)
            store_bytes(q + 4 * i, bytes - 64 * i < 64 ? bytes - 64 * i : 64, 16 * vectors, 64 * i,
                        ret_at);
    }
    _mm_mask_storeu_ps(ret_at->scales, present, scales);
    _mm_mask_storeu_ps(ret_at->scaled_sums, present, _mm_mul_ps(scales, _mm_cvtepi32_ps(sum)));
    _mm_mask_storeu_epi32(ret_at->negative_sums, present, _mm_sub_epi32(_mm_setzero_si128(), sum));
}

/* Σ |x| in 64 partial sums; the number of columns is a multiple of 16. */
static float sum_of_sizes(const float *x, uint32_t cols) {
    __m512 partials[4];
    for (uint32_t p = 0; p < 4; p++) partials[p] = _mm512_setzero_ps();
    for (uint32_t i = 0; i < cols; i += 64)
        for (uint32_t p = 0; p < 4 && i + 16 * p < cols; p++)
            partials[p] =
                _mm512_add_ps(partials[p], _mm512_abs_ps(_mm512_loadu_ps(x + i + 16 * p)));
    return _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(partials[0], partials[1]),
                                              _mm512_add_ps(partials[2], partials[3])));
}

ALWAYS_INLINE void quantise_row(const struct matrix *matrix, const uint32_t group, const float *x,
                                unsigned char *ret_row) {
    const struct byte_activations at = byte_activations_of(matrix->cols, group);
    const uint32_t groups = matrix->cols / group;
    const float step_most = STEP_MEANS * (sum_of_sizes(x, matrix->cols) / (float)matrix->cols);
    for (uint32_t g = 0; g < groups; g += GROUPS) {
        const struct quantised to = {ret_row + g * group,
                                     ret_row + at.coarse + g * group,
                                     ret_row + at.coarse_quads + g,
                                     (float *)(void *)(ret_row + at.scales) + g,
                                     (float *)(void *)(ret_row + at.scaled_sums) + g,
                                     (int32_t *)(void *)(ret_row + at.negative_sums) + g};
        if (groups - g >= GROUPS)
            quantise_groups(x + g * group, GROUPS, group / 16, step_most, &to);
        else
            quantise_groups(x + g * group, groups - g, group / 16, step_most, &to);
    }
}

void avx512_activate(const struct matrix *matrix, const float *x, size_t x_stride, size_t rows,
                     void *ret_activations) {
    unsigned char *at = ret_activations;
    assert(x_stride >= matrix->cols || rows <= 1);
    for (size_t row = 0; row < rows; row++, at += matrix->activation_bytes) {
        if (matrix->layout != MATRIX_BYTES)
            memcpy(at, x + row * x_stride, matrix->cols * sizeof(float));
        else if (matrix->group == 32)
            quantise_row(matrix, 32, x + row * x_stride, at);
        else
            quantise_row(matrix, 16, x + row * x_stride, at);
    }
}
