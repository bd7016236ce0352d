/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "engine_bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Engines that share a device. */

/* Two engines for a device that has room for one. */
static struct turns *open_two(struct bench *a, struct bench *b) {
    struct turns *turns = turns_open(&(struct turns_options){.loaded_max = 1});
    const struct worker_engine_options options = {.turns = turns};
    assert_int_equal(bench_open(a, "good", options, NULL), OK);
    assert_int_equal(bench_open(b, "good", options, NULL), OK);
    return turns;
}

static void close_two(struct bench *a, struct bench *b, struct turns *turns) {
    bench_close(a);
    bench_close(b);
    turns_close(turns);
}

static void engines_of_one_device_take_turns_and_no_job_is_lost(void **state) {
    (void)state;
    struct bench a, b;
    struct turns *turns = open_two(&a, &b);
    assert_int_equal(load_of(&a), UNLOADED);
    for (uint64_t i = 1; i <= 5; i++) {
        give_job(&a, i, "of a");
        give_job(&b, i, "of b");
        wait_for(&a, &a.results, (uint32_t)i);
        wait_for(&b, &b.results, (uint32_t)i);
        assert_true(load_of(&a) != LOADED || load_of(&b) != LOADED);
    }
    assert_string_equal(b.body, "of b");
    assert_int_equal(a.returned + b.returned, 0);
    assert_int_equal(a.downs + b.downs, 0);
    close_two(&a, &b, turns);
}

static void a_single_request_gets_the_device_and_the_lines_come_back_unharmed(void **state) {
    (void)state;
    struct bench a, b;
    struct turns *turns = open_two(&a, &b);
    for (uint64_t i = 1; i <= 20; i++) give_job(&a, i, "hold");
    give_request(&b, 1, "at once");
    wait_for(&b, &b.results, 1);
    assert_string_equal(b.body, "at once");
    wait_for(&a, &a.results, 20);
    assert_int_equal(a.returned, 20);
    assert_int_equal(a.downs, 0);
    give_job(&a, 21, "again");
    wait_for(&a, &a.results, 21);
    assert_int_equal(a.returned, 20);
    close_two(&a, &b, turns);
}

static void an_engine_makes_room_only_when_its_single_requests_are_done(void **state) {
    (void)state;
    struct bench a, b;
    struct turns *turns = open_two(&a, &b);
    give_request(&a, 1, "hold");
    b.worker->ops->want(b.worker, TIER_DEFAULT, 0);
    while (load_of(&a) == LOADED) clock_sleep_ms(1);
    assert_int_equal(load_of(&a), MOVING); /* it takes nothing more, and goes on */
    assert_false(try_job(&a, 2, false, "late"));
    assert_int_equal(load_of(&b), UNLOADED);
    assert_int_equal(a.results, 0);
    a.worker->ops->cancel(a.worker, 1); /* the client hangs up */
    wait_for(&a, &a.results, 1);
    assert_int_equal(a.last_status, 499);
    assert_int_equal(a.returned, 0);
    while (load_of(&b) != LOADED) clock_sleep_ms(1);
    close_two(&a, &b, turns);
}

static void a_model_that_fails_or_dies_does_not_keep_the_device(void **state) {
    (void)state;
    struct error error = {0};
    struct turns *turns = turns_open(&(struct turns_options){.loaded_max = 1});
    struct bench bad, dying, good;
    struct worker_engine_options options = {.turns = turns};
    assert_int_equal(bench_open(&bad, "fatal", options, &error), OK);
    assert_int_equal(bench_open(&dying, "good", options, &error), OK);
    assert_int_equal(bench_open(&good, "good", options, &error), OK);
    assert_false(try_job(&bad, 1, false, "x"));
    while (load_of(&bad) != FAILED) clock_sleep_ms(1);
    give_job(&dying, 1, "crash");
    wait_for(&dying, &dying.downs, 1);
    give_job(&good, 1, "x");
    wait_for(&good, &good.results, 1);
    give_job(&dying, 2, "x");
    wait_for(&dying, &dying.results, 1);
    assert_int_equal(load_of(&bad), FAILED);
    bench_close(&bad);
    bench_close(&dying);
    bench_close(&good);
    turns_close(turns);
}

static void hold(struct bench *bench, bool is_held) {
    bench->worker->ops->hold(bench->worker, is_held);
}

/* A model that an administrator unloads, on a device of its own and on a shared one. */
static void unload_and_load(struct bench *a) {
    for (uint64_t i = 1; i <= 20; i++) give_job(a, i, "hold");
    hold(a, true);
    wait_for(a, &a->results, 20);
    assert_int_equal(a->returned, 20);
    while (load_of(a) != UNLOADED) clock_sleep_ms(1);
    assert_false(try_job(a, 21, false, "x"));
    a->worker->ops->want(a->worker, TIER_DEFAULT, 0);
    clock_sleep_ms(600); /* longer than two looks of its thread */
    assert_int_equal(load_of(a), UNLOADED);
    hold(a, false);
    give_job(a, 21, "again");
    wait_for(a, &a->results, 21);
    assert_string_equal(a->body, "again");
    assert_int_equal(a->downs, 0);
}

static void a_held_model_returns_its_lines_and_loads_only_when_told(void **state) {
    (void)state;
    struct bench a;
    bench_open_good(&a, (struct worker_engine_options){0});
    unload_and_load(&a);
    bench_close(&a);
}

static void a_held_model_leaves_its_turn_to_others(void **state) {
    (void)state;
    struct bench a, b;
    struct turns *turns = open_two(&a, &b);
    unload_and_load(&a);
    hold(&a, true);
    while (load_of(&a) != UNLOADED) clock_sleep_ms(1);
    give_job(&b, 1, "of b");
    wait_for(&b, &b.results, 1);
    for (int i = 0; i < 20; i++) assert_false(try_job(&a, 30, false, "waits"));
    give_job(&b, 2, "of b");
    wait_for(&b, &b.results, 2);
    assert_int_equal(load_of(&a), UNLOADED);
    hold(&a, false);
    while (load_of(&a) != LOADED) clock_sleep_ms(1);
    close_two(&a, &b, turns);
}

static void a_held_model_ends_its_single_requests_first(void **state) {
    (void)state;
    struct bench a;
    bench_open_good(&a, (struct worker_engine_options){0});
    give_request(&a, 1, "hold");
    hold(&a, true);
    while (load_of(&a) == LOADED) clock_sleep_ms(1);
    assert_int_equal(load_of(&a), MOVING);
    assert_int_equal(a.results, 0);
    a.worker->ops->cancel(a.worker, 1); /* the client hangs up */
    wait_for(&a, &a.results, 1);
    while (load_of(&a) != UNLOADED) clock_sleep_ms(1);
    hold(&a, false);
    while (load_of(&a) != LOADED) clock_sleep_ms(1);
    bench_close(&a);
}

/* Submits until it is taken, for a model that sleeps tells no room before it is asked. */
static void give_keeping(struct bench *bench, uint64_t id, bool is_line, int64_t keep_ms) {
    const struct worker_job job = {
        .id = id, .tier = TIER_DEFAULT, .is_line = is_line, .body = STR("x"), .keep_ms = keep_ms};
    uint32_t results = bench->results;
    while (!bench->worker->ops->submit(bench->worker, &job)) clock_sleep_ms(1);
    wait_for(bench, &bench->results, results + 1);
}

static void leave_and_come_back(struct bench *a) {
    give_keeping(a, 1, false, 1);
    while (load_of(a) != UNLOADED) clock_sleep_ms(1);
    give_keeping(a, 2, false, 0); /* loads again, and stays */
    struct worker_status status;
    a->worker->ops->status(a->worker, &status);
    assert_int_equal(status.leaves_ms, 0);
    clock_move_ms(3600000);
    clock_sleep_ms(600); /* longer than two looks of its thread */
    assert_int_equal(load_of(a), LOADED);
    give_keeping(a, 3, false, 60000);
    a->worker->ops->status(a->worker, &status);
    assert_in_range(status.leaves_ms, 1, 60000);
    assert_int_equal(load_of(a), LOADED);
    clock_move_ms(60001);
    while (load_of(a) != UNLOADED) clock_sleep_ms(1);
    give_keeping(a, 4, false, 1);
    give_keeping(a, 5, true, 0); /* the last job decides */
    a->worker->ops->status(a->worker, &status);
    assert_int_equal(status.leaves_ms, 0);
    a->worker->ops->park(a->worker);
    clock_move_ms(WORKER_ENGINE_LINES_MS + 1);
    while (load_of(a) != UNLOADED) clock_sleep_ms(1);
    assert_int_equal(a->returned + a->downs, 0);
}

static void a_model_leaves_after_its_time_and_loads_again_for_a_job(void **state) {
    (void)state;
    struct bench a, b;
    bench_open_good(&a, (struct worker_engine_options){0});
    leave_and_come_back(&a);
    bench_close(&a);
    struct turns *turns = open_two(&a, &b);
    leave_and_come_back(&a);
    give_job(&b, 1, "of b");
    wait_for(&b, &b.results, 1);
    close_two(&a, &b, turns);
}

static void a_model_with_jobs_does_not_leave(void **state) {
    (void)state;
    struct bench a;
    bench_open_good(&a, (struct worker_engine_options){.keep_ms = 1});
    for (uint64_t i = 1; i <= 3; i++) give_job(&a, i, "hold");
    a.worker->ops->park(a.worker);
    clock_move_ms(3600000);
    clock_sleep_ms(600); /* longer than two looks of its thread */
    assert_int_equal(load_of(&a), LOADED);
    assert_int_equal(a.results, 0);
    for (uint64_t i = 1; i <= 3; i++) a.worker->ops->cancel(a.worker, i);
    wait_for(&a, &a.results, 3);
    assert_int_equal(a.returned, 0);
    clock_move_ms(WORKER_ENGINE_LINES_MS + 1);
    while (load_of(&a) != UNLOADED) clock_sleep_ms(1);
    bench_close(&a);
}

int main(int count, char **words) {
    bench_begin(count, words);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_of_one_device_take_turns_and_no_job_is_lost),
        cmocka_unit_test(a_single_request_gets_the_device_and_the_lines_come_back_unharmed),
        cmocka_unit_test(an_engine_makes_room_only_when_its_single_requests_are_done),
        cmocka_unit_test(a_model_that_fails_or_dies_does_not_keep_the_device),
        cmocka_unit_test(a_held_model_returns_its_lines_and_loads_only_when_told),
        cmocka_unit_test(a_held_model_leaves_its_turn_to_others),
        cmocka_unit_test(a_held_model_ends_its_single_requests_first),
        cmocka_unit_test(a_model_leaves_after_its_time_and_loads_again_for_a_job),
        cmocka_unit_test(a_model_with_jobs_does_not_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
