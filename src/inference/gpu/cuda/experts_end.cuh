/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* experts_end: which tile a block of experts' products has, and what a warp makes of its sums
 * (experts.h).
 *
 * Weights are the long side of a product and rows the short one: a tile of weights is multiplied
 * with as many rows as its expert has. A warp has sums of a unit: 32 lines of weights, as two
 * sixteens, as cuda_mma has them for each eight rows. With a gate each sixteen has eight lines of
 * gate and the same eight of up, so that a thread has both sums of a number, and a unit leaves 16
 * numbers of a row; else 32. */

#include "gpu/cuda/experts_tiles.h"

#include "gpu/cuda/activate.cuh"
#include "gpu/cuda/ptx.cuh"

#include <cuda_runtime.h>

#define UNIT_LINES 32
#define UNITS 8 /* units in a tile, at most */

template <int CODE_, int ENDING_> struct expert_shape {
    static constexpr int CODE = CODE_;
    static constexpr int ENDING = ENDING_;
    static constexpr bool IS_GATED = ENDING != CUDA_EXPERTS_DOWN;
    static constexpr int PARTS = IS_GATED ? 2 : 1;          /* parts of the weights */
    static constexpr int UNIT_WIDTH = UNIT_LINES / PARTS;   /* width of y */
    static constexpr int HALF_LINES = IS_GATED ? 0 : 8;     /* between the eights of a sixteen */
    static constexpr int SIXTEEN_LINES = IS_GATED ? 8 : 16; /* between those of a unit */
};
template <int CODE> struct sum_of { typedef float type; };
template <> struct sum_of<CUDA_INT8> { typedef int32_t type; };

/* A tile: rows of an expert, by place in the order, and units of its weights. */
struct expert_item {
    uint32_t expert, first, count;
    uint32_t unit;
};

/* Items with the same weights follow each other, and an expert's rows are shared out evenly. */
template <int ROWS>
__device__ static inline struct expert_item item_of(const struct cuda_experts &call, uint32_t index,
                                                    uint32_t columns, uint32_t units) {
    const uint4 tile = ((const uint4 *)call.by.tiles)[1 + index / columns];
    const uint32_t count = tile.z, tiles = (count + ROWS - 1) / ROWS;
    const uint32_t here = index - tile.w * columns, part = here % tiles;
    const uint32_t share = count / tiles, more = count % tiles;
    return {tile.x, tile.y + part * share + min(part, more), share + (part < more),
            here / tiles * units};
}

__device__ static inline uint32_t items_of(const struct cuda_experts &call, uint32_t columns) {
    return call.by.tiles[0].count * columns;
}

/* The row of `in` that the pair at a place of the order multiplies. */
template <class S>
__device__ static inline uint32_t source_row(const struct cuda_experts &call, uint32_t place) {
    return S::IS_GATED ? call.by.order[place] / call.by.each : place;
}

/* Where the numbers of a tile's line are: lines as they lie in a stage, by unit, sixteen and eight.
 * NO_LINE behind the last. */
#define NO_LINE SIZE_MAX
template <class S>
__device__ static inline size_t line_at(const struct cuda_experts &call,
                                        const struct expert_item &item, uint32_t line) {
    const uint32_t width = call.outputs / S::PARTS, half = line % 16 / 8;
    const uint32_t column = (item.unit + line / UNIT_LINES) * S::UNIT_WIDTH;
    if (column >= width) return NO_LINE;
    return (size_t)item.expert * call.outputs + column + line % UNIT_LINES / 16 * S::SIXTEEN_LINES +
           half * (S::IS_GATED ? width : (uint32_t)S::HALF_LINES) + line % 8;
}

/* ---- numbers of a thread ---- */

/* Scales (bf16) and biases of a thread's lines of both sixteens, and of their first and second
 * eight. */
struct expert_lines {
    uint16_t scale[2][2];
    float bias[2][2];
};

/* Those of a unit of a tile. Lines behind the last are the expert's first, and are not left. */
template <class S>
__device__ static inline struct expert_lines
lines_of(const struct cuda_experts &call, const struct expert_item &item, uint32_t unit) {
    const uint32_t first = unit * UNIT_LINES + threadIdx.x % 32 / 4;
    struct expert_lines ret;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            size_t at = line_at<S>(call, item, first + i * 16 + half * 8);
            if (at == NO_LINE) at = (size_t)item.expert * call.outputs;
            ret.bias[i][half] = call.bias ? call.bias[at] : 0;
            if (S::CODE != CUDA_BF16) ret.scale[i][half] = call.column_scale[at];
        }
    return ret;
}

/* What a warp knows of up to EIGHTS · 8 rows: lane i has rows i, i + 32, …. So it asks for all of
 * them at once, before its products end, and a row's come from its lane. */
template <int EIGHTS> struct expert_rows {
    static constexpr int SPANS = (EIGHTS + 3) / 4;
    float scale[SPANS];
    uint32_t to[SPANS]; /* row of y, or the pair whose row is multiplied */
};

template <class S, int EIGHTS>
__device__ static inline struct expert_rows<EIGHTS> rows_of(const struct cuda_experts &call,
                                                            const struct expert_item &item) {
    struct expert_rows<EIGHTS> ret;
#pragma unroll
    for (int i = 0; i < expert_rows<EIGHTS>::SPANS; i++) {
        const uint32_t row = i * 32 + threadIdx.x % 32, place = item.first + row;
        const bool is_there = row < item.count;
        if (S::CODE == CUDA_BF16 && S::IS_GATED) continue;
        ret.to[i] = is_there ? call.by.order[place] : 0;
        if (S::CODE != CUDA_BF16 && !S::IS_GATED)
            ret.scale[i] = is_there ? call.row_scale[place] : 1;
    }
    return ret;
}

/* The scales of rows that are found by their pairs. */
template <class S, int EIGHTS>
__device__ static inline void find_scales(const struct cuda_experts &call,
                                          struct expert_rows<EIGHTS> *rows) {
    if constexpr (S::CODE != CUDA_BF16 && S::IS_GATED) {
#pragma unroll
        for (int i = 0; i < expert_rows<EIGHTS>::SPANS; i++)
            rows->scale[i] = call.row_scale[rows->to[i] / call.by.each];
    }
}

/* What an ending needs beside the sums. */
template <int EIGHTS> struct expert_end {
    uint32_t column; /* column of y where the unit's columns begin */
    bool is_there;   /* the unit, in this tile and in the weights */
    struct expert_lines lines;
    struct expert_rows<EIGHTS> rows;
};

template <class S, int EIGHTS>
__device__ static inline struct expert_end<EIGHTS> end_of(const struct cuda_experts &call,
                                                          const struct expert_item &item,
                                                          uint32_t unit, uint32_t units) {
    struct expert_end<EIGHTS> ret;
    ret.column = (item.unit + unit) * S::UNIT_WIDTH;
    ret.is_there = unit < units && ret.column < call.outputs / S::PARTS;
    ret.lines = lines_of<S>(call, item, unit);
    ret.rows = rows_of<S, EIGHTS>(call, item);
    return ret;
}

template <class S, class T>
__device__ static inline float number_of(T sum, float row_scale, float scale, float bias) {
    if (S::CODE == CUDA_BF16) return __fadd_rn((float)sum, bias);
    return __fmaf_rn((float)sum, __fmul_rn(row_scale, scale), bias);
}

/* NaN stays NaN. */
__device__ static inline float clamped(const struct cuda_experts &call, float gate, float up) {
    const float log2_e = 1.44269504f, limit = call.limit;
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
    return __fadd_rn(up, 1.0f) * over_one_plus_power(gate, -log2_e * call.alpha * gate);
}

/* Two numbers each of two rows: of gate and up, by sixteen, eight and row, one of both. */
template <class F>
__device__ static inline void each_gated(float (&y)[2][2], const float (&z)[2][2][2], F gated) {
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) y[i][j] = gated(z[i][0][j], z[i][1][j]);
}

template <int ENDING>
__device__ static inline void gate(const struct cuda_experts &call, float (&y)[2][2],
                                   const float (&z)[2][2][2]) {
    if constexpr (ENDING == CUDA_EXPERTS_SILU)
        each_gated(y, z, [](float gate, float up) { return activate<CUDA_SILU>(gate) * up; });
    else if constexpr (ENDING == CUDA_EXPERTS_GELU_TANH)
        each_gated(y, z, [](float gate, float up) { return activate<CUDA_GELU_TANH>(gate) * up; });
    else
        each_gated(y, z, [&](float gate, float up) { return clamped(call, gate, up); });
}

/* ---- eight rows of a unit ---- */

/* A row's 16 numbers are in four lanes, words t of both eights: lanes 0 and 2 get those of the
 * first eight, two neighbours each, and 1 and 3 those of the second. */
__device__ static inline void write_16(const uint32_t (&words)[2], uint16_t *row, bool is_there) {
    const uint32_t t = threadIdx.x % 4, is_odd = t % 2;
    const uint32_t other = __shfl_xor_sync(CUDA_ALL_LANES, is_odd ? words[0] : words[1], 1);
    const uint2 pair = is_odd ? make_uint2(other, words[1]) : make_uint2(words[0], other);
    if (is_there) *(uint2 *)(row + is_odd * 8 + t / 2 * 4) = pair;
}

/* Its 32 numbers, words t of four eights: lane t gets eight t. */
__device__ static inline void write_32(const uint32_t (&words)[4], uint16_t *row, bool is_there) {
    const uint32_t t = threadIdx.x % 4;
    const bool is_odd = t % 2, is_high = t / 2;
    uint32_t low[2], high[2]; /* neighbours of eights t % 2 and t % 2 + 2 */
    const uint32_t a = __shfl_xor_sync(CUDA_ALL_LANES, is_odd ? words[0] : words[1], 1);
    const uint32_t b = __shfl_xor_sync(CUDA_ALL_LANES, is_odd ? words[2] : words[3], 1);
    low[0] = is_odd ? a : words[0], low[1] = is_odd ? words[1] : a;
    high[0] = is_odd ? b : words[2], high[1] = is_odd ? words[3] : b;
    const uint32_t c = __shfl_xor_sync(CUDA_ALL_LANES, is_high ? low[0] : high[0], 2);
    const uint32_t d = __shfl_xor_sync(CUDA_ALL_LANES, is_high ? low[1] : high[1], 2);
    const uint4 eight =
        is_high ? make_uint4(c, d, high[0], high[1]) : make_uint4(low[0], low[1], c, d);
    if (is_there) *(uint4 *)(row + t * 8) = eight;
}

/* Eight c of an item's rows. A thread has two rows of each of its lines; the transposed words are
 * two lines of each of its rows. */
template <class S, int EIGHTS, class T>
__device__ static inline void
leave_eight(const struct cuda_experts &call, const struct expert_item &item,
            const struct expert_end<EIGHTS> &end, const T (&sums)[2][EIGHTS][4], int c) {
    const uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, width = call.outputs / S::PARTS;
    const uint32_t lane = c % 4 * 8;
    uint32_t words[4 / S::PARTS];
    float scale[2] = {1, 1};
    if (S::CODE != CUDA_BF16)
#pragma unroll
        for (uint32_t j = 0; j < 2; j++)
            scale[j] = __shfl_sync(CUDA_ALL_LANES, end.rows.scale[c / 4], lane + 2 * t + j);
    float z[2][2][2]; /* by sixteen, eight and row */
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int j = 0; j < 2; j++)
                z[i][half][j] =
                    number_of<S>(sums[i][c][2 * half + j], scale[j],
                                 __uint_as_float((uint32_t)end.lines.scale[i][half] << 16),
                                 end.lines.bias[i][half]);
    if constexpr (S::IS_GATED) {
        float y[2][2];
        gate<S::ENDING>(call, y, z);
#pragma unroll
        for (int i = 0; i < 2; i++) words[i] = cuda_transpose(cuda_pack_bf16(y[i][0], y[i][1]));
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++)
            words[i] = cuda_transpose(cuda_pack_bf16(z[i / 2][i % 2][0], z[i / 2][i % 2][1]));
    }
    const bool is_there = c * 8 + g < item.count;
    if constexpr (S::IS_GATED) {
        const size_t row = item.first + c * 8 + g;
        write_16(words, call.y + row * width + end.column, is_there);
    } else {
        const size_t row = __shfl_sync(CUDA_ALL_LANES, end.rows.to[c / 4], lane + g);
        write_32(words, call.y + row * width + end.column, is_there);
    }
}

/* A unit's y: of EIGHTS · 8 rows, as many as the item has. Two eights at a time, or each would wait
 * for what it begins itself. */
template <class S, int EIGHTS, class T>
__device__ static inline void
leave_unit(const struct cuda_experts &call, const struct expert_item &item,
           const struct expert_end<EIGHTS> &end, const T (&sums)[2][EIGHTS][4]) {
    static_assert(EIGHTS % 2 == 0, "two at a time");
    if (!end.is_there) return;
#pragma unroll
    for (int c = 0; c < EIGHTS; c += 2) {
        if ((uint32_t)c * 8 >= item.count) return;
        leave_eight<S, EIGHTS>(call, item, end, sums, c);
        leave_eight<S, EIGHTS>(call, item, end, sums, c + 1);
    }
}
