/* SPDX-License-Identifier: Apache-2.0 */
/* The child is this program itself. Its second argument names its behaviour. */
#include "base/child.h"

#include "base/buf.h"
#include "base/clock.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MANY 3000 /* lines of 1,000 bytes: more than a pipe and CHILD_SAID_BYTES hold */

struct reading {
    struct buf out;
    bool stops;
};

static bool is_stopped(void *context) {
    const struct reading *reading = context;
    return reading->stops && reading->out.bytes > 0;
}

static void take_output(void *context, struct str bytes) {
    struct reading *reading = context;
    buf_add_str(&reading->out, bytes);
}

static enum err run(const char *word, int fd, struct reading *reading, struct child_end *ret_end) {
    const char *const arguments[] = {"quern", word, NULL};
    struct error error;
    const struct child_options options = {.command = "test",
                                          .arguments = arguments,
                                          .fds = {fd},
                                          .fd_count = fd >= 0,
                                          .context = reading,
                                          .stopped = is_stopped,
                                          .output = take_output};
    buf_init(&reading->out, BUF_UNLIMITED);
    return child_run(&options, ret_end, &error);
}

static void output_and_the_last_sentence_are_read_to_the_end(void **state) {
    (void)state;
    struct reading reading = {.stops = false};
    struct child_end end;
    assert_int_equal(run("much", -1, &reading, &end), OK);
    assert_int_equal(end.status, 7);
    assert_int_equal(reading.out.bytes, (size_t)MANY * 1000);
    assert_string_equal(end.sentence, "the end");
    buf_release(&reading.out);
}

static void a_silent_end_is_told_by_its_kind(void **state) {
    (void)state;
    struct reading reading = {.stops = false};
    struct child_end end;
    assert_int_equal(run("abort", -1, &reading, &end), OK);
    assert_int_equal(end.status, -1);
    assert_non_null(strstr(end.sentence, "the test was killed by signal"));
    buf_release(&reading.out);
}

static void a_stopped_child_has_ended(void **state) {
    (void)state;
    struct reading reading = {.stops = true};
    struct child_end end;
    assert_int_equal(run("wait", -1, &reading, &end), ERR_CANCELLED);
    assert_true(reading.out.bytes > 0);
    buf_release(&reading.out);
}

/* As `quern label-studio`, which prints all judgements even when it is told to end. */
static void a_stopped_child_is_not_held_up_by_its_output(void **state) {
    (void)state;
    struct reading reading = {.stops = true};
    struct child_end end;
    assert_int_equal(run("flood", -1, &reading, &end), ERR_CANCELLED);
    assert_int_equal(end.status, 3);
    buf_release(&reading.out);
}

static void descriptors_begin_at_three(void **state) {
    (void)state;
    struct reading reading = {.stops = false};
    struct child_end end;
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_true(fputs("handed over", file) >= 0 && fflush(file) == 0);
    assert_int_equal(run("read", fileno(file), &reading, &end), OK);
    assert_string_equal(reading.out.at, "handed over");
    assert_int_equal(fclose(file), 0);
    buf_release(&reading.out);
}

/* --- as the child --- */

static volatile sig_atomic_t is_told;

static void on_term(int number) {
    (void)number;
    is_told = 1;
}

/* Writes on after SIGTERM, until all is written or nobody reads. */
static int flood(const char *bytes, size_t count) {
    struct sigaction action = {.sa_handler = on_term};
    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGTERM, &action, NULL);
    if (write(1, bytes, count) < 0) return 1;
    while (!is_told) clock_sleep_ms(1);
    for (int i = 0; i < MANY; i++)
        if (write(1, bytes, count) < 0 || write(2, bytes, count) < 0) return 3;
    return 1;
}

static int act(const char *word) {
    char bytes[1000];
    memset(bytes, 'x', sizeof bytes);
    if (strcmp(word, "abort") == 0) abort();
    if (strcmp(word, "flood") == 0) return flood(bytes, sizeof bytes);
    if (strcmp(word, "read") == 0) {
        ssize_t count = pread(3, bytes, sizeof bytes, 0);
        return count > 0 && write(1, bytes, (size_t)count) == count ? 0 : 1;
    }
    for (int i = 0; strcmp(word, "much") == 0 && i < MANY; i++)
        if (write(1, bytes, sizeof bytes) < 0 || write(2, bytes, sizeof bytes) < 0) return 1;
    if (strcmp(word, "much") == 0) {
        fputs("\nquern test: one\nquern test: the end\n", stderr);
        return 7;
    }
    if (write(1, "x", 1) != 1) return 1;
    for (;;) pause();
}

int main(int count, char **words) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_and_the_last_sentence_are_read_to_the_end),
        cmocka_unit_test(a_silent_end_is_told_by_its_kind),
        cmocka_unit_test(a_stopped_child_has_ended),
        cmocka_unit_test(a_stopped_child_is_not_held_up_by_its_output),
        cmocka_unit_test(descriptors_begin_at_three),
    };
    if (count > 1) return act(words[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
