/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static char folder[] = "/tmp/quern-test-os-XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/file", folder);
    unlink(path);
    return rmdir(folder);
}

static void what_is_written_at_an_offset_is_read_back(void **state) {
    (void)state;
    struct error error;
    char path[128], back[6] = "";
    int fd;
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(os_open(&fd, path, O_RDWR | O_CREAT, 0600, &error), OK);
    assert_int_equal(os_pwrite_all(fd, "hello", 5, 10, &error), OK);
    assert_int_equal(os_pread_all(fd, back, 5, 10, &error), OK);
    assert_string_equal(back, "hello");
    assert_int_equal(os_pread_all(fd, back, 5, 11, &error), ERR_CORRUPT);
    os_close(fd);
}

static void the_planned_call_fails_once_and_with_its_own_error(void **state) {
    (void)state;
    struct error error;
    char path[128];
    int fd;
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(os_open(&fd, path, O_RDWR | O_CREAT, 0600, &error), OK);
    assert_int_equal(os_fault_plan("pwrite:2:ENOSPC,fdatasync:1:EIO", &error), OK);
    assert_int_equal(os_pwrite_all(fd, "a", 1, 0, &error), OK);
    assert_int_equal(os_pwrite_all(fd, "a", 1, 0, &error), ERR_UNAVAILABLE);
    assert_int_equal(os_pwrite_all(fd, "a", 1, 0, &error), OK);
    assert_int_equal(os_fdatasync(fd, &error), ERR_IO);
    assert_int_equal(os_fdatasync(fd, &error), OK);
    os_close(fd);
}

static void an_interrupted_call_is_tried_again(void **state) {
    (void)state;
    struct error error;
    char path[128];
    int fd;
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(os_fault_plan("open:1:EINTR,write:1:EINTR", &error), OK);
    assert_int_equal(os_open(&fd, path, O_RDWR | O_CREAT, 0600, &error), OK);
    assert_int_equal(os_write_all(fd, "abc", 3, &error), OK);
    os_close(fd);
}

static void a_plan_that_names_nothing_is_refused(void **state) {
    (void)state;
    struct error error;
    assert_int_equal(os_fault_plan("nothing:1:EIO", &error), ERR_INVALID);
    assert_int_equal(os_fault_plan("write:0:EIO", &error), ERR_INVALID);
    assert_int_equal(os_fault_plan("write:1:EWHAT", &error), ERR_INVALID);
    assert_int_equal(os_fault_plan("write", &error), ERR_INVALID);
}

static void a_missing_file_is_not_found_and_its_name_is_told(void **state) {
    (void)state;
    struct error error;
    int fd;
    assert_int_equal(os_open(&fd, "/nowhere/at-all", O_RDONLY, 0, &error), ERR_NOT_FOUND);
    assert_non_null(strstr(error.text, "/nowhere/at-all"));
}

static void assert_file_is(const char *path, const char *text) {
    struct error error;
    char *bytes;
    size_t count;
    assert_int_equal(os_read_file(path, 100, &bytes, &count, &error), OK);
    assert_string_equal(bytes, text);
    assert_int_equal(count, strlen(text));
    free(bytes);
}

static void a_written_file_replaces_a_link_and_not_its_target(void **state) {
    (void)state;
    struct error error;
    struct stat is;
    char path[128], target[128];
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(target, sizeof target, "%s/target", folder);
    unlink(path);
    assert_int_equal(os_write_file(target, 0600, "kept", 4, &error), OK);
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(os_write_file(path, 0640, "new", 3, &error), OK);
    assert_file_is(path, "new");
    assert_file_is(target, "kept");
    assert_int_equal(lstat(path, &is), 0);
    assert_true(S_ISREG(is.st_mode));
    assert_int_equal(is.st_mode & 0777, 0640);
    assert_int_equal(os_write_file(path, 0600, "", 0, &error), OK);
    assert_file_is(path, "");
    unlink(target);
}

static void a_file_that_is_not_synced_is_an_error(void **state) {
    (void)state;
    struct error error;
    char path[128];
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(os_fault_plan("fsync:1:EIO", &error), OK);
    assert_int_equal(os_write_file(path, 0600, "abc", 3, &error), ERR_IO);
    assert_int_equal(os_write_file(path, 0600, "abc", 3, &error), OK);
    assert_file_is(path, "abc");
}

static void the_names_of_new_folders_are_durable(void **state) {
    (void)state;
    struct error error;
    char path[128];
    snprintf(path, sizeof path, "%s/above/new", folder);
    assert_int_equal(os_fault_plan("fsync:4:EIO", &error), OK);
    /* One sync per new folder, after the two of the test before; the second one fails. */
    assert_int_equal(os_mkdirs_durable(path, &error), ERR_IO);
    /* A folder that a killed process has left is synced again. */
    assert_int_equal(os_fault_plan("fsync:5:EIO", &error), OK);
    assert_int_equal(os_mkdirs_durable(path, &error), ERR_IO);
    assert_int_equal(os_mkdirs_durable(path, &error), OK);
    rmdir(path);
    *strrchr(path, '/') = '\0';
    rmdir(path);
}

/* Two processes that compute on one processor: each waits while the other one runs. */
static void a_process_waits_for_its_processor_where_another_one_runs(void **state) {
    (void)state;
    cpu_set_t one;
    pid_t pids[2];
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    if (access("/proc/self/schedstat", R_OK) != 0) skip();
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] > 0) continue;
        sched_setaffinity(0, sizeof one, &one);
        for (volatile bool runs = true; runs;) continue;
    }
    uint64_t waited_ns = 0;
    for (int looks = 0; waited_ns == 0 && looks < 60000; looks++) {
        usleep(1000);
        waited_ns = os_processor_wait_ns(pids[0]);
    }
    for (int i = 0; i < 2; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    assert_true(waited_ns > 0);
    assert_int_equal(os_processor_wait_ns(pids[0]), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_at_an_offset_is_read_back),
        cmocka_unit_test(the_planned_call_fails_once_and_with_its_own_error),
        cmocka_unit_test(an_interrupted_call_is_tried_again),
        cmocka_unit_test(a_plan_that_names_nothing_is_refused),
        cmocka_unit_test(a_missing_file_is_not_found_and_its_name_is_told),
        cmocka_unit_test(a_written_file_replaces_a_link_and_not_its_target),
        cmocka_unit_test(a_file_that_is_not_synced_is_an_error),
        cmocka_unit_test(the_names_of_new_folders_are_durable),
        cmocka_unit_test(a_process_waits_for_its_processor_where_another_one_runs),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
