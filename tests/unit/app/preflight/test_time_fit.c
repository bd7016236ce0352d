/* SPDX-License-Identifier: Apache-2.0 */
#include "preflight/time_fit.h"

#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define GROUPS 6

static bool is_near(double a, double b) {
    return fabs(a - b) <= 1e-6 * fabs(b) + 1e-9;
}

static void two_factors_are_found(void **state) {
    (void)state;
    struct time_work groups[GROUPS];
    for (int i = 0; i < GROUPS; i++) {
        groups[i] = (struct time_work){.rows = 100.0 * (i + 1), .steps = 20};
        groups[i].seconds = 0.01 * groups[i].rows + 0.05 * groups[i].steps;
    }
    struct time_fit fit = time_fit_of(groups, GROUPS);
    assert_true(is_near(fit.per_row, 0.01) && is_near(fit.per_step, 0.05));
    struct interval is = time_fit_predict(&fit, &(struct time_work){.rows = 10000, .steps = 200});
    assert_true(is.is_known && is_near(is.mean, 110) && is_near(is.low * is.high, 110 * 110));
    /* The least scatter, and four degrees of freedom. */
    assert_true(is.high > 110 * exp(2.776 * 0.05) && is.high < 110 * exp(2.776 * 0.08));
}

static void one_factor_is_left_if_the_samples_tell_no_more(void **state) {
    (void)state;
    /* Proportional columns, no steps at all, a negative factor, and a single sample. */
    const struct time_work same[] = {{10, 1, 1}, {20, 2, 2}, {30, 3, 3}};
    const struct time_work rows[] = {{10, 0, 1}, {20, 0, 2}, {30, 0, 3}};
    const struct time_work negative[] = {{10, 10, 1}, {20, 10, 2.2}, {40, 10, 4.8}};
    assert_true(is_near(time_fit_of(same, 3).per_row, 0.1));
    assert_true(is_near(time_fit_of(rows, 3).per_row, 0.1));
    struct time_fit fit = time_fit_of(negative, 3);
    assert_true(fit.per_step == 0 && fit.per_row > 0.1 && fit.per_row < 0.12);
    fit = time_fit_of(rows, 1);
    struct interval is = time_fit_predict(&fit, &(struct time_work){.rows = 100});
    assert_true(!is.is_known && is_near(is.mean, 10));
    const struct time_work slower[] = {{30, 10, 1}, {20, 20, 2}, {10, 30, 3}};
    fit = time_fit_of(slower, 3);
    assert_true(fit.per_row == 0 && is_near(fit.per_step, 0.1));
}

/* The sum of twelve units is as good as normal. */
static double about_normal(struct rng *rng) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += rng_unit(rng);
    return sum;
}

static void intervals_cover_a_later_run_nineteen_times_of_twenty(void **state) {
    (void)state;
    struct rng rng = {11};
    static const double lines[GROUPS] = {24, 12, 5, 3, 2, 2};
    int covered = 0;
    for (int i = 0; i < 2000; i++) {
        struct time_work groups[GROUPS];
        for (int j = 0; j < GROUPS; j++) {
            groups[j] = (struct time_work){.rows = 100 * lines[j], .steps = 30};
            groups[j].seconds =
                (0.002 * groups[j].rows + 0.02 * groups[j].steps) * (1 + 0.1 * about_normal(&rng));
        }
        struct time_fit fit = time_fit_of(groups, GROUPS);
        const struct time_work whole = {.rows = 20000, .steps = 100};
        double seconds = (0.002 * 20000 + 0.02 * 100) * (1 + 0.1 * about_normal(&rng));
        struct interval is = time_fit_predict(&fit, &whole);
        covered += is.low <= seconds && seconds <= is.high;
    }

    assert_in_range(covered, 1840, 1960);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_factors_are_found),
        cmocka_unit_test(one_factor_is_left_if_the_samples_tell_no_more),
        cmocka_unit_test(intervals_cover_a_later_run_nineteen_times_of_twenty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
