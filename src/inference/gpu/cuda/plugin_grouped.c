/* SPDX-License-Identifier: Apache-2.0 */

/* Matrices of GPU_BLOCKS whose parts are codes in groups (grouped.h): which product of theirs is
 * computed from the codes, and its launches. */

#include "gpu/cuda/plugin_walk.h"

#include <assert.h>
#include <cuda_runtime_api.h>

/* Rows up to which a product with the codes as they are is the fastest: with products of
 * warpgroups (sm_90), whose alternative is to unpack the matrix for cuBLASLt, for matrices in
 * pieces and others, and without. */
#define FEW_ROWS_PIECES 64u
#define FEW_ROWS_GROUPS 32u
#define FEW_ROWS 16u
#define COMPUTE_GROUPS 9

struct cuda_grouped part_weights(const struct card_matrix *matrix, const struct card_blocks *part) {
    return (struct cuda_grouped){.kind = grouping_of_rows(part->type, matrix->cols),
                                 .lines = part->rows,
                                 .inputs = matrix->cols,
                                 .at = part->at};
}

/* Whether all parts are of a kind that `many` has, or of any. */
static bool has_products(const struct card_matrix *matrix, bool are_four) {
    for (uint32_t i = 0; i < matrix->part_count; i++) {
        const enum grouping kind = grouping_of_rows(matrix->parts[i].type, matrix->cols);
        if (kind == GROUPED_NOT || (are_four && kind == GROUPED_BYTES) ||
            matrix->parts[i].row_first % 2 != 0)
            return false;
    }
    return matrix->part_count > 0;
}

static bool has_pieces(const struct gpu *gpu, const struct card_matrix *matrix) {
    for (uint32_t i = 0; i < matrix->part_count; i++)
        if (!grouped_has_pieces(matrix->parts[i].rows, matrix->cols, gpu->grouped_room.blocks))
            return false;
    return true;
}

static uint32_t few_rows(const struct gpu *gpu, const struct card_matrix *matrix) {
    if (gpu->compute_major != COMPUTE_GROUPS) return FEW_ROWS;
    return has_pieces(gpu, matrix) ? FEW_ROWS_PIECES : FEW_ROWS_GROUPS;
}

enum grouped_way matrix_way(const struct gpu *gpu, const struct card_matrix *matrix,
                            uint32_t rows) {
    const bool has_groups = gpu->compute_major == COMPUTE_GROUPS;
    const uint32_t bucket = row_bucket(rows);
    if (matrix->form != GPU_BLOCKS || !has_products(matrix, false)) return GROUPED_UNPACKED;
    if (bucket <= few_rows(gpu, matrix)) return GROUPED_FEW;
    return !has_groups && has_products(matrix, true) ? GROUPED_MANY : GROUPED_UNPACKED;
}

/* The widest input of a matrix in blocks; 0 without any. */
static size_t widest(const struct gpu_program *program) {
    size_t most = 0;
    for (uint32_t i = 0; i < program->matrix_count; i++)
        if (program->matrices[i].form == GPU_BLOCKS &&
            program->matrices[i].grouping == GROUPED_NOT && program->matrices[i].cols > most)
            most = program->matrices[i].cols;
    return most;
}

/* Tiles of the matrix with the most lines; 0 without any in blocks. */
static size_t tiles_most(const struct gpu_program *program) {
    size_t most = 0;
    for (uint32_t i = 0; i < program->matrix_count; i++) {
        const size_t tiles = program->matrices[i].rows / GROUPED_TILE + 1;
        if (program->matrices[i].form == GPU_BLOCKS &&
            program->matrices[i].grouping == GROUPED_NOT && tiles > most)
            most = tiles;
    }
    return most;
}

static void place_room(struct layout *layout) {
    struct gpu *gpu = layout->gpu;
    const uint32_t blocks = (uint32_t)gpu->multiprocessors;
    const size_t bytes = tiles_most(layout->program) * sizeof(uint32_t);
    gpu->grouped_room = (struct cuda_grouped_room){
        .blocks = blocks < GROUPED_BLOCKS_MAX ? blocks : GROUPED_BLOCKS_MAX,
        .sums = (float *)(void *)gpu->unpacked,
        .counts = memory_take(&layout->memory, MEMORY_ACTIVATIONS, bytes)};
    if (layout->memory.base && layout->code == cudaSuccess)
        layout->code = cudaMemset(gpu->grouped_room.counts, 0, bytes);
}

void grouped_place(struct layout *layout) {
    struct gpu *gpu = layout->gpu;
    struct memory *memory = &layout->memory;
    const size_t numbers = gpu->row_bucket * widest(layout->program);
    gpu->grouped = (struct cuda_grouped_rows){.rows_most = gpu->row_bucket};
    if (numbers == 0) return;
    place_room(layout);
    gpu->grouped.codes = memory_take(memory, MEMORY_ACTIVATIONS, numbers);
    gpu->grouped.scales =
        memory_take(memory, MEMORY_ACTIVATIONS, numbers / GROUPED_INPUTS * 2 * sizeof(float));
}

/* Neighbours of one kind, the first of which ends with a block of lines, are one product. */
static struct cuda_grouped next_weights(const struct card_matrix *matrix, uint32_t *index) {
    struct cuda_grouped weights = part_weights(matrix, &matrix->parts[(*index)++]);
    while (*index < matrix->part_count && weights.lines % GROUPED_LINES == 0) {
        const struct card_blocks *part = &matrix->parts[*index];
        const size_t bytes = grouped_bytes(weights.kind, weights.lines, weights.inputs);
        if (grouping_of_rows(part->type, matrix->cols) != weights.kind ||
            part->at != (char *)weights.at + bytes)
            break;
        weights.lines += part->rows;
        (*index)++;
    }
    return weights;
}

static enum err multiply(struct walk *walk, const struct cuda_grouped *weights,
                         enum grouped_way way, uint16_t *y, size_t stride, struct error *error) {
    struct gpu *gpu = walk->gpu;
    if (way == GROUPED_FEW) {
        const struct cuda_grouped_few call = {.weights = *weights,
                                              .rows = walk->rows,
                                              .in = walk->prepared.codes,
                                              .in_stride = walk->prepared.stride,
                                              .y = y,
                                              .y_stride = stride,
                                              .room = gpu->grouped_room};
        return cuda_grouped_few(&call, gpu->compute, error);
    }
    const struct cuda_grouped_many call = {
        .weights = *weights, .rows = walk->rows, .in = gpu->grouped, .y = y, .y_stride = stride};
    return cuda_grouped_many(&call, gpu->compute, error);
}

enum err walk_grouped(struct walk *walk, const struct card_matrix *matrix, enum grouped_way way,
                      uint16_t *y, size_t stride, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    enum err err = OK;
    assert(walk->prepared.type == CUDA_BF16);
    if (way == GROUPED_MANY) {
        const struct cuda_grouped_quantise call = {.from = walk->prepared.codes,
                                                   .from_stride = walk->prepared.stride,
                                                   .width = matrix->cols,
                                                   .rows = walk->rows,
                                                   .to = gpu->grouped};
        err = cuda_grouped_quantise(&call, gpu->compute, error);
    }
    for (uint32_t i = 0; i < matrix->part_count && err == OK;) {
        uint16_t *to = y + matrix->parts[i].row_first;
        const struct cuda_grouped weights = next_weights(matrix, &i);
        err = multiply(walk, &weights, way, to, stride, error);
    }
    return err;
}
