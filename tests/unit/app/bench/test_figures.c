/* SPDX-License-Identifier: Apache-2.0 */
/* Mean, spread and percentiles of lists worked out by hand, interpolated as numpy does. */
#include "bench/figures.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void check_near(double got, double expected) {
    if (!(fabs(got - expected) < 1e-12)) fail_msg("%.15f instead of %.15f", got, expected);
}

static void figures_are_those_worked_out_by_hand(void **state) {
    (void)state;
    double values[] = {4, 1, 3, 2, 10};
    struct figures is = figures_of(values, 5);
    check_near(is.mean, 4);
    check_near(is.median, 3);
    check_near(is.deviation, sqrt(10)); /* squares 0, 9, 1, 4, 36: 50 / 5 */
    check_near(is.p50, 3);
    check_near(is.p90, 4 + 0.6 * 6); /* place 3.6 of 1 2 3 4 10 */
    check_near(is.p95, 4 + 0.8 * 6);
    check_near(is.p99, 4 + 0.96 * 6);
    check_near(is.min, 1);
    check_near(is.max, 10);
}

static void one_value_is_every_percentile_and_none_is_zero(void **state) {
    (void)state;
    double one[] = {7};
    struct figures is = figures_of(one, 1);
    check_near(is.p99, 7);
    check_near(is.deviation, 0);
    is = figures_of(one, 0);
    assert_int_equal(is.count, 0);
    check_near(is.p50, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_those_worked_out_by_hand),
        cmocka_unit_test(one_value_is_every_percentile_and_none_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
