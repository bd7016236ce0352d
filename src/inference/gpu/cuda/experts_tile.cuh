/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* experts_tile: the kernel of experts.h for sm_90a.
 *
 * A block stays on its multiprocessor and goes through tiles of 256 lines of weights by up to 160
 * rows of one expert; the width of its products follows from how many there are. So an expert's
 * weights come from memory once, few rows cost few products, and what comes from the L2 per
 * operation is least: rows of 64 or 128 would read each line of weights two or three times.
 *
 * The first warpgroup brings 128 B of each line and row per stage into a ring. Three of its warps
 * copy rows, one by one wherever they are, and have the copy engine bring weights. The fourth lists
 * the tiles to come with what their rows and endings need: while the ring is full a read of memory
 * takes as long as five stages, so nobody else waits for one. The other two groups multiply 128
 * lines each.
 *
 * The ending of a tile is the same code for all widths. It is unrolled over registers, and one for
 * each width would be more than the caches of instructions hold. */

#include "gpu/cuda/experts_end.cuh"
#include "gpu/cuda/tma.cuh"
#include "gpu/cuda/wgmma_wide.cuh"

#include <stddef.h>

#define ROWS EXPERT_GROUP_ROWS
#define WIDTHS 16, 32, 64, 80, 96, 112, 128, 144, ROWS
#define EIGHTS (ROWS / 8)
#define STEP 128 /* bytes of a line or a row in a stage */
#define LINES (UNITS * UNIT_LINES)
#define GROUP 128 /* threads */
#define GROUPS 2  /* that multiply */
#define GROUP_UNITS (UNITS / GROUPS)
#define THREADS ((1 + GROUPS) * GROUP)
#define COPIERS (GROUP - 32)      /* threads of the first group that copy; the last warp lists */
#define COPIED_ROWS (COPIERS / 8) /* rows at a time: eight threads have a row */
#define COPIES ((ROWS + COPIED_ROWS - 1) / COPIED_ROWS)
#define WEIGHT_BYTES (LINES * STEP)
#define STAGE_BYTES (WEIGHT_BYTES + ROWS * STEP)
#define STAGES 4
#define LISTS 4
#define LIST_AT (STAGES * STAGE_BYTES)
#define BARRIERS_AT (LIST_AT + LISTS * (uint32_t)sizeof(struct expert_list))
#define SHARED_BYTES (BARRIERS_AT + (2 * STAGES + 4 * LISTS) * 8)
#define REGISTERS_OF_LOADER 88 /* with fewer it spills, and a load of a spill waits like others */
#define REGISTERS_OF_GROUP 208

/* A tile, and what copies of its rows and its ending need to know. */
struct alignas(16) expert_list {
    struct expert_item item;
    uint32_t pair[ROWS];
    uint32_t source[ROWS]; /* where a pair's row begins: bytes of `in` */
    float row_scale[ROWS];
    float bias[LINES];          /* lines lie as in a stage: by unit, sixteen and eight */
    uint16_t line_scale[LINES]; /* bf16 */
};
#define LIST_PART(name) offsetof(struct expert_list, name)

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
/* A list has its pairs; has what copies need; has all; and has been read. */
__device__ static inline uint32_t paired_at(uint32_t memory, uint32_t list) {
    return memory + BARRIERS_AT + (2 * STAGES + 3 * LISTS + list) * 8;
}
__device__ static inline uint32_t begun_at(uint32_t memory, uint32_t list) {
    return memory + BARRIERS_AT + (2 * STAGES + list) * 8;
}
__device__ static inline uint32_t listed_at(uint32_t memory, uint32_t list) {
    return memory + BARRIERS_AT + (2 * STAGES + LISTS + list) * 8;
}
__device__ static inline uint32_t ended_at(uint32_t memory, uint32_t list) {
    return memory + BARRIERS_AT + (2 * STAGES + 2 * LISTS + list) * 8;
}

/* Where in the ring, or among the lists, a thread is. */
struct place {
    uint32_t at;
    uint32_t parity;
};
template <uint32_t COUNT> __device__ static inline void go_on(struct place *place) {
    if (++place->at == COUNT) place->at = 0, place->parity ^= 1;
}

/* ---- the warp that lists ---- */

/* The scales and biases of an item's lines on their way: a thread has eight lines. */
template <class S>
__device__ static inline void list_lines(const struct cuda_experts &call,
                                         const struct expert_item &item, uint32_t memory) {
    const uint32_t lane = threadIdx.x % 32;
    const size_t at = line_at<S>(call, item, lane * 8);
    const bool is_there = at != NO_LINE, has_bias = call.bias && is_there;
    if (S::CODE != CUDA_BF16)
        cuda_copy16_if(memory + LIST_PART(line_scale) + lane * 16,
                       call.column_scale + (is_there ? at : 0), is_there);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++)
        cuda_copy16_if(memory + LIST_PART(bias) + lane * 32 + i * 16,
                       has_bias ? (const void *)(call.bias + at + i * 4) : call.in, has_bias);
}

/* A list on its way. With a gate rows and their scales are found by the pairs. */
template <class S>
__device__ static inline void list_item(const struct expert_work &work, uint32_t memory,
                                        const struct place &place, const struct expert_item &item,
                                        struct expert_list *list) {
    const struct cuda_experts &call = work.call;
    const uint32_t lane = threadIdx.x % 32, to = cuda_shared_address(list);
    if (lane == 0) list->item = item;
    for (uint32_t i = lane; i < item.count; i += 32)
        cuda_copy4(to + LIST_PART(pair) + i * 4, call.by.order + item.first + i);
    if (S::IS_GATED) cuda_barrier_arrive_copied(paired_at(memory, place.at));
    list_lines<S>(call, item, to);
    if (S::IS_GATED) cuda_barrier_wait(paired_at(memory, place.at), place.parity);
    for (uint32_t i = lane; i < item.count; i += 32) {
        const uint32_t row = S::IS_GATED ? list->pair[i] / call.by.each : item.first + i;
        list->source[i] = row * work.row_bytes;
        if (S::CODE != CUDA_BF16)
            cuda_copy4(to + LIST_PART(row_scale) + i * 4, call.row_scale + row);
    }
    cuda_barrier_arrive_here(begun_at(memory, place.at));
    cuda_barrier_arrive_copied(listed_at(memory, place.at));
}

template <class S>
__device__ static inline void list_items(const struct expert_work &work, uint32_t memory,
                                         struct expert_list *lists) {
    const uint32_t items = items_of(work.call, work.columns);
    struct place place = {0, 0};
    struct expert_item item, next;
    if (blockIdx.x < items)
        next = item_of<ROWS>(work.call, blockIdx.x, work.columns, work.tile_units);
    for (uint32_t index = blockIdx.x; index < items; go_on<LISTS>(&place)) {
        item = next;
        index += gridDim.x;
        if (index < items) next = item_of<ROWS>(work.call, index, work.columns, work.tile_units);
        cuda_barrier_wait(ended_at(memory, place.at), place.parity ^ 1); /* all begin read */
        list_item<S>(work, memory, place, item, lists + place.at);
    }
}

/* ---- the warps that copy ---- */

/* Where this thread's chunks of a tile's rows begin. */
struct sources {
    uint32_t of[COPIES];
};

__device__ static inline struct sources sources_of(const struct expert_list *list) {
    struct sources ret;
#pragma unroll
    for (uint32_t i = 0; i < COPIES; i++) {
        const uint32_t row = min(i * COPIED_ROWS + threadIdx.x / 8, (uint32_t)ROWS - 1);
        ret.of[i] = list->source[row] + threadIdx.x % 8 * 16;
    }
    return ret;
}

/* A stage is on its way. */
__device__ static inline void bring_stage(const struct expert_work &work, uint32_t memory,
                                          const struct place &at, const struct expert_item &item,
                                          const struct sources &sources, uint32_t step) {
    const uint32_t chunk = threadIdx.x % 8, line = threadIdx.x / 8, from = step * STEP;
    const uint32_t stage = memory + at.at * STAGE_BYTES, full = full_at(memory, at.at);
    const bool is_there = from + chunk * 16 < work.row_bytes;
    cuda_barrier_wait(empty_at(memory, at.at), at.parity);
    if (threadIdx.x == 0) {
        const uint32_t unit = item.expert * work.units + item.unit;
        cuda_barrier_expect(full, work.tile_units * (UNIT_LINES * STEP));
        for (uint32_t g = 0; g < work.tile_units / GROUP_UNITS; g++)
            cuda_tile_read_5(stage + g * (WEIGHT_BYTES / GROUPS), &work.weights, full, from,
                             unit + g * GROUP_UNITS);
    }
#pragma unroll
    for (uint32_t i = 0; i < COPIES; i++) {
        const uint32_t row = i * COPIED_ROWS + line;
        if (row < item.count)
            cuda_copy16_if(stage + WEIGHT_BYTES + row * STEP + (chunk ^ (row & 7)) * 16,
                           (const char *)work.call.in + (is_there ? sources.of[i] + from : 0),
                           is_there);
    }
    cuda_barrier_arrive_copied(full);
}

__device__ static inline void bring(const struct expert_work &work, uint32_t memory,
                                    const struct expert_list *lists) {
    const uint32_t items = items_of(work.call, work.columns);
    struct place at = {0, 1}, place = {0, 0}; /* all stages begin empty */
    for (uint32_t index = blockIdx.x; index < items; index += gridDim.x, go_on<LISTS>(&place)) {
        const struct expert_list *list = lists + place.at;
        cuda_barrier_wait(begun_at(memory, place.at), place.parity);
        const struct expert_item item = list->item;
        const struct sources sources = sources_of(list);
        for (uint32_t s = 0; s < work.steps; s++, go_on<STAGES>(&at))
            bring_stage(work, memory, at, item, sources, s);
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

/* This warp has read what a barrier stands for. */
__device__ static inline void have_read(uint32_t barrier) {
    if (threadIdx.x % 32 == 0) cuda_barrier_arrive_here(barrier);
}

/* What the ending of a tile needs, from its list. */
template <class S>
__device__ static inline struct expert_end<EIGHTS>
listed_end(const struct expert_work &work, const struct expert_list *list, uint32_t unit) {
    const uint32_t lane = threadIdx.x % 32;
    struct expert_end<EIGHTS> ret;
    ret.column = (list->item.unit + unit) * S::UNIT_WIDTH;
    ret.is_there = unit < work.tile_units && ret.column < work.call.outputs / S::PARTS;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t line = unit * UNIT_LINES + i * 16 + half * 8 + lane / 4;
            ret.lines.bias[i][half] = list->bias[line];
            if (S::CODE != CUDA_BF16) ret.lines.scale[i][half] = list->line_scale[line];
        }
#pragma unroll
    for (int i = 0; i < expert_rows<EIGHTS>::SPANS; i++) {
        const uint32_t row = min(i * 32 + lane, (uint32_t)ROWS - 1); /* those behind are not left */
        if (!S::IS_GATED) ret.rows.to[i] = list->pair[row];
        if (S::CODE != CUDA_BF16) ret.rows.scale[i] = list->row_scale[row];
    }
    return ret;
}

template <class S>
struct expert_sums {
    typename sum_of<S::CODE>::type of[2][EIGHTS][4];
};

/* Products of a tile of at most N rows; sums of more are left as they are. A stage is given back
 * when the products of the next one are under way. */
template <class S, int N>
__device__ static inline void multiply_item(const struct expert_work &work, uint32_t memory,
                                            struct place *at, struct expert_sums<S> *sums) {
    const uint32_t group = threadIdx.x / GROUP - 1;
    uint32_t last = 0;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int c = 0; c < N / 8; c++)
#pragma unroll
            for (int j = 0; j < 4; j++) sums->of[i][c][j] = 0;
    for (uint32_t s = 0; s < work.steps; s++, go_on<STAGES>(at)) {
        const uint32_t stage = memory + at->at * STAGE_BYTES;
        const uint64_t lines = cuda_matrix_at(stage + group * (WEIGHT_BYTES / GROUPS));
        const uint64_t rows = cuda_matrix_at(stage + WEIGHT_BYTES);
        cuda_barrier_wait(full_at(memory, at->at), at->parity);
        cuda_show_products();
        cuda_products_begin();
#pragma unroll
        for (int k = 0; k < STEP; k += 32)
#pragma unroll
            for (int i = 0; i < 2; i++)
                multiply<S, N>(sums->of[i], cuda_matrix_after(lines, i * 64 * STEP + k),
                               cuda_matrix_after(rows, k));
        cuda_products_commit();
        cuda_group_wait<1>();
        if (s > 0) have_read(empty_at(memory, last));
        last = at->at;
    }
    cuda_group_wait<0>();
    pin<N>(sums->of[0]);
    pin<N>(sums->of[1]);
    have_read(empty_at(memory, last));
}

/* The same of as many rows as the item has: the narrowest width for them. */
template <class S, int N, int... MORE>
__device__ static inline void multiply_rows(const struct expert_work &work, uint32_t memory,
                                            struct place *at, uint32_t count,
                                            struct expert_sums<S> *sums) {
    if constexpr (sizeof...(MORE) > 0) {
        if (count > N) {
            multiply_rows<S, MORE...>(work, memory, at, count, sums);
            return;
        }
    }
    multiply_item<S, N>(work, memory, at, sums);
}

template <class S>
__device__ static inline void work_on(const struct expert_work &work, uint32_t memory,
                                      const struct expert_list *lists) {
    const uint32_t items = items_of(work.call, work.columns);
    const uint32_t unit = threadIdx.x / 32 - GROUP / 32;
    struct place at = {0, 0}, place = {0, 0};
    struct expert_sums<S> sums;
    for (uint32_t index = blockIdx.x; index < items; go_on<LISTS>(&place)) {
        const struct expert_list *list = lists + place.at;
        index += gridDim.x;
        if (index >= items) let_next_start();
        cuda_barrier_wait(begun_at(memory, place.at), place.parity);
        const struct expert_item item = list->item;
        multiply_rows<S, WIDTHS>(work, memory, &at, item.count, &sums);
        cuda_barrier_wait(listed_at(memory, place.at), place.parity);
        const struct expert_end<EIGHTS> end = listed_end<S>(work, list, unit);
        have_read(ended_at(memory, place.at));
        leave_unit<S, EIGHTS>(work.call, item, end, sums.of);
    }
}

template <class S>
__global__ void __launch_bounds__(THREADS, 1)
    expert_tiles(CUDA_GRID_CONSTANT struct expert_work work) {
    extern __shared__ __align__(1024) char cuda_memory[];
    const uint32_t memory = cuda_shared_address(cuda_memory);
    struct expert_list *lists = (struct expert_list *)(cuda_memory + LIST_AT);
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < STAGES; i++) {
            cuda_barrier_open(full_at(memory, i), 1 + COPIERS);
            cuda_barrier_open(empty_at(memory, i), GROUPS * GROUP / 32);
        }
        for (uint32_t i = 0; i < LISTS; i++) {
            cuda_barrier_open(paired_at(memory, i), 32);
            cuda_barrier_open(begun_at(memory, i), 32);
            cuda_barrier_open(listed_at(memory, i), 32);
            cuda_barrier_open(ended_at(memory, i), GROUPS * GROUP / 32);
        }
        cuda_barriers_opened();
    }
    __syncthreads();
    if (threadIdx.x < GROUP) {
        cuda_registers_give<REGISTERS_OF_LOADER>();
        wait_for_before();
        if (threadIdx.x < COPIERS)
            bring(work, memory, lists);
        else
            list_items<S>(work, memory, lists);
    } else {
        cuda_registers_take<REGISTERS_OF_GROUP>();
        wait_for_before();
        work_on<S>(work, memory, lists);
    }
}
