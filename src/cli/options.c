/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options.h"

#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const struct option *options;
    size_t count;
    int argc;
    char **argv;
    int at;                        /* the argument being read */
    struct option_origin *origins; /* NULL: nothing was set before */
};

const struct option *options_find(const struct option *options, size_t count, struct str name) {
    for (size_t i = 0; i < count; i++)
        if (str_is(name, options[i].name)) return &options[i];
    return NULL;
}

bool option_is_list(const struct option *option) {
    return option->kind == OPTION_LIST || option->kind == OPTION_WORDS;
}

bool option_is_setting(const struct option *option) {
    return option->kind != OPTION_IGNORED && option->kind != OPTION_IGNORED_SWITCH &&
           !option->only_flag;
}

static const struct option *find_by_name(const struct reader *reader, struct str name) {
    return options_find(reader->options, reader->count, name);
}

static const struct option *find_by_letter(const struct reader *reader, char letter) {
    for (size_t i = 0; i < reader->count; i++)
        if (reader->options[i].letter == letter) return &reader->options[i];
    return NULL;
}

#define NAME_BYTES_MAX 64

/* Edit distance (Wagner, Fischer 1974) between two short names. */
static size_t distance(struct str a, const char *b) {
    size_t b_bytes = strlen(b), row[NAME_BYTES_MAX + 1];
    if (a.bytes > NAME_BYTES_MAX || b_bytes > NAME_BYTES_MAX) return SIZE_MAX;
    for (size_t j = 0; j <= b_bytes; j++) row[j] = j;
    for (size_t i = 1; i <= a.bytes; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_bytes; j++) {
            size_t above = row[j];
            size_t best = diagonal + (a.at[i - 1] != b[j - 1]);
            if (above + 1 < best) best = above + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[b_bytes];
}

enum err options_unknown(const struct option *options, size_t count, struct str name,
                         struct error *error) {
    const char *nearest = NULL;
    size_t best = 4;
    for (size_t i = 0; i < count; i++) {
        size_t far = distance(name, options[i].name);
        if (far < best) {
            best = far;
            nearest = options[i].name;
        }
    }
    if (nearest)
        return err_set(error, ERR_INVALID, "no option --%.*s; did you mean --%s?", STR_ARGS(name),
                       nearest);
    return err_set(error, ERR_INVALID, "no option --%.*s; see --help", STR_ARGS(name));
}

static enum err set_number(const struct option *option, const char *value, struct error *error) {
    double number;
    if (option->kind == OPTION_INTEGER) {
        int64_t integer;
        if (!str_to_i64(str_from(value), &integer))
            return err_set(error, ERR_INVALID, "--%s: '%s' is not an integer", option->name, value);
        number = (double)integer;
        if (option->min == option->max || (number >= option->min && number <= option->max))
            *(int64_t *)option->target = integer;
    } else {
        char *end;
        errno = 0;
        number = strtod(value, &end);
        if (end == value || *end || errno)
            return err_set(error, ERR_INVALID, "--%s: '%s' is not a number", option->name, value);
        if (option->min == option->max || (number >= option->min && number <= option->max))
            *(double *)option->target = number;
    }
    if (option->min != option->max && !(number >= option->min && number <= option->max))
        return err_set(error, ERR_INVALID, "--%s: %s is outside %.15g to %.15g", option->name,
                       value, option->min, option->max);
    return OK;
}

static enum err set_value(const struct option *option, const char *value, struct error *error) {
    switch (option->kind) {
    case OPTION_TEXT: *(const char **)option->target = value; return OK;
    case OPTION_INTEGER:
    case OPTION_NUMBER: return set_number(option, value, error);
    case OPTION_LIST:
    case OPTION_WORDS: {
        struct option_list *list = option->target;
        if (list->count == OPTION_LIST_MAX)
            return err_set(error, ERR_LIMIT, "--%s may be given %d times", option->name,
                           OPTION_LIST_MAX);
        list->values[list->count++] = value;
        return OK;
    }
    case OPTION_IGNORED:
    case OPTION_IGNORED_SWITCH:
        fprintf(stderr, "quern: --%s has no meaning here yet and is ignored\n", option->name);
        return OK;
    case OPTION_SWITCH: break;
    }
    *(bool *)option->target = true;
    return OK;
}

/* A source that speaks for the first time takes the place of the others. */
static void begin_source(const struct option *option, struct option_origin *origin,
                         const void *source, const char *text) {
    if (origin->source == source) return;
    *origin = (struct option_origin){source, text};
    if (option_is_list(option)) ((struct option_list *)option->target)->count = 0;
}

static void begin_flag(const struct reader *reader, const struct option *option) {
    if (!reader->origins) return;
    begin_source(option, &reader->origins[option - reader->options], reader->argv, "command line");
}

enum err option_set(const struct option *option, struct option_origin *origin, const void *source,
                    const char *text, const char *value, struct error *error) {
    begin_source(option, origin, source, text);
    origin->text = text;
    if (option->kind != OPTION_SWITCH) return set_value(option, value, error);
    bool is_true = strcmp(value, "true") == 0;
    if (!is_true && strcmp(value, "false") != 0)
        return err_set(error, ERR_INVALID, "'%s' is true or false, not '%.100s'", option->name,
                       value);
    *(bool *)option->target = is_true;
    return OK;
}

static bool is_switch(const struct option *option) {
    return option->kind == OPTION_SWITCH || option->kind == OPTION_IGNORED_SWITCH;
}

/* One argument that starts with "--", and its value when that stands apart. */
static enum err read_long(struct reader *reader, struct error *error) {
    struct str whole = str_from(reader->argv[reader->at] + 2);
    size_t equals = str_find_byte(whole, '=', 0);
    struct str name = {whole.at, equals == SIZE_MAX ? whole.bytes : equals};
    const struct option *option = find_by_name(reader, name);
    if (!option && str_starts_with(name, STR("no-"))) {
        option = find_by_name(reader, str_skip(name, 3));
        if (option && option->kind == OPTION_SWITCH && equals == SIZE_MAX) {
            *(bool *)option->target = false;
            return OK;
        }
        if (option && option->kind == OPTION_IGNORED_SWITCH) return OK;
        option = NULL;
    }
    if (!option) return options_unknown(reader->options, reader->count, name, error);
    begin_flag(reader, option);
    if (is_switch(option)) {
        if (equals != SIZE_MAX)
            return err_set(error, ERR_INVALID, "--%s takes no value", option->name);
        return set_value(option, NULL, error);
    }
    if (equals != SIZE_MAX) return set_value(option, whole.at + equals + 1, error);
    if (reader->at + 1 >= reader->argc)
        return err_set(error, ERR_INVALID, "--%s needs a value (%s)", option->name, option->value);
    enum err err;
    do err = set_value(option, reader->argv[++reader->at], error);
    while (err == OK && option->kind == OPTION_WORDS && reader->at + 1 < reader->argc &&
           reader->argv[reader->at + 1][0] != '-');
    return err;
}

static enum err read_letter(struct reader *reader, struct error *error) {
    const char *argument = reader->argv[reader->at];
    const struct option *option = find_by_letter(reader, argument[1]);
    if (!option) return err_set(error, ERR_INVALID, "no option %s; see --help", argument);
    begin_flag(reader, option);
    if (is_switch(option) && argument[2] == '\0') return set_value(option, NULL, error);
    if (argument[2]) return set_value(option, argument + 2, error);
    if (reader->at + 1 >= reader->argc)
        return err_set(error, ERR_INVALID, "-%c needs a value (%s)", option->letter, option->value);
    return set_value(option, reader->argv[++reader->at], error);
}

static void print_help(const struct reader *reader, const struct options_help *help) {
    printf("usage: quern %s\n\n%s\n", help->usage, help->text);
    for (size_t i = 0; i < reader->count; i++) {
        const struct option *option = &reader->options[i];
        if (option->kind == OPTION_IGNORED || option->kind == OPTION_IGNORED_SWITCH) continue;
        char left[64], letter[8] = "    ";
        if (option->letter) snprintf(letter, sizeof letter, "-%c, ", option->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, option->name, option->value ? " " : "",
                 option->value ? option->value : "");
        printf("  %-34s %s\n", left, option->help);
    }
    bool first = true;
    for (size_t i = 0; i < reader->count; i++) {
        const struct option *option = &reader->options[i];
        if (option->kind != OPTION_IGNORED && option->kind != OPTION_IGNORED_SWITCH) continue;
        printf(first ? "\nTaken for compatibility, without effect here: --%s" : " --%s",
               option->name);
        first = false;
    }
    if (!first) printf("\n");
}

static enum err read_all(struct reader reader, const struct options_help *help,
                         const char **ret_rest, size_t rest_max, bool *ret_done,
                         struct error *error) {
    const int argc = reader.argc;
    char **argv = reader.argv;
    size_t rest_count = 0;
    *ret_done = false;
    for (; reader.at < argc; reader.at++) {
        const char *argument = argv[reader.at];
        enum err err = OK;
        if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
            print_help(&reader, help);
            *ret_done = true;
            return OK;
        }
        if (argument[0] == '-' && argument[1] == '-' && argument[2])
            err = read_long(&reader, error);
        else if (argument[0] == '-' && argument[1])
            err = read_letter(&reader, error);
        else if (rest_count < rest_max)
            ret_rest[rest_count++] = argument;
        else
            err =
                err_set(error, ERR_INVALID, "'%s' is one argument too many; see --help", argument);
        if (err != OK) return err;
    }
    return OK;
}

enum err options_read(const struct option *options, size_t count, const struct options_help *help,
                      int argc, char **argv, const char **ret_rest, size_t rest_max, bool *ret_done,
                      struct error *error) {
    struct reader reader = {.options = options, .count = count, .argc = argc, .argv = argv};
    return read_all(reader, help, ret_rest, rest_max, ret_done, error);
}

enum err options_read_over(const struct option *options, size_t count,
                           const struct options_help *help, int argc, char **argv,
                           struct option_origin *origins, const char **ret_rest, size_t rest_max,
                           bool *ret_done, struct error *error) {
    struct reader reader = {
        .options = options, .count = count, .argc = argc, .argv = argv, .origins = origins};
    return read_all(reader, help, ret_rest, rest_max, ret_done, error);
}
