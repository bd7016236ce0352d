/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void every_scalar_value_survives_encode_and_decode(void **state) {
    (void)state;
    for (uint32_t code_point = 0; code_point <= 0x10FFFF; code_point++) {
        if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
        char bytes[4];
        size_t count = utf8_encode(code_point, bytes);
        uint32_t back;
        assert_true(utf8_is_valid((struct str){bytes, count}));
        assert_int_equal(utf8_decode((struct str){bytes, count}, 0, &back), count);
        assert_int_equal(back, code_point);
    }
}

static void overlong_forms_surrogates_and_values_past_the_end_are_invalid(void **state) {
    (void)state;
    static const char *const bad[] = {"\xC0\x80",
                                      "\xC1\xBF",
                                      "\xE0\x80\x80",
                                      "\xED\xA0\x80",
                                      "\xF0\x80\x80\x80",
                                      "\xF4\x90\x80\x80",
                                      "\xF5\x80\x80\x80",
                                      "\x80",
                                      "\xFF",
                                      "\xE2\x82",
                                      "a\xC3"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(utf8_is_valid(str_from(bad[i])));
}

static void an_incomplete_character_at_the_end_is_told_apart_from_a_wrong_one(void **state) {
    (void)state;
    assert_int_equal(utf8_incomplete_tail(STR("a\xE2\x82")), 2);
    assert_int_equal(utf8_incomplete_tail(STR("a\xF0\x9F\x98")), 3);
    assert_int_equal(utf8_incomplete_tail(STR("a\xC3")), 1);
    assert_int_equal(utf8_incomplete_tail(STR("a\xC3\xA9")), 0);
    assert_int_equal(utf8_incomplete_tail(STR("a\xFF")), 0);
    assert_int_equal(utf8_incomplete_tail(STR("a\x80")), 0);
    assert_int_equal(utf8_incomplete_tail(STR("")), 0);
}

/* The expected texts are those of Python's bytes.decode("utf-8", "replace"). */
static void each_broken_run_becomes_one_replacement_character(void **state) {
    (void)state;
    static const struct {
        const char *broken, *repaired;
    } cases[] = {
        {"a\x80z", "a\xEF\xBF\xBDz"},
        {"a\xE2\x82z", "a\xEF\xBF\xBDz"},
        {"a\xF0\x9F\x98", "a\xEF\xBF\xBD"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"good \xC3\xA9", "good \xC3\xA9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf buf;
        buf_init(&buf, 100);
        utf8_add_repaired(&buf, str_from(cases[i].broken));
        assert_string_equal(buf.at, cases[i].repaired);
        buf_release(&buf);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_scalar_value_survives_encode_and_decode),
        cmocka_unit_test(overlong_forms_surrogates_and_values_past_the_end_are_invalid),
        cmocka_unit_test(an_incomplete_character_at_the_end_is_told_apart_from_a_wrong_one),
        cmocka_unit_test(each_broken_run_becomes_one_replacement_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
