/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/step_clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MS ((int64_t)1000000)

static void without_a_step_under_way_the_next_one_is_due_at_once(void **state) {
    (void)state;
    struct step_clock clock = {.count = 0};
    assert_int_equal(step_clock_due_ns(&clock), 0);
}

static void a_step_of_unknown_duration_makes_the_next_one_due_at_once(void **state) {
    (void)state;
    struct step_clock clock = {.count = 0};
    step_clock_begin(&clock, 100, 1000 * MS);
    assert_int_equal(step_clock_due_ns(&clock), 0);
    step_clock_end(&clock, 1040 * MS);
    step_clock_begin(&clock, 100, 1040 * MS);
    assert_int_equal(step_clock_due_ns(&clock), 0); /* one duration is known, two are needed */
    step_clock_end(&clock, 1080 * MS);
    step_clock_begin(&clock, 5000, 1080 * MS); /* with another number of rows */
    assert_int_equal(step_clock_due_ns(&clock), 0);
}

static void the_shorter_of_two_durations_counts_less_a_share_and_the_composing(void **state) {
    (void)state;
    struct step_clock clock = {.count = 0};
    step_clock_begin(&clock, 100, 1000 * MS);
    step_clock_end(&clock, 1040 * MS);
    step_clock_begin(&clock, 101, 1040 * MS);
    step_clock_end(&clock, 1060 * MS);
    step_clock_begin(&clock, 99, 1070 * MS);
    assert_int_equal(step_clock_due_ns(&clock), 1070 * MS + 17 * MS - 2 * MS);
}

static void a_step_behind_another_starts_when_that_one_ends(void **state) {
    (void)state;
    struct step_clock clock = {.count = 0};
    int64_t now = 1000 * MS;
    step_clock_begin(&clock, 64, now);
    for (int i = 0; i < 4; i++) { /* each step is submitted 10 ms before the end of the last */
        step_clock_begin(&clock, 64, now + 30 * MS);
        now += 40 * MS;
        step_clock_end(&clock, now);
    }
    assert_int_equal(step_clock_due_ns(&clock), now + 34 * MS - 2 * MS);
}

static void steps_that_are_shorter_than_composing_are_due_at_once(void **state) {
    (void)state;
    struct step_clock clock = {.count = 0};
    for (int i = 0; i < 3; i++) {
        step_clock_begin(&clock, 1, (1000 + 2 * i) * MS);
        step_clock_end(&clock, (1002 + 2 * i) * MS);
    }
    step_clock_begin(&clock, 1, 1006 * MS);
    assert_int_equal(step_clock_due_ns(&clock), 0);
}

static void steps_of_very_many_rows_share_one_place(void **state) {
    (void)state;
    struct step_clock clock = {.count = 0};
    for (uint32_t i = 0; i < 2; i++) {
        step_clock_begin(&clock, UINT32_MAX - i, (1000 + 100 * i) * MS);
        step_clock_end(&clock, (1100 + 100 * i) * MS);
    }
    step_clock_begin(&clock, STEP_CLOCK_BINS * STEP_CLOCK_BIN_ROWS, 1200 * MS);
    assert_int_equal(step_clock_due_ns(&clock), 1200 * MS + 85 * MS - 2 * MS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_step_under_way_the_next_one_is_due_at_once),
        cmocka_unit_test(a_step_of_unknown_duration_makes_the_next_one_due_at_once),
        cmocka_unit_test(the_shorter_of_two_durations_counts_less_a_share_and_the_composing),
        cmocka_unit_test(a_step_behind_another_starts_when_that_one_ends),
        cmocka_unit_test(steps_that_are_shorter_than_composing_are_due_at_once),
        cmocka_unit_test(steps_of_very_many_rows_share_one_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
