/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* scaled_tile: the kernel of scaled.h for sm_90a, a product of warpgroups with an ending of its
 * own.
 *
 * A block has three warpgroups and stays on its multiprocessor. One thread of the first has tiles
 * of rows and weights brought into a ring of stages, 128 B of each row and weight per stage; the
 * other two multiply, 64 rows each, and leave y. A tile is 128 rows by COLUMNS weights. With a gate
 * half of these are of gate and half of up, and lie in shared memory by turns, eight and eight: so
 * the sums of gate and up of one number are in one thread.
 *
 * Two blocks are a cluster, with the same weights and different rows: each brings one half of the
 * weights for both, which takes a third off what comes from the L2. Tiles of the same weights
 * follow each other, so that weights come from memory once. */

#include "gpu/cuda/scaled_end.cuh"
#include "gpu/cuda/tma.cuh"
#include "gpu/cuda/wgmma.cuh"

#define TILE_ROWS 128
#define STEP 128 /* bytes of a row or a weight in a stage: as many codes */
#define IN_BYTES (TILE_ROWS * STEP)
#define GROUP 128 /* threads */
#define GROUPS 2  /* that multiply */
#define THREADS ((1 + GROUPS) * GROUP)
#define REGISTERS_OF_LOADER 40
#define REGISTERS_OF_GROUP 232
#define SHARED_MOST (227 << 10)
#define BARRIER_BYTES 128 /* more than two per stage need */
#define LEAD 2            /* stages that the first group is ahead of the second */
#define BEHIND 1          /* meeting of the two groups; 0 is the block's */

template <int ENDING, int COLUMNS_> struct tile_shape : end_shape<ENDING, COLUMNS_> {
    using END = end_shape<ENDING, COLUMNS_>;
    static constexpr int WEIGHT_BYTES = COLUMNS_ * STEP;
    static constexpr int STAGE_BYTES = IN_BYTES + WEIGHT_BYTES;
    static constexpr int WARPS = GROUPS * GROUP / 32;
    static constexpr int STAGES =
        (SHARED_MOST - BARRIER_BYTES - WARPS * END::Y_BYTES) / STAGE_BYTES;
    static constexpr int Y_AT = STAGES * STAGE_BYTES;
    static constexpr int BARRIERS_AT = Y_AT + WARPS * END::Y_BYTES;
    static constexpr int SHARED_BYTES = BARRIERS_AT + BARRIER_BYTES;
    static_assert(2 * STAGES * 8 <= BARRIER_BYTES && STAGES > LEAD, "a ring");

    __device__ static uint32_t full_at(uint32_t memory, uint32_t stage) {
        return memory + BARRIERS_AT + stage * 8;
    }
    __device__ static uint32_t empty_at(uint32_t memory, uint32_t stage) {
        return memory + BARRIERS_AT + (STAGES + stage) * 8;
    }
};

struct scaled_work {
    struct cuda_tiles in;      /* (rows, inputs) */
    struct cuda_tiles weights; /* (outputs / 8 / parts, parts, 8, inputs) */
    struct cuda_scaled call;
    uint32_t row_tiles; /* rows in a cluster's blocks together */
    uint32_t tiles;
    uint32_t steps; /* stages per tile */
};

/* Where in the ring a thread is. */
struct place {
    uint32_t stage;
    uint32_t parity;
};
template <class S> __device__ static inline void go_on(struct place *at) {
    if (++at->stage == S::STAGES) at->stage = 0, at->parity ^= 1;
}

/* Where a tile of y begins. */
struct corner {
    uint32_t row, column;
};
template <class S>
__device__ static inline struct corner corner_of(const struct scaled_work &work, uint32_t tile) {
    const uint32_t rows = tile % work.row_tiles * CUDA_CLUSTER + cuda_block_of_cluster();
    return {rows * TILE_ROWS, tile / work.row_tiles * S::Y_COLUMNS};
}

/* ---- the thread that has tiles brought ---- */

/* A stage is expected, and this block's half of its weights is on its way to both. */
template <class S>
__device__ static inline void bring_weights(const struct scaled_work &work, uint32_t memory,
                                            const struct place &at, struct corner corner,
                                            uint32_t step) {
    const uint32_t block = cuda_block_of_cluster(), full = S::full_at(memory, at.stage);
    const uint32_t to = memory + at.stage * S::STAGE_BYTES + IN_BYTES;
    cuda_barrier_wait(S::empty_at(memory, at.stage), at.parity);
    cuda_barrier_expect(full, S::STAGE_BYTES);
    cuda_tile_read_for((1u << CUDA_CLUSTER) - 1, to + block * (S::WEIGHT_BYTES / CUDA_CLUSTER),
                       &work.weights, full, step * STEP, 0, 0,
                       corner.column / 8 + block * (S::Y_COLUMNS / 8 / CUDA_CLUSTER));
}

template <class S>
__device__ static inline void bring_rows(const struct scaled_work &work, uint32_t memory,
                                         const struct place &at, struct corner corner,
                                         uint32_t step) {
    cuda_tile_read(memory + at.stage * S::STAGE_BYTES, &work.in, S::full_at(memory, at.stage),
                   step * STEP, corner.row);
}

/* No kernel writes weights: those of the first stages are on their way while the kernel before this
 * one ends. */
template <class S>
__device__ static inline void bring(const struct scaled_work &work, uint32_t memory) {
    const uint32_t clusters = gridDim.x / CUDA_CLUSTER;
    const uint32_t early = work.steps < S::STAGES ? work.steps : S::STAGES;
    uint32_t tile = blockIdx.x / CUDA_CLUSTER;
    struct corner corner = corner_of<S>(work, tile);
    struct place at = {0, 1}; /* all stages begin empty */
    for (struct place ahead = at; ahead.stage < early; ahead.stage++)
        bring_weights<S>(work, memory, ahead, corner, ahead.stage);
    wait_for_before();
    for (uint32_t s = 0; s < early; s++, go_on<S>(&at)) bring_rows<S>(work, memory, at, corner, s);
    for (uint32_t first = early; tile < work.tiles; tile += clusters, first = 0) {
        corner = corner_of<S>(work, tile);
        for (uint32_t s = first; s < work.steps; s++, go_on<S>(&at)) {
            bring_weights<S>(work, memory, at, corner, s);
            bring_rows<S>(work, memory, at, corner, s);
        }
    }
}

/* ---- the groups that multiply ---- */

template <class S> struct sums { int32_t at[S::COLUMNS / 8][4]; };

/* Tells all blocks that this group has read a stage: a thread for each of them. */
template <class S> __device__ static inline void empty(uint32_t memory, uint32_t stage) {
    if (threadIdx.x % GROUP < CUDA_CLUSTER)
        cuda_barrier_arrive(S::empty_at(memory, stage), threadIdx.x % GROUP);
}

/* One group is LEAD stages ahead of the other, so that it is in its ending while the other still
 * multiplies, and back when the other has its own: the tensor cores have work meanwhile. With few
 * stages per tile it could be ahead by a tile, and they would miss each other. */
template <class S> __device__ static inline void stay_behind(uint32_t group, uint32_t steps) {
    if (group == 1 && steps > S::STAGES) cuda_meet_some<BEHIND>(GROUPS * GROUP);
}
template <class S>
__device__ static inline void let_follow(uint32_t group, uint32_t step, uint32_t steps) {
    if (group == 0 && step + 1 == LEAD && steps > S::STAGES) cuda_pass_some<BEHIND>(GROUPS * GROUP);
}

/* The sums of a tile. A stage is given back when the products of the next one are under way. */
template <class S>
__device__ static inline void multiply_tile(struct sums<S> *sums, struct place *at, uint32_t steps,
                                            uint32_t memory) {
    const uint32_t group = threadIdx.x / GROUP - 1;
    uint32_t last = 0;
    stay_behind<S>(group, steps);
    for (uint32_t s = 0; s < steps; s++, go_on<S>(at)) {
        const uint32_t from = memory + at->stage * S::STAGE_BYTES;
        const uint64_t in = cuda_matrix_at(from + group * (IN_BYTES / GROUPS));
        const uint64_t weights = cuda_matrix_at(from + IN_BYTES);
        cuda_barrier_wait(S::full_at(memory, at->stage), at->parity);
        cuda_products_begin();
#pragma unroll
        for (int k = 0; k < STEP / 32; k++)
            cuda_product_int8<S::COLUMNS>(sums->at, cuda_matrix_after(in, k * 32),
                                          cuda_matrix_after(weights, k * 32), s > 0 || k > 0);
        cuda_products_commit();
        let_follow<S>(group, s, steps);
        cuda_group_wait<1>();
        if (s > 0) empty<S>(memory, last);
        last = at->stage;
    }
    cuda_group_wait<0>();
    cuda_sums_pin<S::COLUMNS / 8>(sums->at);
    empty<S>(memory, last);
}

template <class S>
__device__ static inline void work_on(const struct scaled_work &work, uint32_t memory,
                                      char *shared) {
    const uint32_t warp = threadIdx.x / 32 - GROUP / 32, clusters = gridDim.x / CUDA_CLUSTER;
    char *y = shared + S::Y_AT + warp * S::Y_BYTES;
    struct place at = {0, 0};
    for (uint32_t tile = blockIdx.x / CUDA_CLUSTER; tile < work.tiles; tile += clusters) {
        const struct corner corner = corner_of<S>(work, tile);
        struct sums<S> sums;
        multiply_tile<S>(&sums, &at, work.steps, memory);
        if (tile + clusters >= work.tiles) let_next_start();
        leave_rows<S>(work.call, sums.at, corner.row + warp * WARP_ROWS, corner.column, y);
    }
}

template <class S>
__global__ void __launch_bounds__(THREADS, 1)
    scaled_tiles(CUDA_GRID_CONSTANT struct scaled_work work) {
    extern __shared__ __align__(1024) char cuda_memory[];
    const uint32_t memory = cuda_shared_address(cuda_memory);
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < S::STAGES; i++) {
            cuda_barrier_open(S::full_at(memory, i), 1);
            cuda_barrier_open(S::empty_at(memory, i), GROUPS * CUDA_CLUSTER);
        }
        cuda_barriers_opened();
    }
    cuda_cluster_meet();
    if (threadIdx.x < GROUP) {
        cuda_registers_give<REGISTERS_OF_LOADER>();
        if (threadIdx.x == 0) bring<S>(work, memory);
    } else {
        cuda_registers_take<REGISTERS_OF_GROUP>();
        wait_for_before(); /* for the scales of rows, and before y is written */
        work_on<S>(work, memory, cuda_memory);
    }
    cuda_cluster_meet(); /* the other block may still arrive at a barrier of this one */
}
