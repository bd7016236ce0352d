// SPDX-License-Identifier: Apache-2.0
/* unit_main: main of the test program of one room, which holds the test files of that room.
 *
 * A test file has a main of its own, which the build renames (unit_file.c.in), so that one link
 * serves a whole room. `test_ROOM NAME` runs the file test_NAME.c in this process, as tools/test
 * does: a file never meets what another one left behind. Without a name each file runs in a child,
 * one by one.
 *
 * Thread: one. Memory: none. */
#pragma once
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct unit_file {
    const char *name;
    int (*run)(void);
};

static int unit_run_all(const struct unit_file *files, int count) {
    int failed = 0;
    for (int i = 0; i < count; i++) {
        (void)fflush(NULL);
        pid_t child = fork();
        if (child == 0) _exit(files[i].run() ? 1 : 0);
        int status = 1;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "%s failed\n", files[i].name);
            failed = 1;
        }
    }
    return failed;
}

/* Returns the exit status of the program: that of the file words[1], 2 if there is no such file. */
static int unit_main(const struct unit_file *files, int count, int words_count, char **words) {
    if (words_count < 2) return unit_run_all(files, count);
    for (int i = 0; i < count; i++)
        if (strcmp(files[i].name, words[1]) == 0) return files[i].run();
    fprintf(stderr, "no test file is called %s; these are here:\n", words[1]);
    for (int i = 0; i < count; i++) fprintf(stderr, "  %s\n", files[i].name);
    return 2;
}
