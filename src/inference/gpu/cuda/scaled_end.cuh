/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* scaled_end: what a warp of a scaled product makes of its sums (scaled.h).
 *
 * A warp has sums of 16 rows by COLUMNS weights as cuda_mma has them for each eight columns. With a
 * gate the eights are by turns of gate and of up, so that a thread has both sums of a number. y
 * goes through shared memory, a piece of its columns at a time, for whole sectors of GPU memory. */

#include "gpu/cuda/scaled.h"

#include "gpu/cuda/activate.cuh"
#include "gpu/cuda/ptx.cuh"

#include <cuda_runtime.h>

#define WARP_ROWS 16

template <int ENDING_, int COLUMNS_> struct end_shape {
    static constexpr int ENDING = ENDING_, COLUMNS = COLUMNS_;
    static constexpr bool IS_GATED = ENDING != CUDA_END_SCALED;
    static constexpr int PARTS = IS_GATED ? 2 : 1; /* parts of the weights */
    static constexpr int Y_COLUMNS = COLUMNS / PARTS;
    static constexpr int PIECE = Y_COLUMNS % 64 == 0 ? 64 : 32;
    static constexpr int CHUNKS = PIECE / 8; /* chunks of 16 B */
    static constexpr int Y_ROW_BYTES = PIECE * 2;
    static constexpr int Y_BYTES = WARP_ROWS * Y_ROW_BYTES;
    static_assert(COLUMNS % 32 == 0, "pieces");

    /* Where chunk c of row r of a piece is, so that a warp's accesses meet in no bank. */
    __device__ static uint32_t y_at(uint32_t row, uint32_t chunk) {
        return row * Y_ROW_BYTES + (chunk ^ (row / (8 / CHUNKS) & (CHUNKS - 1))) * 16;
    }
};

/* Scales of two neighbouring columns; 0 beyond the last. */
__device__ static inline float2 column_scales(const struct cuda_scaled &call, uint32_t column,
                                              bool is_there) {
    const uint32_t pair = is_there ? *(const uint32_t *)(call.column_scale + column) : 0;
    return make_float2(cuda_low_bf16(pair), cuda_high_bf16(pair));
}

__device__ static inline float2 scaled(const int32_t *sums, float row_scale, float2 column_scale) {
    return make_float2((float)sums[0] * (row_scale * column_scale.x),
                       (float)sums[1] * (row_scale * column_scale.y));
}

/* Eight columns of y of a warp's 16 rows, from column `at` on, into shared memory. `sums` are of
 * these columns: of gate and up, or of all. */
template <class S>
__device__ static inline void leave_eight(const struct cuda_scaled &call, const int32_t (*sums)[4],
                                          const float (&row_scale)[2], uint32_t chunk, uint32_t at,
                                          char *to) {
    constexpr int KIND = S::ENDING == CUDA_END_SILU ? CUDA_SILU : CUDA_GELU_TANH;
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, width = call.outputs / S::PARTS;
    const bool is_there = at < width;
    const float2 scale = column_scales(call, at + 2 * t, is_there);
    float2 up_scale;
    if (S::IS_GATED) up_scale = column_scales(call, width + at + 2 * t, is_there);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float2 y = scaled(&sums[0][2 * half], row_scale[half], scale);
        if constexpr (S::IS_GATED) {
            const float2 up = scaled(&sums[1][2 * half], row_scale[half], up_scale);
            y = make_float2(activate<KIND>(y.x) * up.x, activate<KIND>(y.y) * up.y);
        }
        *(uint32_t *)(to + S::y_at(g + 8 * half, chunk) + t * 4) = cuda_pack_bf16(y.x, y.y);
    }
}

/* A piece of a warp's 16 rows from shared memory to y. */
template <class S>
__device__ static inline void send_piece(const struct cuda_scaled &call, uint32_t row,
                                         uint32_t column, const char *from) {
    const uint32_t lane = threadIdx.x % 32, chunk = lane % S::CHUNKS;
    const uint32_t width = call.outputs / S::PARTS;
    if (column + chunk * 8 >= width) return;
#pragma unroll
    for (uint32_t i = 0; i < WARP_ROWS; i += 32 / S::CHUNKS) {
        const uint32_t r = i + lane / S::CHUNKS;
        const uint4 words = *(const uint4 *)(from + S::y_at(r, chunk));
        if (row + r < call.rows)
            *(uint4 *)((uint16_t *)call.y + (size_t)(row + r) * width + column + chunk * 8) = words;
    }
}

/* y of a warp's 16 rows from `row` on, from its column on, by way of S::Y_BYTES of shared memory.
 */
template <class S>
__device__ static inline void leave_rows(const struct cuda_scaled &call, const int32_t (*sums)[4],
                                         uint32_t row, uint32_t column, char *shared) {
    const uint32_t g = threadIdx.x % 32 / 4;
    float row_scale[2] = {0, 0};
    for (int half = 0; half < 2; half++)
        if (row + g + 8 * half < call.rows) row_scale[half] = call.row_scale[row + g + 8 * half];
#pragma unroll
    for (int p = 0; p < S::Y_COLUMNS; p += S::PIECE) {
        __syncwarp(); /* the piece before has been sent */
#pragma unroll
        for (int c = 0; c < S::CHUNKS; c++)
            leave_eight<S>(call, &sums[S::PARTS * (p / 8 + c)], row_scale, c, column + p + 8 * c,
                           shared);
        __syncwarp();
        send_piece<S>(call, row, column + p, shared);
    }
}
