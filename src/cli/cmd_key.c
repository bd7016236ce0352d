/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/state_dir.h"
#include "http/key_file.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct choice {
    const char *words[2]; /* create, list or revoke; what to revoke */
    const char *state_dir;
    const char *name;
    const char *scopes;
    const char *owner;
    const char *expires;
    int64_t requests_per_minute;
    int64_t queued_tokens_max;
    int64_t batches_max;
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

static enum err read_row(const struct choice *choice, int64_t now_unix_s, struct key_row *ret_row,
                         struct error *error) {
    struct key_row row = {.scopes = KEY_SCOPES_DEFAULT,
                          .requests_per_minute = (uint64_t)choice->requests_per_minute,
                          .queued_tokens_max = (uint64_t)choice->queued_tokens_max,
                          .batches_max = (uint64_t)choice->batches_max};
    int64_t seconds = 0;
    if (!choice->name || !*choice->name || strlen(choice->name) >= sizeof row.name)
        return err_set(error, ERR_INVALID, "--name is missing, or longer than %zu bytes",
                       sizeof row.name - 1);
    memcpy(row.name, choice->name, strlen(choice->name) + 1);
    if (choice->owner && !key_owner_is_sane(str_from(choice->owner)))
        return err_set(error, ERR_INVALID,
                       "--owner: '%.80s' is not 1 to 63 letters, digits, '.', '_' and '-'",
                       choice->owner);
    if (choice->owner && strcmp(choice->owner, "default") != 0)
        memcpy(row.owner, choice->owner, strlen(choice->owner) + 1);
    if (choice->expires && !read_span(choice->expires, &seconds))
        return err_set(error, ERR_INVALID, "--expires: '%.40s' is not a time such as 90d, 12h, 30m",
                       choice->expires);
    if (seconds) row.expires_unix_s = now_unix_s + seconds;
    if (choice->scopes) {
        enum err err = key_scopes_read(str_from(choice->scopes), &row.scopes, error);
        if (err != OK) return err_prefix(error, "--scopes");
    }
    *ret_row = row;
    return OK;
}

static enum err create(const struct choice *choice, struct error *error) {
    struct key_row row;
    char text[KEY_TEXT_BYTES];
    int64_t now_unix_s = clock_unix_s();
    enum err err = read_row(choice, now_unix_s, &row, error);
    if (err == OK) err = key_file_add(choice->state_dir, &row, now_unix_s, text, error);
    if (err != OK) return err;
    fprintf(stderr, "key %s for '%s'; it is shown this once:\n", row.id, row.name);
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

static enum err list(const struct choice *choice, struct error *error) {
    struct key_file file = {0};
    char path[PATH_MAX];
    int64_t now_unix_s = clock_unix_s();
    int bytes = snprintf(path, sizeof path, "%s/" KEY_FILE_NAME, choice->state_dir);
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

static enum err revoke(const struct choice *choice, struct error *error) {
    struct key_row row;
    if (!choice->words[1])
        return err_set(error, ERR_INVALID, "revoke needs the id or the name of a key");
    enum err err =
        key_file_revoke(choice->state_dir, str_from(choice->words[1]), clock_unix_s(), &row, error);
    if (err == OK) fprintf(stderr, "key %s ('%s') opens nothing any more\n", row.id, row.name);
    return err;
}

static enum err act(const struct choice *choice, struct error *error) {
    const char *word = choice->words[0] ? choice->words[0] : "";
    bool is_revoke = strcmp(word, "revoke") == 0;
    if (!is_revoke && choice->words[1])
        return err_set(error, ERR_INVALID, "'%.80s' is one argument too many; see --help",
                       choice->words[1]);
    if (is_revoke) return revoke(choice, error);
    if (strcmp(word, "create") == 0) return create(choice, error);
    if (strcmp(word, "list") == 0) return list(choice, error);
    return err_set(error, ERR_INVALID, "say create, list or revoke; see --help");
}

static int exit_of(enum err err) {
    if (err == OK) return EXIT_GOOD;
    return err == ERR_IO || err == ERR_UNAVAILABLE ? EXIT_MACHINE : EXIT_WRONG_INPUT;
}

static struct option text_row(const char *name, const char **target, const char *value,
                              const char *help) {
    return (struct option){
        .name = name, .kind = OPTION_TEXT, .target = target, .value = value, .help = help};
}

static struct option limit_row(const char *name, int64_t *target, const char *help) {
    return (struct option){.name = name,
                           .kind = OPTION_INTEGER,
                           .target = target,
                           .value = "N",
                           .help = help,
                           .min = 0,
                           .max = 1e15};
}

static int run(int argc, char **argv) {
    struct choice choice = {0};
    char state_dir[PATH_MAX];
    struct error error = {0};
    bool done = false;
    const struct option options[] = {
        text_row("state-dir", &choice.state_dir, "DIR", "of the server, which may be running"),
        text_row("name", &choice.name, "N", "to know it by"),
        text_row("scopes", &choice.scopes, "LIST",
                 "of files, batches, infer, metrics, admin; the first three"),
        text_row("owner", &choice.owner, "O", "whose files and batches it sees; default"),
        text_row("expires", &choice.expires, "90d", "after so many days, hours (h) or minutes (m)"),
        limit_row("requests-per-minute", &choice.requests_per_minute, "more are answered 429"),
        limit_row("queued-tokens-max", &choice.queued_tokens_max,
                  "in the inputs of its owner's open batches"),
        limit_row("batches-max", &choice.batches_max, "of its owner open at a time"),
    };
    const struct options_help help = {
        "key create --name N [options] | list | revoke ID-OR-NAME",
        "API keys. `create` prints the key on standard output, once; only its SHA-256 is kept.\n"
        "A running server sees a change within a second, and asks for a key once there is one.\n"};
    enum err err = options_read(options, sizeof options / sizeof *options, &help, argc, argv,
                                choice.words, 2, &done, &error);
    if (done && err == OK) return EXIT_GOOD;
    default_state_dir(state_dir);
    if (!choice.state_dir) choice.state_dir = state_dir;
    if (err == OK) err = act(&choice, &error);
    if (err != OK) fprintf(stderr, "quern key: %s\n", error.text);
    return exit_of(err);
}

const struct command cmd_key = {"key", "makes, lists and revokes API keys", false, run};
