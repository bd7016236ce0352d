/* SPDX-License-Identifier: Apache-2.0 */

/* The matrix products of the avx2 table: register tiles of up to 4 rows by 16 columns, two vectors
 * of 8; the 32 columns of a matrix tile take two passes.
 *
 * vpmaddubsw multiplies unsigned by signed bytes and adds two products in int16, saturating. With
 * 4-bit weights a pair is at most 2 · 15 · 127 and eight pairs, a group of 32, stay below 2^15:
 * they are added in int16. 8-bit weights lie in memory signed, and so do steps: |w| times the
 * activation with the sign of w, at most 2 · 128 · 127 < 2^15 a pair, and each pair goes on to
 * int32. Either way the
 * sum of a group is exact, with its coarse part added as in the avx512 table, and becomes f32 as
 * there. */

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

/* Adds the bias, and y if the call adds, and stores the tile's columns of this pass. */
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

/* The tile's steps in each 128-bit lane. */
ALWAYS_INLINE __m256i load_steps(const struct matrix_tile *tile, const enum weight_kind kind) {
    if (kind != STEPS) return _mm256_setzero_si256();
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)tile->steps));
}

/* The bytes of four inputs for the columns of this pass: `at` is of its first column. */
ALWAYS_INLINE void load_quad(const unsigned char *at, const enum weight_kind kind, __m256i steps,
                             __m256i *ret_weights) {
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i bytes = load_256(at);
    if (kind == BYTES) {
        ret_weights[0] = bytes;
        ret_weights[1] = load_256(at + PASS_APART * 4);
        return;
    }
    ret_weights[0] = _mm256_and_si256(bytes, nibble);
    ret_weights[1] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble);
    if (kind == NIBBLES) return;
    UNROLL for (int c = 0; c < 2; c++) ret_weights[c] = _mm256_shuffle_epi8(steps, ret_weights[c]);
}

/* Adds the products of one quad of inputs to the dots, in int16 for NIBBLES and in int32 for other
 * kinds. weights: the quad's bytes from this pass's column on; a: the rows; offset: the place of
 * the quad's activations in them. */
ALWAYS_INLINE void dot_quad(const unsigned char *weights, const enum weight_kind kind,
                            __m256i steps, const unsigned char *const *a, size_t offset,
                            const int rows, __m256i (*dots)[2]) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i loaded[2];
    load_quad(weights, kind, steps, loaded);
    if (kind == NIBBLES) {
        UNROLL for (int r = 0; r < rows; r++) {
            __m256i activation = broadcast_i32(a[r] + offset);
            UNROLL for (int c = 0; c < 2; c++) dots[r][c] =
                _mm256_add_epi16(dots[r][c], _mm256_maddubs_epi16(loaded[c], activation));
        }
        return;
    }
    UNROLL for (int c = 0; c < 2; c++) {
        __m256i size = _mm256_abs_epi8(loaded[c]);
        UNROLL for (int r = 0; r < rows; r++) {
            __m256i activation = _mm256_sign_epi8(broadcast_i32(a[r] + offset), loaded[c]);
            __m256i pairs = _mm256_maddubs_epi16(size, activation);
            dots[r][c] = _mm256_add_epi32(dots[r][c], _mm256_madd_epi16(pairs, ones));
        }
    }
}

ALWAYS_INLINE void clear(const int rows, __m256i (*ret_dots)[2]) {
    UNROLL for (int r = 0; r < rows; r++) ret_dots[r][0] = ret_dots[r][1] = _mm256_setzero_si256();
}

/* The result of dot_quad in int32. */
ALWAYS_INLINE void widen(const enum weight_kind kind, const int rows, __m256i (*dots)[2]) {
    if (kind != NIBBLES) return;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < 2; c++) dots[r][c] =
        _mm256_madd_epi16(dots[r][c], _mm256_set1_epi16(1));
}

/* dots += the products of a row's coarse part with one group. Each row takes the quads that it has
 * itself: those of all rows together are twice as many. */
ALWAYS_INLINE void dot_coarse(const unsigned char *weights, const enum weight_kind kind,
                              __m256i steps, const unsigned char *coarse, uint32_t quads,
                              __m256i (*dots)[2]) {
    __m256i sums[1][2];
    if (!quads) return;
    clear(1, sums);
    for (; quads; quads &= quads - 1) {
        size_t quad = (size_t)__builtin_ctz(quads);
        dot_quad(weights + quad * (kind == BYTES ? 128 : 64), kind, steps, &coarse, 4 * quad, 1,
                 sums);
    }
    widen(kind, 1, sums);
    UNROLL for (int c = 0; c < 2; c++)(*dots)[c] =
        _mm256_add_epi32((*dots)[c], _mm256_slli_epi32(sums[0][c], COARSE_SHIFT));
}

/* The exact sums of products of group g; a: the rows. */
ALWAYS_INLINE void dot_group(const unsigned char *weights, const enum weight_kind kind,
                             __m256i steps, const uint32_t group, const unsigned char *const *a,
                             const struct byte_activations *at, size_t g, const int rows,
                             __m256i (*ret_dots)[2]) {
    const size_t quad_bytes = kind == BYTES ? 128 : 64;
    clear(rows, ret_dots);
    UNROLL for (uint32_t k = 0; k < group; k += 4)
        dot_quad(weights + k / 4 * quad_bytes, kind, steps, a, g * group + k, rows, ret_dots);
    widen(kind, rows, ret_dots);
    UNROLL for (int r = 0; r < rows; r++)
        dot_coarse(weights, kind, steps, a[r] + at->coarse + g * group, a[r][at->coarse_quads + g],
                   &ret_dots[r]);
}

ALWAYS_INLINE void bytes_pass(const struct place *place, const uint32_t column, const int rows,
                              const enum weight_kind kind, const uint32_t group,
                              const bool has_minimum) {
    const struct matrix *matrix = place->call->matrix;
    const struct byte_activations at = byte_activations_of(matrix->cols, group);
    const size_t data_bytes = group / 4 * (kind == BYTES ? 128 : 64);
    const size_t group_bytes = tile_group_bytes(group, kind == BYTES ? 8 : 4, has_minimum);
    const __m256i steps = load_steps(place->tile, kind);
    const unsigned char *weights = place->weights + 4 * column;
    const unsigned char *a[TILE_ROWS];
    __m256 sums[TILE_ROWS][2];
    UNROLL for (int r = 0; r < rows; r++) {
        a[r] = place->activations + (size_t)r * matrix->activation_bytes;
        sums[r][0] = sums[r][1] = _mm256_setzero_ps();
    }
    for (size_t g = 0; g < matrix->cols / group; g++, weights += group_bytes) {
        __m256i dots[TILE_ROWS][2];
        const unsigned char *numbers = weights + data_bytes;
        dot_group(weights, kind, steps, group, a, &at, g, rows, dots);
        UNROLL for (int r = 0; r < rows; r++) {
            __m256 scale = broadcast_f32(a[r] + at.scales + 4 * g);
            __m256i zeros = _mm256_setzero_si256();
            if (!has_minimum && place->tile->zero)
                zeros = _mm256_slli_epi32(broadcast_i32(a[r] + at.negative_sums + 4 * g),
                                          place->tile->zero_shift);
            UNROLL for (int c = 0; c < 2; c++) {
                __m256 weight_scale = load_f32(numbers + c * PASS_APART * 4);
                __m256 dot = _mm256_cvtepi32_ps(_mm256_add_epi32(dots[r][c], zeros));
                sums[r][c] = _mm256_fmadd_ps(dot, _mm256_mul_ps(weight_scale, scale), sums[r][c]);
            }
            if (!has_minimum) continue;
            __m256 sum = broadcast_f32(a[r] + at.scaled_sums + 4 * g);
            UNROLL for (int c = 0; c < 2; c++) sums[r][c] =
                _mm256_fmadd_ps(load_f32(numbers + 128 + c * PASS_APART * 4), sum, sums[r][c]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
        store_row(place, (size_t)r, column, sums[r][0], sums[r][1]);
}

ALWAYS_INLINE void bytes_tile(const struct place *place, const int rows,
                              const enum weight_kind kind, const uint32_t group,
                              const bool has_minimum) {
    for (uint32_t column = 0; column < PASS_APART; column += 8)
        bytes_pass(place, column, rows, kind, group, has_minimum);
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

#define TILE_HEIGHTS TILE_HEIGHTS_4
#include "kernels/cpu/matmul_body.inc"

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

/* Σ |x| in 8 partial sums; the number of columns is a multiple of 16. */
static float sum_of_sizes(const float *x, uint32_t cols) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 sum = _mm256_setzero_ps();
    __m256 other = _mm256_setzero_ps();
    for (uint32_t i = 0; i < cols; i += 16) {
        sum = _mm256_add_ps(sum, _mm256_andnot_ps(sign, _mm256_loadu_ps(x + i)));
        other = _mm256_add_ps(other, _mm256_andnot_ps(sign, _mm256_loadu_ps(x + i + 8)));
    }
    sum = _mm256_add_ps(sum, other);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps(sum, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* The largest value that a group's fine parts hold, NaN in a row with a NaN; 0: all is zero. */
static float reach_of(float largest, float step_most) {
    if (largest < LARGEST_MIN) return 0;
    float reach = largest < step_most ? largest : step_most;
    float least = largest / COARSE_REACH;
    return reach < least ? least : reach;
}

/* Eight int32 as int8. */
static void store_bytes(__m256i values, int8_t *ret_bytes) {
    __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1));
    _mm_storel_epi64((void *)ret_bytes, _mm_packs_epi16(words, words));
}

/* Where a group's activations go. */
struct quantised {
    int8_t *fine;
    int8_t *coarse;
    uint32_t quads; /* one bit per quad with a coarse part */
    int32_t sum;
};

/* Converts `count` values to steps, nearest even, split into fine and coarse: steps beyond ±127 go
 * to coarse as multiples of 128. The clamp is for infinities and NaN, which convert to the lowest
 * int32. */
static void quantise_group(const float *x, uint32_t count, float inverse, struct quantised *to) {
    const __m256i most = _mm256_set1_epi32(127 << COARSE_SHIFT);
    __m256i sums = _mm256_setzero_si256();
    for (uint32_t i = 0; i < count; i += 8) {
        __m256i steps =
            _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(inverse)));
        steps = _mm256_max_epi32(steps, _mm256_sub_epi32(_mm256_setzero_si256(), most));
        steps = _mm256_min_epi32(steps, most);
        sums = _mm256_add_epi32(sums, steps);
        __m256i beyond = _mm256_cmpgt_epi32(_mm256_abs_epi32(steps), _mm256_set1_epi32(127));
        __m256i rounded = _mm256_add_epi32(steps, _mm256_set1_epi32(1 << (COARSE_SHIFT - 1)));
        __m256i coarse = _mm256_and_si256(beyond, _mm256_srai_epi32(rounded, COARSE_SHIFT));
        store_bytes(_mm256_sub_epi32(steps, _mm256_slli_epi32(coarse, COARSE_SHIFT)), to->fine + i);
        store_bytes(coarse, to->coarse + i);
        uint32_t lanes = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(beyond));
        uint32_t quads = ((lanes & 15) != 0) | (uint32_t)((lanes >> 4) != 0) << 1;
        to->quads |= quads << i / 4;
    }
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    to->sum = _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
}

static void quantise_row(const struct matrix *matrix, const float *x, unsigned char *ret_row) {
    const uint32_t group = matrix->group;
    const struct byte_activations at = byte_activations_of(matrix->cols, group);
    const float step_most = STEP_MEANS * (sum_of_sizes(x, matrix->cols) / (float)matrix->cols);
    float *scales = (float *)(void *)(ret_row + at.scales);
    float *scaled_sums = (float *)(void *)(ret_row + at.scaled_sums);
    int32_t *negative_sums = (int32_t *)(void *)(ret_row + at.negative_sums);
    for (uint32_t begin = 0, g = 0; begin < matrix->cols; begin += group, g++) {
        float reach = reach_of(largest_of(x + begin, group), step_most);
        struct quantised to = {.fine = (int8_t *)ret_row + begin,
                               .coarse = (int8_t *)ret_row + at.coarse + begin};
        quantise_group(x + begin, group, reach == 0 ? 0 : 127.0f / reach, &to);
        scales[g] = reach / 127.0f;
        scaled_sums[g] = scales[g] * (float)to.sum;
        negative_sums[g] = -to.sum;
        ret_row[at.coarse_quads + g] = (unsigned char)to.quads;
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
