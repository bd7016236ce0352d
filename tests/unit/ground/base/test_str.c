/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void an_integer_is_the_whole_text_or_nothing(void **state) {
    (void)state;
    int64_t value = 7;
    assert_true(str_to_i64(STR("-9223372036854775808"), &value));
    assert_true(value == INT64_MIN);
    assert_true(str_to_i64(STR("9223372036854775807"), &value));
    assert_true(value == INT64_MAX);
    value = 7;
    static const char *const bad[] = {"",
                                      "-",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "1.0",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "18446744073709551616",
                                      "0x10"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(str_to_i64(str_from(bad[i]), &value));
    assert_int_equal(value, 7);
}

static void find_looks_from_where_it_is_told(void **state) {
    (void)state;
    assert_int_equal(str_find(STR("abcabc"), STR("bc"), 2), 4);
    assert_true(str_find(STR("abcabc"), STR("bc"), 5) == SIZE_MAX);
    assert_int_equal(str_find(STR("abc"), STR(""), 3), 3);
    assert_true(str_find((struct str){NULL, 0}, STR("a"), 0) == SIZE_MAX);
}

static void the_beginning_of_a_part_is_found_at_the_end(void **state) {
    (void)state;
    assert_int_equal(str_begun(STR("a</thin"), STR("</think>")), 6);
    assert_int_equal(str_begun(STR("a</think>"), STR("</think>")), 0);
    assert_int_equal(str_begun(STR("abaab"), STR("abaa")), 2);
    assert_int_equal(str_begun(STR("aaa"), STR("aaa")), 2);
    assert_int_equal(str_begun(STR("b"), STR("bcd")), 1);
    assert_int_equal(str_begun(STR("x"), STR("y")), 0);
    assert_int_equal(str_begun((struct str){NULL, 0}, STR("y")), 0);
}

static void a_shorter_text_comes_before_the_longer_it_starts(void **state) {
    (void)state;
    assert_true(str_compare(STR("ab"), STR("abc")) < 0);
    assert_true(str_compare(STR("b"), STR("abc")) > 0);
    assert_int_equal(str_compare(STR("ab"), STR("ab")), 0);
}

static void trim_takes_ascii_space_off_both_ends(void **state) {
    (void)state;
    assert_true(str_is(str_trim(STR(" \t a b\r\n")), "a b"));
    assert_int_equal(str_trim(STR(" \n ")).bytes, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_integer_is_the_whole_text_or_nothing),
        cmocka_unit_test(find_looks_from_where_it_is_told),
        cmocka_unit_test(the_beginning_of_a_part_is_found_at_the_end),
        cmocka_unit_test(a_shorter_text_comes_before_the_longer_it_starts),
        cmocka_unit_test(trim_takes_ascii_space_off_both_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
