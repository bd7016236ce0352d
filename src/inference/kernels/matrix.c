/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/matrix.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define COLS_MAX (1u << 24)
#define ROWS_MAX (1u << 28)
#define CHUNK 256 /* elements unpacked at a time: the largest block */
#define HUGE_PAGE_BYTES ((size_t)2 << 20)

static enum err check_parts(const struct matrix_part *parts, uint32_t part_count, uint32_t cols,
                            struct error *error) {
    uint64_t rows = 0;
    if (part_count == 0 || cols == 0)
        return err_set(error, ERR_INVALID, "matrix: %u parts of %u columns hold nothing",
                       part_count, cols);
    if (cols > COLS_MAX)
        return err_set(error, ERR_LIMIT, "matrix: %u columns are over %u", cols, COLS_MAX);
    for (uint32_t i = 0; i < part_count; i++) {
        const struct matrix_part *part = &parts[i];
        if (!tensor_type_is_known((uint32_t)part->type))
            return err_set(error, ERR_INVALID, "matrix: part %u has unknown element type %u", i,
                           (unsigned)part->type);
        if (cols % tensor_type_block_elements(part->type) != 0)
            return err_set(error, ERR_INVALID,
                           "matrix: %u columns are not a multiple of the %u of a %s block", cols,
                           tensor_type_block_elements(part->type), tensor_type_name(part->type));
        if (part->rows == 0) return err_set(error, ERR_INVALID, "matrix: part %u has no rows", i);
        rows += part->rows;
    }
    if (rows > ROWS_MAX)
        return err_set(error, ERR_LIMIT, "matrix: %llu rows are over %u", (unsigned long long)rows,
                       ROWS_MAX);
    return OK;
}

/* The layout all parts can share without losing anything, and its group. */
static enum matrix_layout choose_layout(const struct kernels *kernels,
                                        const struct matrix_part *parts, uint32_t part_count,
                                        uint32_t *ret_group) {
    bool all_quantised = true;
    bool all_same = true;
    uint32_t group = 32;
    *ret_group = 0;
    if (kernels->keeps_blocks) return MATRIX_BLOCKS;
    for (uint32_t i = 0; i < part_count; i++) {
        bool quantised = tensor_type_is_quantised(parts[i].type);
        all_quantised = all_quantised && quantised;
        all_same = all_same && parts[i].type == parts[0].type;
        if (quantised && quant_form_of(parts[i].type).group < group)
            group = quant_form_of(parts[i].type).group;
    }
    if (all_quantised) {
        *ret_group = group;
        return MATRIX_BYTES;
    }
    if (all_same && parts[0].type == TENSOR_F16) return MATRIX_F16;
    if (all_same && parts[0].type == TENSOR_BF16)
        return kernels->tiles_bf16_pairs ? MATRIX_BF16_PAIRS : MATRIX_BF16;
    return MATRIX_F32;
}

static size_t activation_bytes_of(enum matrix_layout layout, uint32_t group, uint32_t cols) {
    if (layout == MATRIX_BYTES) return byte_activations_of(cols, group).end;
    if (layout == MATRIX_BF16_PAIRS) return round_up_64(((size_t)cols + 1) / 2 * 4);
    return round_up_64((size_t)cols * sizeof(float));
}

static size_t tile_bytes(const struct matrix *matrix, const struct matrix_tile *tile) {
    size_t cols = matrix->cols;
    switch (matrix->layout) {
    case MATRIX_BLOCKS:
        return tile->count * tensor_type_row_bytes(matrix->parts[tile->part].type, cols);
    case MATRIX_BYTES:
        return cols / matrix->group *
               tile_group_bytes(matrix->group, tile->bits, tile->has_minimum);
    case MATRIX_F32: return cols * MATRIX_TILE * sizeof(float);
    case MATRIX_F16:
    case MATRIX_BF16: return cols * MATRIX_TILE * sizeof(uint16_t);
    case MATRIX_BF16_PAIRS: return (cols + 1) / 2 * MATRIX_TILE * 2 * sizeof(uint16_t);
    }
    assert(false); /* no layout */
    return 0;
}

static uint8_t log2_of(uint32_t power) {
    return power ? (uint8_t)__builtin_ctz(power) : 0;
}

/* Kernels of signed bytes take q - zero and the steps themselves; the others add 128 to steps. */
static void set_zero(const struct matrix *matrix, const struct quant_form *form,
                     struct matrix_tile *ret_tile) {
    uint32_t zero = form->steps ? 128 : form->zero;
    if (matrix->kernels->tiles_signed && (form->bits == 8 || form->steps)) zero = 0;
    ret_tile->zero = (uint8_t)zero;
    ret_tile->zero_shift = log2_of(zero);
}

/* Cuts every part into tiles and gives each its place. */
static void lay_tiles(struct matrix *matrix) {
    uint32_t column = 0;
    uint32_t at = 0;
    size_t offset = 0;
    for (uint32_t p = 0; p < matrix->part_count; p++) {
        const struct matrix_part *part = &matrix->parts[p];
        struct quant_form form = {0};
        if (matrix->layout == MATRIX_BYTES) form = quant_form_of(part->type);
        for (uint32_t row = 0; row < part->rows; row += MATRIX_TILE, at++) {
            struct matrix_tile *tile = &matrix->tiles[at];
            uint32_t left = part->rows - row;
            *tile = (struct matrix_tile){.offset = offset,
                                         .column = column,
                                         .count = left < MATRIX_TILE ? left : MATRIX_TILE,
                                         .part = p,
                                         .part_row = row,
                                         .bits = (uint8_t)form.bits,
                                         .has_minimum = form.has_minimum,
                                         .steps = form.steps};
            set_zero(matrix, &form, tile);
            column += tile->count;
            offset += tile_bytes(matrix, tile);
        }
    }
    assert(at == matrix->tile_count && column == matrix->rows);
    matrix->bytes = offset;
}

void *kernels_memory(size_t bytes) {
    size_t alignment = bytes >= 2 * HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 64;
    size_t whole = (bytes + alignment - 1) / alignment * alignment;
    if (whole < bytes) return NULL;
    void *memory = aligned_alloc(alignment, whole);
    /* The end of the last page would take memory that nothing fills. */
    if (memory && alignment == HUGE_PAGE_BYTES)
        (void)madvise(memory, bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES, MADV_HUGEPAGE);
    return memory;
}

static enum err no_memory(uint32_t cols, struct error *error) {
    return err_set(error, ERR_LIMIT, "matrix: no memory for its weights of %u columns", cols);
}

/* All but its memory. */
static enum err open_bare(struct matrix **ret_matrix, const struct kernels *kernels,
                          const struct matrix_part *parts, uint32_t part_count, uint32_t cols,
                          struct error *error) {
    enum err err = check_parts(parts, part_count, cols, error);
    if (err) return err;

    struct matrix *matrix = calloc(1, sizeof *matrix);
    if (!matrix) goto out_of_memory;
    matrix->kernels = kernels;
    matrix->cols = cols;
    matrix->part_count = part_count;
    matrix->layout = choose_layout(kernels, parts, part_count, &matrix->group);
    matrix->activation_bytes = activation_bytes_of(matrix->layout, matrix->group, cols);
    matrix->parts = calloc(part_count, sizeof *matrix->parts);
    if (!matrix->parts) goto out_of_memory;
    matrix->handle = UINT32_MAX;
    for (uint32_t i = 0; i < part_count; i++) {
        matrix->parts[i] = (struct matrix_part){.type = parts[i].type, .rows = parts[i].rows};
        matrix->rows += parts[i].rows;
        matrix->tile_count += (parts[i].rows + MATRIX_TILE - 1) / MATRIX_TILE;
    }
    matrix->tiles = calloc(matrix->tile_count, sizeof *matrix->tiles);
    if (!matrix->tiles) goto out_of_memory;
    lay_tiles(matrix);
    *ret_matrix = matrix;
    return OK;

out_of_memory:
    matrix_close(matrix);
    return no_memory(cols, error);
}

enum err matrix_open(struct matrix **ret_matrix, const struct kernels *kernels,
                     const struct matrix_part *parts, uint32_t part_count, uint32_t cols,
                     struct error *error) {
    struct matrix *matrix;
    enum err err = open_bare(&matrix, kernels, parts, part_count, cols, error);
    if (err) return err;
    matrix->memory = kernels_memory(matrix->bytes);
    if (!matrix->memory) {
        matrix_close(matrix);
        return no_memory(cols, error);
    }
    *ret_matrix = matrix;
    return OK;
}

enum err matrix_open_tiled(struct matrix **ret_matrix, const struct kernels *kernels,
                           const struct matrix_part *parts, uint32_t part_count, uint32_t cols,
                           const void *tiles, size_t bytes, struct error *error) {
    struct matrix *matrix;
    assert((uintptr_t)tiles % 64 == 0);
    enum err err = open_bare(&matrix, kernels, parts, part_count, cols, error);
    if (err) return err;
    matrix->is_borrowed = true;
    if (bytes != matrix->bytes) {
        err = err_set(error, ERR_CORRUPT, "matrix: %zu tiled bytes, not %zu", bytes, matrix->bytes);
        matrix_close(matrix);
        return err;
    }
    /* Nothing but matrix_fill writes to it. */
    matrix->memory = (unsigned char *)(uintptr_t)tiles;
    *ret_matrix = matrix;
    return OK;
}

void matrix_close(struct matrix *matrix) {
    if (!matrix) return;
    if (!matrix->is_borrowed) free(matrix->memory);
    free(matrix->tiles);
    free(matrix->parts);
    free(matrix);
}

static const unsigned char *file_row(const struct matrix *matrix, const struct matrix_part *parts,
                                     const struct matrix_tile *tile, uint32_t column) {
    const struct matrix_part *part = &parts[tile->part];
    size_t row = tile->part_row + column;
    if (part->row_order) row = part->row_order[row];
    return (const unsigned char *)part->blocks +
           row * tensor_type_row_bytes(part->type, matrix->cols);
}

/* Columns first..first+count-1 of one row go to `column` of the tile, group by group. */
static void fill_bytes_chunk(const struct matrix *matrix, const struct matrix_tile *tile,
                             uint32_t column, const unsigned char *blocks, uint32_t first,
                             uint32_t count) {
    enum tensor_type type = matrix->parts[tile->part].type;
    struct quant_form form = quant_form_of(type);
    uint32_t group = matrix->group;
    size_t group_bytes = tile_group_bytes(group, tile->bits, tile->has_minimum);
    unsigned char *at = matrix->memory + tile->offset + first / group * group_bytes;
    uint8_t q[CHUNK];
    float scales[CHUNK / 16];
    float minima[CHUNK / 16];
    quant_row_split(type, blocks, count, q, scales, minima);
    for (uint32_t begin = 0; begin < count; begin += group, at += group_bytes) {
        for (uint32_t i = 0; i < group; i++) {
            uint32_t value = q[begin + i];
            if (tile->bits == 4) {
                unsigned char *byte = at + (i / 4 * 16 + column % 16) * 4 + i % 4;
                *byte = (unsigned char)(*byte | value << (column < 16 ? 0 : 4));
            } else {
                at[(i / 4 * MATRIX_TILE + column) * 4 + i % 4] =
                    (unsigned char)(value - form.zero + tile->zero);
            }
        }
        unsigned char *numbers = at + group / 4 * (tile->bits == 4 ? 64 : 128);
        uint32_t from = begin / form.group;
        memcpy(numbers + column * sizeof(float), &scales[from], sizeof(float));
        if (tile->has_minimum)
            memcpy(numbers + (MATRIX_TILE + column) * sizeof(float), &minima[from], sizeof(float));
    }
}

static void fill_float_chunk(const struct matrix *matrix, const struct matrix_tile *tile,
                             uint32_t column, const unsigned char *blocks, uint32_t first,
                             uint32_t count) {
    unsigned char *at = matrix->memory + tile->offset;
    if (matrix->layout == MATRIX_F32) {
        float values[CHUNK];
        quant_row_to_f32(matrix->parts[tile->part].type, blocks, count, values);
        for (uint32_t i = 0; i < count; i++)
            memcpy(at + ((size_t)(first + i) * MATRIX_TILE + column) * sizeof(float), &values[i],
                   sizeof(float));
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        size_t k = first + i;
        size_t place = matrix->layout == MATRIX_BF16_PAIRS
                           ? (k / 2 * MATRIX_TILE + column) * 2 + k % 2
                           : k * MATRIX_TILE + column;
        memcpy(at + place * sizeof(uint16_t), blocks + i * sizeof(uint16_t), sizeof(uint16_t));
    }
}

static void fill_row(const struct matrix *matrix, const struct matrix_part *parts,
                     const struct matrix_tile *tile, uint32_t column) {
    enum tensor_type type = matrix->parts[tile->part].type;
    const unsigned char *blocks = file_row(matrix, parts, tile, column);
    if (matrix->layout == MATRIX_BLOCKS) {
        size_t row_bytes = tensor_type_row_bytes(type, matrix->cols);
        memcpy(matrix->memory + tile->offset + column * row_bytes, blocks, row_bytes);
        return;
    }
    for (uint32_t first = 0; first < matrix->cols; first += CHUNK) {
        uint32_t left = matrix->cols - first;
        uint32_t count = left < CHUNK ? left : CHUNK;
        if (matrix->layout == MATRIX_BYTES)
            fill_bytes_chunk(matrix, tile, column, blocks, first, count);
        else
            fill_float_chunk(matrix, tile, column, blocks, first, count);
        blocks += tensor_type_row_bytes(type, count);
    }
}

/* All columns at once, where the table has a way for it. */
static bool fill_whole(const struct matrix *matrix, const struct matrix_part *parts,
                       const struct matrix_tile *tile) {
    const unsigned char *rows[MATRIX_TILE];
    if (!matrix->kernels->fill_tile || tile->count < MATRIX_TILE) return false;
    for (uint32_t column = 0; column < MATRIX_TILE; column++)
        rows[column] = file_row(matrix, parts, tile, column);
    return matrix->kernels->fill_tile(matrix, tile, rows);
}

void matrix_fill(struct matrix *matrix, const struct matrix_part *parts, uint32_t tile_begin,
                 uint32_t tile_end) {
    assert(!matrix->is_borrowed);
    assert(tile_begin <= tile_end && tile_end <= matrix->tile_count);
    for (uint32_t t = tile_begin; t < tile_end; t++) {
        const struct matrix_tile *tile = &matrix->tiles[t];
        if (fill_whole(matrix, parts, tile)) continue;
        memset(matrix->memory + tile->offset, 0, tile_bytes(matrix, tile));
        for (uint32_t column = 0; column < tile->count; column++)
            fill_row(matrix, parts, tile, column);
    }
}

static const struct matrix_tile *tile_of_row(const struct matrix *matrix, uint32_t row) {
    uint32_t low = 0;
    uint32_t high = matrix->tile_count;
    while (high - low > 1) { /* tiles[low].column <= row < tiles[high].column */
        uint32_t middle = low + (high - low) / 2;
        if (matrix->tiles[middle].column <= row)
            low = middle;
        else
            high = middle;
    }
    return &matrix->tiles[low];
}

static void unpack_bytes(const struct matrix *matrix, const struct matrix_tile *tile,
                         uint32_t column, float *ret_row) {
    uint32_t group = matrix->group;
    size_t group_bytes = tile_group_bytes(group, tile->bits, tile->has_minimum);
    const unsigned char *at = matrix->memory + tile->offset;
    for (uint32_t begin = 0; begin < matrix->cols; begin += group, at += group_bytes) {
        const unsigned char *numbers = at + group / 4 * (tile->bits == 4 ? 64 : 128);
        float scale;
        float minimum = 0;
        memcpy(&scale, numbers + column * sizeof(float), sizeof scale);
        if (tile->has_minimum)
            memcpy(&minimum, numbers + (MATRIX_TILE + column) * sizeof(float), sizeof minimum);
        for (uint32_t i = 0; i < group; i++) {
            int32_t value;
            if (tile->bits == 4)
                value = at[(i / 4 * 16 + column % 16) * 4 + i % 4] >> (column < 16 ? 0 : 4) & 15;
            else if (matrix->kernels->tiles_signed)
                value = (int8_t)at[(i / 4 * MATRIX_TILE + column) * 4 + i % 4];
            else
                value = at[(i / 4 * MATRIX_TILE + column) * 4 + i % 4];
            float scaled = scale * (float)(tile->steps ? tile->steps[value] : value - tile->zero);
            ret_row[begin + i] = tile->has_minimum ? scaled + minimum : scaled;
        }
    }
}

void matrix_row(const struct matrix *matrix, uint32_t row, float *ret_row) {
    assert(row < matrix->rows);
    const struct matrix_tile *tile = tile_of_row(matrix, row);
    uint32_t column = row - tile->column;
    const unsigned char *at = matrix->memory + tile->offset;
    if (matrix->layout == MATRIX_BYTES) {
        unpack_bytes(matrix, tile, column, ret_row);
        return;
    }
    if (matrix->layout == MATRIX_BLOCKS) {
        enum tensor_type type = matrix->parts[tile->part].type;
        quant_row_to_f32(type, at + column * tensor_type_row_bytes(type, matrix->cols),
                         matrix->cols, ret_row);
        return;
    }
    for (size_t k = 0; k < matrix->cols; k++) {
        uint16_t bits;
        if (matrix->layout == MATRIX_F32) {
            memcpy(&ret_row[k], at + (k * MATRIX_TILE + column) * sizeof(float), sizeof(float));
            continue;
        }
        size_t place = matrix->layout == MATRIX_BF16_PAIRS
                           ? (k / 2 * MATRIX_TILE + column) * 2 + k % 2
                           : k * MATRIX_TILE + column;
        memcpy(&bits, at + place * sizeof bits, sizeof bits);
        ret_row[k] = matrix->layout == MATRIX_F16 ? half_to_f32(bits) : bf16_to_f32(bits);
    }
}
