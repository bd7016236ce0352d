/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void a_rate_counts_after_five_seconds_and_forgets_in_a_minute(void **state) {
    (void)state;
    struct pace pace = {0};
    pace_note(&pace, 40, 4);
    assert_true(pace_rate(&pace) == 0);
    pace_note(&pace, 12, 1.2);
    assert_true(pace_rate(&pace) > 9.9 && pace_rate(&pace) < 10.1);
    for (int i = 0; i < 600; i++) pace_note(&pace, 1, 1);
    assert_true(pace_rate(&pace) > 0.99 && pace_rate(&pace) < 1.01);
    pace_note(&pace, 100, 0); /* no time has passed */
    assert_true(pace_rate(&pace) < 1.01);
}

static void a_worker_without_an_answer_is_taken_to_give_one(void **state) {
    (void)state;
    struct pace pace = {0};
    pace_note(&pace, 0, 20);
    assert_true(pace_rate(&pace) > 0.049 && pace_rate(&pace) < 0.051);
}

static void a_worker_may_have_what_it_runs_and_eight_seconds_more(void **state) {
    (void)state;
    assert_int_equal(pace_bound(0, 16, 768), 768);
    assert_int_equal(pace_bound(10, 16, 768), 96);
    assert_int_equal(pace_bound(0.01, 16, 768), 24);
    assert_int_equal(pace_bound(1000, 16, 768), 768);
    assert_int_equal(pace_bound(0.01, 0, 4), 4);
}

static void the_rest_of_a_lease_is_shared_by_rates_else_by_weights(void **state) {
    (void)state;
    struct pace_worker fast = {.weight = 1, .lines = 0}, slow = {.weight = 1, .lines = 0};
    assert_int_equal(pace_share(&fast, &slow, 100), 50);
    fast.weight = 3;
    assert_int_equal(pace_share(&fast, &slow, 100), 75);
    fast.rate = 99, slow.rate = 1;
    assert_int_equal(pace_share(&fast, &slow, 100), 99);
    assert_int_equal(pace_share(&slow, &fast, 100), 1);
    slow.lines = 100; /* more than it ends while the other does the rest */
    assert_int_equal(pace_share(&fast, &slow, 100), 100);
    fast.lines = 1000000;
    assert_int_equal(pace_share(&fast, &slow, 100), 0);
}

static void all_end_together_after_a_recall_and_what_runs_stays(void **state) {
    (void)state;
    struct pace_worker workers[] = {{.rate = 10, .weight = 1, .room = 80},
                                    {.rate = 0.1, .weight = 1, .lines = 100, .running = 4},
                                    {.weight = 1, .room = 80}}; /* new: as fast as the best */
    double even_s = pace_even_s(workers, 3);
    assert_true(even_s > 4.9 && even_s < 5.1);
    assert_int_equal(pace_recall(&workers[1], even_s), 96);
    workers[1].running = 0;
    assert_int_equal(pace_recall(&workers[1], even_s), 99);
    assert_int_equal(pace_recall(&workers[0], even_s), 0);
    workers[1].lines = 1;
    assert_int_equal(pace_recall(&workers[1], even_s), 0);
}

static void nothing_is_recalled_for_two_seconds_or_without_a_rate(void **state) {
    (void)state;
    struct pace_worker workers[] = {{.rate = 10, .weight = 1, .lines = 40},
                                    {.rate = 10, .weight = 1, .lines = 20, .room = 60}};
    double even_s = pace_even_s(workers, 2);
    assert_int_equal(pace_recall(&workers[0], even_s), 0);
    struct pace_worker unknown[] = {{.weight = 1, .lines = 40}, {.weight = 1, .room = 60}};
    assert_true(pace_even_s(unknown, 2) == 0);
}

/* Its lines end at the others, which must take that long. */
static void a_silent_worker_is_expected_to_do_nothing(void **state) {
    (void)state;
    struct pace_worker workers[] = {{.rate = 10, .weight = 1, .lines = 60, .room = 40},
                                    {.rate = 10, .weight = 1, .lines = 40, .is_silent = true}};
    double even_s = pace_even_s(workers, 2);
    assert_true(even_s > 9.9 && even_s < 10.1);
    assert_int_equal(pace_recall(&workers[0], even_s), 0);
}

static void a_line_is_overdue_after_three_times_the_longest_and_ten_seconds(void **state) {
    (void)state;
    assert_false(pace_is_overdue(39.9, 10));
    assert_true(pace_is_overdue(40.1, 10));
    assert_false(pace_is_overdue(1e6, 0));
}

static void the_longest_time_of_long_ago_is_forgotten(void **state) {
    (void)state;
    struct pace_longest longest = {0};
    assert_true(pace_longest_s(&longest) == 0);
    pace_took(&longest, 1000, 90);
    pace_took(&longest, 1050, 3);
    pace_took(&longest, 1061, 4);
    assert_true(pace_longest_s(&longest) == 90);
    pace_took(&longest, 1130, 2);
    assert_true(pace_longest_s(&longest) == 4);
    assert_true(pace_longest_s(&longest) == 4); /* however long nothing is answered */
}

static void a_worker_is_slow_from_a_quarter_on(void **state) {
    (void)state;
    assert_true(pace_slowness(3, 10) == 1);
    assert_true(pace_slowness(2.5, 10) == 4);
    assert_true(pace_slowness(0, 10) == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rate_counts_after_five_seconds_and_forgets_in_a_minute),
        cmocka_unit_test(a_worker_without_an_answer_is_taken_to_give_one),
        cmocka_unit_test(a_worker_may_have_what_it_runs_and_eight_seconds_more),
        cmocka_unit_test(the_rest_of_a_lease_is_shared_by_rates_else_by_weights),
        cmocka_unit_test(all_end_together_after_a_recall_and_what_runs_stays),
        cmocka_unit_test(nothing_is_recalled_for_two_seconds_or_without_a_rate),
        cmocka_unit_test(a_silent_worker_is_expected_to_do_nothing),
        cmocka_unit_test(a_line_is_overdue_after_three_times_the_longest_and_ten_seconds),
        cmocka_unit_test(the_longest_time_of_long_ago_is_forgotten),
        cmocka_unit_test(a_worker_is_slow_from_a_quarter_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
