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
        cmocka_unit_test(the_reference_is_always_there_and_an_unknown_table_never),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
