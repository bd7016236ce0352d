/* SPDX-License-Identifier: Apache-2.0 */
#include "json/json.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void check_canonical(const char *from, const char *expected) {
    json_t *value;
    struct error error;
    struct buf buf;
    buf_init(&buf, 4096);
    assert_int_equal(json_read(&value, str_from(from), &error), OK);
    json_write_canonical(&buf, value);
    assert_string_equal(buf.at, expected);
    json_decref(value);
    buf_release(&buf);
}

static void equal_values_have_one_canonical_form(void **state) {
    (void)state;
    check_canonical("{\"b\": 1.0, \"a\": [true, null]}", "{\"a\":[true,null],\"b\":1}");
    check_canonical("{\"a\":[true,null],\"b\":1e0}", "{\"a\":[true,null],\"b\":1}");
    check_canonical("{\"a\": \"\xC3\xA9\"}", "{\"a\":\"\\u00e9\"}");
    check_canonical("[0.1, -0.0, 123456789012]", "[0.10000000000000001,0,123456789012]");
}

static void what_is_written_is_ascii_on_one_line(void **state) {
    (void)state;
    struct buf buf;
    buf_init(&buf, 4096);
    json_write_string(&buf, STR("a\"\\\n\xE2\x80\xA8\xF0\x9F\x98\x80\x7F"));
    assert_string_equal(buf.at, "\"a\\\"\\\\\\n\\u2028\\ud83d\\ude00\\u007f\"");
    buf_clear(&buf);
    json_write_string(&buf, STR("a\xFF"));
    assert_string_equal(buf.at, "\"a\\ufffd\"");
    buf_clear(&buf);
    json_write_string(&buf, (struct str){NULL, 0});
    assert_string_equal(buf.at, "\"\"");
    buf_release(&buf);
}

static void a_string_may_keep_its_characters(void **state) {
    (void)state;
    struct buf buf;
    buf_init(&buf, 4096);
    json_write_utf8_string(&buf, STR("a\"\\\n\t\x01\xE2\x80\xA8\xF0\x9F\x98\x80\x7F"));
    assert_string_equal(buf.at, "\"a\\\"\\\\\\n\\t\\u0001\xE2\x80\xA8\xF0\x9F\x98\x80\x7F\"");
    buf_clear(&buf);
    json_write_utf8_string(&buf, STR("\xC3\xA9\xFF"));
    assert_string_equal(buf.at, "\"\xC3\xA9\xEF\xBF\xBD\"");
    buf_release(&buf);
}

static void an_infinity_of_python_is_a_number_outside_of_strings(void **state) {
    (void)state;
    static const char text[] = "{\"limit\":[0.0, Infinity],\"low\":-Infinity,"
                               "\"word\":\"\\\"Infinity\"}";
    struct error error;
    json_t *value;
    assert_int_equal(json_read(&value, str_from(text), &error), ERR_INVALID);
    assert_int_equal(json_read_python(&value, str_from(text), &error), OK);
    const json_t *limit = json_member(value, "limit");
    assert_true(json_real_value(json_array_get(limit, 1)) > 1e307);
    assert_true(json_real_value(json_member(value, "low")) < -1e307);
    assert_true(str_is(json_member_str(value, "word"), "\"Infinity"));
    json_decref(value);
    assert_int_equal(json_read_python(&value, STR("[NaN]"), &error), ERR_INVALID);
    assert_int_equal(json_read_python(&value, STR("[Infin"), &error), ERR_INVALID);
}

static void nesting_deeper_than_the_bound_is_refused_with_its_place(void **state) {
    (void)state;
    char deep[200000];
    json_t *value;
    struct error error;
    memset(deep, '[', sizeof deep);
    assert_int_equal(json_read(&value, (struct str){deep, sizeof deep}, &error), ERR_INVALID);
    assert_non_null(strstr(error.text, "byte 128"));
}

static void brackets_inside_strings_are_no_nesting(void **state) {
    (void)state;
    char text[1100] = "[\"";
    json_t *value;
    struct error error;
    memset(text + 2, '[', 1000);
    memcpy(text + 1002, "\\\"\"]", 5);
    assert_int_equal(json_read(&value, str_from(text), &error), OK);
    json_decref(value);
}

static void what_is_not_one_json_value_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"",    "{",        "{\"a\":}",  "[1,]", "1 2",
                                      "nul", "\"\xFF\"", "{\"a\" 1}", "01",   "'a'"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *value;
        struct error error = {0};
        assert_int_equal(json_read(&value, str_from(bad[i]), &error), ERR_INVALID);
        assert_true(error.text[0] != '\0');
    }
}

static void json_that_is_not_read_is_not_called_wrong(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"[9223372036854775808]", "JSON with a number that quern cannot hold"},
        {"[-9223372036854775809]", "near '-9223372036854775809', at byte 21"},
        {"1e999", "JSON with a number that quern cannot hold"},
        {"{\"a\\u0000\":1}", "JSON with a NUL in a key"},
        {"{\"a\":1,\"a\":2}", "JSON with the same key twice in one object near '\"a\"'"},
        {"{\"a\":}", "not valid JSON: "},
        {"\"\xFF\"", "not valid JSON: invalid UTF-8, at byte 1"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *value;
        struct error error = {0};
        size_t room = 4096;
        assert_int_equal(json_read_once(&value, str_from(rows[i][0]), &room, &error), ERR_INVALID);
        if (!strstr(error.text, rows[i][1])) fail_msg("%s: %s", rows[i][0], error.text);
    }
}

static void a_null_member_is_absent(void **state) {
    (void)state;
    json_t *value;
    struct error error;
    assert_int_equal(json_read(&value, STR("{\"a\":null,\"b\":\"x\",\"b\":\"y\"}"), &error), OK);
    assert_null(json_member(value, "a"));
    assert_true(str_is(json_member_str(value, "b"), "y"));
    assert_null(json_member_str(value, "a").at);
    json_decref(value);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_values_have_one_canonical_form),
        cmocka_unit_test(what_is_written_is_ascii_on_one_line),
        cmocka_unit_test(a_string_may_keep_its_characters),
        cmocka_unit_test(nesting_deeper_than_the_bound_is_refused_with_its_place),
        cmocka_unit_test(brackets_inside_strings_are_no_nesting),
        cmocka_unit_test(what_is_not_one_json_value_is_refused),
        cmocka_unit_test(json_that_is_not_read_is_not_called_wrong),
        cmocka_unit_test(an_infinity_of_python_is_a_number_outside_of_strings),
        cmocka_unit_test(a_null_member_is_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
