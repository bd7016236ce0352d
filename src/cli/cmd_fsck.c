/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/fsck.h"
#include "cli/command.h"

#include <inttypes.h>
#include <stdio.h>

struct chosen {
    const char *state_dir;
};

static const struct option rows[] = {
    {"state-dir", OPTION_TEXT, offsetof(struct chosen, state_dir), "DIR",
     .help = "state directory to check, of a server that is not running"},
    {0},
};

static void print_violation(void *context, const char *sentence) {
    (void)context;
    puts(sentence);
}

static enum err check(struct command_call *call, struct error *error) {
    const struct chosen *chosen = call->chosen;
    if (chosen->state_dir) return OK;
    return err_set(error, ERR_INVALID, "--state-dir is missing");
}

static enum err run(struct command_call *call, struct error *error) {
    const struct chosen *chosen = call->chosen;
    uint64_t violations = 0;
    enum err err = fsck_run(chosen->state_dir, print_violation, NULL, &violations, error);
    if (err != OK) return err;
    if (violations > 0) {
        fprintf(stderr, "quern fsck: %" PRIu64 " violations\n", violations);
        call->status = EXIT_DAMAGED;
    } else {
        printf("all promises hold\n");
    }
    return OK;
}

static const struct option_table tables[] = {{rows, 0}};

const struct command cmd_fsck = {
    .name = "fsck",
    .summary = "check every promise of a state directory against its bytes",
    .usage = "fsck --state-dir DIR",
    .help =
        "Checks every promise about files, batches and results against the bytes on the disk.\n"
        "Changes nothing; prints one line per broken promise, and exits with 10 if there is one.\n",
    .tables = tables,
    .table_count = 1,
    .chosen_bytes = sizeof(struct chosen),
    .check = check,
    .run = run,
};
