/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/plugin_walk.h"
#include "gpu/cuda/unpack.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <string.h>

#define BLOCK_ALIGN 16u /* alignment of a part's first byte: cuda_unpack */

/* Rows first..first+count-1 of the part, in the matrix' order, one after another. */
static void gather(const struct gpu_rows *rows, size_t row_bytes, uint32_t first, uint32_t count,
                   char *to) {
    const char *from = rows->blocks;
    if (!rows->row_order) {
        memcpy(to, from + first * row_bytes, count * row_bytes);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        memcpy(to + i * row_bytes, from + rows->row_order[first + i] * row_bytes, row_bytes);
}

/* Makes place for a part that stays as it is; its first byte. */
static char *take_blocks(struct card_matrix *matrix, const struct gpu_rows *rows) {
    const size_t part_bytes = blocks_part_bytes(rows->type, rows->rows, matrix->cols);
    const size_t bytes = (part_bytes + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
    char *at = matrix->codes + matrix->blocks_used;
    if (matrix->part_count == GPU_BLOCK_PARTS_MAX ||
        bytes > matrix->block_bytes - matrix->blocks_used)
        return NULL;
    matrix->parts[matrix->part_count++] =
        (struct card_blocks){at, rows->type, rows->row_first, rows->rows};
    matrix->blocks_used += bytes;
    return at;
}

/* Rows first..first+count-1 of the part, which become codes in groups. */
static struct cuda_grouped_fill fill_of(const struct card_matrix *matrix,
                                        const struct gpu_rows *rows, char *blocks,
                                        const char *slice, uint32_t first, uint32_t count) {
    const struct card_blocks part = {blocks, rows->type, rows->row_first, rows->rows};
    struct cuda_grouped_fill fill = {.blocks = slice,
                                     .type = rows->type,
                                     .first = first,
                                     .rows = count,
                                     .to = part_weights(matrix, &part)};
    if (matrix->grouping == GROUPED_NOT) return fill;
    fill.first += rows->row_first;
    fill.to = (struct cuda_grouped){matrix->grouping, matrix->rows, matrix->cols, blocks};
    fill.gate_width = matrix->gate_width;
    return fill;
}

/* From the GPU's slice to where the rows stay. */
static enum err put_slice(struct gpu *gpu, const struct gpu_rows *rows, const char *slice,
                          char *blocks, size_t row_bytes, uint32_t first, uint32_t count,
                          struct error *error) {
    const struct card_matrix *matrix = &gpu->matrices[rows->matrix];
    const size_t at = rows->row_first + first;
    if (blocks && grouping_of_rows(rows->type, matrix->cols) != GROUPED_NOT) {
        const struct cuda_grouped_fill fill = fill_of(matrix, rows, blocks, slice, first, count);
        return cuda_grouped_fill(&fill, gpu->compute, error);
    }
    if (blocks) {
        cudaError_t code = cudaMemcpyAsync(blocks + first * row_bytes, slice, count * row_bytes,
                                           cudaMemcpyDeviceToDevice, gpu->compute);
        return code == cudaSuccess ? OK
                                   : card_error(code, error, "filling matrix %u", rows->matrix);
    }
    const struct cuda_unpack unpack = {
        .blocks = slice,
        .type = rows->type,
        .rows = count,
        .cols = matrix->cols,
        .code = code_of(matrix->form),
        .codes = matrix->codes + at * matrix->cols * form_bytes(matrix->form),
        .stride = matrix->cols,
        .scales = matrix->scales ? matrix->scales + at : NULL,
    };
    return cuda_unpack(&unpack, gpu->compute, error);
}

static enum err fill_slice(struct gpu *gpu, const struct gpu_rows *rows, char *blocks,
                           size_t row_bytes, uint32_t first, uint32_t count, struct error *error) {
    const uint32_t slice = gpu->fill_next++ % FILL_SLICES;
    cudaError_t code = cudaEventSynchronize(gpu->fill_done[slice]);
    if (code != cudaSuccess) return card_error(code, error, "filling matrix %u", rows->matrix);
    gather(rows, row_bytes, first, count, gpu->fill_host[slice]);
    code = cudaMemcpyAsync(gpu->fill_card[slice], gpu->fill_host[slice], count * row_bytes,
                           cudaMemcpyHostToDevice, gpu->compute);
    if (code != cudaSuccess) return card_error(code, error, "filling matrix %u", rows->matrix);
    enum err err =
        put_slice(gpu, rows, gpu->fill_card[slice], blocks, row_bytes, first, count, error);
    if (err != OK) return err;
    code = cudaEventRecord(gpu->fill_done[slice], gpu->compute);
    return code == cudaSuccess ? OK : card_error(code, error, "filling matrix %u", rows->matrix);
}

enum err plugin_fill(struct gpu *gpu, const struct gpu_rows *rows, struct error *error) {
    assert(gpu->is_prepared && rows->matrix < gpu->program.matrix_count);
    struct card_matrix *matrix = &gpu->matrices[rows->matrix];
    char *blocks = NULL;
    assert(rows->row_first + rows->rows <= matrix->rows);
    const size_t row_bytes = tensor_type_row_bytes(rows->type, matrix->cols);
    const uint32_t each = (uint32_t)(gpu->fill_bytes / row_bytes);
    enum err err = OK;
    if (matrix->form == GPU_BLOCKS && rows->rows > 0) {
        blocks = matrix->grouping == GROUPED_NOT ? take_blocks(matrix, rows) : matrix->codes;
        if (!blocks)
            return err_set(error, ERR_INVALID, "matrix %u: more rows or parts than prepare had",
                           rows->matrix);
        if (matrix->grouping != GROUPED_NOT &&
            grouping_of_rows(rows->type, matrix->cols) != matrix->grouping)
            return err_set(error, ERR_INVALID,
                           "matrix %u: the weights of a layer's experts have types of several "
                           "kinds: run with --quantization int8",
                           rows->matrix);
    }
    for (uint32_t first = 0; first < rows->rows && err == OK; first += each) {
        uint32_t left = rows->rows - first;
        err = fill_slice(gpu, rows, blocks, row_bytes, first, left < each ? left : each, error);
    }
    return err;
}

enum err weights_ready(struct gpu *gpu, uint32_t index, const void **ret_weights,
                       struct error *error) {
    const struct card_matrix *matrix = &gpu->matrices[index];
    *ret_weights = matrix->codes;
    if (matrix->form != GPU_BLOCKS) return OK;
    *ret_weights = gpu->unpacked;
    for (uint32_t i = 0; i < matrix->part_count; i++) {
        const struct card_blocks *part = &matrix->parts[i];
        uint16_t *to = gpu->unpacked + (size_t)part->row_first * matrix->cols;
        const struct cuda_grouped_unpack codes = {part_weights(matrix, part), to};
        const struct cuda_unpack unpack = {
            .blocks = part->at,
            .type = part->type,
            .rows = part->rows,
            .cols = matrix->cols,
            .code = CUDA_BF16,
            .codes = to,
            .stride = matrix->cols,
        };
        enum err err = codes.from.kind != GROUPED_NOT
                           ? cuda_grouped_unpack(&codes, gpu->compute, error)
                           : cuda_unpack(&unpack, gpu->compute, error);
        if (err != OK) return err;
    }
    return OK;
}
