/* SPDX-License-Identifier: Apache-2.0 */

/* The end of a batch whose workers differ: a slow one holds few lines, and gives back what it has
 * not begun. */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "two_workers.h"

/* The second worker answers nothing by itself, and the batch ends nevertheless. */
static void run_beside_a_silent_worker(enum cancels cancels, uint32_t least_answers) {
    struct fleet *fleet = fleet_open(128, cancels);
    struct node *fast = &fleet->nodes[0], *slow = &fleet->nodes[1];
    char id[STORE_ID_BYTES];
    int64_t until_ns = soon_ns();
    pipeline_submit(&fleet->p, "t", 400, id);
    node_wait(slow, 128);
    while (fleet_tick(fleet, 5, id, until_ns)) continue;
    check_output(fleet, id, 400);
    assert_int_equal(fast->answered + slow->answered, 400);
    assert_in_range(slow->answered, least_answers, 128);
    struct runner_status status = status_of(fleet);
    assert_true(status.lines_recalled >= 128);
    assert_int_equal(status.lines_retried, 0); /* to be asked back is no try */
    fleet_close(fleet);
}

static void lines_of_a_worker_that_answers_nothing_run_on_the_other(void **state) {
    (void)state;
    run_beside_a_silent_worker(CANCELS_OBEYED, 0);
}

static void an_answer_to_a_line_that_was_asked_back_counts(void **state) {
    (void)state;
    run_beside_a_silent_worker(CANCELS_ANSWERED, 1);
}

static void a_worker_that_hears_no_cancel_loses_its_lines_and_answers_in_vain(void **state) {
    (void)state;
    struct fleet *fleet = fleet_open(64, CANCELS_UNHEARD);
    char id[STORE_ID_BYTES];
    int64_t until_ns = soon_ns();
    pipeline_submit(&fleet->p, "t", 200, id);
    node_wait(&fleet->nodes[1], 64);
    while (fleet_tick(fleet, 5, id, until_ns)) continue;
    assert_int_equal(fleet->nodes[0].answered, 200);
    node_answer(&fleet->nodes[1], 64);
    check_output(fleet, id, 200);
    assert_int_equal(status_of(fleet).lines_done, 200);
    fleet_close(fleet);
}

/* --- time in which no answer could come --- */

/* Lets the time pass at once, and waits until the runner has looked at its workers. */
static void fleet_pass(struct fleet *fleet, int64_t ms) {
    int64_t until_ns = soon_ns();
    uint64_t before = counts_of(&fleet->nodes[1]).looks;
    clock_move_ms(ms);
    while (counts_of(&fleet->nodes[1]).looks == before && test_real_ns() < until_ns) usleep(500);
    assert_true(counts_of(&fleet->nodes[1]).looks > before);
}

static void set_unheard(struct fleet *fleet, bool is_unheard) {
    for (size_t i = 0; i < NODES; i++) {
        pthread_mutex_lock(&fleet->nodes[i].lock);
        fleet->nodes[i].is_unheard = is_unheard;
        pthread_mutex_unlock(&fleet->nodes[i].lock);
    }
}

/* A batch whose last lines are with the second worker, while the first one has nothing to do. */
static struct fleet *open_at_the_end(char *id) {
    struct fleet *fleet = fleet_open(128, CANCELS_UNHEARD);
    pipeline_submit(&fleet->p, "t", 40, id);
    int64_t until_ns = soon_ns();
    while (counts_of(&fleet->nodes[0]).in_flight + counts_of(&fleet->nodes[1]).in_flight < 40 &&
           test_real_ns() < until_ns)
        usleep(500);
    assert_in_range(counts_of(&fleet->nodes[1]).in_flight, 2, 39);
    node_answer(&fleet->nodes[0], 40);
    node_answer(&fleet->nodes[1], 1);
    fleet_pass(fleet, 1000);
    return fleet;
}

/* The lines still age, and end. Each has run once until then. */
static void end_batch(struct fleet *fleet, const char *id) {
    assert_int_equal(fleet->nodes[0].count + fleet->nodes[1].count, 40);
    assert_int_equal(status_of(fleet).lines_recalled, 0);
    for (unsigned looks = 0; status_of(fleet).lines_recalled == 0; looks++) {
        assert_true(looks < 60);
        fleet_pass(fleet, 1000);
    }
    int64_t until_ns = soon_ns();
    while (fleet_tick(fleet, 5, id, until_ns)) node_answer(&fleet->nodes[1], 5);
    check_output(fleet, id, 40);
    fleet_close(fleet);
}

static void a_server_that_stood_still_asks_no_line_back(void **state) {
    (void)state;
    char id[STORE_ID_BYTES];
    struct fleet *fleet = open_at_the_end(id);
    fleet_pass(fleet, 3600000);
    fleet_pass(fleet, 1000);
    end_batch(fleet, id);
}

static void lines_of_workers_that_are_not_heard_are_not_asked_back(void **state) {
    (void)state;
    char id[STORE_ID_BYTES];
    struct fleet *fleet = open_at_the_end(id);
    set_unheard(fleet, true);
    for (unsigned i = 0; i < 120; i++) fleet_pass(fleet, 1000);
    set_unheard(fleet, false);
    fleet_pass(fleet, 1000);
    end_batch(fleet, id);
}

/* --- lines that have begun, and workers that may be lost --- */

/* What a worker says that it runs is old: 0, while it has begun all that it has. */
static void a_line_that_a_worker_has_begun_stays_there(void **state) {
    (void)state;
    struct fleet *fleet = fleet_open(128, CANCELS_OBEYED);
    struct node *fast = &fleet->nodes[0], *slow = &fleet->nodes[1];
    char id[STORE_ID_BYTES];
    int64_t until_ns = soon_ns();
    slow->worker.ops = &recalling_ops;
    slow->running = 0;
    pipeline_submit(&fleet->p, "t", 400, id);
    node_wait(slow, 128);
    unsigned ticks = 0, asked_at = 0;
    /* It answers all of them six seconds after it was asked for some, later than a worker that does
     * not hear would be believed. */
    for (; asked_at == 0 || ticks < asked_at + 60; ticks++) {
        assert_true(fleet_tick(fleet, 5, id, until_ns));
        if (ticks % 10 == 9) node_answer(slow, 1);
        if (asked_at == 0 && status_of(fleet).lines_recalled > 0) asked_at = ticks;
    }
    node_answer(slow, 128);
    while (fleet_tick(fleet, 5, id, until_ns)) continue;
    check_output(fleet, id, 400);
    assert_int_equal(fast->count + slow->count, 400);
    assert_true(slow->recalled > 0);
    assert_int_equal(slow->cancelled, 0);
    fleet_close(fleet);
}

static void set_silent(struct node *node) {
    pthread_mutex_lock(&node->lock);
    node->is_silent = true;
    pthread_mutex_unlock(&node->lock);
}

/* When all lines are given the second worker answers all of its own, and dies: it has room. */
static void no_line_is_taken_from_a_worker_for_one_that_may_be_lost(void **state) {
    (void)state;
    struct fleet *fleet = fleet_open(64, CANCELS_OBEYED);
    struct node *well = &fleet->nodes[0], *dead = &fleet->nodes[1];
    char id[STORE_ID_BYTES];
    int64_t until_ns = soon_ns();
    pipeline_submit(&fleet->p, "t", 250, id);
    for (unsigned tick = 0; well->count + dead->count < 250; tick++) {
        assert_true(fleet_tick(fleet, tick % 2, id, until_ns));
        node_answer(dead, tick % 2);
    }
    set_silent(dead);
    node_answer(dead, 64);
    for (unsigned tick = 0; fleet_tick(fleet, tick % 2, id, until_ns); tick++) continue;
    check_output(fleet, id, 250);
    assert_int_equal(well->cancelled, 0);
    assert_int_equal(well->count + dead->count, 250);
    fleet_close(fleet);
}

/* It would come back to the same worker. */
static void a_line_that_takes_long_is_not_taken_from_the_only_worker_that_is_well(void **state) {
    (void)state;
    char id[STORE_ID_BYTES];
    struct fleet *fleet = open_at_the_end(id);
    int64_t until_ns = soon_ns();
    set_silent(&fleet->nodes[0]);
    node_answer(&fleet->nodes[1], counts_of(&fleet->nodes[1]).in_flight - 2); /* it has room */
    for (unsigned i = 0; i < 60; i++) fleet_pass(fleet, 1000);
    assert_int_equal(fleet->nodes[1].cancelled, 0);
    node_answer(&fleet->nodes[1], 40);
    while (fleet_tick(fleet, 5, id, until_ns)) continue;
    check_output(fleet, id, 40);
    assert_int_equal(fleet->nodes[0].count + fleet->nodes[1].count, 40);
    fleet_close(fleet);
}

static void a_slow_worker_holds_the_lines_of_its_next_seconds(void **state) {
    (void)state;
    struct fleet *fleet = fleet_open(64, CANCELS_OBEYED);
    struct node *slow = &fleet->nodes[1];
    char id[STORE_ID_BYTES];
    int64_t until_ns = soon_ns();
    pipeline_submit(&fleet->p, "t", 12000, id);
    node_wait(slow, 64);
    /* One line per second against a hundred: 4 that run, and 8 to come, long before the batch ends.
     * Until it has answered the others, it has what it got at first. */
    for (unsigned tick = 1; counts_of(slow).in_flight > 12; tick++) {
        assert_true(fleet_tick(fleet, 10, id, until_ns));
        if (tick % 10 == 0) node_answer(slow, 1);
    }
    while (fleet_tick(fleet, 100, id, until_ns)) continue;
    check_output(fleet, id, 12000);
    fleet_close(fleet);
}

int main(void) {
    clock_make_movable();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_a_worker_that_answers_nothing_run_on_the_other),
        cmocka_unit_test(an_answer_to_a_line_that_was_asked_back_counts),
        cmocka_unit_test(a_worker_that_hears_no_cancel_loses_its_lines_and_answers_in_vain),
        cmocka_unit_test(a_server_that_stood_still_asks_no_line_back),
        cmocka_unit_test(lines_of_workers_that_are_not_heard_are_not_asked_back),
        cmocka_unit_test(a_line_that_a_worker_has_begun_stays_there),
        cmocka_unit_test(no_line_is_taken_from_a_worker_for_one_that_may_be_lost),
        cmocka_unit_test(a_line_that_takes_long_is_not_taken_from_the_only_worker_that_is_well),
        cmocka_unit_test(a_slow_worker_holds_the_lines_of_its_next_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
