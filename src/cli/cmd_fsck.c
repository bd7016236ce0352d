/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/fsck.h"
#include "cli/command.h"
#include "cli/options.h"

#include <stdio.h>

#define EXIT_VIOLATIONS 1

static void print_violation(void *context, const char *sentence) {
    (void)context;
    puts(sentence);
}

static int run(int argc, char **argv) {
    const char *state_dir = NULL;
    const struct option options[] = {
        {.name = "state-dir",
         .kind = OPTION_TEXT,
         .target = &state_dir,
         .value = "DIR",
         .help = "of a server that is not running"},
    };
    const struct options_help help = {
        "fsck --state-dir DIR",
        "Checks every promise about files, batches and results against the bytes on the disk.\n"
        "Changes nothing; prints a line for each one that is broken.\n"};
    struct error error = {0};
    bool done;
    uint64_t violations = 0;
    enum err err = options_read(options, 1, &help, argc, argv, NULL, 0, &done, &error);
    if (err == OK && !done && !state_dir)
        err = err_set(&error, ERR_INVALID, "--state-dir is missing");
    if (err != OK) {
        fprintf(stderr, "quern fsck: %s\n", error.text);
        return EXIT_WRONG_INPUT;
    }
    if (done) return EXIT_GOOD;
    err = fsck_run(state_dir, print_violation, NULL, &violations, &error);
    if (err != OK) {
        fprintf(stderr, "quern fsck: %s\n", error.text);
        return EXIT_MACHINE;
    }
    if (violations > 0) {
        fprintf(stderr, "quern fsck: %llu violations\n", (unsigned long long)violations);
        return EXIT_VIOLATIONS;
    }
    printf("all promises hold\n");
    return EXIT_GOOD;
}

const struct command cmd_fsck = {"fsck", "checks every promise against the bytes on the disk",
                                 false, run};
