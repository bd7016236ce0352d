/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/retry.h"

static int64_t after(const char *value) {
    return net_retry_after_ms(false, str_from(value), 784111777);
}

static void retry_after_is_read_in_all_its_forms(void **state) {
    (void)state;
    assert_int_equal(after(" 7 \r\n"), 7000);
    assert_int_equal(after("0"), 0);
    assert_int_equal(after("Sun, 06 Nov 1994 08:49:57 GMT"), 20000);
    assert_int_equal(after("Sun, 06 Nov 1994 08:49:00 GMT"), 0); /* in the past */
    assert_int_equal(after("-1"), -1);
    assert_int_equal(after("soon"), -1);
    assert_int_equal(after(""), -1);
    assert_int_equal(after("99999999999999999999"), -1);
}

static void retry_after_ms_is_a_number_only(void **state) {
    (void)state;
    assert_int_equal(net_retry_after_ms(true, STR("250"), 0), 250);
    assert_int_equal(net_retry_after_ms(true, STR("9223372036854775807"), 0), -1);
    assert_int_equal(net_retry_after_ms(true, STR("Sun, 06 Nov 1994 08:49:57 GMT"), 0), -1);
}

static void a_wait_doubles_up_to_its_maximum(void **state) {
    (void)state;
    assert_int_equal(net_backoff_ms(125, 30000, 0), 125);
    assert_int_equal(net_backoff_ms(125, 30000, 3), 1000);
    assert_int_equal(net_backoff_ms(125, 30000, 8), 30000);
    assert_int_equal(net_backoff_ms(125, 30000, UINT32_MAX), 30000);
    assert_int_equal(net_backoff_ms(60000, 30000, 0), 30000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(retry_after_is_read_in_all_its_forms),
        cmocka_unit_test(retry_after_ms_is_a_number_only),
        cmocka_unit_test(a_wait_doubles_up_to_its_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
