/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* experts_mma: the kernel of experts.h for GPUs without products of warpgroups, sm_80 and later.
 *
 * A tile is 256 lines of weights by 64 rows of an expert, and each of eight warps multiplies a unit
 * of 32 lines with all rows. Both come by cp.async, 64 B of each per stage, into a ring of four
 * stages: 80 KiB, for which every GPU has room. Codes of E4M3 become bf16 in registers. */

#include "gpu/cuda/experts_end.cuh"
#include "gpu/cuda/launch.cuh"

#define MMA_LINES (UNITS * UNIT_LINES)
#define MMA_STEP 64 /* bytes of a line or a row in a stage */
#define MMA_CHUNKS (MMA_STEP / 16)
#define MMA_STAGES 4
#define MMA_THREADS (UNITS * 32)
#define MMA_STAGE_BYTES ((MMA_LINES + EXPERT_MMA_ROWS) * MMA_STEP)
#define MMA_SHARED_BYTES (MMA_STAGES * MMA_STAGE_BYTES)
#define MMA_COPIES (MMA_STAGE_BYTES / 16 / MMA_THREADS) /* copies by a thread, per stage */
#define MMA_EIGHTS (EXPERT_MMA_ROWS / 8)

/* Where chunk c of a line of a stage is: eight lines of a matrix meet in no bank. */
__device__ static inline uint32_t mma_place(uint32_t line, uint32_t chunk) {
    return line * MMA_STEP + ((chunk ^ (line >> 1)) & (MMA_CHUNKS - 1)) * 16;
}

/* What a thread copies: a chunk of the same place in some lines and in one row. */
struct mma_copies {
    const char *from[MMA_COPIES]; /* NULL: nothing there */
    uint32_t chunk;
};

template <class S>
__device__ static inline const char *mma_source(const struct cuda_experts &call,
                                                const struct expert_item &item, uint32_t line,
                                                uint32_t row_bytes) {
    if (line >= MMA_LINES) {
        const uint32_t row = line - MMA_LINES;
        if (row >= item.count) return NULL;
        return (const char *)call.in + (size_t)source_row<S>(call, item.first + row) * row_bytes;
    }
    const uint32_t width = call.outputs / S::PARTS;
    const uint32_t unit = line / UNIT_LINES, sixteen = line / 16 % 2, half = line / 8 % 2;
    const uint32_t column = (item.unit + unit) * S::UNIT_WIDTH + sixteen * S::SIXTEEN_LINES +
                            (S::IS_GATED ? 0 : half * 8) + line % 8;
    if (column >= width) return NULL;
    const size_t at =
        (size_t)item.expert * call.outputs + (S::IS_GATED ? half * width : 0) + column;
    return (const char *)call.weights + at * row_bytes;
}

/* A stage on its way; an empty group behind the last. */
__device__ static inline void mma_fetch(const struct cuda_experts &call,
                                        const struct mma_copies &copies, uint32_t memory,
                                        uint32_t step, uint32_t row_bytes) {
    const uint32_t to = memory + step % MMA_STAGES * MMA_STAGE_BYTES;
    const uint32_t at = step * MMA_STEP + copies.chunk * 16;
    if (step * MMA_STEP < row_bytes)
#pragma unroll
        for (int i = 0; i < MMA_COPIES; i++) {
            const uint32_t line = (i * MMA_THREADS + threadIdx.x) / MMA_CHUNKS;
            const bool is_there = copies.from[i] && at < row_bytes;
            cuda_copy16_if(to + mma_place(line, copies.chunk),
                           is_there ? copies.from[i] + at : (const char *)call.in, is_there);
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

/* Four words of E4M3 as bf16 of the same size: those of even places, then those of odd ones. */
__device__ static inline void unpack_e4m3(uint32_t (&ret)[2][4], const uint32_t (&words)[4]) {
    const uint32_t back = 0x7b807b80u; /* 2^120 */
#pragma unroll
    for (int i = 0; i < 4; i++) {
        ret[0][i] = cuda_times_bf16(cuda_even_e4m3(words[i]), back);
        ret[1][i] = cuda_times_bf16(cuda_odd_e4m3(words[i]), back);
    }
}

typedef uint32_t mma_lines[2][4]; /* lines of both sixteens */

__device__ static inline void multiply_bf16(float (&sums)[2][MMA_EIGHTS][4], int eight,
                                            const mma_lines &lines, const uint32_t (&rows)[4]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        cuda_mma(sums[i][eight], lines[i], rows[0], rows[1]);
        cuda_mma(sums[i][eight + 1], lines[i], rows[2], rows[3]);
    }
}

/* 32 B of a unit's lines with those of all rows. */
template <class S, class T>
__device__ static inline void mma_multiply(T (&sums)[2][MMA_EIGHTS][4], uint32_t stage,
                                           uint32_t chunk, uint32_t count) {
    mma_lines lines;
    uint32_t wide[2][2][4]; /* by place and sixteen */
#pragma unroll
    for (int i = 0; i < 2; i++) {
        mma_load<false>(lines[i], stage, threadIdx.x / 32 * UNIT_LINES + i * 16, chunk);
        if constexpr (S::CODE == CUDA_E4M3) {
            uint32_t both[2][4];
            unpack_e4m3(both, lines[i]);
#pragma unroll
            for (int j = 0; j < 4; j++) wide[0][i][j] = both[0][j], wide[1][i][j] = both[1][j];
        }
    }
#pragma unroll
    for (int c = 0; c < MMA_EIGHTS; c += 2) {
        uint32_t rows[4];
        if ((uint32_t)c * 8 >= count) continue;
        mma_load<true>(rows, stage, MMA_LINES + c * 8, chunk);
        if constexpr (S::CODE == CUDA_INT8) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                cuda_mma_int8(sums[i][c], lines[i], rows[0], rows[1]);
                cuda_mma_int8(sums[i][c + 1], lines[i], rows[2], rows[3]);
            }
        } else if constexpr (S::CODE == CUDA_E4M3) {
            uint32_t both[2][4];
            unpack_e4m3(both, rows);
            multiply_bf16(sums, c, wide[0], both[0]);
            multiply_bf16(sums, c, wide[1], both[1]);
        } else {
            multiply_bf16(sums, c, lines, rows);
        }
    }
}

template <class S>
__device__ static inline void mma_item(const struct cuda_experts &call,
                                       const struct expert_item &item, uint32_t memory,
                                       uint32_t row_bytes) {
    const uint32_t steps = (row_bytes + MMA_STEP - 1) / MMA_STEP;
    typename sum_of<S::CODE>::type sums[2][MMA_EIGHTS][4] = {};
    struct mma_copies copies;
    copies.chunk = threadIdx.x % MMA_CHUNKS;
#pragma unroll
    for (int i = 0; i < MMA_COPIES; i++)
        copies.from[i] =
            mma_source<S>(call, item, (i * MMA_THREADS + threadIdx.x) / MMA_CHUNKS, row_bytes);
    for (uint32_t s = 0; s < MMA_STAGES - 1; s++) mma_fetch(call, copies, memory, s, row_bytes);
    for (uint32_t s = 0; s < steps; s++) {
        cuda_copy_wait<MMA_STAGES - 2>();
        __syncthreads(); /* the stage is there, and nobody reads the one before any more */
        mma_fetch(call, copies, memory, s + MMA_STAGES - 1, row_bytes);
#pragma unroll
        for (int k = 0; k < MMA_CHUNKS; k += 2)
            mma_multiply<S>(sums, memory + s % MMA_STAGES * MMA_STAGE_BYTES, k, item.count);
    }
    cuda_copy_wait<0>();
    struct expert_end<MMA_EIGHTS> end =
        end_of<S, MMA_EIGHTS>(call, item, threadIdx.x / 32, UNITS);
    find_scales<S>(call, &end.rows);
    leave_unit<S, MMA_EIGHTS>(call, item, end, sums);
    __syncthreads(); /* nobody reads a stage any more */
}

template <class S>
__global__ void __launch_bounds__(MMA_THREADS)
    experts_by_mma(struct cuda_experts call, uint32_t columns, uint32_t row_bytes) {
#if !defined(__CUDA_ARCH_FEAT_SM90_ALL) /* which has experts_tile.cuh */
    extern __shared__ __align__(1024) char cuda_memory[];
    wait_for_before();
    let_next_start();
    const uint32_t items = items_of(call, columns);
    for (uint32_t index = blockIdx.x; index < items; index += gridDim.x)
        mma_item<S>(call, item_of<EXPERT_MMA_ROWS>(call, index, columns, UNITS),
                    cuda_shared_address(cuda_memory), row_bytes);
#endif
}
