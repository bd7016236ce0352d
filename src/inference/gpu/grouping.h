/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* grouping: which tensor types a GPU keeps as codes in groups (cuda/grouped.h), and their bytes.
 *
 * Whoever lays out a GPU's memory and whoever predicts it need the same numbers.
 *
 * Thread: any.
 * Memory: none. */

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/quant.h"

#include <stdbool.h>
#include <stdint.h>

#define GROUPED_LINES 32u        /* weights' rows in a block */
#define GROUPED_INPUTS 32u       /* inputs of a group */
#define GROUPED_SCALE_BYTES 128u /* for a block and a group: 4 B per line */

/* A product with few rows: its tiles' lines, rows at a time, blocks at most, and the bytes in which
 * blocks leave sums of two tiles each for each other. */
#define GROUPED_TILE 256u
#define GROUPED_ROWS 16u
#define GROUPED_BLOCKS_MAX 192u
#define GROUPED_ROOM_BYTES ((uint64_t)GROUPED_BLOCKS_MAX * 2 * GROUPED_TILE * GROUPED_ROWS * 4)

/* The least groups of a piece: below, adding the sums of pieces costs more than equal pieces gain.
 * A matrix with fewer in all needs no room. */
#define GROUPED_PIECE_GROUPS 40u
static inline uint64_t grouped_room_bytes(uint64_t lines, uint64_t inputs) {
    const uint64_t tiles = lines / GROUPED_TILE + 1;
    return tiles * (inputs / GROUPED_INPUTS) < GROUPED_PIECE_GROUPS ? 0 : GROUPED_ROOM_BYTES;
}

/* Whether a product by so many blocks is one of pieces, which take groups two by two. */
static inline bool grouped_has_pieces(uint64_t lines, uint64_t inputs, uint64_t blocks) {
    const uint64_t tiles = (lines + GROUPED_TILE - 1) / GROUPED_TILE;
    return blocks > 0 && inputs % (2 * GROUPED_INPUTS) == 0 &&
           tiles * (inputs / GROUPED_INPUTS) >= blocks * GROUPED_PIECE_GROUPS;
}

/* How codes become numbers. */
enum grouping {
    GROUPED_NOT,
    GROUPED_MINIMA, /* 4 bits: scale · code + minimum */
    GROUPED_ZEROS,  /* 4 bits: scale · (code - zero) */
    GROUPED_E2M1,   /* 4 bits: scale · number of e2m1 */
    GROUPED_BYTES,  /* 8 bits: scale · (code - 32), a scale per 16 inputs */
};

static inline enum grouping grouping_of(enum tensor_type type) {
    switch (type) {
    case TENSOR_Q4_1:
    case TENSOR_Q4_K: return GROUPED_MINIMA;
    case TENSOR_Q4_0:
    case TENSOR_INT4: return GROUPED_ZEROS;
    case TENSOR_MXFP4: return GROUPED_E2M1;
    case TENSOR_Q5_0:
    case TENSOR_Q6_K: return GROUPED_BYTES;
    default: return GROUPED_NOT;
    }
}

/* The same of rows of so many numbers: groups must be whole. */
static inline enum grouping grouping_of_rows(enum tensor_type type, uint32_t cols) {
    return cols % GROUPED_INPUTS == 0 ? grouping_of(type) : GROUPED_NOT;
}

/* Bytes of the codes of a block and a group. */
static inline uint32_t grouped_code_bytes(enum grouping kind) {
    return kind == GROUPED_BYTES ? GROUPED_LINES * GROUPED_INPUTS
                                 : GROUPED_LINES * GROUPED_INPUTS / 2;
}

/* Bytes of so many lines, which begin a block. */
static inline uint64_t grouped_bytes(enum grouping kind, uint64_t lines, uint32_t inputs) {
    return (lines + GROUPED_LINES - 1) / GROUPED_LINES * (inputs / GROUPED_INPUTS) *
           (grouped_code_bytes(kind) + GROUPED_SCALE_BYTES);
}

/* Bytes of rows of a type: codes in groups, or as in the file. */
static inline uint64_t grouping_part_bytes(enum tensor_type type, uint64_t rows, uint32_t cols) {
    const enum grouping kind = grouping_of_rows(type, cols);
    return kind != GROUPED_NOT ? grouped_bytes(kind, rows, cols)
                               : rows * (uint64_t)tensor_type_row_bytes(type, cols);
}

#ifdef __cplusplus
}
#endif
