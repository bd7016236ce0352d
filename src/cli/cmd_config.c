/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "cli/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct show {
    const char *config; /* --config, or NULL */
    bool prints, origins;
    struct error error;
    enum err err;
};

/* What no screen should show. A file that holds a secret is none itself. */
static bool is_secret(const char *name) {
    static const char *const endings[] = {"key", "secret", "token", "password"};
    struct str text = str_from(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (str_ends_with(text, str_from(endings[i]))) return true;
    return false;
}

static void print_one(const struct show *show, const struct option *option, const char *origin,
                      const char *value) {
    if (show->origins) printf("%-28s ", origin);
    printf("%s = %s\n", option->name, is_secret(option->name) ? "********" : value);
}

static void print_option(const struct show *show, const struct option *option, const char *origin) {
    char number[64];
    switch (option->kind) {
    case OPTION_TEXT: {
        const char *text = *(const char **)option->target;
        if (text) print_one(show, option, origin, text);
        break;
    }
    case OPTION_INTEGER:
        /* 0 often stands for what is chosen later, and is not always a value to set. */
        if (option->min > (double)*(int64_t *)option->target) break;
        snprintf(number, sizeof number, "%" PRId64, *(int64_t *)option->target);
        print_one(show, option, origin, number);
        break;
    case OPTION_NUMBER:
        snprintf(number, sizeof number, "%.15g", *(double *)option->target);
        print_one(show, option, origin, number);
        break;
    case OPTION_SWITCH:
        print_one(show, option, origin, *(bool *)option->target ? "true" : "false");
        break;
    case OPTION_LIST:
    case OPTION_WORDS: {
        const struct option_list *list = option->target;
        for (size_t i = 0; i < list->count; i++) print_one(show, option, origin, list->values[i]);
        break;
    }
    case OPTION_IGNORED:
    case OPTION_IGNORED_SWITCH: break;
    }
}

static void visit(void *context, const struct option *options, size_t count) {
    struct show *show = context;
    struct settings settings = {0};
    if (show->err == OK)
        show->err = settings_load(&settings, options, count, show->config, &show->error);
    for (size_t i = 0; i < count && show->err == OK && show->prints; i++)
        if (option_is_setting(&options[i])) {
            const char *origin = settings.origins[i].text;
            print_option(show, &options[i], origin ? origin : "default");
        }
    settings_release(&settings);
}

static int run(int argc, char **argv) {
    struct show show = {.err = OK};
    const struct option options[] = {
        {.name = "config",
         .kind = OPTION_TEXT,
         .target = &show.config,
         .value = "F",
         .help = "this file instead of the usual ones"},
        {.name = "origin",
         .kind = OPTION_SWITCH,
         .target = &show.origins,
         .help = "show: where each setting comes from"},
    };
    const struct options_help help = {
        "config check|show [run|serve] [options]",
        "check: reads the files and the environment as `quern serve` and `quern run` would.\n"
        "show: prints every setting with its value. What is printed can be a file itself.\n\n"
        "A setting comes from, the later winning: its default, /etc/quern/config,\n"
        "${XDG_CONFIG_HOME:-~/.config}/quern/config, QUERN_NAME in the environment, --name.\n"};
    const char *words[2] = {"", "serve"};
    bool done;
    if (options_read(options, 2, &help, argc, argv, words, 2, &done, &show.error) != OK) {
        fprintf(stderr, "quern config: %s\n", show.error.text);
        return EXIT_WRONG_INPUT;
    }
    if (done) return EXIT_GOOD;
    bool is_check = strcmp(words[0], "check") == 0, is_run = strcmp(words[1], "run") == 0;
    show.prints = strcmp(words[0], "show") == 0;
    if ((!is_check && !show.prints) || (!is_run && strcmp(words[1], "serve") != 0)) {
        fprintf(stderr, "quern config: say `quern config check` or `quern config show [run]`\n");
        return EXIT_WRONG_INPUT;
    }
    if (is_check || !is_run) cmd_serve_settings(visit, &show);
    if (is_check || is_run) cmd_run_settings(visit, &show);
    if (show.err == OK) return EXIT_GOOD;
    fprintf(stderr, "quern config: %s\n", show.error.text);
    return EXIT_WRONG_INPUT;
}

const struct command cmd_config = {"config", "checks and shows the settings of serve and run",
                                   false, run};
