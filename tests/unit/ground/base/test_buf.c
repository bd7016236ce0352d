/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void an_append_past_the_maximum_adds_nothing_and_says_so(void **state) {
    (void)state;
    struct buf buf;
    buf_init(&buf, 4);
    buf_add_text(&buf, "abc");
    buf_add_text(&buf, "de");
    assert_true(buf.overflowed);
    assert_string_equal(buf.at, "abc");
    buf_release(&buf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_append_past_the_maximum_adds_nothing_and_says_so)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
