/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/settings.h"

#include "base/mem.h"
#include "base/os.h"
#include "cli/config_file.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYSTEM_FILE "/etc/quern/config"

/* One source on its way into the table. */
struct loading {
    struct settings *settings;
    const struct option *options;
    size_t count;
    const char *path;
    uint32_t lines[OPTIONS_MAX]; /* where this file set the option */
};

static const char *keep(struct settings *settings, struct str text) {
    settings->texts = mem_resize(settings->texts, settings->text_count + 1, sizeof(char *));
    return settings->texts[settings->text_count++] = mem_str(text);
}

void settings_release(struct settings *settings) {
    for (size_t i = 0; i < settings->text_count; i++) free(settings->texts[i]);
    free(settings->texts);
    *settings = (struct settings){0};
}

/* --- files --- */

struct search {
    struct str key;
    bool found;
};

static void search_table(void *context, const struct option *options, size_t count) {
    struct search *search = context;
    const struct option *option = options_find(options, count, search->key);
    if (option && !option->only_flag) search->found = true;
}

/* A key of the table is set; one of another command is passed over. */
static enum err take(struct loading *loading, const struct config_setting *setting, uint32_t line,
                     struct error *error) {
    const struct option *option = options_find(loading->options, loading->count, setting->key);
    if (option && option->only_flag)
        return err_set(error, ERR_INVALID, "'%s' is for the command line only", option->name);
    if (!option || !option_is_setting(option)) {
        struct search search = {setting->key, option != NULL};
        cmd_serve_settings(search_table, &search);
        cmd_run_settings(search_table, &search);
        if (search.found) return OK;
        return options_unknown(loading->options, loading->count, setting->key, error);
    }
    size_t at = (size_t)(option - loading->options);
    if (loading->lines[at] && !option_is_list(option))
        return err_set(error, ERR_INVALID, "'%s' was set in line %u already", option->name,
                       loading->lines[at]);
    loading->lines[at] = line;
    char origin[PATH_MAX + 16];
    snprintf(origin, sizeof origin, "%s:%u", loading->path, line);
    struct option_origin *was = &loading->settings->origins[at];
    const char *text = keep(loading->settings, str_from(origin));
    const char *value = keep(loading->settings, setting->value);
    return option_set(option, was, loading->path, text, value, error);
}

static enum err load_file(struct loading *loading, const char *path, bool must_be_there,
                          struct error *error) {
    char *text;
    size_t bytes;
    enum err err = os_read_file(path, CONFIG_FILE_BYTES_MAX, &text, &bytes, error);
    if (err == ERR_NOT_FOUND && !must_be_there) return OK;
    if (err != OK) return err;
    loading->path = keep(loading->settings, str_from(path));
    memset(loading->lines, 0, sizeof loading->lines);
    struct config_reader reader = {.rest = {text, bytes}};
    struct config_setting setting;
    while (config_next(&reader, &setting, &err, error)) {
        err = take(loading, &setting, reader.line, error);
        if (err != OK) break;
    }
    if (err != OK) err = err_prefix(error, "%s:%u", path, reader.line);
    free(text);
    return err;
}

static bool user_file(char ret_path[PATH_MAX]) {
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (config && *config)
        return snprintf(ret_path, PATH_MAX, "%s/quern/config", config) < PATH_MAX;
    if (home && *home)
        return snprintf(ret_path, PATH_MAX, "%s/.config/quern/config", home) < PATH_MAX;
    return false;
}

/* --- the environment --- */

static enum err take_variable(struct loading *loading, const struct option *option,
                              const char *name, struct error *error) {
    const char *value = getenv(name);
    if (!value) return OK;
    struct option_origin *origin = &loading->settings->origins[(size_t)(option - loading->options)];
    const char *text = keep(loading->settings, str_from(name));
    struct str rest = str_from(value);
    enum err err;
    do {
        size_t end = option_is_list(option) ? str_find_byte(rest, ',', 0) : SIZE_MAX;
        struct str one = {rest.at, end == SIZE_MAX ? rest.bytes : end};
        rest = str_skip(rest, end == SIZE_MAX ? rest.bytes : end + 1);
        err = option_set(option, origin, text, text, keep(loading->settings, str_trim(one)), error);
    } while (err == OK && rest.bytes > 0);
    return err == OK ? OK : err_prefix(error, "%s", name);
}

static enum err load_environment(struct loading *loading, struct error *error) {
    enum err err = OK;
    for (size_t i = 0; i < loading->count && err == OK; i++) {
        const struct option *option = &loading->options[i];
        char name[CONFIG_KEY_BYTES_MAX + 16];
        if (!option_is_setting(option)) continue;
        snprintf(name, sizeof name, "QUERN_%s", option->name);
        for (char *c = name; *c; c++) {
            if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
            if (*c == '-') *c = '_';
        }
        err = take_variable(loading, option, name, error);
    }
    return err;
}

enum err settings_load(struct settings *settings, const struct option *options, size_t count,
                       const char *config, struct error *error) {
    struct loading loading = {.settings = settings, .options = options, .count = count};
    char path[PATH_MAX];
    enum err err = OK;
    assert(count <= OPTIONS_MAX);
    if (!config) config = getenv("QUERN_CONFIG");
    if (config && *config) {
        err = load_file(&loading, config, true, error);
    } else {
        err = load_file(&loading, SYSTEM_FILE, false, error);
        if (err == OK && user_file(path)) err = load_file(&loading, path, false, error);
    }
    return err == OK ? load_environment(&loading, error) : err;
}

/* --- the command line --- */

static const char *find_config(int argc, char **argv) {
    const char *found = NULL;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--config=", 9) == 0) found = argv[i] + 9;
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc) found = argv[i + 1];
    }
    return found;
}

static bool asks_for_help(int argc, char **argv) {
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

enum err settings_read(struct settings *settings, const struct option *options, size_t count,
                       const struct options_help *help, int argc, char **argv,
                       const char **ret_rest, size_t rest_max, bool *ret_done,
                       struct error *error) {
    *ret_done = false;
    /* Help is there whatever is wrong with a file. */
    enum err err = OK;
    if (!asks_for_help(argc, argv))
        err = settings_load(settings, options, count, find_config(argc, argv), error);
    if (err != OK) return err;
    return options_read_over(options, count, help, argc, argv, settings->origins, ret_rest,
                             rest_max, ret_done, error);
}
