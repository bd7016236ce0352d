/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "batch/fsck.h"
#include "cli/command.h"
#include "cli/state_dir.h"

#include <inttypes.h>
#include <stdio.h>

struct fsck_command {
    const char *state_dir;
    char state_dir_usual[PATH_MAX];
};

static const struct option rows[] = {
    {"state-dir", OPTION_TEXT, offsetof(struct fsck_command, state_dir), "DIR",
     .help = "state directory to check, of a server that is not running (default that of `quern "
             "serve`)"},
    {0},
};

static void print_violation(void *context, const char *sentence) {
    (void)context;
    puts(sentence);
    fflush(stdout); /* what was found is told, whatever happens to this process next */
}

static void set_defaults(void *context) {
    struct fsck_command *chosen = context;
    state_dir_default(chosen->state_dir_usual);
    chosen->state_dir = chosen->state_dir_usual;
}

static enum err run(struct command_call *call, struct error *error) {
    const struct fsck_command *chosen = call->chosen;
    struct fsck_found found = {0};
    enum err err = fsck_run(chosen->state_dir, print_violation, NULL, &found, error);
    if (err != OK) return err;
    if (found.judgements > 0)
        printf("%" PRIu64 " %s of curators checked\n", found.judgements,
               plural(found.judgements, "judgement", "judgements"));
    if (found.violations > 0) {
        fprintf(stderr, "quern fsck: %" PRIu64 " %s\n", found.violations,
                plural(found.violations, "violation", "violations"));
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
    .usage = "fsck [--state-dir DIR]",
    .help =
        "Checks every promise about files, batches, results and judgements against the bytes on "
        "the\n"
        "disk. "
        "Changes nothing; prints one line per broken promise, and exits with 10 if there is one.\n",
    .tables = tables,
    .table_count = 1,
    .chosen_bytes = sizeof(struct fsck_command),
    .set_defaults = set_defaults,
    .run = run,
};
