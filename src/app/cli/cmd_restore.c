/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/restore.h"
#include "base/printable.h"
#include "base/str.h"
#include "cli/audit_command.h"
#include "cli/command.h"
#include "cli/pull_show.h"
#include "cli/state_dir.h"
#include "copy/restore.h"

#include "s3/place.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct restore_command {
    const char *state_dir;
    int64_t generation;
    bool again;
    char state_dir_usual[PATH_MAX];
};

#define AT(field) offsetof(struct restore_command, field)
static const struct option rows[] = {
    {"state-dir", OPTION_TEXT, AT(state_dir), "DIR",
     .help = "new or empty directory to restore into (default that of `quern serve`)"},
    {"generation", OPTION_INTEGER, AT(generation), "N",
     .help = "generation to restore, 0 for the newest complete one (default 0)", .max = 1e15},
    {"again", OPTION_SWITCH, AT(again),
     .help = "restore a move although it was restored before or cannot be marked as restored: no "
             "server may run on the earlier directory"},
    {0},
};

static void set_defaults(void *context) {
    struct restore_command *chosen = context;
    state_dir_default(chosen->state_dir_usual);
    chosen->state_dir = chosen->state_dir_usual;
}

static enum err check(struct command_call *call, struct error *error) {
    if (call->operands[0]) return OK;
    return err_set(error, ERR_INVALID, "name the folder of the backups; see --help");
}

/* Restores what `quern serve --copy-to` has stored. */
static enum err run_copy(const struct command_call *call, struct error *error) {
    const struct restore_command *chosen = call->chosen;
    struct copy_restored restored;
    char when[BACKUP_TIME_BYTES];
    if (chosen->generation || chosen->again)
        return err_set(error, ERR_INVALID, "--generation and --again are for folders of backups");
    enum err err =
        copy_restore_from(call->operands[0], chosen->state_dir, call->stop, &restored, error);
    if (err == OK) err = audit_by_command(chosen->state_dir, "restore", "copy", error);
    if (err != OK) return err;
    backup_time_text(restored.unix_ms / 1000, when);
    printf("restored the copy of the server on '%s', of %s, into %s: %" PRIu64 " %s\n",
           restored.host, when, printable(chosen->state_dir).text, restored.files,
           plural(restored.files, "file", "files"));
    printf("%" PRIu64 " %s, of which %" PRIu64 " %s on at the next start\n", restored.batches,
           plural(restored.batches, "batch", "batches"), restored.unfinished,
           plural(restored.unfinished, "goes", "go"));
    printf("that server is not stopped by this, and keeps its copy: to take it over, start with "
           "--standby\n");
    return OK;
}

/* True for the place of a copy: s3://, file://, or a folder that has a copy's log. */
static bool is_copy(const char *name) {
    char log[PATH_MAX];
    if (s3_is_place(name) || strncmp(name, "file://", 7) == 0) return true;
    return snprintf(log, sizeof log, "%s/log", name) < PATH_MAX && access(log, F_OK) == 0;
}

static enum err run(struct command_call *call, struct error *error) {
    const struct restore_command *chosen = call->chosen;
    if (is_copy(call->operands[0])) return run_copy(call, error);
    struct backup_restore restore = {.dir = call->operands[0],
                                     .state_dir = chosen->state_dir,
                                     .generation = (uint64_t)chosen->generation,
                                     .again = chosen->again};
    struct backup_restored restored;
    char when[BACKUP_TIME_BYTES];
    enum err err = backup_restore(&restore, &restored, error);
    if (err != OK) return err;
    char generation[32];
    snprintf(generation, sizeof generation, "generation %" PRIu64, restored.generation);
    err = audit_by_command(chosen->state_dir, "restore", generation, error);
    if (err != OK) return err_prefix(error, "everything is restored, but the audit trail");
    backup_time_text(restored.begun_unix_s, when);
    if (restored.broken_off)
        printf("generation %" PRIu64 " was begun later and did not end: it cannot be restored\n",
               restored.broken_off);
    printf("restored generation %" PRIu64 " of %s into %s: %" PRIu64 " %s, %s, every sum right\n",
           restored.generation, when, printable(chosen->state_dir).text, restored.files,
           plural(restored.files, "file", "files"), pull_show_bytes(restored.bytes).text);
    printf("%" PRIu64 " %s, of which %" PRIu64 " %s on at the next start\n", restored.batches,
           plural(restored.batches, "batch", "batches"), restored.unfinished,
           plural(restored.unfinished, "goes", "go"));
    if (!restored.has_keys)
        printf("no API keys are in the backup: the server will ask for none but those of its "
               "options\n");
    if (restored.migrates)
        printf("the backup is of quern %s: the next start brings its database to this version\n",
               restored.version);
    if (!restored.is_moved && restored.unfinished > 0)
        printf(
            "start no server on the old state directory any more: its batches would run twice\n");
    if (restored.is_unmarked)
        printf("the folder cannot be written: a second restore of this move is not refused\n");
    return OK;
}

static const struct option_table tables[] = {{rows, 0}};

const struct command cmd_restore = {
    .name = "restore",
    .summary = "make a state directory of a backup",
    .usage = "restore DIR|s3://BUCKET/PREFIX [--state-dir DIR] [--generation N] [--again]",
    .help = "Fills a new or empty state directory from the folder DIR of `quern backup`. Compares\n"
            "every byte with its sum, and says what it restored. The next `quern serve` on the\n"
            "directory goes on with the batches that have not ended. A move, made by\n"
            "`quern backup --move`, is restored once. An object storage or a folder that\n"
            "`quern serve --copy-to` fills is restored as well, up to its last entry.\n",
    .tables = tables,
    .table_count = 1,
    .chosen_bytes = sizeof(struct restore_command),
    .operands_max = 1,
    .stops = true,
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
};
