/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/state_dir.h"
#include "json/json.h"
#include "store/audit.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct audit_command {
    const char *state_dir;
    const char *since, *until; /* ages: "7d" */
    const char *actor, *action, *subject;
    int64_t limit;
    bool json;
    char state_dir_usual[PATH_MAX];
};

#define AT(field) offsetof(struct audit_command, field)
static const struct option rows[] = {
    {"state-dir", OPTION_TEXT, AT(state_dir), "DIR",
     .help = "state directory of the server, which may be running"},
    {"since", OPTION_TEXT, AT(since), "7d",
     .help = "entries of that age and younger: days, hours or minutes (default: all)"},
    {"until", OPTION_TEXT, AT(until), "1d", .help = "entries of that age and older (default: all)"},
    {"actor", OPTION_TEXT, AT(actor), "KEY",
     .help = "entries of one actor: the id of a key, \"server\" or \"uid 0\""},
    {"action", OPTION_TEXT, AT(action), "NAME",
     .help = "entries of one action, such as batch.delete, or of a noun: key"},
    {"subject", OPTION_TEXT, AT(subject), "ID", .help = "entries about one batch, file or key"},
    {"limit", OPTION_INTEGER, AT(limit), "N", .help = "entries to print (default 100)", .min = 1,
     .max = 1000000},
    {"json", OPTION_SWITCH, AT(json), .help = "print the entries as JSON, one per line"},
    {0},
};

struct listing {
    const struct audit_command *chosen;
    int64_t since, until, count;
};

static bool read_age(const char *text, int64_t *ret_s) {
    struct str rest = str_from(text);
    uint64_t number;
    if (rest.bytes < 2) return false;
    char unit = rest.at[--rest.bytes];
    int64_t unit_s = unit == 'd' ? 86400 : unit == 'h' ? 3600 : unit == 'm' ? 60 : 0;
    if (!unit_s || !str_to_u64(rest, &number) || number > 1000000) return false;
    *ret_s = (int64_t)number * unit_s;
    return true;
}

static bool fits(const json_t *entry, const char *name, const char *wanted) {
    return !wanted || str_is(json_member_str(entry, name), wanted);
}

/* "key" is each action that begins with "key.". */
static bool fits_action(const json_t *entry, const char *wanted) {
    struct str action = json_member_str(entry, "action");
    size_t bytes = wanted ? strlen(wanted) : 0;
    if (!wanted || str_is(action, wanted)) return true;
    return action.bytes > bytes && memcmp(action.at, wanted, bytes) == 0 && action.at[bytes] == '.';
}

static void print_text(const json_t *entry, const char *name, int width) {
    struct str text = json_member_str(entry, name);
    printf("  %-*s", width, text.bytes > 0 ? printable(text.at).text : "-");
}

static void print_row(const json_t *entry, int64_t created_unix_s) {
    char when[32] = "-";
    struct tm parts;
    time_t at = (time_t)created_unix_s;
    struct str outcome = json_member_str(entry, "outcome");
    if (gmtime_r(&at, &parts)) strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &parts);
    printf("%-19s", when);
    print_text(entry, "action", 12);
    print_text(entry, "subject", 38);
    print_text(entry, "actor", 9);
    print_text(entry, "owner", 12);
    print_text(entry, "peer", 1);
    if (outcome.bytes > 0) printf("  %s", printable(outcome.at).text);
    putchar('\n');
}

static bool take(void *context, struct str line) {
    struct listing *listing = context;
    const struct audit_command *chosen = listing->chosen;
    struct error ignored;
    json_t *entry;
    if (json_read(&entry, line, &ignored) != OK) return true;
    int64_t created = json_integer_value(json_member(entry, "created_at"));
    bool is_wanted = created >= listing->since && created <= listing->until &&
                     fits(entry, "actor", chosen->actor) &&
                     fits(entry, "subject", chosen->subject) && fits_action(entry, chosen->action);
    if (is_wanted && chosen->json)
        printf("%.*s\n", STR_ARGS(line));
    else if (is_wanted)
        print_row(entry, created);
    json_decref(entry);
    listing->count += is_wanted;
    return listing->count < chosen->limit;
}

static enum err read_times(const struct audit_command *chosen, struct listing *listing,
                           struct error *error) {
    int64_t age_s, now_unix_s = clock_unix_s();
    *listing = (struct listing){chosen, INT64_MIN, INT64_MAX, 0};
    if (chosen->since && !read_age(chosen->since, &age_s))
        return err_set(error, ERR_INVALID, "--since: '%s' is not a time such as 7d, 12h, 90m",
                       chosen->since);
    if (chosen->since) listing->since = now_unix_s - age_s;
    if (chosen->until && !read_age(chosen->until, &age_s))
        return err_set(error, ERR_INVALID, "--until: '%s' is not a time such as 7d, 12h, 90m",
                       chosen->until);
    if (chosen->until) listing->until = now_unix_s - age_s;
    return OK;
}

static enum err check(struct command_call *call, struct error *error) {
    struct listing listing;
    return read_times(call->chosen, &listing, error);
}

static enum err run(struct command_call *call, struct error *error) {
    const struct audit_command *chosen = call->chosen;
    struct listing listing;
    struct stat status;
    enum err err = read_times(chosen, &listing, error);
    if (err != OK) return err;
    if (stat(chosen->state_dir, &status) != 0)
        return err_set(error, ERR_NOT_FOUND, "%s is not a state directory of quern",
                       chosen->state_dir);
    if (!chosen->json)
        printf("%-19s  %-12s  %-38s  %-9s  %-12s  peer\n", "time (UTC)", "action", "subject",
               "actor", "owner");
    return audit_each(chosen->state_dir, take, &listing, error);
}

static void set_defaults(void *context) {
    struct audit_command *chosen = context;
    state_dir_default(chosen->state_dir_usual);
    chosen->state_dir = chosen->state_dir_usual;
    chosen->limit = 100;
}

static const struct option_table tables[] = {{rows, 0}};

const struct command cmd_audit = {
    .name = "audit",
    .summary = "show who changed what in a state directory",
    .usage = "audit [options]",
    .help = "Shows who made or revoked keys, loaded or unloaded models, cancelled or deleted\n"
            "batches, deleted files and restored backups: the newest entries first.\n",
    .tables = tables,
    .table_count = 1,
    .chosen_bytes = sizeof(struct audit_command),
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
};
