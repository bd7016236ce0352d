/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/config_check.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/printable.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VARIABLES_MAX 64
#define VARIABLE_BYTES 128

/* A variable of the environment that begins with QUERN_. */
struct variable {
    char name[VARIABLE_BYTES];
    bool is_known;
};

struct finding {
    struct variable variables[VARIABLES_MAX];
    size_t variable_count;
    char *faults[CONFIG_FAULTS_MAX];
    size_t count;
    bool has_more;
    struct buf files; /* what was read, for the end */
};

/* Commands read the same files, so that most faults come several times. */
static void take_fault(void *context, const char *sentence) {
    struct finding *found = context;
    for (size_t i = 0; i < found->count; i++)
        if (strcmp(found->faults[i], sentence) == 0) return;
    found->has_more = found->count == CONFIG_FAULTS_MAX;
    if (found->has_more) return;
    found->faults[found->count++] = mem_str(str_from(sentence));
    fprintf(stderr, "quern config: %s\n", printable(sentence).text);
}

static void take_file(void *context, const char *path, bool is_there, size_t count) {
    struct finding *found = context;
    if (is_there)
        buf_printf(&found->files, "%s: %zu %s\n", printable(path).text, count,
                   plural(count, "setting", "settings"));
    else
        buf_printf(&found->files, "%s: there is no such file\n", printable(path).text);
}

/* The sentence of a check begins with the option's name. Where its value comes from stands before
 * it; an option that no file and no variable sets may come on the command line. */
static void take_refusal(struct finding *found, struct options *options, const char *sentence) {
    size_t bytes = strspn(sentence, "-abcdefghijklmnopqrstuvwxyz0123456789");
    struct bound_option *bound = NULL;
    struct error error;
    if (bytes > 2 && strncmp(sentence, "--", 2) == 0)
        bound = options_find(options, (struct str){sentence + 2, bytes - 2});
    if (bound && !bound->origin) {
        buf_printf(&found->files, "left to the command line: %s\n", printable(sentence).text);
        return;
    }
    (void)err_set(&error, ERR_INVALID, "%s%s%s", bound ? bound->origin : "", bound ? ": " : "",
                  sentence);
    take_fault(found, error.text);
}

static void note_variables(struct finding *found) {
    /* Variables without an option: the settings' file, secrets, the Python module's program. */
    static const char *const others[] = {"QUERN_CONFIG",        "QUERN_API_KEYS",
                                         "QUERN_API_KEYS_FILE", "QUERN_WEBHOOK_SECRET",
                                         "QUERN_BINARY",        "QUERN_QUEUE_PASSWORD"};
    for (char **at = environ; *at && found->variable_count < VARIABLES_MAX; at++) {
        size_t bytes = strcspn(*at, "=");
        if (strncmp(*at, "QUERN_", 6) != 0 || bytes >= VARIABLE_BYTES) continue;
        struct variable *variable = &found->variables[found->variable_count++];
        snprintf(variable->name, sizeof variable->name, "%.*s", (int)bytes, *at);
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            if (strcmp(variable->name, others[i]) == 0) variable->is_known = true;
    }
}

static void know_variables(struct finding *found, const struct options *options) {
    for (size_t i = 0; i < options->count; i++) {
        char name[SETTINGS_VARIABLE_BYTES];
        settings_variable(options->at[i].is, name);
        for (size_t k = 0; k < found->variable_count; k++)
            if (strcmp(found->variables[k].name, name) == 0) found->variables[k].is_known = true;
    }
}

static enum err load(struct finding *found, const struct command *command, bool is_first,
                     const char *config, struct error *error) {
    struct settings settings = {.told = {take_fault, is_first ? take_file : NULL, found}};
    struct options options;
    struct command_call call = {.command = command, .options = &options};
    call.chosen = command_begin(command, &options);
    know_variables(found, &options);
    enum err err = settings_load(&settings, &options, config, error);
    /* The other commands have operands, which are no settings. */
    if (err == OK && command == &cmd_serve) {
        struct error refusal;
        enum err refused = command->check(&call, &refusal);
        if (refused != OK) take_refusal(found, &options, refusal.text);
    }
    command_end(command, call.chosen);
    settings_release(&settings);
    return err;
}

enum err config_check(const char *config, const struct command *only, bool *ret_is_good,
                      struct error *error) {
    struct finding found = {.count = 0};
    buf_init(&found.files, BUF_UNLIMITED);
    note_variables(&found);
    enum err err = load(&found, only ? only : &cmd_serve, true, config, error);
    for (size_t i = 0; commands[i] && err == OK && !only; i++)
        if (commands[i]->has_settings && commands[i] != &cmd_serve)
            err = load(&found, commands[i], false, config, error);
    *ret_is_good = found.count == 0;
    if (found.has_more) fprintf(stderr, "quern config: there are more than these\n");
    for (size_t i = 0; i < found.variable_count && !only; i++)
        if (!found.variables[i].is_known)
            buf_printf(&found.files, "%s: no setting has this name, so it is ignored\n",
                       printable(found.variables[i].name).text);
    if (err == OK && *ret_is_good)
        printf("%.*sthe settings are right\n", STR_ARGS(buf_str(&found.files)));
    for (size_t i = 0; i < found.count; i++) free(found.faults[i]);
    buf_release(&found.files);
    return err;
}
