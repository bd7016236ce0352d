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
    assert_int_equal(after("1.5"), 1500);
    assert_int_equal(after("0.0001"), 1); /* rounded up */
    assert_int_equal(after("1.5.1"), -1);
}

static void durations_are_read_as_servers_write_them(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } cases[] = {{"20s", 20000},
                 {"1m0.5s", 60500},
                 {"250ms", 250},
                 {"2 minutes", 120000},
                 {"6m0s", 360000},
                 {"1h", 3600000},
                 {"1 m 3 s", 63000},
                 {"7", 7000},
                 {"7.66s. Visit", 7660},
                 {"20s.", 20000},
                 {"5 seconds.", 5000},
                 {"3. Or", 3000},
                 {"0s", 0},
                 {"soon", -1},
                 {"", -1},
                 {"-1s", -1},
                 {"1d", 86400000},
                 {"59.9999s", 60000},
                 {"2 requests", 2000},
                 {"1day6h", 108000000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (net_duration_ms(str_from(cases[i].text)) != cases[i].ms)
            fail_msg("%s: %lld", cases[i].text,
                     (long long)net_duration_ms(str_from(cases[i].text)));
}

static void a_reset_is_a_wait_or_a_time(void **state) {
    (void)state;
    int64_t now = 1700000000;
    assert_int_equal(net_reset_ms(STR("12"), now), 12000);
    assert_int_equal(net_reset_ms(STR(" 0.5 "), now), 500);
    assert_int_equal(net_reset_ms(STR("1700000030"), now), 30000);
    assert_int_equal(net_reset_ms(STR("1700000030500"), now), 30500);
    assert_int_equal(net_reset_ms(STR("1600000000"), now), 0); /* in the past */
    assert_int_equal(net_reset_ms(STR("6m0s"), now), 360000);
    assert_int_equal(net_reset_ms(STR("soon"), now), -1);
    assert_int_equal(net_reset_ms(STR(""), now), -1);
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
        cmocka_unit_test(durations_are_read_as_servers_write_them),
        cmocka_unit_test(a_reset_is_a_wait_or_a_time),
        cmocka_unit_test(retry_after_ms_is_a_number_only),
        cmocka_unit_test(a_wait_doubles_up_to_its_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
