/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/history.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define S INT64_C(1000000000)

static struct history_step steps[HISTORY_STEPS];
static struct history_event events[HISTORY_EVENTS];

static void count(struct history *history, int64_t at_s, uint64_t tokens, uint64_t lines) {
    const struct history_step sums = {tokens, lines};
    history_count(history, at_s * S, &sums);
}

static void a_step_has_the_growth_of_ten_seconds(void **state) {
    (void)state;
    struct history *history = history_open();
    count(history, 5, 100, 7); /* counts from here on */
    count(history, 14, 150, 8);
    assert_int_equal(history_steps(history, steps), 0);
    count(history, 15, 160, 9);
    count(history, 26, 165, 9);
    assert_int_equal(history_steps(history, steps), 2);
    assert_int_equal(steps[0].tokens, 60);
    assert_int_equal(steps[0].lines, 2);
    assert_int_equal(steps[1].tokens, 5);
    assert_int_equal(steps[1].lines, 0);
    history_close(history);
}

static void steps_without_a_look_share_the_growth(void **state) {
    (void)state;
    struct history *history = history_open();
    count(history, 1, 0, 0);
    count(history, 31, 10, 2);
    assert_int_equal(history_steps(history, steps), 3);
    assert_int_equal(steps[0].tokens, 4);
    assert_int_equal(steps[1].tokens, 3);
    assert_int_equal(steps[2].tokens, 3);
    assert_int_equal(steps[0].lines + steps[1].lines + steps[2].lines, 2);
    count(history, 41, 4, 2); /* a counter that fell */
    assert_int_equal(history_steps(history, steps), 4);
    assert_int_equal(steps[3].tokens, 0);
    history_close(history);
}

static void an_hour_is_kept(void **state) {
    (void)state;
    struct history *history = history_open();
    for (uint64_t i = 0; i <= HISTORY_STEPS + 5; i++) count(history, 1 + 10 * (int64_t)i, i * i, i);
    assert_int_equal(history_steps(history, steps), HISTORY_STEPS);
    for (uint64_t i = 0; i < HISTORY_STEPS; i++) {
        uint64_t at = i + 5; /* the step from `at` to `at` + 1 */
        assert_int_equal(steps[i].tokens, 2 * at + 1);
        assert_int_equal(steps[i].lines, 1);
    }
    count(history, 1000000, 1000000000, 5); /* a machine that slept for days */
    assert_int_equal(history_steps(history, steps), HISTORY_STEPS);
    assert_int_equal(steps[0].lines, 0);
    history_close(history);
}

static void the_newest_events_come_first(void **state) {
    (void)state;
    struct history *history = history_open();
    assert_int_equal(history_events(history, events), 0);
    for (int i = 0; i < HISTORY_EVENTS + 3; i++) {
        struct history_event event = {.at_unix_s = i, .kind = HISTORY_DISK_FULL};
        snprintf(event.text, sizeof event.text, "number %d", i);
        history_add(history, &event);
    }
    assert_int_equal(history_events(history, events), HISTORY_EVENTS);
    assert_int_equal(events[0].at_unix_s, HISTORY_EVENTS + 2);
    assert_string_equal(events[HISTORY_EVENTS - 1].text, "number 3");
    history_close(history);
}

static void every_kind_has_a_name(void **state) {
    (void)state;
    for (int kind = 0; kind < HISTORY_KINDS; kind++)
        assert_true(strlen(history_kind_name((enum history_kind)kind)) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_has_the_growth_of_ten_seconds),
        cmocka_unit_test(steps_without_a_look_share_the_growth),
        cmocka_unit_test(an_hour_is_kept),
        cmocka_unit_test(the_newest_events_come_first),
        cmocka_unit_test(every_kind_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
