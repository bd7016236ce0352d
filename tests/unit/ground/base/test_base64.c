/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void check(const char *bytes, const char *expected) {
    struct buf buf;
    buf_init(&buf, 64);
    base64_add(&buf, bytes, strlen(bytes));
    assert_int_equal(buf.bytes, strlen(expected));
    assert_string_equal(buf.at ? buf.at : "", expected);
    buf_release(&buf);
}

/* RFC 4648 §10. */
static void the_vectors_of_the_rfc(void **state) {
    (void)state;
    check("", "");
    check("f", "Zg==");
    check("fo", "Zm8=");
    check("foo", "Zm9v");
    check("foob", "Zm9vYg==");
    check("fooba", "Zm9vYmE=");
    check("foobar", "Zm9vYmFy");
    check("\xFB\xFF", "+/8=");
}

static void floats_are_little_endian(void **state) {
    (void)state;
    const float floats[] = {1, 2};
    struct buf buf;
    buf_init(&buf, 64);
    base64_add(&buf, floats, sizeof floats);
    assert_string_equal(buf.at, "AACAPwAAAEA=");
    buf_release(&buf);
}

static void what_does_not_fit_is_dropped_and_noted(void **state) {
    (void)state;
    struct buf buf;
    buf_init(&buf, 7);
    base64_add(&buf, "four", 4);
    assert_true(buf.overflowed && buf.bytes == 0);
    buf_release(&buf);
}

static void check_read(const char *text, const char *expected) {
    char bytes[8];
    size_t count;
    assert_true(base64_read(str_from(text), bytes, sizeof bytes, &count));
    assert_int_equal(count, strlen(expected));
    assert_memory_equal(bytes, expected, count);
}

static void the_vectors_of_the_rfc_are_read(void **state) {
    (void)state;
    check_read("", "");
    check_read("Zg==", "f");
    check_read("Zm8=", "fo");
    check_read("Zm9vYmFy", "foobar");
    check_read("+/8=", "\xFB\xFF");
}

static void an_empty_text_needs_no_address(void **state) {
    (void)state;
    char bytes[8];
    size_t count = 1;
    assert_true(base64_read((struct str){NULL, 0}, bytes, sizeof bytes, &count));
    assert_int_equal(count, 0);
}

static void other_texts_are_not_read(void **state) {
    (void)state;
    static const char *const texts[] = {"Zg",   "Zg=",   "Zm9v=", "Zh==",     "Zm9v\n",
                                        "-_8=", "Zm 9v", "====",  "Zg==Zg==", "Zm9vYmFyZm9v"};
    char bytes[8]; /* the last text means nine */
    size_t count;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_false(base64_read(str_from(texts[i]), bytes, sizeof bytes, &count));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vectors_of_the_rfc),
        cmocka_unit_test(floats_are_little_endian),
        cmocka_unit_test(what_does_not_fit_is_dropped_and_noted),
        cmocka_unit_test(the_vectors_of_the_rfc_are_read),
        cmocka_unit_test(an_empty_text_needs_no_address),
        cmocka_unit_test(other_texts_are_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
