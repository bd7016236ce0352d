/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* grouped: weights that stay codes of four bits in the GPU's memory, with a scale and a minimum per
 * 32 inputs, and products with them.
 *
 *   cuda_grouped_fill      rows of a file become codes in the order in which products read them
 *   cuda_grouped_unpack    codes become rows of bf16, for a product of cuBLASLt
 *   cuda_grouped_embed     lines become the rows that a step begins with
 *   cuda_grouped_few       a product with few rows of bf16, which reads each code once
 *   cuda_grouped_quantise  many rows as codes of 8 bits, with a scale per 32 numbers
 *   cuda_grouped_many      a product with those
 *
 * No product rounds a weight: codes are whole numbers, exact in bf16 and int8, the sums of a group
 * are multiplied by its scale, and its minimum by the sum of the row's numbers, in float32. Scales
 * and minima are float16: those of Q4_0, Q4_1, AWQ and GPTQ are so in their files, and MXFP4 has
 * powers of two. Those of Q4_K and Q6_K, a float16 times six or eight bits, are off by 2^-12 of
 * themselves at most, an eighth of what rounding the weights to bf16 would cost.
 *
 * Lines are the rows of the weights, in blocks of 32. A block has for each 32 inputs the codes of
 * each lane 4g + t, 16 B: a word for each of the lines g, g + 8, g + 16, g + 24 with its inputs
 * 8t..8t+7 (of GROUPED_BYTES two times 16 B, for inputs 4t..4t+3 of either half); and behind all
 * codes for each 32 inputs and each g the scales of the same four lines, a pair of float16 each:
 * scale and minimum, scale and -zero, or the scales of both halves; of e2m1 one bf16.
 *
 * Thread: one per stream.
 * Memory: GPU memory of the caller; nothing is allocated.
 * Invariant: a row's result is bitwise the same for any other rows of the call. */

#ifdef __cplusplus
extern "C" {
#endif

#include "base/err.h"
#include "gpu/cuda/rows.h"
#include "gpu/grouping.h"

#include <stdbool.h>
#include <stddef.h>

struct CUstream_st;

struct cuda_grouped {
    enum grouping kind;
    uint32_t lines;
    uint32_t inputs; /* a multiple of 32 */
    void *at;        /* grouped_bytes, at a multiple of 16; lines behind the last are zeros */
};

/* Rows of a file, which has them without gaps at a multiple of 16, become lines first... */
struct cuda_grouped_fill {
    const void *blocks;
    enum tensor_type type; /* one that grouping_of knows, of the weights' kind */
    uint32_t first;
    uint32_t rows;
    struct cuda_grouped to;
    /* The width of gate and of up of experts, a multiple of 16; else 0. Their lines are by
     * turns eight of gate and eight of up. */
    uint32_t gate_width;
};
enum err cuda_grouped_fill(const struct cuda_grouped_fill *call, struct CUstream_st *stream,
                           struct error *error) MUST_CHECK;

struct cuda_grouped_unpack {
    struct cuda_grouped from;
    uint16_t *to; /* (lines, inputs) bf16, at a multiple of 16 */
};
enum err cuda_grouped_unpack(const struct cuda_grouped_unpack *call, struct CUstream_st *stream,
                             struct error *error) MUST_CHECK;

/* x = line[token] · scale + positions[place], as cuda_embed. */
struct cuda_grouped_embed {
    struct cuda_grouped table;
    struct cuda_embed rows; /* but for `table`; the width is the inputs */
};
enum err cuda_grouped_embed(const struct cuda_grouped_embed *call, struct CUstream_st *stream,
                            struct error *error) MUST_CHECK;

/* Where blocks leave sums for each other. `counts` are zeros, and are zeros again behind each
 * product. */
struct cuda_grouped_room {
    uint32_t blocks;  /* that a product has, at most GROUPED_BLOCKS_MAX: a multiprocessor each */
    float *sums;      /* (blocks, 2, GROUPED_TILE · GROUPED_ROWS), at a multiple of 16 */
    uint32_t *counts; /* (lines / GROUPED_TILE, rounded up) */
};

/* y = in · weightsᵀ. Strides count numbers, multiples of 8. */
struct cuda_grouped_few {
    struct cuda_grouped weights;
    uint32_t rows;
    const uint16_t *in; /* (rows, in_stride) bf16, at a multiple of 16 */
    size_t in_stride;
    uint16_t *y; /* (rows, y_stride) bf16 */
    size_t y_stride;
    struct cuda_grouped_room room; /* the stream's */
};
enum err cuda_grouped_few(const struct cuda_grouped_few *call, struct CUstream_st *stream,
                          struct error *error) MUST_CHECK;
/* The same by pieces of equal length for all multiprocessors, as large matrices have it. Inputs are
 * a multiple of 64, and numbers of rows below 2^31. */
enum err cuda_grouped_pieces(const struct cuda_grouped_few *call, struct CUstream_st *stream,
                             struct error *error) MUST_CHECK;

/* Rows as codes of int8 with a scale per 32 numbers, for `cuda_grouped_many` alone: its codes and
 * the pairs (scale, scale · sum of the codes) are in groups, and of a group by row. */
struct cuda_grouped_rows {
    void *codes;        /* (inputs / 32, rows_most, 32) */
    void *scales;       /* (inputs / 32, rows_most) pairs of float32 */
    uint32_t rows_most; /* even */
};
struct cuda_grouped_quantise {
    const uint16_t *from; /* (rows, from_stride) bf16 */
    size_t from_stride;   /* a multiple of 8 */
    uint32_t width;       /* a multiple of 32 */
    uint32_t rows;
    struct cuda_grouped_rows to;
};
enum err cuda_grouped_quantise(const struct cuda_grouped_quantise *call, struct CUstream_st *stream,
                               struct error *error) MUST_CHECK;

/* y = in · weightsᵀ; weights of 4 bits. */
struct cuda_grouped_many {
    struct cuda_grouped weights;
    uint32_t rows;
    struct cuda_grouped_rows in;
    uint16_t *y;     /* (rows, y_stride) bf16, at a multiple of 16 */
    size_t y_stride; /* a multiple of 8 */
};
enum err cuda_grouped_many(const struct cuda_grouped_many *call, struct CUstream_st *stream,
                           struct error *error) MUST_CHECK;

#ifdef __cplusplus
}
#endif
