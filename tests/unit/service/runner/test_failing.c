/* SPDX-License-Identifier: Apache-2.0 */

/* Workers that fail at once, next to one that does not: no line ends with their error. */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "two_workers.h"

/* The failing worker gets the first line, when the other one has had none. */
static void run_with_a_failing_worker(const struct worker_echo_options *failing) {
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    struct worker_echo_options echo[2] = {*failing, {.latency_ms = 20}};
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.lookahead_lines = 32}, echo, 2);
    pipeline_submit(&p, "f", 600, id);
    struct store_batch batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.completed, 600);
    assert_int_equal(batch.failed, 0);
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

static void a_worker_that_fails_with_all_costs_no_line(void **state) {
    (void)state;
    run_with_a_failing_worker(&(struct worker_echo_options){.retryable_every = 1});
}

static void a_worker_that_answers_errors_alone_costs_no_line(void **state) {
    (void)state;
    run_with_a_failing_worker(&(struct worker_echo_options){.fail_every = 1});
}

/* Two workers with one line at a time: the first one answers `others` each time that it is told to,
 * the second one fails. */
static struct store_batch run_with_full_neighbour(enum outcome outcome, int32_t status) {
    struct fleet *fleet = fleet_open(1, CANCELS_OBEYED);
    char id[STORE_ID_BYTES];
    int64_t until_ns = soon_ns();
    pipeline_submit(&fleet->p, "t", 4, id);
    /* Ten seconds pass between two answers: all tries of a line would fail in less. */
    for (unsigned tick = 0; fleet_tick(fleet, tick % 100 == 99, id, until_ns); tick++)
        node_end(&fleet->nodes[1], 1, outcome, status);
    struct store_batch batch = pipeline_wait(&fleet->p, id, is_over);
    fleet_close(fleet);
    return batch;
}

static void the_last_try_of_a_line_waits_for_a_worker_that_has_not_failed(void **state) {
    (void)state;
    struct store_batch batch = run_with_full_neighbour(OUTCOME_TRY_AGAIN, 503);
    assert_int_equal(batch.completed, 4);
    store_batch_release(&batch);
    batch = run_with_full_neighbour(OUTCOME_DONE, 500);
    assert_int_equal(batch.completed, 4);
    store_batch_release(&batch);
}

/* An error that both workers have is the line's own. */
static void an_error_of_all_workers_is_a_record(void **state) {
    (void)state;
    struct fleet *fleet = fleet_open(64, CANCELS_OBEYED);
    char id[STORE_ID_BYTES];
    int64_t until_ns = soon_ns();
    pipeline_submit(&fleet->p, "t", 3, id);
    while (fleet_tick(fleet, 0, id, until_ns))
        for (size_t i = 0; i < NODES; i++) node_end(&fleet->nodes[i], 64, OUTCOME_DONE, 500);
    struct store_batch batch = pipeline_wait(&fleet->p, id, is_over);
    assert_int_equal(batch.failed, 3);
    assert_int_equal(fleet->nodes[0].answered + fleet->nodes[1].answered, 6);
    store_batch_release(&batch);
    fleet_close(fleet);
}

int main(void) {
    clock_make_movable();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_that_fails_with_all_costs_no_line),
        cmocka_unit_test(a_worker_that_answers_errors_alone_costs_no_line),
        cmocka_unit_test(the_last_try_of_a_line_waits_for_a_worker_that_has_not_failed),
        cmocka_unit_test(an_error_of_all_workers_is_a_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
