/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/step_trials.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A machine whose steps take ns per row by the number of rows, and whose clock goes on with them.
 * Every fifth trial takes other_ns more, which other work takes. */
static struct {
    int64_t row_ns[1025];
    int64_t now_ns, other_ns;
    uint32_t trials;
    uint32_t fails_at; /* trial, from 1 */
} machine;

static int64_t run(void *context, uint32_t rows) {
    assert_ptr_equal(context, &machine);
    assert_true(machine.row_ns[rows] > 0);
    int64_t ns = machine.row_ns[rows] * rows;
    if (++machine.trials % 5 == 3) ns += machine.other_ns;
    machine.now_ns += ns;
    return machine.trials == machine.fails_at ? 0 : ns;
}

static int64_t now_ns(void) {
    return machine.now_ns;
}

static void make_machine(int64_t ns_512, int64_t ns_256, int64_t ns_128) {
    machine.row_ns[512] = ns_512, machine.row_ns[256] = ns_256, machine.row_ns[128] = ns_128;
    machine.now_ns = machine.other_ns = 0;
    machine.trials = machine.fails_at = 0;
}

/* 0: the trials told nothing. */
static uint32_t choose(uint32_t least) {
    const struct step_trials trials = {
        .most = 512, .least = least, .run = run, .now_ns = now_ns, .context = &machine};
    uint32_t rows = 0;
    return step_trials_choose(&trials, &rows) ? rows : 0;
}

static void the_number_with_the_most_rows_per_time_is_found(void **state) {
    (void)state;
    make_machine(1000, 900, 800);
    assert_int_equal(choose(1), 128);
    make_machine(1000, 900, 950);
    assert_int_equal(choose(1), 256);
    make_machine(1000, 1100, 2000);
    assert_int_equal(choose(1), 512);
}

static void a_gain_that_could_be_noise_changes_nothing(void **state) {
    (void)state;
    make_machine(1000, 980, 975);
    assert_int_equal(choose(1), 512);
}

static void other_work_in_some_rounds_changes_nothing(void **state) {
    (void)state;
    make_machine(1000, 1000, 1000);
    machine.other_ns = 400000;
    assert_int_equal(choose(1), 512);
    make_machine(1000, 900, 1000);
    machine.other_ns = 400000;
    assert_int_equal(choose(1), 256);
}

static void numbers_below_the_least_are_not_tried(void **state) {
    (void)state;
    make_machine(1000, 900, 0);
    assert_int_equal(choose(129), 256);
    make_machine(1000, 0, 0);
    assert_int_equal(choose(257), 0);
    assert_int_equal(machine.trials, 0);
}

static void trials_end_in_their_time_or_tell_nothing(void **state) {
    (void)state;
    make_machine(100000, 90000, 90000); /* 86 ms a round */
    assert_int_equal(choose(1), 256);
    assert_true(machine.now_ns < 2 * (int64_t)STEP_TRIALS_BUDGET_NS);
    make_machine(400000, 300000, 300000); /* 320 ms a round */
    assert_int_equal(choose(1), 0);
    make_machine(1000, 900, 800);
    machine.fails_at = 5;
    assert_int_equal(choose(1), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_number_with_the_most_rows_per_time_is_found),
        cmocka_unit_test(a_gain_that_could_be_noise_changes_nothing),
        cmocka_unit_test(other_work_in_some_rounds_changes_nothing),
        cmocka_unit_test(numbers_below_the_least_are_not_tried),
        cmocka_unit_test(trials_end_in_their_time_or_tell_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
