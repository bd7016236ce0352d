/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "cli/audit_command.h"
#include "cli/command.h"
#include "cli/state_dir.h"
#include "keys/key_new.h"
#include "proof/signing_key.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct key_command {
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

#define AT(field) offsetof(struct key_command, field)
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
     .help = "requests per minute before 429 (default 0: no limit)", .max = KEY_LIMIT_MAX},
    {"queued-tokens-max", OPTION_INTEGER, AT(queued_tokens_max), "N",
     .help = "tokens in the inputs of the owner's open batches (default 0: no limit)",
     .max = KEY_LIMIT_MAX},
    {"batches-max", OPTION_INTEGER, AT(batches_max), "N",
     .help = "open batches of the owner (default 1000; 0: no limit)", .max = KEY_LIMIT_MAX},
    {"stored-bytes-max", OPTION_INTEGER, AT(stored_bytes_max), "N",
     .help = "bytes of the owner's files, results included (default 0: no limit)",
     .max = KEY_LIMIT_MAX},
    {0},
};

/* Checks the options of `create` and makes them a key without its secret. */
static enum err read_row(const struct key_command *chosen, int64_t now_unix_s,
                         struct key_row *ret_row, struct error *error) {
    const struct key_new key = {.name = str_from(chosen->name),
                                .owner = str_from(chosen->owner),
                                .scopes = str_from(chosen->scopes),
                                .expires = str_from(chosen->expires),
                                .requests_per_minute = chosen->requests_per_minute,
                                .queued_tokens_max = chosen->queued_tokens_max,
                                .batches_max = chosen->batches_max,
                                .stored_bytes_max = chosen->stored_bytes_max};
    const char *field;
    enum err err = key_new_read(&key, now_unix_s, ret_row, &field, error);
    return err == OK ? OK : err_prefix(error, "--%s", field);
}

static enum err create(struct command_call *call, struct error *error) {
    const struct key_command *chosen = call->chosen;
    struct key_row row = chosen->row;
    char text[KEY_TEXT_BYTES];
    enum err err = key_file_add(chosen->state_dir, &row, clock_unix_s(), text, error);
    if (err == OK) err = audit_by_command(chosen->state_dir, "key.create", row.id, error);
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
    printf("%s  %-8s  %-16s", row->id, key_row_state(row, now_unix_s),
           *row->owner ? row->owner : "default");
    print_time(row->created_unix_s, "-");
    print_time(row->expires_unix_s, "never");
    printf("  ");
    for (int i = 0, count = 0; i < KEY_SCOPE_NAMED_COUNT; i++)
        if (row->scopes >> i & 1)
            printf("%s%s", count++ ? "," : "", key_scope_name((enum key_scope)i));
    printf("  %s\n", row->name);
}

static enum err list(struct command_call *call, struct error *error) {
    const struct key_command *chosen = call->chosen;
    struct key_file file;
    int64_t now_unix_s = clock_unix_s();
    enum err err = key_file_list(&file, chosen->state_dir, error);
    if (err != OK) return err;
    if (file.count > 0)
        printf("%-8s  %-8s  %-16s  %-16s  %-16s  scopes  name\n", "id", "state", "owner",
               "created (UTC)", "expires (UTC)");
    for (size_t i = 0; i < file.count; i++) print_row(&file.rows[i], now_unix_s);
    key_file_release(&file);
    return OK;
}

static enum err revoke(struct command_call *call, struct error *error) {
    const struct key_command *chosen = call->chosen;
    struct key_row row;
    enum err err = key_file_revoke(chosen->state_dir, str_from(call->operands[1]), clock_unix_s(),
                                   &row, error);
    if (err == OK) err = audit_by_command(chosen->state_dir, "key.revoke", row.id, error);
    if (err == OK) fprintf(stderr, "key %s ('%s') no longer opens anything\n", row.id, row.name);
    return err;
}

/* Prints the public key of the key that signs manifests; a line of an allowed_signers file begins
 * with a name before it. */
static enum err show_public(struct command_call *call, struct error *error) {
    const struct key_command *chosen = call->chosen;
    char path[PATH_MAX], text[SSH_PUBLIC_TEXT_BYTES];
    struct ssh_key key;
    if (snprintf(path, sizeof path, "%s/" SIGNING_KEY_NAME, chosen->state_dir) >= PATH_MAX)
        return err_set(error, ERR_INVALID, "--state-dir: the name is too long");
    enum err err = signing_key_get(&key, path, error);
    if (err != OK) return err;
    ssh_public_write(key.public, text);
    ssh_key_wipe(&key);
    puts(text);
    return OK;
}

static const struct action {
    const char *word;
    bool takes_key;
    enum err (*run)(struct command_call *call, struct error *error);
} actions[] = {{"create", false, create},
               {"list", false, list},
               {"revoke", true, revoke},
               {"public", false, show_public}};

static const struct action *find_action(const struct command_call *call) {
    for (size_t i = 0; call->operands[0] && i < sizeof actions / sizeof *actions; i++)
        if (strcmp(call->operands[0], actions[i].word) == 0) return &actions[i];
    return NULL;
}

static enum err check(struct command_call *call, struct error *error) {
    struct key_command *chosen = call->chosen;
    const struct action *action = find_action(call);
    if (!action)
        return err_set(error, ERR_INVALID, "say create, list, revoke or public; see --help");
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

static void set_defaults(void *context) {
    struct key_command *chosen = context;
    chosen->batches_max = KEY_BATCHES_MAX;
}

static const struct option_table tables[] = {{rows, 0}};

const struct command cmd_key = {
    .name = "key",
    .summary = "create, list and revoke API keys; show the key that signs manifests",
    .usage = "key create --name N [options] | list | revoke ID-OR-NAME | public",
    .help = "create: prints a new key on standard output, once; only its SHA-256 is kept.\n"
            "list: the keys with state, owner, times and scopes.  revoke: ends a key.\n"
            "public: prints the public key of the key that signs manifests.\n"
            "A running server sees a change within a second. It asks for a key once one exists.\n",
    .tables = tables,
    .table_count = 1,
    .chosen_bytes = sizeof(struct key_command),
    .operands_max = 2,
    .words = "create|list|revoke|public",
    .set_defaults = set_defaults,
    .check = check,
    .run = run,
};
