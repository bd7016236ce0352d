/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "engine_bench.h"
#include "fake_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* The life of a worker_engine while its engine is well: loading, jobs, closing. */

static const struct worker_engine_options none;

static void a_job_goes_there_and_its_result_comes_back(void **state) {
    (void)state;
    struct bench bench;
    bench_open_good(&bench, none);
    give_job(&bench, 7, "hello");
    wait_for(&bench, &bench.results, 1);
    assert_int_equal(bench.last_id, 7);
    assert_int_equal(bench.last_status, 200);
    assert_string_equal(bench.body, "hello");
    assert_int_equal(bench.last_usage.input_tokens, 5);
    assert_int_equal(bench.last_usage.output_tokens, 7);
    bench_close(&bench);
    assert_int_equal(bench.downs, 0);
}

static void deltas_come_in_order_before_the_result(void **state) {
    (void)state;
    struct bench bench;
    bench_open_good(&bench, none);
    assert_true(try_job(&bench, 1, true, "x"));
    wait_for(&bench, &bench.results, 1);
    assert_string_equal(bench.chunks, "one;two;");
    bench_close(&bench);
}

static void a_cancelled_job_still_has_its_result(void **state) {
    (void)state;
    struct bench bench;
    bench_open_good(&bench, none);
    give_job(&bench, 1, "hold");
    bench.worker->ops->cancel(bench.worker, 1);
    wait_for(&bench, &bench.results, 1);
    assert_int_equal(bench.last_status, 499);
    bench_close(&bench);
}

static void the_models_are_those_the_engine_names(void **state) {
    (void)state;
    struct worker_engine_options options = {.jobs_max = 4};
    options.hello.names = (struct wire_names){{STR("a"), STR("b")}, 2};
    struct bench bench;
    bench_open_good(&bench, options);
    struct worker_model models[4];
    assert_int_equal(bench.worker->ops->models(bench.worker, models, 4), 2);
    assert_true(str_is(models[1].name, "b"));
    assert_int_equal(models[0].context_tokens_max, 4096);
    assert_int_equal(models[0].created_unix_s, 17);
    assert_true(bench.worker->ops->serves(bench.worker, STR("b")));
    assert_false(bench.worker->ops->serves(bench.worker, STR("fake")));
    bench_close(&bench);
    bench_open_good(&bench, none);
    assert_true(bench.worker->ops->serves(bench.worker, STR("fake")));
    bench_close(&bench);
}

static void it_takes_no_more_jobs_than_its_bound_and_says_when_there_is_room(void **state) {
    (void)state;
    struct bench bench;
    bench_open_good(&bench, (struct worker_engine_options){.jobs_max = 2});
    give_job(&bench, 1, "hold");
    give_job(&bench, 2, "hold");
    pthread_mutex_lock(&bench.lock);
    uint32_t rooms = bench.rooms;
    pthread_mutex_unlock(&bench.lock);
    assert_false(try_job(&bench, 3, false, "x"));
    bench.worker->ops->cancel(bench.worker, 1);
    /* The first may be one that was on its way: of the engine that became ready. */
    do wait_for(&bench, &bench.rooms, ++rooms);
    while (!try_job(&bench, 3, false, "x"));
    wait_for(&bench, &bench.results, 2);
    bench_close(&bench);
}

static void many_jobs_all_come_back(void **state) {
    (void)state;
    struct bench bench;
    bench_open_good(&bench, (struct worker_engine_options){.jobs_max = 64});
    static char large[100000];
    memset(large, 'x', sizeof large - 1);
    for (uint64_t id = 0; id < 500; id++) give_job(&bench, id, large);
    wait_for(&bench, &bench.results, 500);
    bench_close(&bench);
}

static void a_model_that_cannot_load_is_not_tried_again(void **state) {
    (void)state;
    struct bench bench;
    struct error error;
    assert_int_equal(bench_open(&bench, "fatal", none, &error), ERR_INVALID);
    assert_string_equal(error.text, "model.gguf: the file ends inside tensor 'x'");
    struct worker_status status;
    bench.worker->ops->status(bench.worker, &status);
    assert_false(status.ready);
    assert_int_equal(status.restarts, 0);
    assert_non_null(strstr(status.text, "inside tensor 'x'"));
    assert_false(try_job(&bench, 1, false, "x"));
    bench_close(&bench);
}

static void an_engine_that_dies_while_loading_is_given_up(void **state) {
    (void)state;
    struct bench bench;
    struct error error;
    assert_int_equal(bench_open(&bench, "die", none, &error), ERR_INVALID);
    assert_non_null(strstr(error.text, "exited with status 5"));
    bench_close(&bench);
}

static void a_program_that_is_not_there_is_an_error_of_the_worker(void **state) {
    (void)state;
    struct worker *worker;
    struct worker_engine_options options = {.program = "/nonexistent/quern"};
    const struct worker_events events = {.context = NULL};
    struct error error;
    assert_int_equal(worker_engine_open(&worker, &options, &events, &error), OK);
    assert_int_equal(worker_engine_wait_ready(worker, 60000, &error), ERR_INVALID);
    assert_non_null(strstr(error.text, "/nonexistent/quern"));
    worker->ops->close(worker);
}

static void a_slow_start_is_seen_as_loading(void **state) {
    (void)state;
    struct bench bench;
    const char *const arguments[] = {"fake-engine", "slow", NULL};
    char mark[64];
    snprintf(mark, sizeof mark, "/tmp/quern-slow-%d", (int)getpid());
    const struct worker_engine_options options = {.hello.model_path = str_from(mark),
                                                  .arguments = arguments};
    const struct worker_events events = bench_events(&bench);
    assert_int_equal(worker_engine_open(&bench.worker, &options, &events, NULL), OK);
    struct worker_status status;
    bench.worker->ops->status(bench.worker, &status);
    assert_false(status.ready);
    assert_string_equal(status.text, "loading");
    assert_false(try_job(&bench, 1, false, "x"));
    struct error error;
    assert_int_equal(worker_engine_wait_ready(bench.worker, 1, &error), ERR_UNAVAILABLE);
    assert_true(fake_engine_mark(mark));
    wait_for(&bench, &bench.rooms, 1); /* the worker has become ready */
    assert_int_equal(unlink(mark), 0);
    assert_true(try_job(&bench, 1, false, "x"));
    wait_for(&bench, &bench.results, 1);
    bench_close(&bench);
}

static void a_load_without_an_end_is_given_up(void **state) {
    (void)state;
    struct bench bench;
    struct error error;
    struct mover mover;
    mover_start(&mover);
    assert_int_equal(
        bench_open(&bench, "never", (struct worker_engine_options){.load_ms = 3000}, &error),
        ERR_INVALID);
    mover_stop(&mover);
    assert_non_null(strstr(error.text, "did not load"));
    bench_close(&bench);
}

static void closing_leaves_no_process_behind_even_one_that_hangs(void **state) {
    (void)state;
    struct bench bench;
    bench_open_good(&bench, (struct worker_engine_options){.close_ms = 100});
    int pid = engine_pid(&bench);
    give_job(&bench, 1, "hang");
    bench_close(&bench);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
}

static void a_child_sees_no_secret_and_no_other_descriptor(void **state) {
    (void)state;
    setenv("QUERN_TEST_SECRET", "s3cret", 1);
    int extra = fcntl(2, F_DUPFD, 20);
    struct bench bench;
    bench_open_good(&bench, none);
    char path[64], environment[65536];
    snprintf(path, sizeof path, "/proc/%d/environ", engine_pid(&bench));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t count = fread(environment, 1, sizeof environment, file);
    fclose(file);
    assert_null(memmem(environment, count, "s3cret", 6));
    snprintf(path, sizeof path, "/proc/%d/fd/%d", engine_pid(&bench), extra);
    char target[256];
    assert_int_equal(readlink(path, target, sizeof target), -1);
    bench_close(&bench);
    close(extra);
    unsetenv("QUERN_TEST_SECRET");
}

int main(int count, char **words) {
    bench_begin(count, words);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_goes_there_and_its_result_comes_back),
        cmocka_unit_test(deltas_come_in_order_before_the_result),
        cmocka_unit_test(a_cancelled_job_still_has_its_result),
        cmocka_unit_test(the_models_are_those_the_engine_names),
        cmocka_unit_test(it_takes_no_more_jobs_than_its_bound_and_says_when_there_is_room),
        cmocka_unit_test(many_jobs_all_come_back),
        cmocka_unit_test(a_model_that_cannot_load_is_not_tried_again),
        cmocka_unit_test(an_engine_that_dies_while_loading_is_given_up),
        cmocka_unit_test(a_program_that_is_not_there_is_an_error_of_the_worker),
        cmocka_unit_test(a_slow_start_is_seen_as_loading),
        cmocka_unit_test(a_load_without_an_end_is_given_up),
        cmocka_unit_test(closing_leaves_no_process_behind_even_one_that_hangs),
        cmocka_unit_test(a_child_sees_no_secret_and_no_other_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
