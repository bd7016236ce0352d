/* SPDX-License-Identifier: Apache-2.0 */

/* Matrices whose rows stay in the file, for models that are larger than memory. */

#include "kernels/matrix.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void matrix_leave(struct matrix *matrix, const struct matrix_part *parts) {
    assert(!matrix->is_borrowed);
    for (uint32_t i = 0; i < matrix->part_count; i++) {
        assert(parts[i].blocks && !parts[i].row_order && parts[i].rows == matrix->parts[i].rows);
        matrix->parts[i].blocks = parts[i].blocks;
    }
    free(matrix->memory);
    matrix->memory = NULL;
    matrix->is_left = true;
}

size_t matrix_tile_bytes(const struct matrix *matrix) {
    size_t most = 0;
    for (uint32_t i = 0; i < matrix->tile_count; i++) {
        const size_t end = i + 1 < matrix->tile_count ? matrix->tiles[i + 1].offset : matrix->bytes;
        if (end - matrix->tiles[i].offset > most) most = end - matrix->tiles[i].offset;
    }
    return most;
}

void matrix_lay(const struct matrix *matrix, uint32_t tile, void *room, struct matrix *ret_view) {
    assert(matrix->is_left && tile < matrix->tile_count && (uintptr_t)room % 64 == 0);
    *ret_view = *matrix;
    /* Kernels find a tile at its offset, and no other tile is read. */
    ret_view->memory = (unsigned char *)((uintptr_t)room - matrix->tiles[tile].offset);
    matrix_fill(ret_view, matrix->parts, tile, tile + 1);
}

void matrix_fetch(const struct matrix *matrix) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    assert(matrix->is_left);
    for (uint32_t i = 0; i < matrix->part_count; i++) {
        const struct matrix_part *part = &matrix->parts[i];
        const uintptr_t from = (uintptr_t)part->blocks / page * page;
        const uintptr_t to =
            (uintptr_t)part->blocks + part->rows * tensor_type_row_bytes(part->type, matrix->cols);
        (void)madvise((void *)from, to - from, MADV_WILLNEED); /* advice only */
    }
}
