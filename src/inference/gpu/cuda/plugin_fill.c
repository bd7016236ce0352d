/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/plugin_walk.h"
#include "gpu/cuda/unpack.h"

#include <assert.h>
#include <cuda_runtime_api.h>
#include <string.h>

#define BLOCK_ALIGN 16u /* alignment of a part's first byte: cuda_unpack */

/* A part, and the bytes of its rows that go to the GPU: all of them, or those of some columns. */
struct fill {
    const struct gpu_rows *rows;
    size_t row_bytes; /* that go to the GPU */
    size_t stride;    /* bytes of a row of the file */
    char *blocks;     /* where a part stays as it is; NULL: it becomes codes */
    /* The columns that the matrix gets; NULL: all. With is_cut_later whole rows become codes, of
     * which the matrix gets those columns: a row's scale is one for all ranks, and a block of the
     * file may have columns of two. */
    const struct gpu_split *split;
    bool is_cut_later;
};

/* What goes to the GPU of a row. */
static void gather_row(const struct fill *fill, const char *from, char *to) {
    const struct gpu_split *split = fill->is_cut_later ? NULL : fill->split;
    const enum tensor_type type = fill->rows->type;
    if (!split) memcpy(to, from, fill->row_bytes);
    for (uint32_t i = 0; split && i < split->piece_count; i++) {
        const struct gpu_piece *piece = &split->pieces[i];
        memcpy(to + (piece->own > 0 ? tensor_type_row_bytes(type, piece->own) : 0),
               from + (piece->first > 0 ? tensor_type_row_bytes(type, piece->first) : 0),
               tensor_type_row_bytes(type, piece->rows));
    }
}

/* Rows first..first+count-1 of the part, in the matrix' order, one after another. */
static void gather(const struct fill *fill, uint32_t first, uint32_t count, char *to) {
    const char *from = fill->rows->blocks;
    const uint32_t *order = fill->rows->row_order;
    if (!order && fill->stride == fill->row_bytes) {
        memcpy(to, from + first * fill->stride, count * fill->row_bytes);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const size_t row = order ? order[first + i] : first + i;
        gather_row(fill, from + row * fill->stride, to + i * fill->row_bytes);
    }
}

/* Makes place for a part that stays as it is; its first byte. */
static char *take_blocks(struct card_matrix *matrix, const struct gpu_rows *rows) {
    const size_t part_bytes = grouping_part_bytes(rows->type, rows->rows, matrix->cols);
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

/* Codes of whole rows become those of the matrix' columns. They were made in the buffer of a
 * product's rows, which no step uses yet. */
static enum err cut_columns(struct gpu *gpu, const struct fill *fill, uint32_t first,
                            uint32_t count, struct error *error) {
    const struct card_matrix *matrix = &gpu->matrices[fill->rows->matrix];
    const size_t each = form_bytes(matrix->form), row_bytes = matrix->cols * each;
    const size_t at = fill->rows->row_first + first;
    cudaError_t code = cudaSuccess;
    for (uint32_t i = 0; i < fill->split->piece_count && code == cudaSuccess; i++) {
        const struct gpu_piece *piece = &fill->split->pieces[i];
        code =
            cudaMemcpy2DAsync(matrix->codes + at * row_bytes + piece->own * each, row_bytes,
                              (char *)gpu->codes + piece->first * each, fill->split->whole * each,
                              piece->rows * each, count, cudaMemcpyDefault, gpu->compute);
    }
    return code == cudaSuccess ? OK
                               : card_error(code, error, "filling matrix %u", fill->rows->matrix);
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
                            cudaMemcpyDefault, gpu->compute);
        return code == cudaSuccess ? OK
                                   : card_error(code, error, "filling matrix %u", rows->matrix);
    }
    const uint32_t cols = fill->is_cut_later ? fill->split->whole : matrix->cols;
    const struct cuda_unpack unpack = {
        .blocks = slice,
        .type = rows->type,
        .rows = count,
        .cols = cols,
        .code = code_of(matrix->form),
        .codes =
            fill->is_cut_later ? gpu->codes : matrix->codes + at * cols * form_bytes(matrix->form),
        .stride = cols,
        .scales = matrix->scales ? matrix->scales + at : NULL,
    };
    enum err err = cuda_unpack(&unpack, gpu->compute, error);
    return err == OK && fill->is_cut_later ? cut_columns(gpu, fill, first, count, error) : err;
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

/* Whether codes are made of whole rows, of which the matrix has some columns. */
static bool is_cut_later(const struct card_matrix *matrix, const struct gpu_rows *rows,
                         const struct gpu_split *split) {
    const size_t each = tensor_type_block_elements(rows->type);
    bool is_between = true; /* the columns begin and end between blocks */
    for (uint32_t i = 0; split && i < split->piece_count; i++)
        is_between &= split->pieces[i].first % each == 0 && split->pieces[i].rows % each == 0;
    return split && matrix->form != GPU_BLOCKS && (matrix->scales || !is_between);
}

/* Where a part of GPU_BLOCKS stays. */
static enum err find_blocks(struct card_matrix *matrix, const struct gpu_rows *rows,
                            char **ret_blocks, struct error *error) {
    *ret_blocks = matrix->grouping == GROUPED_NOT ? take_blocks(matrix, rows) : matrix->codes;
    if (!*ret_blocks)
        return err_set(error, ERR_INVALID, "matrix %u: more rows or parts than prepare had",
                       rows->matrix);
    if (matrix->grouping != GROUPED_NOT &&
        grouping_of_rows(rows->type, matrix->cols) != matrix->grouping)
        return err_set(error, ERR_INVALID,
                       "matrix %u: the weights of a layer's experts have types of several "
                       "kinds: run with --quantization int8",
                       rows->matrix);
    return OK;
}

enum err fill_one(struct gpu *gpu, const struct gpu_rows *rows, const struct gpu_split *split,
                  struct error *error) {
    assert(gpu->is_prepared && rows->matrix < gpu->program.matrix_count);
    struct card_matrix *matrix = &gpu->matrices[rows->matrix];
    const uint32_t columns = split ? split->whole : matrix->cols;
    struct fill fill = {.rows = rows,
                        .stride = tensor_type_row_bytes(rows->type, columns),
                        .split = split,
                        .is_cut_later = is_cut_later(matrix, rows, split)};
    fill.row_bytes =
        fill.is_cut_later ? fill.stride : tensor_type_row_bytes(rows->type, matrix->cols);
    assert(rows->row_first + rows->rows <= matrix->rows && matrix->cols <= columns);
    uint32_t each = (uint32_t)(gpu->fill_bytes / fill.row_bytes);
    const uint32_t room = gpu->row_bucket * matrix->cols / columns; /* rows in gpu->codes */
    if (fill.is_cut_later && room < each) each = room;
    enum err err = OK;
    assert(each > 0);
    if (matrix->form == GPU_BLOCKS && rows->rows > 0)
        err = find_blocks(matrix, rows, &fill.blocks, error);
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
