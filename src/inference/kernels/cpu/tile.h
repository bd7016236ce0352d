/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tile: how the x86-64 matrix products cut their work: register tiles of up to TILE_ROWS rows by
 * the 32 columns of a matrix tile. Each file defines its TILE_ROWS before the include.
 *
 * Thread: any.
 * Memory: none; everything is inline. */

#include "kernels/cpu/inline.h"
#include "kernels/matrix.h"

#include <assert.h>
#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* How a tile of a BYTES matrix stores its weights. */
enum weight_kind {
    NIBBLES, /* 4 bits: the integers */
    STEPS,   /* 4 bits: numbers of the tile's steps */
    BYTES,   /* 8 bits */
};

/* The place where a register tile reads and writes. */
struct place {
    const struct matmul *call;
    const struct matrix_tile *tile;
    const unsigned char *weights;
    const unsigned char *activations; /* activations of its first row */
    size_t row;
    /* How far behind the weights in use lie those to fetch, for the first and the second half of a
     * group; 0: none are fetched. */
    ptrdiff_t ahead[2];
};

typedef void (*tile_fn)(const struct place *place);

/* Define the functions name_1 .. name_4 (or 6), which call body(place, height, ...) with a constant
 * height, and their table. */
#define TILE_HEIGHT(name, height, body, ...)                                                       \
    static void name##_##height(const struct place *place) {                                       \
        body(place, height, __VA_ARGS__);                                                          \
    }
#define TILE_HEIGHTS_TO_4(name, body, ...)                                                         \
    TILE_HEIGHT(name, 1, body, __VA_ARGS__)                                                        \
    TILE_HEIGHT(name, 2, body, __VA_ARGS__)                                                        \
    TILE_HEIGHT(name, 3, body, __VA_ARGS__)                                                        \
    TILE_HEIGHT(name, 4, body, __VA_ARGS__)
#define TILE_HEIGHTS_4(name, body, ...)                                                            \
    TILE_HEIGHTS_TO_4(name, body, __VA_ARGS__)                                                     \
    static const tile_fn name[4] = {name##_1, name##_2, name##_3, name##_4};
#define TILE_HEIGHTS_6(name, body, ...)                                                            \
    TILE_HEIGHTS_TO_4(name, body, __VA_ARGS__)                                                     \
    TILE_HEIGHT(name, 5, body, __VA_ARGS__)                                                        \
    TILE_HEIGHT(name, 6, body, __VA_ARGS__)                                                        \
    static const tile_fn name[6] = {name##_1, name##_2, name##_3, name##_4, name##_5, name##_6};

/* Activations that a core keeps in its second-level cache while a range of tiles streams past.
 * Current server CPUs with these instructions have 1 MiB or more. */
#define CACHED_BYTES ((size_t)512 << 10)

/* How far ahead of the only register tile of a tile weights are fetched: some rows take longer than
 * the processor itself reads ahead. */
#define AHEAD_BYTES 4096

/* Asks for the weights `ahead` bytes behind those in use, into L2. One row is as fast as memory
 * without it. */
ALWAYS_INLINE void fetch_weights(const unsigned char *weights, ptrdiff_t ahead, const int bytes,
                                 const int rows) {
    UNROLL for (int i = 0; i < bytes && rows > 1; i += 64)
        _mm_prefetch((const char *)weights + ahead + i, _MM_HINT_T1);
}

/* A processor reads memory ahead only while it streams, and it does not stream while the later rows
 * of a tile go over weights that are in L1. So the last two register tiles of a tile fetch half of
 * the next one each. `left`: register tiles after this one, of `cuts` */
ALWAYS_INLINE void choose_ahead(struct place *place, ptrdiff_t next, size_t cuts, size_t left) {
    place->ahead[0] = cuts == 1 ? AHEAD_BYTES : left == 1 ? next : 0;
    place->ahead[1] = cuts == 1 ? AHEAD_BYTES : left == 0 ? next : 0;
}

/* Computes rows row_begin..row_end-1 of one tile, cut into register tiles of nearly equal heights.
 * `next` is the tile after it. */
ALWAYS_INLINE void run_tile(const struct matmul *call, const struct matrix_tile *tile,
                            const struct matrix_tile *next, const tile_fn *heights,
                            size_t row_begin, size_t row_end) {
    size_t row_bytes = call->matrix->activation_bytes;
    const unsigned char *activations = call->activations;
    struct place place = {.call = call,
                          .tile = tile,
                          .weights = call->matrix->memory + tile->offset,
                          .activations = activations + row_begin * row_bytes,
                          .row = row_begin};
    const ptrdiff_t distance = (ptrdiff_t)next->offset - (ptrdiff_t)tile->offset;
    const size_t cuts = (row_end - row_begin + TILE_ROWS - 1) / TILE_ROWS;
    for (size_t left = cuts; left-- > 0;) {
        size_t height = (row_end - place.row + left) / (left + 1);
        choose_ahead(&place, distance, cuts, left);
        heights[height - 1](&place);
        place.row += height;
        place.activations += height * row_bytes;
    }
}

/* Computes tiles tile_begin..tile_end-1, each with the functions for its kind, for as many rows at
 * once as the cache holds. */
ALWAYS_INLINE void run_tiles(const struct matmul *call, uint32_t tile_begin, uint32_t tile_end,
                             const tile_fn *(*heights_of)(const struct matrix *,
                                                          const struct matrix_tile *)) {
    const struct matrix *matrix = call->matrix;
    assert(tile_begin <= tile_end && tile_end <= matrix->tile_count);
    assert(call->y_stride >= matrix->rows);
    size_t tiles_most = CACHED_BYTES / (matrix->activation_bytes * TILE_ROWS) + 1;
    size_t rows_most = tiles_most * TILE_ROWS;
    size_t blocks = (call->rows + rows_most - 1) / rows_most;
    size_t row = 0;
    for (; blocks > 0; blocks--) {
        size_t rows = (call->rows - row + blocks - 1) / blocks;
        for (uint32_t t = tile_begin; t < tile_end; t++)
            run_tile(call, &matrix->tiles[t], &matrix->tiles[t + 1 < tile_end ? t + 1 : t],
                     heights_of(matrix, &matrix->tiles[t]), row, row + rows);
        row += rows;
    }
}

/* How activations are quantised.
 *
 * A few channels of a model are tens to thousands of times larger than the rest. A step of largest
 * / 127 would round away their neighbours. So the step of a group is at most STEP_MEANS · mean |x|
 * of the row / 127, for any largest value. A value beyond ±127 steps also gets a coarse part in
 * units of 128 steps. Such values are rare, and a product adds a row's coarse part only for quads
 * of four columns with one. A smaller STEP_MEANS makes them more frequent. */
#define STEP_MEANS 4.0f
/* Coarse and fine together reach this many times ±127. */
#define COARSE_REACH 128.0f
#define COARSE_SHIFT 7
/* Groups whose largest value is below this become zeros: 127 / largest might not be finite. */
#define LARGEST_MIN 1e-30f
