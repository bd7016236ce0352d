/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/check.h"
#include "backup/create.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/pull_show.h"
#include "cli/state_dir.h"

#include <inttypes.h>
#include <stdio.h>

#define KEEP_DEFAULT 7

struct backup_command {
    const char *state_dir;
    int64_t keep;
    bool moves;
    bool checks;
    char state_dir_usual[PATH_MAX];
};

#define AT(field) offsetof(struct backup_command, field)
static const struct option rows[] = {
    {"state-dir", OPTION_TEXT, AT(state_dir), "DIR",
     .help = "state directory of the server, which may be running (default that of `quern serve`)"},
    {"keep", OPTION_INTEGER, AT(keep), "N",
     .help = "generations that stay in the folder, 0 for all (default 7)", .max = 1e9},
    {"move", OPTION_SWITCH, AT(moves),
     .help = "close the state directory of a stopped server for good: its batches go on where the "
             "backup is restored"},
    {"check", OPTION_SWITCH, AT(checks),
     .help = "read every byte of the folder's generations and compare it with its sum; take no "
             "backup"},
    {0},
};

static void set_defaults(void *context) {
    struct backup_command *chosen = context;
    state_dir_default(chosen->state_dir_usual);
    chosen->state_dir = chosen->state_dir_usual;
    chosen->keep = KEEP_DEFAULT;
}

static enum err check(struct command_call *call, struct error *error) {
    const struct backup_command *chosen = call->chosen;
    if (!call->operands[0])
        return err_set(error, ERR_INVALID, "name the folder of the backups; see --help");
    if (chosen->moves && chosen->checks)
        return err_set(error, ERR_INVALID, "--move and --check do not go together");
    return OK;
}

static void print_damage(void *context, const char *sentence) {
    (void)context;
    fprintf(stderr, "quern backup: %s\n", sentence);
}

static enum err take(struct command_call *call, struct error *error) {
    const struct backup_command *chosen = call->chosen;
    struct backup_options options = {.state_dir = chosen->state_dir,
                                     .dir = call->operands[0],
                                     .version = QUERN_VERSION,
                                     .keep = (uint64_t)chosen->keep,
                                     .move = chosen->moves,
                                     .report = print_damage};
    struct backup_created taken;
    int64_t begun_ns = clock_monotonic_ns();
    enum err err = backup_create(&options, &taken, error);
    if (err != OK) return err;
    printf("generation %" PRIu64 ": %" PRIu64 " %s (%" PRIu64 " not ended), %" PRIu64
           " %s, %s; %s copied in %.1f s\n",
           taken.generation, taken.batches, plural(taken.batches, "batch", "batches"),
           taken.unfinished, taken.files, plural(taken.files, "file", "files"),
           pull_show_bytes(taken.bytes).text, pull_show_bytes(taken.copied_bytes).text,
           (double)(clock_monotonic_ns() - begun_ns) * 1e-9);
    if (taken.attempts > 1)
        printf("taken %" PRIu64 " times, since the server removed files meanwhile\n",
               taken.attempts);
    if (chosen->moves)
        printf("%s is closed: its batches go on where the backup is restored, and only there\n",
               chosen->state_dir);
    if (taken.damaged > 0) call->status = EXIT_DAMAGED;
    return OK;
}

static void print_generation(void *context, const struct backup_checked *generation) {
    const struct backup_manifest *manifest = generation->manifest;
    char when[BACKUP_TIME_BYTES];
    (void)context;
    backup_time_text(manifest->begun_unix_s, when);
    printf("generation %" PRIu64 " of %s: %" PRIu64 " %s (%" PRIu64 " not ended), %zu %s, %s: ",
           manifest->generation, when, manifest->batches,
           plural(manifest->batches, "batch", "batches"), manifest->unfinished, manifest->count,
           plural(manifest->count, "file", "files"),
           pull_show_bytes(backup_manifest_bytes(manifest)).text);
    if (generation->damaged)
        printf("%" PRIu64 " damaged\n", generation->damaged);
    else
        printf("good\n");
}

static enum err verify(struct command_call *call, struct error *error) {
    struct backup_check backup = {
        .dir = call->operands[0], .report = print_damage, .checked = print_generation};
    uint64_t damaged = 0, unfinished = 0;
    enum err err = backup_check(&backup, &damaged, &unfinished, error);
    if (err != OK) return err;
    if (unfinished)
        printf("generation %" PRIu64 " was begun and did not end: the next backup removes its "
               "rest\n",
               unfinished);
    if (damaged > 0) call->status = EXIT_DAMAGED;
    return OK;
}

static enum err run(struct command_call *call, struct error *error) {
    const struct backup_command *chosen = call->chosen;
    return chosen->checks ? verify(call, error) : take(call, error);
}

static const struct option_table tables[] = {{rows, 0}};

const struct command cmd_backup = {
    .name = "backup",
    .summary = "copy a state directory while its server runs",
    .usage = "backup DIR [--state-dir DIR] [--keep N] [--move]\n"
             "       quern backup DIR --check",
    .help =
        "Adds a generation to the folder DIR: everything that was durable when the command began.\n"
        "Copies what is new since the generation before. `quern restore` makes a state directory\n"
        "of it. Keep DIR on another disk. Result: one line, and 0; 10 if the state directory has\n"
        "lost bytes of its own.\n",
    .tables = tables,
    .table_count = 1,
    .chosen_bytes = sizeof(struct backup_command),
    .operands_max = 1,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
};
