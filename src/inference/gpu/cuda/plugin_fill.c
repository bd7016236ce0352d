/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/plugin_walk.h"
#include "gpu/cuda/unpack.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <string.h>

#define BLOCK_ALIGN 16u /* alignment of a part's first byte: cuda_unpack */

/* A part, and the bytes of its rows that are filled: all of them, or those of some columns. */
struct fill {
    const struct gpu_rows *rows;
    size_t row_bytes;      /* that are filled */
    size_t stride, offset; /* bytes of a row of the file, and before those that are filled */
    char *blocks;          /* where a part stays as it is; NULL: it becomes codes */
};

/* Rows first..first+count-1 of the part, in the matrix' order, one after another. */
static void gather(const struct fill *fill, uint32_t first, uint32_t count, char *to) {
    const char *from = (const char *)fill->rows->blocks + fill->offset;
    const uint32_t *order = fill->rows->row_order;
    if (!order && fill->stride == fill->row_bytes) {
        memcpy(to, from + first * fill->stride, count * fill->row_bytes);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const size_t row = order ? order[first + i] : first + i;
        memcpy(to + i * fill->row_bytes, from + row * fill->stride, fill->row_bytes);
    }
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
static enum err put_slice(struct gpu *gpu, const struct fill *fill, const char *slice,
                          uint32_t first, uint32_t count, struct error *error) {
    const struct gpu_rows *rows = fill->rows;
    const struct card_matrix *matrix = &gpu->matrices[rows->matrix];
    const size_t at = rows->row_first + first;
    if (fill->blocks && grouping_of_rows(rows->type, matrix->cols) != GROUPED_NOT) {
        const struct cuda_grouped_fill codes =
            fill_of(matrix, rows, fill->blocks, slice, first, count);
        return cuda_grouped_fill(&codes, gpu->compute, error);
    }
    if (fill->blocks) {
        cudaError_t code =
            cudaMemcpyAsync(fill->blocks + first * fill->row_bytes, slice, count * fill->row_bytes,
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

static enum err fill_slice(struct gpu *gpu, const struct fill *fill, uint32_t first, uint32_t count,
                           struct error *error) {
    const uint32_t slice = gpu->fill_next++ % FILL_SLICES, matrix = fill->rows->matrix;
    cudaError_t code = cudaEventSynchronize(gpu->fill_done[slice]);
    if (code != cudaSuccess) return card_error(code, error, "filling matrix %u", matrix);
    gather(fill, first, count, gpu->fill_host[slice]);
    code = cudaMemcpyAsync(gpu->fill_card[slice], gpu->fill_host[slice], count * fill->row_bytes,
                           cudaMemcpyHostToDevice, gpu->compute);
    if (code != cudaSuccess) return card_error(code, error, "filling matrix %u", matrix);
    enum err err = put_slice(gpu, fill, gpu->fill_card[slice], first, count, error);
    if (err != OK) return err;
    code = cudaEventRecord(gpu->fill_done[slice], gpu->compute);
    return code == cudaSuccess ? OK : card_error(code, error, "filling matrix %u", matrix);
}

enum err fill_one(struct gpu *gpu, const struct gpu_rows *rows, uint32_t column, uint32_t columns,
                  struct error *error) {
    assert(gpu->is_prepared && rows->matrix < gpu->program.matrix_count);
    struct card_matrix *matrix = &gpu->matrices[rows->matrix];
    struct fill fill = {.rows = rows,
                        .row_bytes = tensor_type_row_bytes(rows->type, matrix->cols),
                        .stride = tensor_type_row_bytes(rows->type, columns),
                        .offset = column > 0 ? tensor_type_row_bytes(rows->type, column) : 0};
    assert(rows->row_first + rows->rows <= matrix->rows && column + matrix->cols <= columns);
    const uint32_t each = (uint32_t)(gpu->fill_bytes / fill.row_bytes);
    enum err err = OK;
    if (matrix->form == GPU_BLOCKS && rows->rows > 0) {
        fill.blocks = matrix->grouping == GROUPED_NOT ? take_blocks(matrix, rows) : matrix->codes;
        if (!fill.blocks)
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
        err = fill_slice(gpu, &fill, first, left < each ? left : each, error);
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
