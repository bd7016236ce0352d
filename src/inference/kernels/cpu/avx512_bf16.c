/* SPDX-License-Identifier: Apache-2.0 */

/* Products with bf16 weights on CPUs that have vdpbf16ps: two products a lane, sums in f32 (the
 * instruction rounds to nearest even and flushes subnormals). Weights are exact; activations are
 * rounded to bf16. */

#include "kernels/cpu/avx512.h"
#include "kernels/cpu/avx512_tile.h"

ALWAYS_INLINE __m512bh as_bf16(__m512i bits) {
    __m512bh result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

ALWAYS_INLINE void pair_tile(const struct place *place, const int rows,
                             const size_t pairs_at_once) {
    const struct matrix *matrix = place->call->matrix;
    const unsigned char *weights = place->weights;
    const unsigned char *a[TILE_ROWS];
    __m512 sums[TILE_ROWS][2];
    UNROLL for (int r = 0; r < rows; r++) {
        a[r] = place->activations + (size_t)r * matrix->activation_bytes;
        sums[r][0] = sums[r][1] = _mm512_setzero_ps();
    }
    for (size_t k = 0; k < matrix->cols; k += 2 * pairs_at_once, weights += 128) {
        fetch_weights(weights, place->ahead[0], 64, rows);
        fetch_weights(weights + 64, place->ahead[1], 64, rows);
        __m512bh first = as_bf16(load_512(weights));
        __m512bh second = as_bf16(load_512(weights + 64));
        UNROLL for (int r = 0; r < rows; r++) {
            __m512bh activation = as_bf16(broadcast_i32(a[r] + 2 * k));
            sums[r][0] = _mm512_dpbf16_ps(sums[r][0], first, activation);
            sums[r][1] = _mm512_dpbf16_ps(sums[r][1], second, activation);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) store_row(place, (size_t)r, sums[r][0], sums[r][1]);
}

TILE_HEIGHTS_6(pairs, pair_tile, 1)

static const tile_fn *heights_of(const struct matrix *matrix, const struct matrix_tile *tile) {
    (void)matrix;
    (void)tile;
    return pairs;
}

void avx512_bf16_matmul(const struct matmul *call, uint32_t tile_begin, uint32_t tile_end) {
    if (call->matrix->layout == MATRIX_BF16_PAIRS)
        run_tiles(call, tile_begin, tile_end, heights_of);
    else
        avx512_matmul(call, tile_begin, tile_end);
}

void avx512_bf16_activate(const struct matrix *matrix, const float *x, size_t x_stride, size_t rows,
                          void *ret_activations) {
    if (matrix->layout != MATRIX_BF16_PAIRS) {
        avx512_activate(matrix, x, x_stride, rows, ret_activations);
        return;
    }
    assert(x_stride >= matrix->cols || rows <= 1);
    for (size_t row = 0; row < rows; row++) {
        uint16_t *at = (void *)((unsigned char *)ret_activations + row * matrix->activation_bytes);
        const float *from = x + row * x_stride;
        uint32_t k = 0;
        for (; k + 16 <= matrix->cols; k += 16) {
            __m256bh rounded = _mm512_cvtneps_pbh(_mm512_loadu_ps(from + k));
            memcpy(at + k, &rounded, sizeof rounded);
        }
        for (; k < matrix->cols; k++) at[k] = bf16_from_f32(from[k]);
        if (matrix->cols % 2) at[matrix->cols] = 0; /* meets a weight of zero */
    }
}
