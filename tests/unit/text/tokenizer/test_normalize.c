/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tokenizer/normalize.h"

static void assert_form_c(const char *text, const char *want) {
    struct buf buf;
    buf_init(&buf, 1000);
    nfc_add(&buf, str_from(text));
    if (!str_is(buf_str(&buf), want)) fail_msg("'%s' became '%.*s'", text, STR_ARGS(buf_str(&buf)));
    buf_release(&buf);
}

static void letters_and_marks_compose(void **state) {
    (void)state;
    assert_form_c("", "");
    assert_form_c("plain", "plain");
    assert_form_c("cafe\u0301!", "caf\u00e9!");
    assert_form_c("\u212b \u00c5 A\u030a", "\u00c5 \u00c5 \u00c5");
    assert_form_c("o\u0302\u0323", "\u1ed9");
    assert_form_c("o\u0323\u0302", "\u1ed9");
    assert_form_c("\ufb01", "\ufb01");
    assert_form_c("\u1112\u1161\u11ab", "\ud55c");
}

static void marks_are_ordered_by_their_class(void **state) {
    (void)state;
    assert_form_c("x\u0301\u0316\u0345", "x\u0316\u0301\u0345");
    assert_form_c("\u0301\u0316", "\u0316\u0301");
}

static void marks_newer_than_unicode_9_stay_where_they_are(void **state) {
    (void)state;
    assert_form_c("x\u0301\u08cf\u0316", "x\u0301\u08cf\u0316");
    /* A vowel that libutf8proc takes for a trailing consonant. */
    assert_form_c("\ud1f4\u11a7", "\ud1f4\u11a7");
}

static void a_long_run_of_marks_is_put_in_order(void **state) {
    (void)state;
    enum { COUNT = 100000 };
    struct buf text, made;
    buf_init(&text, 1 << 20);
    buf_init(&made, 1 << 20);
    buf_add_text(&text, "x");
    for (int i = 0; i < COUNT; i++) buf_add_text(&text, i < COUNT / 2 ? "\u0301" : "\u0316");
    nfc_add(&made, buf_str(&text));
    assert_int_equal(made.bytes, text.bytes);
    assert_true(str_starts_with(buf_str(&made), STR("x\u0316\u0316")));
    assert_true(str_ends_with(buf_str(&made), STR("\u0301\u0301")));
    buf_release(&text);
    buf_release(&made);
}

static void only_text_below_the_first_mark_is_plain(void **state) {
    (void)state;
    assert_true(nfc_is_plain(STR("")));
    assert_true(nfc_is_plain(STR("abc \u00e9\u024f\u02ff")));
    assert_false(nfc_is_plain(STR("e\u0301")));
    assert_false(nfc_is_plain(STR("\u65e5")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(letters_and_marks_compose),
        cmocka_unit_test(marks_are_ordered_by_their_class),
        cmocka_unit_test(marks_newer_than_unicode_9_stay_where_they_are),
        cmocka_unit_test(a_long_run_of_marks_is_put_in_order),
        cmocka_unit_test(only_text_below_the_first_mark_is_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
