/* SPDX-License-Identifier: Apache-2.0 */
#include "../../../tree.h"
#include "base/clock.h"
#include "base/os.h"
#include "base/stacks.h"
#include "engine_bench.h"
#include "fake_engine.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* An engine that dies, hangs, speaks garbage or loses its card. */

static const struct worker_engine_options none;

/* The whole life: up, struck by `body`, down once with a reason that `says`, up again. */
static void check_recovery(const char *body, struct worker_engine_options options,
                           const char *says) {
    struct bench bench;
    bench_open_good(&bench, options);
    int pid = engine_pid(&bench);
    give_job(&bench, 1, "hold");
    give_job(&bench, 2, body);
    wait_down(&bench, options.hang_ms > 0);
    if (!strstr(bench.reason, says)) fail_msg("the reason is: %s", bench.reason);
    give_job(&bench, 3, "again");
    wait_for(&bench, &bench.results, 1);
    assert_int_equal(bench.last_id, 3);
    assert_string_equal(bench.body, "again");
    struct worker_status status;
    bench.worker->ops->status(bench.worker, &status);
    assert_true(status.ready);
    assert_int_equal(status.restarts, 1);
    assert_int_equal(bench.downs, 1);
    assert_int_not_equal(engine_pid(&bench), pid);
    assert_int_equal(kill(pid, 0), -1); /* gone, and waited for */
    bench_close(&bench);
}

static void a_crash_loses_the_jobs_inside_once_and_the_engine_comes_back(void **state) {
    (void)state;
    check_recovery("crash", none, "signal 6");
}

static void garbage_on_the_socket_is_the_death_of_the_engine(void **state) {
    (void)state;
    check_recovery("garbage", none, "garbage: wire: bad magic");
}

static void a_result_of_a_job_nobody_gave_is_garbage(void **state) {
    (void)state;
    check_recovery("stranger", none, "garbage: a result of job 1002");
}

static void a_hanging_engine_is_killed(void **state) {
    (void)state;
    check_recovery("hang", (struct worker_engine_options){.hang_ms = HANG_MS}, "no progress");
}

static void an_engine_that_answers_pings_but_does_no_work_is_killed(void **state) {
    (void)state;
    check_recovery("stall", (struct worker_engine_options){.hang_ms = HANG_MS}, "no progress");
}

static void a_killed_engine_comes_back(void **state) {
    (void)state;
    struct bench bench;
    bench_open_good(&bench, none);
    give_job(&bench, 1, "hold");
    kill(engine_pid(&bench), SIGKILL);
    wait_for(&bench, &bench.downs, 1);
    assert_non_null(strstr(bench.reason, "signal 9"));
    give_job(&bench, 2, "x");
    wait_for(&bench, &bench.results, 1);
    bench_close(&bench);
}

/* Whether the engine was told to be careful: it says so itself. */
static bool is_careful(struct bench *bench, uint64_t id) {
    uint32_t results = bench->results;
    give_job(bench, id, "care");
    wait_for(bench, &bench->results, results + 1);
    return strcmp(bench->body, "careful") == 0;
}

/* The mark stands for the loss of the card, which no start finds until it is removed. */
static void after_an_error_of_the_card_the_next_engine_alone_is_careful(void **state) {
    (void)state;
    struct bench bench;
    char lost[64];
    snprintf(lost, sizeof lost, "/tmp/quern-careful-%d", (int)getpid());
    const struct worker_engine_options options = {.hello.model_path = str_from(lost)};
    assert_int_equal(bench_open(&bench, "card", options, NULL), OK);
    assert_false(is_careful(&bench, 1));
    give_job(&bench, 2, "crash");
    wait_for(&bench, &bench.downs, 1);
    assert_false(is_careful(&bench, 3));
    give_job(&bench, 4, "fault");
    wait_for(&bench, &bench.downs, 2);
    assert_string_equal(bench.reason, "step 7: illegal access");
    assert_true(is_careful(&bench, 5));
    assert_true(fake_engine_mark(lost));
    give_job(&bench, 6, "fault");
    wait_for(&bench, &bench.downs, 5);
    assert_string_equal(bench.reason, "card 0 is lost");
    assert_int_equal(unlink(lost), 0);
    assert_true(is_careful(&bench, 7)); /* those between had no step */
    uint32_t downs = bench.downs;
    give_job(&bench, 8, "crash");
    wait_for(&bench, &bench.downs, downs + 1);
    assert_false(is_careful(&bench, 9));
    bench_close(&bench);
}

/* Lets the engine of a job "last" go on to its end, and has a job for it then. */
static void outlive(struct bench *bench) {
    siginfo_t info;
    id_t pid = (id_t)strtoul(bench->body, NULL, 10);
    bench->after_result = NULL;
    assert_int_equal(waitid(P_PID, pid, &info, WSTOPPED | WNOWAIT), 0);
    assert_int_equal(kill((pid_t)pid, SIGCONT), 0);
    assert_int_equal(waitid(P_PID, pid, &info, WEXITED | WNOWAIT), 0);
    assert_true(try_job(bench, 2, false, "hold"));
}

/* Its FATAL stands in the socket when a job can no longer be sent. */
static void the_last_sentence_of_an_engine_is_read_although_nothing_can_be_sent(void **state) {
    (void)state;
    struct bench bench;
    bench_open_good(&bench, none);
    bench.after_result = outlive;
    give_job(&bench, 1, "last");
    wait_for(&bench, &bench.downs, 1);
    assert_string_equal(bench.reason, "step 7: illegal access");
    assert_true(is_careful(&bench, 3));
    bench_close(&bench);
}

/* Not at once: the file may be in the middle of being replaced. */
static void a_model_that_cannot_be_loaded_again_is_given_up_after_some_tries(void **state) {
    (void)state;
    struct bench bench;
    struct error error;
    char mark[64];
    snprintf(mark, sizeof mark, "/tmp/quern-once-%d", (int)getpid());
    const struct worker_engine_options options = {.hello.model_path = str_from(mark)};
    assert_int_equal(bench_open(&bench, "once", options, &error), OK);
    give_job(&bench, 1, "x");
    wait_for(&bench, &bench.results, 1);
    give_job(&bench, 2, "crash");
    while (load_of(&bench) != FAILED) clock_sleep_ms(1);
    wait_for(&bench, &bench.downs, 1 + WORKER_ENGINE_RELOADS_MAX);
    assert_int_equal(bench.downs, 1 + WORKER_ENGINE_RELOADS_MAX);
    assert_string_equal(bench.reason, "model.gguf: it was cut off");
    assert_false(try_job(&bench, 3, false, "x"));
    bench_close(&bench);
    assert_int_equal(unlink(mark), 0);
}

/* The file stands for the loss. `other` shares the device and has never been ready. */
static void a_card_that_is_lost_is_waited_for(void **state) {
    (void)state;
    struct bench bench, other;
    struct worker_status status;
    char lost[64];
    snprintf(lost, sizeof lost, "/tmp/quern-lost-%d", (int)getpid());
    struct turns *turns = turns_open(&(struct turns_options){.loaded_max = 2});
    const struct worker_engine_options options = {.hello.model_path = str_from(lost),
                                                  .turns = turns};
    assert_int_equal(bench_open(&bench, "card", options, NULL), OK);
    assert_int_equal(bench_open(&other, "card", options, NULL), OK);
    give_job(&bench, 1, "x");
    wait_for(&bench, &bench.results, 1);
    assert_true(fake_engine_mark(lost));
    give_job(&bench, 2, "crash");
    assert_false(try_job(&other, 3, false, "x"));
    wait_for(&bench, &bench.downs, 1 + WORKER_ENGINE_RELOADS_MAX + 2);
    wait_for(&other, &other.downs, WORKER_ENGINE_LOADS_MAX + 2);
    assert_int_equal(load_of(&bench), MOVING);
    assert_int_equal(load_of(&other), MOVING);
    bench.worker->ops->status(bench.worker, &status);
    assert_string_equal(status.text, "waiting for its GPU: card 0 is lost");
    assert_false(status.is_failed || status.ready);
    assert_int_equal(unlink(lost), 0);
    give_job(&bench, 4, "y");
    give_job(&other, 5, "z");
    wait_for(&bench, &bench.results, 2);
    wait_for(&other, &other.results, 1);
    assert_string_equal(bench.body, "y");
    bench.worker->ops->status(bench.worker, &status);
    assert_string_equal(status.text, "ready");
    bench_close(&bench);
    bench_close(&other);
    turns_close(turns);
}

/* The only file in the directory of stacks. */
static char *read_stacks(const char *dir) {
    char path[400] = "", *text;
    struct error error;
    size_t bytes;
    DIR *directory = opendir(dir);
    assert_non_null(directory);
    for (const struct dirent *at; (at = readdir(directory));) {
        if (at->d_name[0] == '.') continue;
        assert_string_equal(path, "");
        snprintf(path, sizeof path, "%s/%s", dir, at->d_name);
    }
    closedir(directory);
    assert_int_equal(os_read_file(path, 1 << 20, &text, &bytes, &error), OK);
    return text;
}

static void the_stacks_of_an_engine_that_hung_or_crashed_are_kept(void **state) {
    (void)state;
    static const char *const bodies[] = {"hang", "crash"};
    for (size_t i = 0; i < 1 + STACKS_OF_CRASHES; i++) {
        char dir[] = "/tmp/quern-stacks-XXXXXX", dumps[64];
        assert_non_null(mkdtemp(dir));
        snprintf(dumps, sizeof dumps, "%s/dumps", dir);
        struct bench bench;
        assert_int_equal(
            bench_open(&bench, "serve",
                       (struct worker_engine_options){.hang_ms = HANG_MS, .dump_dir = dumps}, NULL),
            OK);
        give_job(&bench, 1, bodies[i]);
        wait_down(&bench, i == 0);
        char *text = read_stacks(dumps);
        assert_non_null(strstr(text, "thread "));
        assert_non_null(strstr(text, "(+0x"));
        assert_non_null(strstr(text, "\n" STACKS_END));
        free(text);
        bench_close(&bench);
        tree_remove(dir);
    }
}

/* ---- a process that was killed and does not end ---- */

static atomic_bool is_held;

/* Takes the place of the C library's: as if a driver held every process. */
pid_t waitpid(pid_t pid, int *status, int options) {
    return atomic_load(&is_held) ? 0 : wait4(pid, status, options, NULL);
}

/* What the log says goes into a file meanwhile. */
struct caught_log {
    FILE *file;
    int errors_before;
};

static void catch_log(struct caught_log *caught) {
    fflush(stderr);
    caught->file = tmpfile();
    assert_non_null(caught->file);
    caught->errors_before = dup(STDERR_FILENO);
    assert_true(dup2(fileno(caught->file), STDERR_FILENO) >= 0);
}

static void catch_no_more(const struct caught_log *caught) {
    fflush(stderr);
    assert_true(dup2(caught->errors_before, STDERR_FILENO) >= 0);
    close(caught->errors_before);
}

/* The only line of the log with this event. */
static void read_event(const struct caught_log *caught, const char *event, char ret_line[1024]) {
    char line[1024];
    uint32_t count = 0;
    rewind(caught->file);
    while (fgets(line, sizeof line, caught->file)) {
        if (!strstr(line, event)) continue;
        memcpy(ret_line, line, sizeof line);
        count++;
    }
    assert_int_equal(count, 1);
}

static void expect_told(const struct caught_log *caught, int pid) {
    char line[1024], text[200];
    read_event(caught, "event=engine_held ", line);
    assert_non_null(strstr(line, " error "));
    snprintf(text, sizeof text,
             "event=engine_held pid=%d reason=\"it was killed and does not end: a driver holds it; "
             "its device is left alone until then\"",
             pid);
    assert_non_null(strstr(line, text));
    read_event(caught, "event=engine_released ", line);
    snprintf(text, sizeof text, "event=engine_released pid=%d", pid);
    assert_non_null(strstr(line, text));
}

/* The status's text is what /health says of the worker (api/health.c). */
static void expect_held(struct bench *bench, int pid) {
    struct worker_status status;
    char text[200];
    bench->worker->ops->status(bench->worker, &status);
    snprintf(text, sizeof text, "waiting for its killed process %d to end: %.100s", pid,
             bench->reason);
    assert_string_equal(status.text, text);
    assert_false(status.ready || status.is_failed);
}

static void expect_ready(struct bench *bench) {
    struct worker_status status;
    bench->worker->ops->status(bench->worker, &status);
    assert_string_equal(status.text, "ready");
    assert_true(status.ready);
}

static void a_process_that_does_not_end_is_told_and_its_device_left_alone(void **state) {
    (void)state;
    struct bench bench, other;
    struct mover mover;
    struct caught_log caught;
    struct turns *turns = turns_open(&(struct turns_options){.loaded_max = 1});
    const struct worker_engine_options options = {.turns = turns, .kill_ms = 20};
    assert_int_equal(bench_open(&bench, "good", options, NULL), OK);
    assert_int_equal(bench_open(&other, "good", options, NULL), OK);
    int pid = engine_pid(&bench);
    catch_log(&caught);
    atomic_store(&is_held, true);
    give_job(&bench, 1, "crash");
    wait_for(&bench, &bench.downs, 1);
    assert_non_null(strstr(bench.reason, "it was killed and does not end"));
    assert_false(try_job(&bench, 2, false, "x"));
    assert_false(try_job(&other, 1, false, "x"));
    mover_start(&mover);
    clock_sleep_ms(200); /* the time in which another engine would have got its turn */
    mover_stop(&mover);
    expect_held(&bench, pid);
    assert_int_equal(load_of(&other), UNLOADED);
    atomic_store(&is_held, false);
    give_job(&other, 2, "y");
    wait_for(&other, &other.results, 1);
    give_job(&bench, 3, "z");
    wait_for(&bench, &bench.results, 1);
    assert_string_equal(bench.body, "z");
    expect_ready(&bench);
    assert_int_equal(kill(pid, 0), -1);
    catch_no_more(&caught);
    expect_told(&caught, pid);
    fclose(caught.file);
    bench_close(&bench);
    bench_close(&other);
    turns_close(turns);
}

static void closing_does_not_wait_for_a_process_that_does_not_end(void **state) {
    (void)state;
    static const char *const bodies[] = {"crash", "hold"};
    for (size_t i = 0; i < 2; i++) {
        struct bench bench;
        bench_open_good(&bench, (struct worker_engine_options){.close_ms = 20, .kill_ms = 20});
        int pid = engine_pid(&bench);
        atomic_store(&is_held, true);
        give_job(&bench, 1, bodies[i]);
        if (i == 0) wait_for(&bench, &bench.downs, 1);
        bench_close(&bench);
        atomic_store(&is_held, false);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
}

int main(int count, char **words) {
    bench_begin(count, words);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crash_loses_the_jobs_inside_once_and_the_engine_comes_back),
        cmocka_unit_test(garbage_on_the_socket_is_the_death_of_the_engine),
        cmocka_unit_test(a_result_of_a_job_nobody_gave_is_garbage),
        cmocka_unit_test(a_hanging_engine_is_killed),
        cmocka_unit_test(after_an_error_of_the_card_the_next_engine_alone_is_careful),
        cmocka_unit_test(the_last_sentence_of_an_engine_is_read_although_nothing_can_be_sent),
        cmocka_unit_test(an_engine_that_answers_pings_but_does_no_work_is_killed),
        cmocka_unit_test(a_killed_engine_comes_back),
        cmocka_unit_test(a_model_that_cannot_be_loaded_again_is_given_up_after_some_tries),
        cmocka_unit_test(a_card_that_is_lost_is_waited_for),
        cmocka_unit_test(the_stacks_of_an_engine_that_hung_or_crashed_are_kept),
        cmocka_unit_test(a_process_that_does_not_end_is_told_and_its_device_left_alone),
        cmocka_unit_test(closing_does_not_wait_for_a_process_that_does_not_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
