/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void a_sentence_stays_on_one_line_whatever_it_quotes(void **state) {
    (void)state;
    struct error error;
    assert_int_equal(err_set(&error, ERR_INVALID, "key '%s'", "a\nb\r\x1b[2J\x7f"), ERR_INVALID);
    assert_string_equal(error.text, "key 'a b  [2J '");
}

static void bytes_that_are_no_text_become_question_marks(void **state) {
    (void)state;
    struct error error;
    (void)err_set(&error, ERR_INVALID, "%s", "\xC3\xBC \xFF \xC3 \xC2\x9B");
    assert_string_equal(error.text, "\xC3\xBC ? ? ??");
}

static void a_long_sentence_is_cut_and_stays_text(void **state) {
    (void)state;
    struct error error;
    char name[ERROR_TEXT_BYTES * 2 + 1] = "";
    for (size_t i = 0; i + 2 < sizeof name; i += 2) memcpy(name + i, "\xC3\xBC", 3);
    (void)err_set(&error, ERR_INVALID, "%s", name);
    assert_int_equal(strlen(error.text), ERROR_TEXT_BYTES - 1);
    assert_true(utf8_is_valid(str_from(error.text)));
    (void)err_prefix(&error, "a\nprefix");
    assert_true(utf8_is_valid(str_from(error.text)));
    assert_memory_equal(error.text, "a prefix: ", 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sentence_stays_on_one_line_whatever_it_quotes),
        cmocka_unit_test(bytes_that_are_no_text_become_question_marks),
        cmocka_unit_test(a_long_sentence_is_cut_and_stays_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
