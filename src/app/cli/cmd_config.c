/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/config_check.h"
#include "cli/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct config_command {
    const char *config;
    bool shows_origin;
};

#define AT(field) offsetof(struct config_command, field)
static const struct option rows[] = {
    {"config", OPTION_TEXT, AT(config), "F", .help = "settings file instead of the usual ones"},
    {"origin", OPTION_SWITCH, AT(shows_origin), .help = "with show: the source of each setting"},
    {0},
};

/* Whether a setting's value stays hidden. The path of a file with a secret is no secret. */
static bool is_secret(const char *name) {
    static const char *const endings[] = {"key", "secret", "token", "password"};
    struct str text = str_from(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (str_ends_with(text, str_from(endings[i]))) return true;
    return false;
}

static void print_value(const struct config_command *chosen, const struct bound_option *bound,
                        const char *value) {
    const char *name = bound->is->name;
    if (chosen->shows_origin) printf("%-28s ", bound->origin ? bound->origin : "default");
    printf("%s = %s\n", name, is_secret(name) ? "********" : value);
}

/* The default as the help tells it, behind "(default "; empty if it tells none. */
static struct str told_default(const char *help) {
    const char *at = strstr(help, "(default");
    if (!at) return (struct str){NULL, 0};
    at += strlen("(default");
    at += strspn(at, ": ");
    return (struct str){at, strcspn(at, ")")};
}

/* Prints a setting that is chosen later, when the model or the machine is known, as a comment. */
static bool print_later(const struct config_command *chosen, const struct bound_option *bound) {
    struct str told = told_default(bound->is->help);
    bool is_told = told.bytes > 0 && !str_starts_with(told, STR("0"));
    if (bound->origin || !is_told) return false;
    if (chosen->shows_origin) printf("%-28s ", "default");
    printf("# %s: %.*s\n", bound->is->name, STR_ARGS(told));
    return true;
}

static void print_setting(const struct config_command *chosen, const struct bound_option *bound) {
    const void *target = bound->target;
    char number[64];
    switch (bound->is->kind) {
    case OPTION_TEXT: {
        const char *text = *(const char *const *)target;
        if (text)
            print_value(chosen, bound, text);
        else
            (void)print_later(chosen, bound);
        break;
    }
    case OPTION_INTEGER: {
        int64_t integer = *(const int64_t *)target;
        if (integer == 0 && print_later(chosen, bound)) break;
        if (bound->is->min > (double)integer) break;
        snprintf(number, sizeof number, "%" PRId64, integer);
        print_value(chosen, bound, number);
        break;
    }
    case OPTION_NUMBER:
        if (*(const double *)target <= 0 && print_later(chosen, bound)) break;
        if (bound->is->min > *(const double *)target) break; /* not given */
        snprintf(number, sizeof number, "%.15g", *(const double *)target);
        print_value(chosen, bound, number);
        break;
    case OPTION_SWITCH: print_value(chosen, bound, *(const bool *)target ? "true" : "false"); break;
    case OPTION_LIST:
    case OPTION_WORDS: {
        const struct option_list *list = target;
        for (size_t i = 0; i < list->count; i++) print_value(chosen, bound, list->values[i]);
        break;
    }
    case OPTION_FOREIGN:
    case OPTION_FOREIGN_SWITCH: break;
    }
}

/* Prints a setting as a commented line of an environment file, with its help above it. */
static void print_example(const struct bound_option *bound) {
    char name[SETTINGS_VARIABLE_BYTES];
    const void *target = bound->target;
    struct str told = told_default(bound->is->help);
    settings_variable(bound->is, name);
    printf("\n# %s\n#%s=", bound->is->help, name);
    switch (bound->is->kind) {
    case OPTION_TEXT:
        if (*(const char *const *)target) printf("%s", *(const char *const *)target);
        break;
    case OPTION_INTEGER:
        if (*(const int64_t *)target != 0 || str_starts_with(told, STR("0")))
            printf("%" PRId64, *(const int64_t *)target);
        break;
    case OPTION_NUMBER:
        if (*(const double *)target > 0) printf("%.15g", *(const double *)target);
        break;
    case OPTION_SWITCH: printf("%s", *(const bool *)target ? "true" : "false"); break;
    default: break;
    }
    putchar('\n');
}

static void print_examples(const struct command *command) {
    struct options options;
    void *theirs = command_begin(command, &options);
    printf("# Settings of `quern %s`, each with its default; remove the # to change one.\n"
           "# A list has commas between its values. quern-config(1), quern-%s(1).\n",
           command->name, command->name);
    for (size_t i = 0; i < options.count; i++)
        if (option_is_setting(options.at[i].is)) print_example(&options.at[i]);
    command_end(command, theirs);
}

/* Loads the settings of one command, without running it, and prints them if asked to. */
static enum err load(const struct config_command *chosen, const struct command *command,
                     bool prints, struct error *error) {
    struct settings settings = {0};
    struct options options;
    void *theirs = command_begin(command, &options);
    enum err err = settings_load(&settings, &options, chosen->config, error);
    for (size_t i = 0; err == OK && prints && i < options.count; i++)
        if (option_is_setting(options.at[i].is)) print_setting(chosen, &options.at[i]);
    command_end(command, theirs);
    settings_release(&settings);
    return err;
}

/* Prints the names of the settings that a running server takes over on SIGHUP. */
static void print_reloadable(void) {
    struct options options;
    void *theirs = command_begin(&cmd_serve, &options);
    for (size_t i = 0; i < options.count; i++)
        if (options.at[i].is->reloads) printf("%s\n", options.at[i].is->name);
    command_end(&cmd_serve, theirs);
}

static enum err check(struct command_call *call, struct error *error) {
    const char *word = call->operands[0] ? call->operands[0] : "";
    const struct command *only = call->operands[1] ? command_find(call->operands[1]) : NULL;
    enum err err = OK;
    if (strcmp(word, "reloadable") == 0 && (!only || only == &cmd_serve)) return OK;
    if ((strcmp(word, "check") != 0 && strcmp(word, "show") != 0 && strcmp(word, "example") != 0) ||
        (call->operands[1] && (!only || !only->has_settings)))
        return err_set(error, ERR_INVALID,
                       "say `quern config reloadable`, or `quern config check|show|example "
                       "[run|serve|worker|preflight|evaluate|tune]`");
    if (strcmp(word, "show") != 0) return OK;
    for (size_t i = 0; commands[i] && err == OK; i++)
        if (commands[i]->has_settings && (!only || commands[i] == only))
            err = load(call->chosen, commands[i], false, error);
    return err;
}

static enum err run(struct command_call *call, struct error *error) {
    const struct command *command =
        call->operands[1] ? command_find(call->operands[1]) : &cmd_serve;
    if (strcmp(call->operands[0], "check") == 0) {
        const struct config_command *chosen = call->chosen;
        bool is_good = true;
        enum err err =
            config_check(chosen->config, call->operands[1] ? command : NULL, &is_good, error);
        if (!is_good) call->status = EXIT_USAGE;
        return err;
    }
    if (strcmp(call->operands[0], "example") == 0) {
        print_examples(command);
        return OK;
    }
    if (strcmp(call->operands[0], "reloadable") == 0) {
        print_reloadable();
        return OK;
    }
    return load(call->chosen, command, true, error);
}

static const struct option_table tables[] = {{rows, 0}};

const struct command cmd_config = {
    .name = "config",
    .summary = "check and show the settings of serve, run, worker, preflight, evaluate and tune",
    .usage =
        "config check|show|example|reloadable [run|serve|worker|preflight|evaluate|tune] [options]",
    .help =
        "check: reads the files and the environment as these commands would, and says each wrong\n"
        "setting with its file and line; exits with 2 if there is one.\n"
        "show: prints every setting (of serve unless named) as a settings file has it.\n"
        "example: prints every setting with its help and its default, commented out, as a file\n"
        "of variables for a service manager.\n"
        "reloadable: prints the names of the settings that SIGHUP changes in a running server.\n\n"
        "A setting comes from, the later winning: its default, /etc/quern/config,\n"
        "${XDG_CONFIG_HOME:-~/.config}/quern/config, QUERN_NAME in the environment, --name.\n",
    .tables = tables,
    .table_count = 1,
    .chosen_bytes = sizeof(struct config_command),
    .operands_max = 2,
    .words = "check|show|example|reloadable",
    .check = check,
    .run = run,
};
