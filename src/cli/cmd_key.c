/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "cli/command.h"
#include "cli/state_dir.h"
#include "http/key_file.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct chosen {
    const char *state_dir;
    const char *name;
    const char *scopes;
    const char *owner;
    const char *expires;
    int64_t requests_per_minute;
    int64_t queued_tokens_max;
    int64_t batches_max;
    int64_t stored_bytes_max;
    struct key_row row; /* the new key, read from the options */
    char state_dir_usual[PATH_MAX];
};

#define AT(field) offsetof(struct chosen, field)
static const struct option rows[] = {
    {"state-dir", OPTION_TEXT, AT(state_dir), "DIR",
     .help = "state directory of the server, which may be running"},
    {"name", OPTION_TEXT, AT(name), "N", .help = "name of the new key"},
    {"scopes", OPTION_TEXT, AT(scopes), "LIST",
     .help = "rights: files, batches, infer, metrics, admin (default files,batches,infer)"},
    {"owner", OPTION_TEXT, AT(owner), "O",
     .help = "owner of the files and batches that the key sees (default \"default\")"},
    {"expires", OPTION_TEXT, AT(expires), "90d",
     .help = "lifetime in days (d), hours (h) or minutes (m) (default: none)"},
    {"requests-per-minute", OPTION_INTEGER, AT(requests_per_minute), "N",
     .help = "requests per minute before 429 (default 0: no limit)", .max = 1e15},
    {"queued-tokens-max", OPTION_INTEGER, AT(queued_tokens_max), "N",
     .help = "tokens in the inputs of the owner's open batches (default 0: no limit)", .max = 1e15},
    {"batches-max", OPTION_INTEGER, AT(batches_max), "N",
     .help = "open batches of the owner (default 0: no limit)", .max = 1e15},
    {"stored-bytes-max", OPTION_INTEGER, AT(stored_bytes_max), "N",
     .help = "bytes of the owner's files, results included (default 0: no limit)", .max = 1e15},
    {0},
};

/* "90d", "12h", "30m" → seconds. */
static bool read_span(const char *text, int64_t *ret_seconds) {
    struct str number = str_from(text);
    if (number.bytes < 2) return false;
    char unit = number.at[--number.bytes];
    int64_t each = unit == 'd' ? 86400 : unit == 'h' ? 3600 : unit == 'm' ? 60 : 0, count;
    if (!each || !str_to_i64(number, &count) || count < 1 || count > 36500) return false;
    *ret_seconds = count * each;
    return true;
}

/* Checks the options of `create` and makes them a key without its secret. */
static enum err read_row(const struct chosen *chosen, int64_t now_unix_s, struct key_row *ret_row,
                         struct error *error) {
    struct key_row row = {.scopes = KEY_SCOPES_DEFAULT,
                          .requests_per_minute = (uint64_t)chosen->requests_per_minute,
                          .queued_tokens_max = (uint64_t)chosen->queued_tokens_max,
                          .batches_max = (uint64_t)chosen->batches_max,
                          .stored_bytes_max = (uint64_t)chosen->stored_bytes_max};
    int64_t seconds = 0;
    if (!chosen->name || !*chosen->name || strlen(chosen->name) >= sizeof row.name)
        return err_set(error, ERR_INVALID, "--name is missing, or longer than %zu bytes",
                       sizeof row.name - 1);
    memcpy(row.name, chosen->name, strlen(chosen->name) + 1);
    if (chosen->owner && !key_owner_is_sane(str_from(chosen->owner)))
        return err_set(error, ERR_INVALID,
                       "--owner: '%.80s' is not 1 to 63 letters, digits, '.', '_' and '-'",
                       chosen->owner);
    if (chosen->owner && strcmp(chosen->owner, "default") != 0)
        memcpy(row.owner, chosen->owner, strlen(chosen->owner) + 1);
    if (chosen->expires && !read_span(chosen->expires, &seconds))
        return err_set(error, ERR_INVALID, "--expires: '%.40s' is not a time such as 90d, 12h, 30m",
                       chosen->expires);
    if (seconds) row.expires_unix_s = now_unix_s + seconds;
    if (chosen->scopes) {
        enum err err = key_scopes_read(str_from(chosen->scopes), &row.scopes, error);
        if (err != OK) return err_prefix(error, "--scopes");
    }
    *ret_row = row;
    return OK;
}

static enum err create(struct command_call *call, struct error *error) {
    const struct chosen *chosen = call->chosen;
    struct key_row row = chosen->row;
    char text[KEY_TEXT_BYTES];
    enum err err = key_file_add(chosen->state_dir, &row, clock_unix_s(), text, error);
    if (err != OK) return err;
    fprintf(stderr, "key %s for '%s'; it is shown only once:\n", row.id, row.name);
    printf("%s\n", text);
    fflush(stdout);
    explicit_bzero(text, sizeof text);
    return OK;
}

static void print_time(int64_t unix_s, const char *otherwise) {
    char text[32];
    struct tm parts;
    time_t when = (time_t)unix_s;
    if (!unix_s || !gmtime_r(&when, &parts))
        printf("  %-16s", otherwise);
    else if (strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts) > 0)
        printf("  %-16s", text);
}

static void print_row(const struct key_row *row, int64_t now_unix_s) {
    bool is_over = row->expires_unix_s && row->expires_unix_s <= now_unix_s;
    printf("%s  %-8s  %-16s", row->id,
           row->revoked_unix_s ? "revoked"
           : is_over           ? "expired"
                               : "good",
           *row->owner ? row->owner : "default");
    print_time(row->created_unix_s, "-");
    print_time(row->expires_unix_s, "never");
    printf("  ");
    for (int i = 0, count = 0; i < HTTP_SCOPE_NAMED_COUNT; i++)
        if (row->scopes >> i & 1)
            printf("%s%s", count++ ? "," : "", key_scope_name((enum http_scope)i));
    printf("  %s\n", row->name);
}

static enum err list(struct command_call *call, struct error *error) {
    const struct chosen *chosen = call->chosen;
    struct key_file file = {0};
    char path[PATH_MAX];
    int64_t now_unix_s = clock_unix_s();
    int bytes = snprintf(path, sizeof path, "%s/" KEY_FILE_NAME, chosen->state_dir);
    if (bytes < 0 || (size_t)bytes >= sizeof path)
        return err_set(error, ERR_INVALID, "--state-dir is too long");
    enum err err = key_file_read(&file, path, error);
    if (err != OK && err != ERR_NOT_FOUND) return err;
    if (file.count > 0)
        printf("%-8s  %-8s  %-16s  %-16s  %-16s  scopes  name\n", "id", "state", "owner",
               "created (UTC)", "expires (UTC)");
    for (size_t i = 0; i < file.count; i++) print_row(&file.rows[i], now_unix_s);
    key_file_release(&file);
    return OK;
}

static enum err revoke(struct command_call *call, struct error *error) {
    const struct chosen *chosen = call->chosen;
    struct key_row row;
    enum err err = key_file_revoke(chosen->state_dir, str_from(call->operands[1]), clock_unix_s(),
                                   &row, error);
    if (err == OK) fprintf(stderr, "key %s ('%s') no longer opens anything\n", row.id, row.name);
    return err;
}

static const struct action {
    const char *word;
    bool takes_key;
    enum err (*run)(struct command_call *call, struct error *error);
} actions[] = {{"create", false, create}, {"list", false, list}, {"revoke", true, revoke}};

static const struct action *find_action(const struct command_call *call) {
    for (size_t i = 0; call->operands[0] && i < sizeof actions / sizeof *actions; i++)
        if (strcmp(call->operands[0], actions[i].word) == 0) return &actions[i];
    return NULL;
}

static enum err check(struct command_call *call, struct error *error) {
    struct chosen *chosen = call->chosen;
    const struct action *action = find_action(call);
    if (!action) return err_set(error, ERR_INVALID, "say create, list or revoke; see --help");
    if (!action->takes_key && call->operands[1])
        return err_set(error, ERR_INVALID, "'%.80s' is one argument too many; see --help",
                       call->operands[1]);
    if (action->takes_key && !call->operands[1])
        return err_set(error, ERR_INVALID, "revoke needs the id or the name of a key");
    state_dir_default(chosen->state_dir_usual);
    if (!chosen->state_dir) chosen->state_dir = chosen->state_dir_usual;
    return action->run == create ? read_row(chosen, clock_unix_s(), &chosen->row, error) : OK;
}

static enum err run(struct command_call *call, struct error *error) {
    return find_action(call)->run(call, error);
}

static const struct option_table tables[] = {{rows, 0}};

const struct command cmd_key = {
    .name = "key",
    .summary = "create, list and revoke API keys",
    .usage = "key create --name N [options] | list | revoke ID-OR-NAME",
    .help = "create: prints a new key on standard output, once; only its SHA-256 is kept.\n"
            "list: the keys with state, owner, times and scopes.  revoke: ends a key.\n"
            "A running server sees a change within a second. It asks for a key once one exists.\n",
    .tables = tables,
    .table_count = 1,
    .chosen_bytes = sizeof(struct chosen),
    .operands_max = 2,
    .words = "create|list|revoke",
    .check = check,
    .run = run,
};
