/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* experts_launch: the launches of a product of experts (experts.h) whose codes are of one kind. */

#include "gpu/cuda/experts_mma.cuh"
#include "gpu/cuda/experts_tile.cuh"

static inline int card_attribute(cudaDeviceAttr which) {
    int card = 0, value = 0;
    return cudaGetDevice(&card) == cudaSuccess &&
                   cudaDeviceGetAttribute(&value, which, card) == cudaSuccess
               ? value
               : 0;
}

/* How many blocks of the kernel for sm_90a the GPU holds; 0: experts_mma.cuh is taken. */
template <class S> static inline uint32_t expert_blocks(void) {
    if (card_attribute(cudaDevAttrComputeCapabilityMajor) != 9) return 0;
    return cuda_blocks_held<expert_tiles<S>>(THREADS, SHARED_BYTES, 1);
}

/* Units of a tile: half of them while each block has one tile at most so, as with one row; then
 * more blocks have something to bring. */
static inline uint32_t units_of(uint32_t units, uint32_t rows, uint32_t blocks) {
    const uint64_t halves = (uint64_t)rows * ((units + GROUP_UNITS - 1) / GROUP_UNITS);
    return halves <= blocks ? GROUP_UNITS : UNITS;
}

template <class S>
static inline enum err launch_tiles(const struct cuda_experts *call, uint32_t blocks,
                                    uint64_t row_bytes, cudaStream_t stream, struct error *error) {
    struct expert_work work;
    const uint32_t units = call->outputs / UNIT_LINES, experts = call->by.experts;
    const uint64_t width = call->outputs / S::PARTS;
    const uint64_t half = (S::IS_GATED ? width : S::HALF_LINES) * row_bytes;
    /* A unit of gate begins after those of up of the expert before it. */
    const uint64_t sizes[] = {row_bytes, 8, 2,
                              (uint64_t)units * (S::IS_GATED ? 2 * experts - 1 : experts), 2};
    const uint64_t strides[] = {row_bytes, half, S::UNIT_WIDTH * row_bytes,
                                S::SIXTEEN_LINES * row_bytes};
    const uint32_t box[] = {STEP, 8, 2, GROUP_UNITS, 2};
    enum err err = cuda_tiles_make(&work.weights, call->weights, 5, sizes, strides, box, error);
    if (err != OK) return err;
    work.call = *call;
    const uint32_t rows = cuda_expert_tiles_most(&call->by);
    work.tile_units = units_of(units, rows, blocks);
    work.columns = (units + work.tile_units - 1) / work.tile_units;
    work.units = units * S::PARTS;
    work.row_bytes = (uint32_t)row_bytes;
    work.steps = (work.row_bytes + STEP - 1) / STEP;
    const uint64_t most = (uint64_t)rows * work.columns;
    return cuda_launch<expert_tiles<S>>("experts", most < blocks ? (uint32_t)most : blocks, THREADS,
                                        SHARED_BYTES, stream, error, work);
}

template <class S>
static inline enum err launch_mma(const struct cuda_experts *call, uint64_t row_bytes,
                                  cudaStream_t stream, struct error *error) {
    const uint32_t columns = (call->outputs / UNIT_LINES + UNITS - 1) / UNITS;
    const uint32_t blocks = 2 * (uint32_t)card_attribute(cudaDevAttrMultiProcessorCount);
    const uint64_t most = (uint64_t)cuda_expert_tiles_most(&call->by) * columns;
    return cuda_launch<experts_by_mma<S>>("experts", most < blocks ? (uint32_t)most : blocks,
                                          MMA_THREADS, MMA_SHARED_BYTES, stream, error, *call,
                                          columns, (uint32_t)row_bytes);
}

template <class S>
static inline enum err launch_experts(const struct cuda_experts *call, cudaStream_t stream,
                                      struct error *error) {
    const uint64_t row_bytes = (uint64_t)call->inputs * (S::CODE == CUDA_BF16 ? 2 : 1);
    const uint64_t rows = (uint64_t)call->by.rows * (S::IS_GATED ? 1 : call->by.each);
    if (rows * row_bytes > UINT32_MAX)
        return err_set(error, ERR_INVALID, "%llu rows of %u numbers are too many for experts",
                       (unsigned long long)rows, call->inputs);
    const uint32_t blocks = expert_blocks<S>();
    return blocks > 0 ? launch_tiles<S>(call, blocks, row_bytes, stream, error)
                      : launch_mma<S>(call, row_bytes, stream, error);
}

template <int CODE>
static inline enum err launch_of_code(const struct cuda_experts *call, cudaStream_t stream,
                                      struct error *error) {
    switch (call->ending) {
    case CUDA_EXPERTS_DOWN:
        return launch_experts<expert_shape<CODE, CUDA_EXPERTS_DOWN>>(call, stream, error);
    case CUDA_EXPERTS_SILU:
        return launch_experts<expert_shape<CODE, CUDA_EXPERTS_SILU>>(call, stream, error);
    case CUDA_EXPERTS_GELU_TANH:
        return launch_experts<expert_shape<CODE, CUDA_EXPERTS_GELU_TANH>>(call, stream, error);
    case CUDA_EXPERTS_CLAMPED: break;
    }
    return launch_experts<expert_shape<CODE, CUDA_EXPERTS_CLAMPED>>(call, stream, error);
}
