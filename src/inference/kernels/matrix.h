/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* matrix: how weights and activations lie in memory; only kernels/ includes it.
 *
 * A tile holds MATRIX_TILE output columns of one part for all inputs, so that a matmul streams it
 * from front to back. The last tile of a part may have fewer columns, and zeros for the rest:
 *
 *   F32         f32 [cols][32]
 *   F16, BF16   u16 [cols][32]
 *   BF16_PAIRS  u16 [(cols + 1) / 2][32][2]
 *   BYTES       per group of 32 or 16 inputs:
 *                 8 bits   u8 [group / 4][32][4]
 *                 4 bits   u8 [group / 4][16][4]; the low nibble is column c, the high one column
 *                          c + 16: the integer itself, or the number of one of the type's 16 steps
 *                 scales   f32 [32]
 *                 minima   f32 [32], when the type has them
 *   BLOCKS      the file's rows
 *
 * A row of activations is f32 [cols], or bf16 [cols] for BF16_PAIRS. For BYTES an activation is
 * scale · (128 coarse + fine), with coarse zero where ±127 is enough. Its arrays follow each
 * other, each at a multiple of 64 bytes in the row:
 *
 *   fine           int8 [cols]
 *   coarse         int8 [cols]
 *   scales         f32 per group
 *   scaled sums    f32 per group: scale · sum
 *   negative sums  int32 per group: -sum
 *   coarse quads   u8 per group: bit i is set when coarse is not zero in columns 4i..4i+3
 *
 * Thread: any.
 * Memory: see kernels.h. */

#include "kernels/kernels.h"

struct matrix_tile {
    size_t offset;   /* offset in matrix->memory; a multiple of 64 unless BLOCKS */
    uint32_t column; /* first column of y */
    uint32_t count;  /* columns, 1..MATRIX_TILE */
    uint32_t part;
    uint32_t part_row; /* first row of the part, before row_order */
    uint8_t bits;      /* BYTES: 4 or 8 */
    uint8_t zero;      /* BYTES: offset that makes q, or the steps, unsigned; 0 or a power of two */
    uint8_t zero_shift; /* log2 of zero, unless zero is 0 */
    bool has_minimum;
    const int8_t
        *steps; /* BYTES of 4 bits: (16) the value of each nibble; NULL: the nibble itself */
};

static inline size_t round_up_64(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

/* Byte offsets into a row of BYTES activations. */
struct byte_activations {
    size_t coarse;
    size_t scales;
    size_t scaled_sums;
    size_t negative_sums;
    size_t coarse_quads;
    size_t end;
};

static inline struct byte_activations byte_activations_of(uint32_t cols, uint32_t group) {
    size_t array = round_up_64(cols / group * sizeof(float));
    size_t coarse = round_up_64(cols);
    size_t scales = 2 * coarse;
    size_t quads = scales + 3 * array;
    return (struct byte_activations){.coarse = coarse,
                                     .scales = scales,
                                     .scaled_sums = scales + array,
                                     .negative_sums = scales + 2 * array,
                                     .coarse_quads = quads,
                                     .end = quads + round_up_64(cols / group)};
}

static inline size_t tile_group_bytes(uint32_t group, uint32_t bits, bool has_minimum) {
    return (size_t)group / 4 * (bits == 4 ? 64 : 128) +
           (has_minimum ? 2 : 1) * MATRIX_TILE * sizeof(float);
}
