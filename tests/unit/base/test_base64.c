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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vectors_of_the_rfc),
        cmocka_unit_test(floats_are_little_endian),
        cmocka_unit_test(what_does_not_fit_is_dropped_and_noted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
