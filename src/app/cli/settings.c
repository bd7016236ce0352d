/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/settings.h"

#include "base/mem.h"
#include "base/os.h"
#include "cli/command.h"
#include "cli/config_file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYSTEM_FILE "/etc/quern/config"

/* One source on its way into the options. */
struct loading {
    struct settings *settings;
    struct options *options;
    const char *path;
    uint32_t lines[OPTIONS_MAX]; /* the line of this file that set the option; 0: none */
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

/* Whether a command that reads settings has this one. */
static bool is_known(struct str key) {
    for (size_t i = 0; commands[i]; i++)
        for (size_t j = 0; commands[i]->has_settings && j < commands[i]->table_count; j++)
            for (const struct option *row = commands[i]->tables[j].rows; row->name; row++)
                if (str_is(key, row->name) && !row->only_flag) return true;
    return false;
}

/* Sets the option of a key. A key that only other commands have is passed over. */
static enum err take(struct loading *loading, const struct config_setting *setting, uint32_t line,
                     struct error *error) {
    struct bound_option *bound = options_find(loading->options, setting->key);
    if (bound && bound->is->only_flag)
        return err_set(error, ERR_INVALID, "'%s' is for the command line only", bound->is->name);
    if (!bound || !option_is_setting(bound->is))
        return is_known(setting->key) ? OK : options_unknown(loading->options, setting->key, error);
    size_t at = (size_t)(bound - loading->options->at);
    if (loading->lines[at] && !option_is_list(bound->is))
        return err_set(error, ERR_INVALID, "'%s' was set in line %u already", bound->is->name,
                       loading->lines[at]);
    loading->lines[at] = line;
    char origin[PATH_MAX + 16];
    snprintf(origin, sizeof origin, "%s:%u", loading->path, line);
    const char *text = keep(loading->settings, str_from(origin));
    const char *value = keep(loading->settings, setting->value);
    return options_set(bound, loading->path, text, value, error);
}

/* Passes a wrong setting on, or ends with it. */
static enum err note(const struct loading *loading, enum err err, const struct error *error) {
    const struct settings_told *told = &loading->settings->told;
    if (!told->fault || (err != ERR_INVALID && err != ERR_LIMIT)) return err;
    told->fault(told->context, error->text);
    return OK;
}

static void tell_file(const struct loading *loading, const char *path, bool is_there,
                      size_t count) {
    const struct settings_told *told = &loading->settings->told;
    if (told->file) told->file(told->context, path, is_there, count);
}

/* Takes the settings of a text; *ret_count are those that are right. */
static enum err load_text(struct loading *loading, struct str text, size_t *ret_count,
                          struct error *error) {
    struct config_reader reader = {.rest = text};
    struct config_setting setting;
    for (;;) {
        enum err err = OK;
        bool has_one = config_next(&reader, &setting, &err, error);
        if (!has_one && err == OK) return OK;
        if (has_one) err = take(loading, &setting, reader.line, error);
        if (err == OK) (*ret_count)++;
        if (err != OK)
            err = note(loading, err_prefix(error, "%s:%u", loading->path, reader.line), error);
        if (err != OK) return err;
    }
}

static enum err load_file(struct loading *loading, const char *path, bool must_be_there,
                          struct error *error) {
    char *text;
    size_t bytes, count = 0;
    enum err err = os_read_file(path, CONFIG_FILE_BYTES_MAX, &text, &bytes, error);
    if (err == ERR_NOT_FOUND && !must_be_there) {
        tell_file(loading, path, false, 0);
        return OK;
    }
    if (err != OK) return err;
    os_drop_mark(text, &bytes);
    loading->path = keep(loading->settings, str_from(path));
    memset(loading->lines, 0, sizeof loading->lines);
    err = load_text(loading, (struct str){text, bytes}, &count, error);
    if (err == OK) tell_file(loading, path, true, count);
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

void settings_variable(const struct option *option, char ret_name[SETTINGS_VARIABLE_BYTES]) {
    _Static_assert(SETTINGS_VARIABLE_BYTES >= CONFIG_KEY_BYTES_MAX + 8, "QUERN_ and a key fit");
    snprintf(ret_name, SETTINGS_VARIABLE_BYTES, "QUERN_%s", option->name);
    for (char *c = ret_name; *c; c++) {
        if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
        if (*c == '-') *c = '_';
    }
}

static enum err take_variable(struct loading *loading, struct bound_option *bound, const char *name,
                              struct error *error) {
    const char *value = getenv(name);
    if (!value) return OK;
    const char *text = keep(loading->settings, str_from(name));
    struct str rest = str_from(value);
    enum err err;
    do {
        size_t end = option_is_list(bound->is) ? str_find_byte(rest, ',', 0) : SIZE_MAX;
        struct str one = {rest.at, end == SIZE_MAX ? rest.bytes : end};
        rest = str_skip(rest, end == SIZE_MAX ? rest.bytes : end + 1);
        err = options_set(bound, text, text, keep(loading->settings, str_trim(one)), error);
    } while (err == OK && rest.bytes > 0);
    return err == OK ? OK : err_prefix(error, "%s", name);
}

static enum err load_environment(struct loading *loading, struct error *error) {
    enum err err = OK;
    for (size_t i = 0; i < loading->options->count && err == OK; i++) {
        struct bound_option *bound = &loading->options->at[i];
        char name[SETTINGS_VARIABLE_BYTES];
        if (!option_is_setting(bound->is)) continue;
        settings_variable(bound->is, name);
        err = take_variable(loading, bound, name, error);
        if (err != OK) err = note(loading, err, error);
    }
    return err;
}

enum err settings_load(struct settings *settings, struct options *options, const char *config,
                       struct error *error) {
    struct loading loading = {.settings = settings, .options = options};
    char path[PATH_MAX];
    enum err err = OK;
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

const char *settings_find_config(int argc, char **argv) {
    const char *found = NULL;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--config=", 9) == 0) found = argv[i] + 9;
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc) found = argv[i + 1];
    }
    return found;
}
