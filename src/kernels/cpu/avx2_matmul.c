/* SPDX-License-Identifier: Apache-2.0 */

/* The matrix products of the avx2 table: register tiles of up to 4 rows by 16 columns, two vectors
 * of 8; the 32 columns of a matrix tile take two passes.
 *
 * vpmaddubsw multiplies unsigned by signed bytes and adds two products in int16, saturating. With
 * 4-bit weights a pair is at most 2 · 15 · 127 and eight pairs, a group of 32, stay below 2^15:
 * they are added in int16. 8-bit weights lie in memory signed: |w| times the activation with the
 * sign of w, at most 2 · 128 · 127 < 2^15 a pair, and each pair goes on to int32. Either way the
 * sum of a group is exact, and becomes f32 as in the avx512 table. */

#define TILE_ROWS 4

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/tile.h"

#include <immintrin.h>

/* A pass covers columns `column`..+7 and `column` + 16..+23 of the tile, column 0 or 8: the low and
 * high nibbles of the same bytes. */
#define PASS_APART 16

ALWAYS_INLINE __m256i broadcast_i32(const unsigned char *at) {
    int32_t value;
    memcpy(&value, at, sizeof value);
    return _mm256_set1_epi32(value);
}

ALWAYS_INLINE __m256 broadcast_f32(const unsigned char *at) {
    float value;
    memcpy(&value, at, sizeof value);
    return _mm256_set1_ps(value);
}

ALWAYS_INLINE __m256i load_256(const unsigned char *at) {
    return _mm256_loadu_si256((const void *)at);
}

ALWAYS_INLINE __m256 load_f32(const unsigned char *at) {
    return _mm256_castsi256_ps(load_256(at));
}

static void store_vector(const struct matmul *call, size_t row, uint32_t column, uint32_t count,
                         __m256 values) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count), lane);
    float *y = call->y + row * call->y_stride + column;
    if (call->bias) values = _mm256_add_ps(values, _mm256_maskload_ps(call->bias + column, mask));
    if (call->add) values = _mm256_add_ps(_mm256_maskload_ps(y, mask), values);
    _mm256_maskstore_ps(y, mask, values);
}

/* Adds bias and what is in y, and stores the columns of this pass that the tile has. */
ALWAYS_INLINE void store_row(const struct place *place, size_t r, uint32_t column, __m256 first,
                             __m256 second) {
    const struct matrix_tile *tile = place->tile;
    uint32_t far = column + PASS_APART;
    if (column < tile->count)
        store_vector(place->call, place->row + r, tile->column + column, tile->count - column,
                     first);
    if (far < tile->count)
        store_vector(place->call, place->row + r, tile->column + far, tile->count - far, second);
}

/* ---- quantised weights ---- */

/* The exact sums of products of one group. weights: the group's bytes from this pass's column on;
 * a: the group's activations of each row. */
ALWAYS_INLINE void dot_group(const unsigned char *weights, const unsigned char *const *a,
                             const int rows, const uint32_t bits, const uint32_t group,
                             __m256i (*ret_dots)[2]) {
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL for (int r = 0; r < rows; r++) ret_dots[r][0] = ret_dots[r][1] = _mm256_setzero_si256();
    UNROLL for (uint32_t k = 0; k < group; k += 4) {
        if (bits == 4) {
            __m256i both = load_256(weights + k / 4 * 64);
            __m256i low = _mm256_and_si256(both, nibble);
            __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
            UNROLL for (int r = 0; r < rows; r++) {
                __m256i activation = broadcast_i32(a[r] + k);
                ret_dots[r][0] =
                    _mm256_add_epi16(ret_dots[r][0], _mm256_maddubs_epi16(low, activation));
                ret_dots[r][1] =
                    _mm256_add_epi16(ret_dots[r][1], _mm256_maddubs_epi16(high, activation));
            }
        } else {
            UNROLL for (int c = 0; c < 2; c++) {
                __m256i weight = load_256(weights + k / 4 * 128 + c * PASS_APART * 4);
                __m256i size = _mm256_abs_epi8(weight);
                UNROLL for (int r = 0; r < rows; r++) {
                    __m256i activation = _mm256_sign_epi8(broadcast_i32(a[r] + k), weight);
                    __m256i pairs = _mm256_maddubs_epi16(size, activation);
                    ret_dots[r][c] =
                        _mm256_add_epi32(ret_dots[r][c], _mm256_madd_epi16(pairs, ones));
                }
            }
        }
    }
    if (bits != 4) return;
    UNROLL for (int r = 0; r < rows; r++) {
        ret_dots[r][0] = _mm256_madd_epi16(ret_dots[r][0], ones);
        ret_dots[r][1] = _mm256_madd_epi16(ret_dots[r][1], ones);
    }
}

ALWAYS_INLINE void bytes_pass(const struct place *place, const uint32_t column, const int rows,
                              const uint32_t bits, const uint32_t group, const bool has_minimum) {
    const struct matrix *matrix = place->call->matrix;
    const struct byte_activations at = byte_activations_of(matrix->cols, group);
    const size_t data_bytes = group / 4 * (bits == 4 ? 64 : 128);
    const size_t group_bytes = tile_group_bytes(group, bits, has_minimum);
    const unsigned char *weights = place->weights + 4 * column;
    const unsigned char *rows_at[TILE_ROWS];
    const unsigned char *a[TILE_ROWS];
    __m256 sums[TILE_ROWS][2];
    UNROLL for (int r = 0; r < rows; r++) {
        a[r] = rows_at[r] = place->activations + (size_t)r * matrix->activation_bytes;
        sums[r][0] = sums[r][1] = _mm256_setzero_ps();
    }
    for (size_t g = 0; g < matrix->cols / group; g++, weights += group_bytes) {
        __m256i dots[TILE_ROWS][2];
        const unsigned char *numbers = weights + data_bytes;
        dot_group(weights, a, rows, bits, group, dots);
        UNROLL for (int r = 0; r < rows; r++) {
            __m256 scale = broadcast_f32(rows_at[r] + at.scales + 4 * g);
            __m256i zeros = _mm256_setzero_si256();
            if (!has_minimum && place->tile->zero)
                zeros = _mm256_slli_epi32(broadcast_i32(rows_at[r] + at.negative_sums + 4 * g),
                                          place->tile->zero_shift);
            UNROLL for (int c = 0; c < 2; c++) {
                __m256 weight_scale = load_f32(numbers + c * PASS_APART * 4);
                __m256 dot = _mm256_cvtepi32_ps(_mm256_add_epi32(dots[r][c], zeros));
                sums[r][c] = _mm256_fmadd_ps(dot, _mm256_mul_ps(weight_scale, scale), sums[r][c]);
            }
            a[r] += group;
            if (!has_minimum) continue;
            __m256 sum = broadcast_f32(rows_at[r] + at.scaled_sums + 4 * g);
            UNROLL for (int c = 0; c < 2; c++) sums[r][c] =
                _mm256_fmadd_ps(load_f32(numbers + 128 + c * PASS_APART * 4), sum, sums[r][c]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
        store_row(place, (size_t)r, column, sums[r][0], sums[r][1]);
}

ALWAYS_INLINE void bytes_tile(const struct place *place, const int rows, const uint32_t bits,
                              const uint32_t group, const bool has_minimum) {
    for (uint32_t column = 0; column < PASS_APART; column += 8)
        bytes_pass(place, column, rows, bits, group, has_minimum);
}

/* ---- float weights ---- */

ALWAYS_INLINE __m256 load_weights(const unsigned char *at, size_t index,
                                  const enum matrix_layout layout) {
    if (layout == MATRIX_F32) return load_f32(at + index * sizeof(float));
    __m128i half = _mm_loadu_si128((const void *)(at + index * sizeof(uint16_t)));
    if (layout == MATRIX_F16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

ALWAYS_INLINE void float_tile(const struct place *place, const int rows,
                              const enum matrix_layout layout) {
    const struct matrix *matrix = place->call->matrix;
    for (uint32_t column = 0; column < PASS_APART; column += 8) {
        const unsigned char *a[TILE_ROWS];
        __m256 sums[TILE_ROWS][2];
        UNROLL for (int r = 0; r < rows; r++) {
            a[r] = place->activations + (size_t)r * matrix->activation_bytes;
            sums[r][0] = sums[r][1] = _mm256_setzero_ps();
        }
        for (size_t k = 0; k < matrix->cols; k++) {
            size_t index = k * MATRIX_TILE + column;
            __m256 first = load_weights(place->weights, index, layout);
            __m256 second = load_weights(place->weights, index + PASS_APART, layout);
            UNROLL for (int r = 0; r < rows; r++) {
                __m256 activation = broadcast_f32(a[r] + 4 * k);
                sums[r][0] = _mm256_fmadd_ps(first, activation, sums[r][0]);
                sums[r][1] = _mm256_fmadd_ps(second, activation, sums[r][1]);
            }
        }
        UNROLL for (int r = 0; r < rows; r++)
            store_row(place, (size_t)r, column, sums[r][0], sums[r][1]);
    }
}

/* ---- one function for each height ---- */

TILE_HEIGHTS_4(bytes_4_32, bytes_tile, 4, 32, false)
TILE_HEIGHTS_4(bytes_4_32_minimum, bytes_tile, 4, 32, true)
TILE_HEIGHTS_4(bytes_8_32, bytes_tile, 8, 32, false)
TILE_HEIGHTS_4(bytes_8_32_minimum, bytes_tile, 8, 32, true)
TILE_HEIGHTS_4(bytes_4_16, bytes_tile, 4, 16, false)
TILE_HEIGHTS_4(bytes_4_16_minimum, bytes_tile, 4, 16, true)
TILE_HEIGHTS_4(bytes_8_16, bytes_tile, 8, 16, false)
TILE_HEIGHTS_4(bytes_8_16_minimum, bytes_tile, 8, 16, true)
TILE_HEIGHTS_4(floats_f32, float_tile, MATRIX_F32)
TILE_HEIGHTS_4(floats_f16, float_tile, MATRIX_F16)
TILE_HEIGHTS_4(floats_bf16, float_tile, MATRIX_BF16)

static const tile_fn *byte_heights(const struct matrix *matrix, const struct matrix_tile *tile) {
    if (matrix->group == 32) {
        if (tile->bits == 4) return tile->has_minimum ? bytes_4_32_minimum : bytes_4_32;
        return tile->has_minimum ? bytes_8_32_minimum : bytes_8_32;
    }
    if (tile->bits == 4) return tile->has_minimum ? bytes_4_16_minimum : bytes_4_16;
    return tile->has_minimum ? bytes_8_16_minimum : bytes_8_16;
}

static const tile_fn *heights_of(const struct matrix *matrix, const struct matrix_tile *tile) {
    switch (matrix->layout) {
    case MATRIX_BYTES: return byte_heights(matrix, tile);
    case MATRIX_F32: return floats_f32;
    case MATRIX_F16: return floats_f16;
    case MATRIX_BF16: return floats_bf16;
    case MATRIX_BLOCKS:
    case MATRIX_BF16_PAIRS: break;
    }
    assert(false); /* no layout of this table */
    return NULL;
}

void avx2_matmul(const struct matmul *call, uint32_t tile_begin, uint32_t tile_end) {
    run_tiles(call, tile_begin, tile_end, heights_of);
}

/* ---- activations ---- */

static float largest_of(const float *x, uint32_t count) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 largest = _mm256_setzero_ps();
    for (uint32_t i = 0; i < count; i += 8)
        largest = _mm256_max_ps(largest, _mm256_andnot_ps(sign, _mm256_loadu_ps(x + i)));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps(largest, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* `count` values to int8, nearest even; returns their sum. The clamp is for infinities and NaN,
 * which convert to the lowest int32. */
static int32_t to_int8(const float *x, uint32_t count, float inverse, int8_t *ret_q) {
    int32_t sum = 0;
    for (uint32_t i = 0; i < count; i += 8) {
        int32_t lanes[8];
        __m256i q =
            _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(inverse)));
        q = _mm256_max_epi32(q, _mm256_set1_epi32(-127));
        q = _mm256_min_epi32(q, _mm256_set1_epi32(127));
        __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
        _mm_storel_epi64((void *)(ret_q + i), _mm_packs_epi16(words, words));
        _mm256_storeu_si256((void *)lanes, q);
        for (int lane = 0; lane < 8; lane++) sum += lanes[lane];
    }
    return sum;
}

static void quantise_row(const struct matrix *matrix, const float *x, unsigned char *ret_row) {
    const uint32_t group = matrix->group;
    const struct byte_activations at = byte_activations_of(matrix->cols, group);
    float *scales = (float *)(void *)(ret_row + at.scales);
    float *scaled_sums = (float *)(void *)(ret_row + at.scaled_sums);
    int32_t *negative_sums = (int32_t *)(void *)(ret_row + at.negative_sums);
    for (uint32_t begin = 0, g = 0; begin < matrix->cols; begin += group, g++) {
        struct group_scale scale = group_scale_of(largest_of(x + begin, group));
        int32_t sum = to_int8(x + begin, group, scale.inverse, (int8_t *)ret_row + begin);
        scales[g] = scale.scale;
        scaled_sums[g] = scale.scale * (float)sum;
        negative_sums[g] = -sum;
    }
}

void avx2_activate(const struct matrix *matrix, const float *x, size_t x_stride, size_t rows,
                   void *ret_activations) {
    unsigned char *at = ret_activations;
    assert(x_stride >= matrix->cols || rows <= 1);
    for (size_t row = 0; row < rows; row++, at += matrix->activation_bytes) {
        if (matrix->layout == MATRIX_BYTES)
            quantise_row(matrix, x + row * x_stride, at);
        else
            memcpy(at, x + row * x_stride, matrix->cols * sizeof(float));
    }
}
