/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* avx512_tile: the register tile of the AVX-512 matrix products: up to TILE_ROWS rows by the 32
 * columns of a matrix tile, as two vectors of 16 columns.
 *
 * Only for files compiled with AVX-512; everything is inline.
 *
 * Thread: any.
 * Memory: registers only. */

/* A tile takes 27 of 32 registers: 12 sums, 12 partial sums, 2 weights and a broadcast. */
#define TILE_ROWS 6

#include "kernels/cpu/tile.h"

#include <immintrin.h>

ALWAYS_INLINE __m512i broadcast_i32(const unsigned char *at) {
    int32_t value;
    memcpy(&value, at, sizeof value);
    return _mm512_set1_epi32(value);
}

ALWAYS_INLINE __m512 broadcast_f32(const unsigned char *at) {
    float value;
    memcpy(&value, at, sizeof value);
    return _mm512_set1_ps(value);
}

ALWAYS_INLINE __m512i load_512(const unsigned char *at) {
    return _mm512_loadu_si512((const void *)at);
}

ALWAYS_INLINE __m512 load_f32(const unsigned char *at) {
    return _mm512_castsi512_ps(load_512(at));
}

/* Adds the bias, and y if the call adds, and stores the tile's columns. */
ALWAYS_INLINE void store_row(const struct place *place, size_t r, __m512 first, __m512 second) {
    const struct matmul *call = place->call;
    uint32_t mask = place->tile->count == MATRIX_TILE ? UINT32_MAX : (1u << place->tile->count) - 1;
    __mmask16 low = (__mmask16)mask;
    __mmask16 high = (__mmask16)(mask >> 16);
    float *y = call->y + (place->row + r) * call->y_stride + place->tile->column;
    if (call->bias) {
        const float *bias = call->bias + place->tile->column;
        first = _mm512_add_ps(first, _mm512_maskz_loadu_ps(low, bias));
        second = _mm512_add_ps(second, _mm512_maskz_loadu_ps(high, bias + 16));
    }
    if (call->add) {
        first = _mm512_add_ps(_mm512_maskz_loadu_ps(low, y), first);
        second = _mm512_add_ps(_mm512_maskz_loadu_ps(high, y + 16), second);
    }
    _mm512_mask_storeu_ps(y, low, first);
    _mm512_mask_storeu_ps(y + 16, high, second);
}
