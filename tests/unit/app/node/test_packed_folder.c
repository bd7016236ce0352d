/* SPDX-License-Identifier: Apache-2.0 */
#include "node/packed_folder.h"

#include "node/folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static char dir[64];

static int make_dir(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/quern-test-packed-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state) {
    (void)state;
    folder_remove(dir);
    return 0;
}

/* A file of 1000 bytes in the folder of a model, used so many seconds ago. */
static void make_file(const char *model, const char *name, time_t age_s, char ret_path[PATH_MAX]) {
    char folder[PATH_MAX];
    assert_true(packed_folder_of(dir, model, folder));
    assert_true(snprintf(ret_path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX);
    int fd = open(ret_path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0 && ftruncate(fd, 1000) == 0);
    const struct timespec used = {.tv_sec = time(NULL) - age_s};
    const struct timespec both[2] = {used, used};
    assert_int_equal(futimens(fd, both), 0);
    close(fd);
}

static bool is_there(const char *path) {
    return access(path, F_OK) == 0;
}

static void models_have_folders_of_their_own(void **state) {
    (void)state;
    char one[PATH_MAX], other[PATH_MAX], again[PATH_MAX], file[PATH_MAX];
    assert_true(packed_folder_of(dir, "/models/a.gguf", one));
    assert_true(packed_folder_of(dir, "/models/b.gguf", other));
    assert_true(packed_folder_of(dir, "/models/a.gguf", again));
    assert_string_equal(one, again);
    assert_string_not_equal(one, other);
    assert_true(is_there(one) && is_there(other));
    assert_false(packed_folder_has(one));
    make_file("/models/a.gguf", "0123.packed", 0, file);
    assert_true(packed_folder_has(one) && !packed_folder_has(other));
    assert_false(packed_folder_of(NULL, "/models/a.gguf", one));
    assert_false(packed_folder_of("/proc/none", "/models/a.gguf", one));
}

static void the_longest_unused_go_first(void **state) {
    (void)state;
    char paths[4][PATH_MAX];
    make_file("a", "1.packed", 300, paths[0]);
    make_file("a", "2.packed", 100, paths[1]);
    make_file("b", "3.packed", 400, paths[2]);
    make_file("c", "4.packed", 200, paths[3]);
    packed_folder_sweep(dir, 4000);
    for (int i = 0; i < 4; i++) assert_true(is_there(paths[i]));
    packed_folder_sweep(dir, 2999);
    assert_true(is_there(paths[1]) && is_there(paths[3]));
    assert_false(is_there(paths[0]) || is_there(paths[2]));
    packed_folder_sweep(dir, 0);
    assert_false(is_there(paths[1]) || is_there(paths[3]));
}

static void what_a_dead_writer_left_goes_and_other_files_stay(void **state) {
    (void)state;
    char old[PATH_MAX], young[PATH_MAX], other[PATH_MAX], beside[PATH_MAX];
    make_file("a", "1.packed.77.tmp", 4000, old);
    make_file("a", "2.packed.78.tmp", 10, young);
    make_file("a", "notes.txt", 4000, other);
    snprintf(beside, sizeof beside, "%s/mine.packed", dir);
    int fd = open(beside, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
    packed_folder_sweep(dir, 0);
    assert_false(is_there(old));
    assert_true(is_there(young) && is_there(other) && is_there(beside));
    packed_folder_sweep("/tmp/quern-test-there-is-none", 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(models_have_folders_of_their_own, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(the_longest_unused_go_first, make_dir, drop_dir),
        cmocka_unit_test_setup_teardown(what_a_dead_writer_left_goes_and_other_files_stay, make_dir,
                                        drop_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
