/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of a run whose records are worked out by hand. */
#include "bench/measure.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void check_near(double got, double expected) {
    if (!(fabs(got - expected) < 1e-6)) fail_msg("%.9f instead of %.9f", got, expected);
}

static void times_and_rates_are_those_of_good_requests(void **state) {
    (void)state;
    float gaps[] = {0.5F, 0.25F};
    struct bench_record records[] = {
        {.start = 1,
         .first = 2,
         .last = 2.75,
         .end = 3,
         .gaps = gaps,
         .gap_count = 2,
         .events = 3,
         .is_good = true,
         .has_usage = true,
         .prompt_tokens = 10,
         .cached_tokens = 4,
         .output_tokens = 5},
        /* Failed after text came: it counts as failed and as nothing else. */
        {.start = 1, .first = 1.5, .last = 1.5, .end = 6, .events = 1, .output_tokens = 99},
        /* One event whose usage tells nothing, and no second token to measure. */
        {.start = 2,
         .first = 4,
         .last = 4,
         .end = 5,
         .events = 1,
         .is_good = true,
         .output_tokens = 1},
    };
    struct bench_run run = {.records = records, .count = 3, .in_flight_max = 2};
    bench_measure(&run);
    const struct bench_figures *is = &run.figures;
    assert_int_equal(is->completed, 2);
    assert_int_equal(is->failed, 1);
    assert_int_equal(is->without_usage, 1);
    assert_int_equal(is->prompt_tokens, 10);
    assert_int_equal(is->cached_tokens, 4);
    assert_int_equal(is->output_tokens, 6);
    check_near(is->seconds, 5);
    check_near(is->requests_per_s, 0.4);
    check_near(is->output_per_s, 1.2);
    check_near(is->tokens_per_s, 3.2);
    check_near(is->output_per_s_max, 3); /* at 2, 2.5 and 2.75 s */
    assert_int_equal(is->first_ms.count, 2);
    check_near(is->first_ms.mean, 1500);
    assert_int_equal(is->token_ms.count, 1);
    check_near(is->token_ms.mean, 250);
    assert_int_equal(is->gap_ms.count, 2);
    check_near(is->gap_ms.mean, 375);
    check_near(is->whole_ms.mean, 2500);
}

static void a_run_without_an_answer_has_no_rate(void **state) {
    (void)state;
    struct bench_record record = {.start = 1, .end = 2};
    struct bench_run run = {.records = &record, .count = 1};
    bench_measure(&run);
    assert_int_equal(run.figures.failed, 1);
    check_near(run.figures.requests_per_s, 0);
    assert_int_equal(run.figures.whole_ms.count, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_and_rates_are_those_of_good_requests),
        cmocka_unit_test(a_run_without_an_answer_has_no_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
