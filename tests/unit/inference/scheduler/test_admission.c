/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/admission.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void before_anything_is_known_four_hundred_tokens_are_expected(void **state) {
    (void)state;
    struct admission admission;
    admission_init(&admission);
    double mean;
    double variance;
    admission_expect(&admission, 0, 1000000, &mean, &variance);
    assert_true(mean > 390 && mean < 410);
    assert_true(variance > 390.0 * 390 && variance < 410.0 * 410);
}

static void nothing_beyond_the_limit_is_expected(void **state) {
    (void)state;
    struct admission admission;
    admission_init(&admission);
    for (uint32_t generated = 0; generated < 3000; generated += 7) {
        for (uint32_t rest = 1; rest < 2000; rest = rest * 2 + 1) {
            double mean;
            double variance;
            admission_expect(&admission, generated, generated + rest, &mean, &variance);
            assert_true(mean >= 1 && mean <= rest);
            assert_true(variance >= 0 && variance <= (double)rest * rest + 4096);
        }
    }
}

static void lengths_that_were_seen_are_expected_again(void **state) {
    (void)state;
    struct admission admission;
    admission_init(&admission);
    struct rng rng = {1};
    for (uint32_t i = 0; i < 4000; i++)
        admission_learn(&admission, 100 + (uint32_t)rng_below(&rng, 101)); /* mean 150 */
    double mean;
    double variance;
    admission_expect(&admission, 0, 4096, &mean, &variance);
    assert_true(mean > 145 && mean < 155);
    /* A sequence that got to 160 is one of the longer ones: 160..200 were seen. */
    admission_expect(&admission, 160, 4096, &mean, &variance);
    assert_true(mean > 14 && mean < 30);
    /* The limit cuts the long ones: half end at 150. */
    admission_expect(&admission, 0, 150, &mean, &variance);
    assert_true(mean > 132 && mean < 144);
}

static void a_change_of_workload_is_noticed(void **state) {
    (void)state;
    struct admission admission;
    admission_init(&admission);
    for (uint32_t i = 0; i < 50000; i++) admission_learn(&admission, 2000);
    double before;
    double after;
    double variance;
    admission_expect(&admission, 0, 100000, &before, &variance);
    for (uint32_t i = 0; i < 20000; i++) admission_learn(&admission, 20);
    admission_expect(&admission, 0, 100000, &after, &variance);
    assert_true(before > 1900);
    assert_true(after < 200);
}

static void any_length_can_be_learned(void **state) {
    (void)state;
    struct admission admission;
    admission_init(&admission);
    const uint32_t lengths[] = {0, 1, 15, 16, 1023, 1024, 1025, 65535, UINT32_MAX};
    for (uint32_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (uint32_t k = 0; k < 20; k++) admission_learn(&admission, lengths[i]);
    double mean;
    double variance;
    admission_expect(&admission, UINT32_MAX - 1, UINT32_MAX, &mean, &variance);
    assert_true(mean == 1);
}

static void what_is_used_and_expected_and_twice_its_deviation_must_fit(void **state) {
    (void)state;
    struct admission_load load = {.used = 50, .mean = 30, .variance = 100};
    assert_true(admission_fits(&load, 100));
    assert_false(admission_fits(&load, 99));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(before_anything_is_known_four_hundred_tokens_are_expected),
        cmocka_unit_test(nothing_beyond_the_limit_is_expected),
        cmocka_unit_test(lengths_that_were_seen_are_expected_again),
        cmocka_unit_test(a_change_of_workload_is_noticed),
        cmocka_unit_test(any_length_can_be_learned),
        cmocka_unit_test(what_is_used_and_expected_and_twice_its_deviation_must_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
