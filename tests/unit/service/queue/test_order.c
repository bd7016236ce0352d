/* SPDX-License-Identifier: Apache-2.0 */
#include "queue/order.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define START_UNIX_S 1800000000
#define NS_PER_S INT64_C(1000000000)

/* A fake machine: every second it does so much work of whatever the order chooses. */
struct machine {
    struct order order;
    struct order_entry batches[8];
    size_t count;
    uint64_t given[8]; /* lines */
    int64_t now_s;     /* since the start */
    double debt;       /* cost that was given too much */
    int64_t ended_s[8];
};

static bool has_lines(void *context, const struct order_entry *entry) {
    const struct machine *machine = context;
    return machine->given[entry->age] < entry->lines_total;
}

static struct order_entry *add(struct machine *machine, struct order_entry entry) {
    size_t at = machine->count++;
    entry.age = at;
    if (entry.deadline_unix_s == 0) entry.deadline_unix_s = 86400;
    entry.deadline_unix_s += START_UNIX_S;
    if (entry.line_cost == 0) entry.line_cost = 1;
    machine->batches[at] = entry;
    order_add(&machine->order, &machine->batches[at]);
    return &machine->batches[at];
}

/* One choice: at most `lines_max` lines. NULL when there is nothing to do. */
static struct order_entry *give(struct machine *machine, uint64_t lines_max) {
    struct order_entry *entry = order_choose(&machine->order, has_lines, machine);
    if (!entry) return NULL;
    uint64_t left = entry->lines_total - machine->given[entry->age];
    uint64_t lines = left < lines_max ? left : lines_max;
    machine->given[entry->age] += lines;
    entry->lines_done += lines;
    order_charge(entry, (double)lines * entry->line_cost);
    machine->debt += (double)lines * entry->line_cost;
    if (lines == left) {
        order_remove(&machine->order, entry);
        machine->ended_s[entry->age] = machine->now_s;
    }
    return entry;
}

static void run_second(struct machine *machine, double cost_per_s) {
    machine->debt -= cost_per_s;
    while (machine->debt < 0 && give(machine, 16)) continue;
    if (machine->debt < 0) machine->debt = 0;
    machine->now_s++;
    order_tend(&machine->order, (machine->now_s + 1) * NS_PER_S, START_UNIX_S + machine->now_s);
}

static struct machine new_machine(void) {
    struct machine machine = {0};
    order_tend(&machine.order, NS_PER_S, START_UNIX_S);
    return machine;
}

static void tiers_then_lower_priorities_then_older_batches_go_first(void **state) {
    (void)state;
    struct machine m = new_machine();
    add(&m, (struct order_entry){.tier = 3, .lines_total = 1});
    add(&m, (struct order_entry){.tier = 3, .lines_total = 1});
    add(&m, (struct order_entry){.tier = 3, .priority = -1, .lines_total = 1});
    add(&m, (struct order_entry){.tier = 0, .priority = 9, .lines_total = 1});
    const uint64_t expected[] = {3, 2, 0, 1};
    for (size_t i = 0; i < 4; i++) assert_int_equal(give(&m, 10)->age, expected[i]);
    assert_null(give(&m, 10));
}

static void a_batch_of_lower_priority_that_comes_later_goes_first_at_once(void **state) {
    (void)state;
    struct machine m = new_machine();
    add(&m, (struct order_entry){.lines_total = 1000});
    for (int i = 0; i < 10; i++) assert_int_equal(give(&m, 10)->age, 0);
    add(&m, (struct order_entry){.priority = -1, .lines_total = 20});
    assert_int_equal(give(&m, 10)->age, 1);
    assert_int_equal(give(&m, 10)->age, 1);
    assert_int_equal(give(&m, 10)->age, 0);
}

static void a_small_batch_beside_a_huge_one_ends_after_twice_its_own_work(void **state) {
    (void)state;
    struct machine m = new_machine();
    add(&m, (struct order_entry){.lines_total = 1000000});
    for (int i = 0; i < 500; i++) give(&m, 256);
    uint64_t before = m.given[0];
    add(&m, (struct order_entry){.lines_total = 512});
    while (m.given[1] < 512) assert_non_null(give(&m, 256));
    assert_in_range(m.given[0] - before, 0, 512 + 256);
}

static void the_share_is_of_work_and_not_of_lines(void **state) {
    (void)state;
    struct machine m = new_machine();
    add(&m, (struct order_entry){.lines_total = 1000000, .line_cost = 10});
    add(&m, (struct order_entry){.lines_total = 1000000, .line_cost = 1});
    for (int i = 0; i < 2000; i++) give(&m, 16);
    double heavy = (double)m.given[0] * 10, light = (double)m.given[1];
    assert_true(heavy - light <= 160 && light - heavy <= 160);
}

static void a_batch_that_joins_late_has_nothing_to_catch_up(void **state) {
    (void)state;
    struct machine m = new_machine();
    add(&m, (struct order_entry){.lines_total = 1000000});
    for (int i = 0; i < 1000; i++) give(&m, 16);
    add(&m, (struct order_entry){.lines_total = 1000000});
    uint64_t before = m.given[0];
    for (int i = 0; i < 100; i++) give(&m, 16);
    assert_in_range(m.given[0] - before, 49 * 16, 51 * 16);
}

static void models_take_turns_whatever_one_of_them_was_given_before(void **state) {
    (void)state;
    struct machine m = new_machine();
    add(&m, (struct order_entry){.lines_total = 1000000, .pool = 1});
    for (int i = 0; i < 1000; i++) give(&m, 16);
    add(&m, (struct order_entry){.lines_total = 1000000, .pool = 2});
    uint64_t before = m.given[0];
    for (int i = 0; i < 100; i++) give(&m, 16);
    assert_in_range(m.given[0] - before, 49 * 16, 51 * 16);
}

static void a_batch_that_would_miss_its_deadline_is_moved_forward_in_time(void **state) {
    (void)state;
    struct machine m = new_machine();
    /* 10,000 lines of priority 0 before 2,000 of priority 1, at 10 a second: too late by far,
     * though alone it would take 200 s. */
    add(&m, (struct order_entry){.lines_total = 10000});
    add(&m, (struct order_entry){.lines_total = 2000, .priority = 1, .deadline_unix_s = 900});
    for (int s = 0; s < 250; s++) run_second(&m, 10);
    assert_false(m.batches[1].is_hurried); /* not before it must be */
    assert_int_equal(m.given[1], 0);
    while (m.given[1] < 2000 && m.now_s < 2000) run_second(&m, 10);
    assert_true(m.now_s < 900);
}

static void of_two_that_are_late_the_earlier_deadline_goes_first_and_both_are_met(void **state) {
    (void)state;
    struct machine m = new_machine();
    add(&m, (struct order_entry){.lines_total = 100000});
    add(&m, (struct order_entry){.lines_total = 1000, .priority = 5, .deadline_unix_s = 400});
    add(&m, (struct order_entry){.lines_total = 1000, .priority = 2, .deadline_unix_s = 290});
    while ((m.given[1] < 1000 || m.given[2] < 1000) && m.now_s < 1000) run_second(&m, 10);
    assert_true(m.ended_s[2] < 290 && m.ended_s[1] < 400);
    assert_true(m.ended_s[2] < m.ended_s[1]);
    assert_true(m.given[0] > 0 && m.given[0] < 2500);
}

static void a_batch_that_cannot_meet_its_deadline_takes_no_time_from_others(void **state) {
    (void)state;
    struct machine m = new_machine();
    add(&m, (struct order_entry){.lines_total = 3000, .deadline_unix_s = 320});
    add(&m, (struct order_entry){.lines_total = 100000, .priority = 1, .deadline_unix_s = 200});
    while (m.given[0] < 3000 && m.now_s < 1000) {
        run_second(&m, 10);
        assert_false(m.batches[1].is_hurried);
    }
    assert_true(m.now_s <= 302);
    assert_true(m.batches[1].is_late);
}

static void a_deadline_moves_nothing_over_the_border_of_a_tier(void **state) {
    (void)state;
    struct machine m = new_machine();
    add(&m, (struct order_entry){.tier = 2, .lines_total = 3000});
    add(&m, (struct order_entry){.tier = 3, .lines_total = 500, .deadline_unix_s = 100});
    while (m.given[0] < 3000) run_second(&m, 10);
    assert_true(m.given[1] < 20);
}

static void an_engine_that_stands_still_makes_nobody_late(void **state) {
    (void)state;
    struct machine m = new_machine();
    struct order_entry *only = add(&m, (struct order_entry){.lines_total = 5000});
    for (int s = 0; s < 3600; s++) {
        m.now_s++;
        order_tend(&m.order, (m.now_s + 1) * NS_PER_S, START_UNIX_S + m.now_s);
        assert_false(only->is_late || only->is_hurried);
    }
    for (int s = 0; s < 300; s++) run_second(&m, 10);
    assert_false(only->is_late || only->is_hurried);
}

/* Whatever is added and removed, nobody starves and no share is off by more than two choices. */
static void shares_stay_even_however_batches_come_and_go(void **state) {
    (void)state;
    struct rng rng = {11};
    for (int round = 0; round < 50; round++) {
        struct machine m = new_machine();
        for (int i = 0; i < 3000; i++) {
            if (m.count < 8 && rng_below(&rng, 100) == 0)
                add(&m, (struct order_entry){.lines_total = 1u << 30,
                                             .line_cost = 1 + (double)rng_below(&rng, 20)});
            give(&m, 16);
            double least = 1e300, most = 0;
            for (size_t k = 0; k < m.count; k++) {
                if (m.batches[k].served < least) least = m.batches[k].served;
                if (m.batches[k].served > most) most = m.batches[k].served;
            }
            assert_true(m.count == 0 || most - least <= 2 * 16 * 21);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiers_then_lower_priorities_then_older_batches_go_first),
        cmocka_unit_test(a_batch_of_lower_priority_that_comes_later_goes_first_at_once),
        cmocka_unit_test(a_small_batch_beside_a_huge_one_ends_after_twice_its_own_work),
        cmocka_unit_test(the_share_is_of_work_and_not_of_lines),
        cmocka_unit_test(a_batch_that_joins_late_has_nothing_to_catch_up),
        cmocka_unit_test(models_take_turns_whatever_one_of_them_was_given_before),
        cmocka_unit_test(a_batch_that_would_miss_its_deadline_is_moved_forward_in_time),
        cmocka_unit_test(of_two_that_are_late_the_earlier_deadline_goes_first_and_both_are_met),
        cmocka_unit_test(a_batch_that_cannot_meet_its_deadline_takes_no_time_from_others),
        cmocka_unit_test(a_deadline_moves_nothing_over_the_border_of_a_tier),
        cmocka_unit_test(an_engine_that_stands_still_makes_nobody_late),
        cmocka_unit_test(shares_stay_even_however_batches_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
