/* SPDX-License-Identifier: Apache-2.0 */
#include "json/span.h"

#include "json/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void it_takes_what_the_reader_takes_and_nothing_else(void **state) {
    (void)state;
    static const char *const texts[] = {"{}",
                                        "[]",
                                        " [ ] ",
                                        "{\"a\":1}",
                                        "{\"a\":1,}",
                                        "[1,]",
                                        "[,1]",
                                        "{\"a\"}",
                                        "{a:1}",
                                        "{\"a\":}",
                                        "1",
                                        "-0",
                                        "-",
                                        "01",
                                        "1.",
                                        ".5",
                                        "1.5e",
                                        "1e+5",
                                        "1E-5x",
                                        "true",
                                        "tru",
                                        "nulll",
                                        "\"a",
                                        "\"a\"",
                                        "\"\\u12\"",
                                        "\"\\ud83d\\ude00\"",
                                        "\"\\ud83d\"",
                                        "\"\\ude00\"",
                                        "\"\\ud83dx\"",
                                        "\"\\x\"",
                                        "\"\\/\\b\"",
                                        "\"a\tb\"",
                                        "\"long enough for words \\\" and more\"",
                                        "[1 2]",
                                        "[1,2]x",
                                        "{\"a\":{\"b\":[{}]}}",
                                        "[[]",
                                        "[]]",
                                        "",
                                        " ",
                                        "{\"a\":1 \"b\":2}",
                                        "{\"a\" :\n1\t}",
                                        "\"\x01\"",
                                        "'a'",
                                        "[1,[2,[3]]]",
                                        "{\"a\":[}",
                                        "\"\x7F\""};
    struct error error;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *value = NULL;
        bool good = json_read(&value, str_from(texts[i]), &error) == OK;
        json_decref(value);
        if (json_span_read(str_from(texts[i]), NULL) != good) fail_msg("%s", texts[i]);
    }
}

static void nesting_is_bounded_as_the_readers(void **state) {
    (void)state;
    char text[2 * (JSON_DEPTH_MAX + 1)];
    for (int depth = JSON_DEPTH_MAX; depth <= JSON_DEPTH_MAX + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        struct str whole = {text, 2 * (size_t)depth};
        assert_int_equal(json_span_read(whole, NULL), depth <= JSON_DEPTH_MAX);
    }
}

static void members_are_found_with_the_last_of_equal_keys(void **state) {
    (void)state;
    struct str object = STR("{ \"a\" : 1 , \"b\":{\"a\":2}, \"\\u0061\" : [3] }");
    assert_true(str_is(json_span_get(object, "a"), "[3]"));
    assert_true(str_is(json_span_get(json_span_get(object, "b"), "a"), "2"));
    assert_null(json_span_get(object, "c").at);
    assert_null(json_span_get(STR("[1]"), "a").at);
}

static void elements_come_in_order_and_an_end_in_the_middle_is_bad(void **state) {
    (void)state;
    struct json_span_iter iter;
    struct str value;
    assert_true(json_span_enter(&iter, STR("[1, \"x,]\" ,{}]")));
    assert_true(json_span_element(&iter, &value) && str_is(value, "1"));
    assert_true(json_span_element(&iter, &value) && str_is(value, "\"x,]\""));
    assert_true(json_span_element(&iter, &value) && str_is(value, "{}"));
    assert_false(json_span_element(&iter, &value));
    assert_false(iter.is_bad);
    assert_int_equal(iter.at, iter.text.bytes);
    assert_true(json_span_enter(&iter, STR("[1,2")));
    while (json_span_element(&iter, &value)) continue;
    assert_true(iter.is_bad);
}

static void strings_are_decoded_and_made_ascii_without_changing_their_meaning(void **state) {
    (void)state;
    struct buf text;
    buf_init(&text, 1 << 12);
    json_span_decode(&text, STR("\"a\\n\\u00e9\\ud83d\\ude00\\\"\xE2\x80\xA8\""));
    assert_string_equal(text.at, "a\n\xC3\xA9\xF0\x9F\x98\x80\"\xE2\x80\xA8");
    buf_clear(&text);
    json_span_add_ascii(&text,
                        STR("\"plain text \\u00e9 \xC3\xA9 \xF0\x9F\x98\x80 \xE2\x80\xA8\""));
    assert_string_equal(text.at, "\"plain text \\u00e9 \\u00e9 \\ud83d\\ude00 \\u2028\"");
    buf_release(&text);
}

static void a_code_block_is_taken_away_and_other_text_stays(void **state) {
    (void)state;
    static const char *const texts[][2] = {
        {"```json\n{\"a\":1}\n```", "{\"a\":1}"},
        {" \n```\n\n [1] \n ``` \n", "[1]"},
        {"```json\n{\"a\":1}", "{\"a\":1}"}, /* cut off before its end */
        {"```json", "```json"},
        {"```\n```", ""},
        {" {\"a\":\"```\"} ", "{\"a\":\"```\"}"},
        {"see ```x```", "see ```x```"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_true(str_equals(json_span_unfenced(str_from(texts[i][0])), str_from(texts[i][1])));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_takes_what_the_reader_takes_and_nothing_else),
        cmocka_unit_test(nesting_is_bounded_as_the_readers),
        cmocka_unit_test(members_are_found_with_the_last_of_equal_keys),
        cmocka_unit_test(elements_come_in_order_and_an_end_in_the_middle_is_bad),
        cmocka_unit_test(strings_are_decoded_and_made_ascii_without_changing_their_meaning),
        cmocka_unit_test(a_code_block_is_taken_away_and_other_text_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
