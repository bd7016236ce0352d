/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void new_memory_is_zero_also_for_no_items(void **state) {
    (void)state;
    unsigned char *bytes = mem_new(100, 7);
    for (size_t i = 0; i < 700; i++) assert_int_equal(bytes[i], 0);
    free(bytes);
    free(mem_new(0, 8));
}

static void a_grown_array_keeps_its_items_and_doubles(void **state) {
    (void)state;
    uint32_t *at = NULL;
    size_t count = 0, capacity = 0, moves = 0;
    while (count < 100000) {
        size_t before = capacity;
        at = vec_grow(at, count, &capacity, sizeof *at);
        assert_true(capacity > count);
        if (capacity != before) moves++;
        at[count] = (uint32_t)count;
        count++;
    }
    assert_true(moves < 20);
    for (size_t i = 0; i < count; i++) assert_int_equal(at[i], i);
    free(at);
}

static void copies_end_in_a_nul_and_none_stays_none(void **state) {
    (void)state;
    assert_null(mem_text(NULL));
    char *copy = mem_text("text"), *part = mem_str((struct str){"text", 2}),
         *empty = mem_str((struct str){NULL, 0});
    assert_string_equal(copy, "text");
    assert_string_equal(part, "te");
    assert_string_equal(empty, "");
    free(copy);
    free(part);
    free(empty);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_memory_is_zero_also_for_no_items),
        cmocka_unit_test(a_grown_array_keeps_its_items_and_doubles),
        cmocka_unit_test(copies_end_in_a_nul_and_none_stays_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
