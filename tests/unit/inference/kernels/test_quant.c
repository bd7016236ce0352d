/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/quant.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Blocks and their values per type, as quants.py next to the file writes them. */
static json_t *read_vectors(void) {
    const char *source = getenv("QUERN_SOURCE");
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/tests/unit/inference/kernels/quants.json",
                   source ? source : ".");
    json_t *vectors = json_load_file(path, 0, NULL);
    if (!vectors) fail_msg("%s cannot be read", path);
    return vectors;
}

static unsigned char *from_hex(const char *hex, size_t *ret_bytes) {
    size_t bytes = strlen(hex) / 2;
    unsigned char *result = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) {
        char two[3] = {hex[2 * i], hex[2 * i + 1], 0};
        result[i] = (unsigned char)strtoul(two, NULL, 16);
    }
    *ret_bytes = bytes;
    return result;
}

static float expected_value(json_t *value) {
    if (json_is_string(value)) return INFINITY;
    return (float)json_number_value(value);
}

static void every_type_gives_the_values_of_its_vector(void **state) {
    (void)state;
    json_t *vectors = read_vectors();
    bool is_checked[TENSOR_TYPE_END] = {[TENSOR_F32] = true, [TENSOR_INT4] = true}; /* no vector */
    size_t index;
    json_t *vector;
    json_array_foreach(vectors, index, vector) {
        uint32_t id = (uint32_t)json_integer_value(json_object_get(vector, "ggml_type"));
        json_t *values = json_object_get(vector, "values");
        size_t count = json_array_size(values);
        assert_true(tensor_type_is_known(id));
        enum tensor_type type = (enum tensor_type)id;
        is_checked[type] = true;
        assert_string_equal(tensor_type_name(type),
                            json_string_value(json_object_get(vector, "type")));
        assert_int_equal(tensor_type_block_elements(type),
                         json_integer_value(json_object_get(vector, "block_elems")));
        assert_int_equal(tensor_type_block_bytes(type),
                         json_integer_value(json_object_get(vector, "block_bytes")));
        size_t bytes;
        unsigned char *row = from_hex(json_string_value(json_object_get(vector, "hex")), &bytes);
        assert_int_equal(bytes, tensor_type_row_bytes(type, count));
        float *ours = malloc(count * sizeof *ours);
        quant_row_to_f32(type, row, count, ours);
        for (size_t i = 0; i < count; i++)
            if (ours[i] != expected_value(json_array_get(values, i)))
                fail_msg("%s element %zu is %.9g", tensor_type_name(type), i, (double)ours[i]);
        free(ours);
        free(row);
    }
    for (uint32_t id = 0; id < TENSOR_TYPE_END; id++)
        if (tensor_type_is_known(id) && !is_checked[id])
            fail_msg("%s has no vector in tests/unit/inference/kernels/quants.json",
                     tensor_type_name((enum tensor_type)id));
    json_decref(vectors);
}

static void halves_go_to_float_and_back_unchanged(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float value = half_to_f32((uint16_t)bits);
        if ((bits & 0x7fffu) > 0x7c00u)
            assert_true(isnan(value) && isnan(half_to_f32(half_from_f32(value))));
        else
            assert_int_equal(half_from_f32(value), bits);
    }
}

static void a_float_between_two_halves_goes_to_the_nearest_even(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 0x7bffu; bits++) {
        float low = half_to_f32((uint16_t)bits);
        float high = half_to_f32((uint16_t)(bits + 1));
        float middle = low + (high - low) / 2; /* exact */
        assert_int_equal(half_from_f32(middle), bits % 2 ? bits + 1 : bits);
        assert_int_equal(half_from_f32(nextafterf(middle, 0)), bits);
        assert_int_equal(half_from_f32(nextafterf(middle, INFINITY)), bits + 1);
        assert_int_equal(half_from_f32(-middle), 0x8000u | (bits % 2 ? bits + 1 : bits));
    }
    assert_int_equal(half_from_f32(65519.996f), 0x7bff);
    assert_int_equal(half_from_f32(65520.0f), 0x7c00);
    assert_int_equal(half_from_f32(-INFINITY), 0xfc00);
    assert_int_equal(half_from_f32(1e-30f), 0);
}

static void bf16_rounds_to_the_nearest_even(void **state) {
    (void)state;
    assert_int_equal(bf16_from_f32(1.0f), 0x3f80);
    assert_int_equal(bf16_from_f32(1.00390625f), 0x3f80); /* half a step up: to even */
    assert_int_equal(bf16_from_f32(1.01171875f), 0x3f82); /* from odd: up */
    assert_int_equal(bf16_from_f32(1.00390637f), 0x3f81);
    assert_int_equal(bf16_from_f32(-INFINITY), 0xff80);
    assert_true(isnan(bf16_to_f32(bf16_from_f32(NAN))));
    for (uint32_t bits = 0; bits < 0x7f80; bits++)
        assert_int_equal(bf16_from_f32(bf16_to_f32((uint16_t)bits)), bits);
}

static void an_id_the_format_does_not_have_is_unknown(void **state) {
    (void)state;
    static const uint32_t unknown[] = {5, 9, 15, 16, 21, 29, 31, 38, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        assert_false(tensor_type_is_known(unknown[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_gives_the_values_of_its_vector),
        cmocka_unit_test(halves_go_to_float_and_back_unchanged),
        cmocka_unit_test(a_float_between_two_halves_goes_to_the_nearest_even),
        cmocka_unit_test(bf16_rounds_to_the_nearest_even),
        cmocka_unit_test(an_id_the_format_does_not_have_is_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
