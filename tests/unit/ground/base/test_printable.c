/* SPDX-License-Identifier: Apache-2.0 */
#include "base/printable.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void a_text_commands_no_terminal(void **state) {
    (void)state;
    static const char *const texts[][2] = {
        {"plain \xC3\xA4 \xF0\x9F\x98\x80 \\x1b", "plain \xC3\xA4 \xF0\x9F\x98\x80 \\x1b"},
        {"a\033[2Jb", "a\\x1b[2Jb"},
        {"a\r\n\tb\x7F\a", "a\\x0d\\n\\tb\\x7f\\x07"},
        {"\xC2\x9B"
         "2J",
         "\\u009b2J"},
        {"\xE2\x80\xAE"
         "evil\xE2\x81\xA9",
         "\\u202eevil\\u2069"},
        {"\xE2\x80\xA8", "\\u2028"},
        {"\x9B\xFF\xC3", "\\x9b\\xff\\xc3"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_string_equal(printable(texts[i][0]).text, texts[i][1]);
    assert_string_equal(printable(NULL).text, "");
}

static void a_long_text_is_cut_between_characters(void **state) {
    (void)state;
    char text[3 * PRINTABLE_BYTES];
    memset(text, '\033', sizeof text);
    text[sizeof text - 1] = '\0';
    struct printable is = printable(text);
    assert_int_equal(strlen(is.text), (PRINTABLE_BYTES - 1) / 4 * 4);
    assert_string_equal(is.text + strlen(is.text) - 4, "\\x1b");
}

static void control_characters_are_found(void **state) {
    (void)state;
    assert_false(printable_has_control(STR("a name \xC3\xA4.jsonl")));
    assert_true(printable_has_control(STR("a\033[2J")));
    assert_true(printable_has_control(STR("a\x7F")));
    assert_true(printable_has_control(STR("a\xC2\x85")));
    assert_false(printable_has_control(STR("")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_commands_no_terminal),
        cmocka_unit_test(a_long_text_is_cut_between_characters),
        cmocka_unit_test(control_characters_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
