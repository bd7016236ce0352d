/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* experts_tile: the kernel of experts.h for sm_90a.
 *
 * A block stays on its multiprocessor and goes through tiles of 256 lines of weights by up to 192
 * rows of one expert; the width of its products follows from how many there are. So an expert's
 * weights come from memory once, few rows cost few products, and what comes from the L2 per
 * operation is least: rows of 64 or 128 would read each line of weights two or three times.
 *
 * The first warpgroup brings 128 B of each line and row per stage into a ring: weights by the copy
 * engine, rows one by one wherever they are, by copies of its threads. The other two groups
 * multiply 128 lines each. */

#include "gpu/cuda/experts_end.cuh"
#include "gpu/cuda/tma.cuh"
#include "gpu/cuda/wgmma_wide.cuh"

#define ROWS EXPERT_GROUP_ROWS
#define STEP 128 /* bytes of a line or a row in a stage */
#define LINES (UNITS * UNIT_LINES)
#define GROUP 128 /* threads */
#define GROUPS 2  /* that multiply */
#define GROUP_UNITS (UNITS / GROUPS)
#define THREADS ((1 + GROUPS) * GROUP)
#define WEIGHT_BYTES (LINES * STEP)
#define STAGE_BYTES (WEIGHT_BYTES + ROWS * STEP)
#define STAGES 4
#define LIST_AT (STAGES * STAGE_BYTES) /* two lists of rows */
#define BARRIERS_AT (LIST_AT + 2 * ROWS * 4)
#define SHARED_BYTES (BARRIERS_AT + STAGES * 16)
#define LOADERS 1 /* meeting of the threads that bring; 0 is the block's */
#define REGISTERS_OF_LOADER 40
#define REGISTERS_OF_GROUP 232
#define EARLY_ROWS 160

struct expert_work {
    struct cuda_tiles weights; /* (sixteens, units, parts or halves, 8, inputs) */
    struct cuda_experts call;
    uint32_t columns;    /* tiles of an expert's weights */
    uint32_t tile_units; /* UNITS, or those of one group: then the other multiplies for nothing */
    uint32_t units;      /* from one expert to the next, as `weights` counts them */
    uint32_t steps;
    uint32_t row_bytes;
};

__device__ static inline uint32_t full_at(uint32_t memory, uint32_t stage) {
    return memory + BARRIERS_AT + stage * 8;
}
__device__ static inline uint32_t empty_at(uint32_t memory, uint32_t stage) {
    return memory + BARRIERS_AT + (STAGES + stage) * 8;
}

/* Where in the ring a thread is. */
struct place {
    uint32_t stage;
    uint32_t parity;
};
__device__ static inline void go_on(struct place *at) {
    if (++at->stage == STAGES) at->stage = 0, at->parity ^= 1;
}

/* ---- the group that brings ---- */

/* The item after this one, and its rows: found out bit by bit, so that nothing waits for memory. */
struct ahead {
    uint32_t index;
    uint32_t done; /* counts the item, its rows read, its rows listed */
    struct expert_item item;
    uint32_t rows[(ROWS + GROUP - 1) / GROUP];
};

template <class S>
__device__ static inline void look_ahead(const struct expert_work &work, struct ahead *ahead,
                                         uint32_t items, uint32_t *list) {
    const uint32_t done = ahead->done++;
    if (ahead->index >= items) return;
    if (done == 0) {
        ahead->item = item_of<ROWS>(work.call, ahead->index, work.columns, work.tile_units);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < (ROWS + GROUP - 1) / GROUP; i++) {
        const uint32_t row = i * GROUP + threadIdx.x;
        if (row >= ahead->item.count) continue;
        if (done == 1)
            ahead->rows[i] = source_row<S>(work.call, ahead->item.first + row);
        else
            list[row] = ahead->rows[i];
    }
}

/* A stage is on its way. Eight threads have a row, one chunk each. */
__device__ static inline void bring_stage(const struct expert_work &work, uint32_t memory,
                                          const struct place &at, const struct expert_item &item,
                                          const uint32_t *list, uint32_t step) {
    const uint32_t chunk = threadIdx.x % 8, line = threadIdx.x / 8, from = step * STEP + chunk * 16;
    const uint32_t stage = memory + at.stage * STAGE_BYTES;
    const uint32_t to = stage + WEIGHT_BYTES + line * STEP + (chunk ^ (line & 7)) * 16;
    cuda_barrier_wait(empty_at(memory, at.stage), at.parity);
    if (threadIdx.x == 0) {
        const uint32_t full = full_at(memory, at.stage);
        const uint32_t unit = item.expert * work.units + item.unit;
        cuda_barrier_expect(full, work.tile_units * (UNIT_LINES * STEP));
        for (uint32_t g = 0; g < work.tile_units / GROUP_UNITS; g++)
            cuda_tile_read_5(stage + g * (WEIGHT_BYTES / GROUPS), &work.weights, full, step * STEP,
                             unit + g * GROUP_UNITS);
    }
#pragma unroll
    for (uint32_t i = 0; i < ROWS / (GROUP / 8); i++) {
        const uint32_t row = i * (GROUP / 8) + line;
        if (row < item.count)
            cuda_copy16_if(
                to + i * (GROUP / 8 * STEP),
                (const char *)work.call.in +
                    (from < work.row_bytes ? (size_t)list[row] * work.row_bytes + from : 0),
                from < work.row_bytes);
    }
    cuda_barrier_arrive_copied(full_at(memory, at.stage));
}

template <class S>
__device__ static inline void bring(const struct expert_work &work, uint32_t memory,
                                    uint32_t *lists) {
    const uint32_t items = items_of(work.call, work.columns);
    struct ahead ahead = {blockIdx.x, 0, {}, {}};
    struct place at = {0, 1}; /* all stages begin empty */
    while (ahead.done < 3) look_ahead<S>(work, &ahead, items, lists);
    for (uint32_t turn = 0; ahead.index < items; turn ^= 1) {
        const struct expert_item item = ahead.item;
        uint32_t *const other = lists + (turn ^ 1) * ROWS;
        cuda_meet_some<LOADERS>(GROUP); /* the list is there, and nobody reads the other any more */
        ahead.index += gridDim.x, ahead.done = 0;
        for (uint32_t s = 0; s < work.steps; s++, go_on(&at)) {
            bring_stage(work, memory, at, item, lists + turn * ROWS, s);
            if (ahead.done < 3) look_ahead<S>(work, &ahead, items, other);
        }
        while (ahead.done < 3) look_ahead<S>(work, &ahead, items, other);
    }
}

/* ---- the groups that multiply ---- */

template <class S, int N, class T>
__device__ static inline void multiply(T (*sums)[4], uint64_t lines, uint64_t rows) {
    if constexpr (S::CODE == CUDA_BF16) cuda_wide_bf16<N>(sums, lines, rows, 1);
    if constexpr (S::CODE == CUDA_E4M3) cuda_wide_e4m3<N>(sums, lines, rows, 1);
    if constexpr (S::CODE == CUDA_INT8) cuda_wide_int8<N>(sums, lines, rows, 1);
}

template <int N> __device__ static inline void pin(float (*sums)[4]) {
    cuda_products_pin<N / 8>(sums);
}
template <int N> __device__ static inline void pin(int32_t (*sums)[4]) {
    cuda_sums_pin<N / 8>(sums);
}

/* This warp has read a stage. */
__device__ static inline void empty(uint32_t memory, uint32_t stage) {
    if (threadIdx.x % 32 == 0) cuda_barrier_arrive_here(empty_at(memory, stage));
}

/* A tile of at most N rows. A stage is given back when the products of the next one are under
 * way. */
template <class S, int N>
__device__ static inline void do_item(const struct expert_work &work, uint32_t memory,
                                      struct place *at, const struct expert_item &item) {
    const uint32_t group = threadIdx.x / GROUP - 1, unit = threadIdx.x / 32 - GROUP / 32;
    /* What the ending of down needs is asked for before the products, where registers are left for
     * it: the scales of an expert's lines come from memory, which takes as long as two products. */
    constexpr bool IS_EARLY = !S::IS_GATED && N <= EARLY_ROWS;
    /* Zeros: sums that a product alone begins would be kept through the tiles of other widths. */
    typename sum_of<S::CODE>::type sums[2][N / 8][4] = {};
    uint32_t last = 0;
    struct expert_end<N / 8> end;
    if constexpr (IS_EARLY) end = end_of<S, N / 8>(work.call, item, unit, work.tile_units);
    for (uint32_t s = 0; s < work.steps; s++, go_on(at)) {
        const uint32_t stage = memory + at->stage * STAGE_BYTES;
        const uint64_t lines = cuda_matrix_at(stage + group * (WEIGHT_BYTES / GROUPS));
        const uint64_t rows = cuda_matrix_at(stage + WEIGHT_BYTES);
        cuda_barrier_wait(full_at(memory, at->stage), at->parity);
        cuda_show_products();
        cuda_products_begin();
#pragma unroll
        for (int k = 0; k < STEP; k += 32)
#pragma unroll
            for (int i = 0; i < 2; i++)
                multiply<S, N>(sums[i], cuda_matrix_after(lines, i * 64 * STEP + k),
                               cuda_matrix_after(rows, k));
        cuda_products_commit();
        if (IS_EARLY && s == 0) find_scales<S>(work.call, &end.rows);
        cuda_group_wait<1>();
        if (s > 0) empty(memory, last);
        last = at->stage;
    }
    if constexpr (!IS_EARLY) {
        end = end_of<S, N / 8>(work.call, item, unit, work.tile_units);
        find_scales<S>(work.call, &end.rows);
    }
    cuda_group_wait<0>();
    pin<N>(sums[0]);
    pin<N>(sums[1]);
    empty(memory, last);
    leave_unit<S, N / 8>(work.call, item, end, sums);
}

template <class S>
__device__ static inline void work_on(const struct expert_work &work, uint32_t memory) {
    const uint32_t items = items_of(work.call, work.columns);
    struct place at = {0, 0};
    struct expert_item item, next;
    if (blockIdx.x < items)
        next = item_of<ROWS>(work.call, blockIdx.x, work.columns, work.tile_units);
    for (uint32_t index = blockIdx.x; index < items;) {
        item = next;
        index += gridDim.x;
        if (index < items)
            next = item_of<ROWS>(work.call, index, work.columns, work.tile_units);
        else
            let_next_start();
        if (item.count <= 16)
            do_item<S, 16>(work, memory, &at, item);
        else if (item.count <= 32)
            do_item<S, 32>(work, memory, &at, item);
        else if (item.count <= 64)
            do_item<S, 64>(work, memory, &at, item);
        else if (item.count <= 96)
            do_item<S, 96>(work, memory, &at, item);
        else if (item.count <= 128)
            do_item<S, 128>(work, memory, &at, item);
        else if (item.count <= 160)
            do_item<S, 160>(work, memory, &at, item);
        else
            do_item<S, 192>(work, memory, &at, item);
    }
}

template <class S>
__global__ void __launch_bounds__(THREADS, 1)
    expert_tiles(CUDA_GRID_CONSTANT struct expert_work work) {
    extern __shared__ __align__(1024) char cuda_memory[];
    const uint32_t memory = cuda_shared_address(cuda_memory);
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < STAGES; i++) {
            cuda_barrier_open(full_at(memory, i), 1 + GROUP);
            cuda_barrier_open(empty_at(memory, i), GROUPS * GROUP / 32);
        }
        cuda_barriers_opened();
    }
    __syncthreads();
    if (threadIdx.x < GROUP) {
        cuda_registers_give<REGISTERS_OF_LOADER>();
        wait_for_before();
        bring<S>(work, memory, (uint32_t *)(cuda_memory + LIST_AT));
    } else {
        cuda_registers_take<REGISTERS_OF_GROUP>();
        wait_for_before();
        work_on<S>(work, memory);
    }
}
