/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static enum err try_open(enum tensor_type type, uint32_t rows, uint32_t cols, uint32_t part_count,
                         struct error *error) {
    struct matrix *matrix = NULL;
    struct matrix_part part = {type, "", rows, NULL};
    enum err err = matrix_open(&matrix, kernels_choose("ref"), &part, part_count, cols, error);
    assert_true(err == OK || !matrix);
    matrix_close(matrix);
    return err;
}

static void a_matrix_that_cannot_be_is_refused_with_a_sentence(void **state) {
    (void)state;
    struct error error = {0};
    assert_int_equal(try_open(TENSOR_Q4_0, 4, 48, 1, &error), ERR_INVALID);
    assert_non_null(strstr(error.text, "48"));
    assert_non_null(strstr(error.text, "Q4_0"));
    assert_int_equal(try_open((enum tensor_type)5, 4, 32, 1, &error), ERR_INVALID);
    assert_non_null(strstr(error.text, "type 5"));
    assert_int_equal(try_open(TENSOR_F32, 0, 32, 1, &error), ERR_INVALID);
    assert_int_equal(try_open(TENSOR_F32, 1, 0, 1, &error), ERR_INVALID);
    assert_int_equal(try_open(TENSOR_F32, 1, 32, 0, &error), ERR_INVALID);
    assert_int_equal(try_open(TENSOR_F32, 1, (1u << 24) + 1, 1, &error), ERR_LIMIT);
    assert_int_equal(try_open(TENSOR_F32, (1u << 28) + 1, 32, 1, &error), ERR_LIMIT);
    assert_int_equal(try_open(TENSOR_F32, 3, 5, 1, &error), OK);
}

static void packing_in_pieces_gives_the_same_bytes_as_packing_at_once(void **state) {
    (void)state;
    float weights[100][8];
    for (int i = 0; i < 800; i++) weights[i / 8][i % 8] = (float)i;
    struct matrix_part parts[2] = {{TENSOR_F32, weights, 70, NULL},
                                   {TENSOR_F32, weights[70], 30, NULL}};
    for (size_t t = 0; kernels_at(t); t++) {
        struct matrix *whole;
        struct matrix *pieces;
        struct error error;
        assert_int_equal(matrix_open(&whole, kernels_at(t), parts, 2, 8, &error), OK);
        assert_int_equal(matrix_open(&pieces, kernels_at(t), parts, 2, 8, &error), OK);
        assert_int_equal(whole->tile_count, 4); /* a part starts a tile: 32 + 32 + 6, 30 */
        assert_int_equal(whole->rows, 100);
        matrix_fill(whole, parts, 0, 4);
        for (uint32_t tile = 4; tile-- > 0;) matrix_fill(pieces, parts, tile, tile + 1);
        assert_memory_equal(whole->memory, pieces->memory, whole->bytes);
        matrix_close(whole);
        matrix_close(pieces);
    }
}

/* Blocks of random bytes whose scales are small numbers: fp16 below 2, or a power of two. */
static void fill_blocks(enum tensor_type type, unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) bytes[i] = (unsigned char)(rand() & 0x3B);
    if (type == TENSOR_F32) {
        for (size_t i = 0; i < count / sizeof(float); i++) {
            const float number = (float)(rand() % 2000 - 1000) / 64.0f;
            memcpy(bytes + i * sizeof number, &number, sizeof number);
        }
    }
}

static void rows_of_tiles_that_are_laid_when_met_are_those_of_tiles_in_memory(void **state) {
    (void)state;
    static const enum tensor_type types[] = {TENSOR_Q4_K,  TENSOR_Q6_K, TENSOR_Q8_0,
                                             TENSOR_MXFP4, TENSOR_BF16, TENSOR_F32};
    enum { ROWS = 70, COLS = 512 };
    for (size_t i = 0; i < 2 * sizeof types / sizeof *types; i++) {
        const struct kernels *kernels = i % 2 ? kernels_choose("ref") : kernels_choose(NULL);
        const enum tensor_type type = types[i / 2];
        const size_t bytes = tensor_type_row_bytes(type, COLS) * ROWS;
        unsigned char *blocks = malloc(bytes);
        struct matrix_part parts[2] = {{type, blocks, 40, NULL},
                                       {type, blocks + bytes / ROWS * 40, 30, NULL}};
        struct matrix *filled, *left, view;
        struct error error;
        float row[COLS], other[COLS];
        fill_blocks(type, blocks, bytes);
        assert_int_equal(matrix_open(&filled, kernels, parts, 2, COLS, &error), OK);
        assert_int_equal(matrix_open(&left, kernels, parts, 2, COLS, &error), OK);
        matrix_fill(filled, parts, 0, filled->tile_count);
        matrix_leave(left, parts);
        assert_true(left->is_left && !left->memory);
        matrix_fetch(left);
        const size_t room_bytes = (matrix_tile_bytes(left) + 63) / 64 * 64;
        void *room = aligned_alloc(64, room_bytes);
        /* A part begins a tile: 32 + 8, 30. The reference has a tile for each part. */
        assert_true(left->tile_count >= 2);
        uint32_t tile = 0, end = 0;
        for (uint32_t y = 0; y < ROWS; y++) {
            if (y == end) {
                matrix_lay(left, tile++, room, &view);
                end = y + 32 < 40 || y >= 40 ? y + 32 : 40;
            }
            matrix_row(filled, y, row);
            matrix_row(&view, y, other);
            assert_memory_equal(row, other, sizeof row);
        }
        assert_int_equal(tile, left->tile_count);
        free(room);
        free(blocks);
        matrix_close(filled);
        matrix_close(left);
    }
}

static void the_reference_is_always_there_and_an_unknown_table_never(void **state) {
    (void)state;
    assert_ptr_equal(kernels_at(0), kernels_choose("ref"));
    assert_null(kernels_choose("abacus"));
    assert_non_null(kernels_choose(NULL));
    for (size_t i = 0; kernels_at(i); i++)
        assert_ptr_equal(kernels_choose(kernels_at(i)->name), kernels_at(i));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_matrix_that_cannot_be_is_refused_with_a_sentence),
        cmocka_unit_test(packing_in_pieces_gives_the_same_bytes_as_packing_at_once),
        cmocka_unit_test(rows_of_tiles_that_are_laid_when_met_are_those_of_tiles_in_memory),
        cmocka_unit_test(the_reference_is_always_there_and_an_unknown_table_never),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
