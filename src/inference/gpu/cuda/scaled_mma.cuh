/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* scaled_mma: the kernel of scaled.h for GPUs without products of warpgroups, sm_80 and later.
 *
 * A block has a tile of 128 rows by 256 weights, and eight warps, two by four, each of which
 * multiplies 64 by 64. Rows and weights come by cp.async, 64 B of each per stage, into a ring of
 * four stages: 96 KiB, for which every GPU has room. With a gate the weights of a tile are by turns
 * eight of gate and eight of up. Blocks with the same weights follow each other. */

#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/scaled_end.cuh"

#define MMA_ROWS 128
#define MMA_COLUMNS 256
#define MMA_STEP 64 /* bytes of a row or a weight in a stage: as many codes */
#define MMA_CHUNKS (MMA_STEP / 16)
#define MMA_STAGES 4
#define MMA_THREADS 256
#define MMA_WARP 64 /* rows and weights of a warp */
#define MMA_STAGE_BYTES ((MMA_ROWS + MMA_COLUMNS) * MMA_STEP)
#define MMA_SHARED_BYTES (MMA_STAGES * MMA_STAGE_BYTES)
#define MMA_COPIES (MMA_STAGE_BYTES / 16 / MMA_THREADS) /* copies by a thread, per stage */

/* Where chunk c of row r of a stage is: eight rows of a matrix meet in no bank. */
__device__ static inline uint32_t mma_place(uint32_t row, uint32_t chunk) {
    return row * MMA_STEP + ((chunk ^ (row >> 1)) & (MMA_CHUNKS - 1)) * 16;
}

/* What a thread copies: a chunk of the same place in MMA_COPIES rows and weights. */
struct mma_copies {
    const char *from[MMA_COPIES]; /* address for the first stage; NULL: beyond the last row */
    uint32_t chunk;
};

template <class S>
__device__ static inline const char *mma_source(const struct cuda_scaled &call, uint32_t first_row,
                                                uint32_t first_column, uint32_t line) {
    if (line < MMA_ROWS) {
        const uint32_t row = first_row + line;
        return row < call.rows ? (const char *)call.in + (size_t)row * call.inputs : NULL;
    }
    const uint32_t width = call.outputs / S::PARTS, weight = line - MMA_ROWS;
    const uint32_t column = first_column + weight / (8 * S::PARTS) * 8 + weight % 8;
    const uint32_t at = column + (S::IS_GATED ? weight / 8 % 2 * width : 0);
    return column < width ? (const char *)call.weights + (size_t)at * call.inputs : NULL;
}

/* A stage on its way; an empty group behind the last. */
__device__ static inline void mma_fetch(const struct cuda_scaled &call,
                                        const struct mma_copies &copies, uint32_t memory,
                                        uint32_t step) {
    const uint32_t to = memory + step % MMA_STAGES * MMA_STAGE_BYTES;
    const uint32_t at = step * MMA_STEP + copies.chunk * 16;
    if (step * MMA_STEP < call.inputs)
#pragma unroll
        for (int i = 0; i < MMA_COPIES; i++) {
            const uint32_t line = (i * MMA_THREADS + threadIdx.x) / MMA_CHUNKS;
            cuda_copy16_if(to + mma_place(line, copies.chunk),
                           copies.from[i] ? copies.from[i] + at : (const char *)call.in,
                           copies.from[i] && at < call.inputs);
        }
    cuda_copy_commit();
}

/* The four matrices of 8 lines by 16 B that begin at a line and a chunk: lines 0..7 and 8..15 of
 * one chunk and of the next, or by IS_SIDEWAYS both chunks of lines 0..7 first. */
template <bool IS_SIDEWAYS>
__device__ static inline void mma_load(uint32_t ret[4], uint32_t stage, uint32_t line,
                                       uint32_t chunk) {
    const uint32_t lane = threadIdx.x % 32, first = lane / 8 % 2, second = lane / 16;
    const uint32_t down = IS_SIDEWAYS ? second : first, across = IS_SIDEWAYS ? first : second;
    cuda_load_matrices(ret, stage + mma_place(line + down * 8 + lane % 8, chunk + across));
}

typedef int32_t mma_sums[MMA_WARP / WARP_ROWS][MMA_WARP / 8][4];

__device__ static inline void mma_multiply(mma_sums &sums, uint32_t stage, uint32_t row,
                                           uint32_t column) {
#pragma unroll
    for (int k = 0; k < MMA_STEP / 32; k++) {
        uint32_t rows[MMA_WARP / WARP_ROWS][4], weights[4];
#pragma unroll
        for (int m = 0; m < MMA_WARP / WARP_ROWS; m++)
            mma_load<false>(rows[m], stage, row + m * WARP_ROWS, 2 * k);
#pragma unroll
        for (int n = 0; n < MMA_WARP / 8; n += 2) {
            mma_load<true>(weights, stage, MMA_ROWS + column + n * 8, 2 * k);
#pragma unroll
            for (int m = 0; m < MMA_WARP / WARP_ROWS; m++) {
                cuda_mma_int8(sums[m][n], rows[m], weights[0], weights[1]);
                cuda_mma_int8(sums[m][n + 1], rows[m], weights[2], weights[3]);
            }
        }
    }
}

template <int ENDING>
__global__ void __launch_bounds__(MMA_THREADS, 1)
    scaled_by_mma(struct cuda_scaled call, uint32_t row_tiles) {
#if !defined(__CUDA_ARCH_FEAT_SM90_ALL) /* which has scaled_tile.cuh */
    using S = end_shape<ENDING, MMA_WARP>;
    extern __shared__ __align__(1024) char cuda_memory[];
    const uint32_t memory = cuda_shared_address(cuda_memory), warp = threadIdx.x / 32;
    const uint32_t steps = (call.inputs + MMA_STEP - 1) / MMA_STEP;
    const uint32_t first_row = blockIdx.x % row_tiles * MMA_ROWS;
    const uint32_t first_column = blockIdx.x / row_tiles * (MMA_COLUMNS / S::PARTS);
    const uint32_t row = warp / 4 * MMA_WARP, column = warp % 4 * MMA_WARP;
    struct mma_copies copies;
    mma_sums sums = {};
    copies.chunk = threadIdx.x % MMA_CHUNKS;
#pragma unroll
    for (int i = 0; i < MMA_COPIES; i++)
        copies.from[i] = mma_source<S>(call, first_row, first_column,
                                       (i * MMA_THREADS + threadIdx.x) / MMA_CHUNKS);
    wait_for_before();
    let_next_start();
    for (uint32_t s = 0; s < MMA_STAGES - 1; s++) mma_fetch(call, copies, memory, s);
    for (uint32_t s = 0; s < steps; s++) {
        cuda_copy_wait<MMA_STAGES - 2>();
        __syncthreads(); /* the stage is there, and nobody reads the one before any more */
        mma_fetch(call, copies, memory, s + MMA_STAGES - 1);
        mma_multiply(sums, memory + s % MMA_STAGES * MMA_STAGE_BYTES, row, column);
    }
    cuda_copy_wait<0>();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < MMA_WARP / WARP_ROWS; m++)
        leave_rows<S>(call, sums[m], first_row + row + m * WARP_ROWS,
                      first_column + column / S::PARTS, cuda_memory + warp * S::Y_BYTES);
#endif
}
