/* SPDX-License-Identifier: Apache-2.0 */
#include "../../tree.h"
#include "base/os.h"
#include "base/whole_file.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmocka.h>

static void assert_text(const char *path, const char *wanted) {
    char *text;
    size_t bytes;
    struct error error;
    assert_int_equal(os_read_file(path, 1000, &text, &bytes, &error), OK);
    assert_string_equal(text, wanted);
    free(text);
}

static void
a_file_is_replaced_only_on_demand_and_the_rest_of_a_killed_process_is_no_hindrance(void **state) {
    char dir[] = "/tmp/quern-test-XXXXXX", path[64], rest[96];
    struct error error;
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/x", dir);
    snprintf(rest, sizeof rest, "%s.%d.tmp", path, (int)getpid());
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(rest, "we");
        assert_non_null(file);
        fputs("rest", file);
        fclose(file);
        assert_int_equal(whole_file_write(path, STR("one"), i > 0, &error), OK);
        assert_text(path, "one");
        assert_int_equal(access(rest, F_OK), -1);
    }
    assert_int_equal(whole_file_write(path, STR("one"), false, &error), OK);
    assert_int_equal(whole_file_write(path, STR("two"), false, &error), ERR_CONFLICT);
    assert_text(path, "one");
    assert_int_equal(access(rest, F_OK), -1);
    assert_int_equal(whole_file_write(path, STR("two"), true, &error), OK);
    assert_text(path, "two");
    tree_remove(dir);
}

static void what_killed_processes_left_is_removed_and_nothing_else(void **state) {
    static const char *const kept[] = {"x",        "x.tmp",     "x.1a.tmp", "x.12.tmp2",
                                       "xx.1.tmp", "x.y.1.tmp", "x..tmp"};
    static const char *const removed[] = {"x.1.tmp", "x.4194304.tmp"};
    char dir[] = "/tmp/quern-test-XXXXXX", path[96];
    struct error error;
    (void)state;
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < 9; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, i < 7 ? kept[i] : removed[i - 7]);
        assert_int_equal(os_write_file(path, 0600, "t", 1, &error), OK);
    }
    snprintf(path, sizeof path, "%s/x", dir);
    for (int i = 0; i < 2; i++) assert_int_equal(whole_file_remove_rests(path, &error), OK);
    for (size_t i = 0; i < 9; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, i < 7 ? kept[i] : removed[i - 7]);
        assert_int_equal(access(path, F_OK), i < 7 ? 0 : -1);
    }
    snprintf(path, sizeof path, "%s/none/x", dir);
    assert_int_equal(whole_file_remove_rests(path, &error), ERR_NOT_FOUND);
    tree_remove(dir);
}

static void a_write_removes_what_dead_processes_left_and_nothing_that_is_locked(void **state) {
    (void)state;
    char dir[] = "/tmp/quern-whole-XXXXXX", path[64];
    struct error error;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chdir(dir), 0);
    const char *const names[] = {"x.11.tmp", "x.12.tmp", "x.13.tmp.old", "xy.11.tmp"};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(os_write_file(names[i], 0600, "t", 1, &error), OK);
    assert_int_equal(symlink("xy.11.tmp", "x.14.tmp"), 0);
    int living = open("x.12.tmp", O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(living, LOCK_EX), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(whole_file_write("x", STR("text"), true, &error), OK);
    assert_int_equal(access("x.11.tmp", F_OK), -1);
    for (size_t i = 1; i < 4; i++) assert_int_equal(access(names[i], F_OK), 0);
    snprintf(path, sizeof path, "x.%d.tmp", (int)getpid());
    assert_int_equal(access(path, F_OK), -1);
    close(living); /* its process has ended */
    assert_int_equal(whole_file_write("x", STR("text"), true, &error), OK);
    assert_int_equal(access("x.12.tmp", F_OK), -1);
    assert_int_equal(chdir("/"), 0);
    tree_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_file_is_replaced_only_on_demand_and_the_rest_of_a_killed_process_is_no_hindrance),
        cmocka_unit_test(what_killed_processes_left_is_removed_and_nothing_else),
        cmocka_unit_test(a_write_removes_what_dead_processes_left_and_nothing_that_is_locked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
