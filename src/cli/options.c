/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    struct options *options;
    int argc;
    char **argv;
    int at; /* the argument being read */
};

void options_bind(struct options *ret_options, const struct option_table *tables, size_t count,
                  void *chosen) {
    ret_options->count = 0;
    for (size_t i = 0; i < count; i++)
        for (const struct option *row = tables[i].rows; row->name; row++) {
            assert(ret_options->count < OPTIONS_MAX);
            ret_options->at[ret_options->count++] =
                (struct bound_option){.is = row, .target = (char *)chosen + tables[i].at + row->at};
        }
}

struct bound_option *options_find(struct options *options, struct str name) {
    for (size_t i = 0; i < options->count; i++)
        if (str_is(name, options->at[i].is->name)) return &options->at[i];
    return NULL;
}

static struct bound_option *find_letter(struct options *options, char letter) {
    for (size_t i = 0; i < options->count; i++)
        if (options->at[i].is->letter == letter) return &options->at[i];
    return NULL;
}

bool option_is_list(const struct option *option) {
    return option->kind == OPTION_LIST || option->kind == OPTION_WORDS;
}

static bool is_ignored(const struct option *option) {
    return option->kind == OPTION_IGNORED || option->kind == OPTION_IGNORED_SWITCH;
}

static bool is_switch(const struct option *option) {
    return option->kind == OPTION_SWITCH || option->kind == OPTION_IGNORED_SWITCH ||
           option->kind == OPTION_REFUSED_SWITCH;
}

static bool is_refused(const struct option *option) {
    return option->kind == OPTION_REFUSED || option->kind == OPTION_REFUSED_SWITCH;
}

bool option_is_setting(const struct option *option) {
    return !is_ignored(option) && !is_refused(option) && !option->only_flag;
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

enum err options_unknown(const struct options *options, struct str name, struct error *error) {
    const char *nearest = NULL;
    size_t best = 4;
    for (size_t i = 0; i < options->count; i++) {
        size_t far = distance(name, options->at[i].is->name);
        if (far < best) {
            best = far;
            nearest = options->at[i].is->name;
        }
    }
    if (nearest)
        return err_set(error, ERR_INVALID, "no option --%.*s; did you mean --%s?", STR_ARGS(name),
                       nearest);
    return err_set(error, ERR_INVALID, "no option --%.*s; see --help", STR_ARGS(name));
}

static enum err set_number(const struct bound_option *bound, const char *value,
                           struct error *error) {
    const struct option *option = bound->is;
    int64_t integer = 0;
    double number;
    if (option->kind == OPTION_INTEGER) {
        if (!str_to_i64(str_from(value), &integer))
            return err_set(error, ERR_INVALID, "--%s: '%s' is not an integer", option->name, value);
        number = (double)integer;
    } else {
        char *end;
        errno = 0;
        number = strtod(value, &end);
        if (end == value || *end || errno)
            return err_set(error, ERR_INVALID, "--%s: '%s' is not a number", option->name, value);
    }
    if (option->min != option->max && !(number >= option->min && number <= option->max))
        return err_set(error, ERR_INVALID, "--%s: %s is outside %.15g to %.15g", option->name,
                       value, option->min, option->max);
    if (option->kind == OPTION_INTEGER)
        *(int64_t *)bound->target = integer;
    else
        *(double *)bound->target = number;
    return OK;
}

/* `value` is NULL for a switch, which becomes true. */
static enum err set_value(const struct bound_option *bound, const char *value,
                          struct error *error) {
    switch (bound->is->kind) {
    case OPTION_TEXT: *(const char **)bound->target = value; return OK;
    case OPTION_INTEGER:
    case OPTION_NUMBER: return set_number(bound, value, error);
    case OPTION_LIST:
    case OPTION_WORDS: {
        struct option_list *list = bound->target;
        if (list->count == OPTION_LIST_MAX)
            return err_set(error, ERR_LIMIT, "--%s may be given %d times", bound->is->name,
                           OPTION_LIST_MAX);
        list->values[list->count++] = value;
        return OK;
    }
    case OPTION_IGNORED:
    case OPTION_IGNORED_SWITCH:
        fprintf(stderr, "quern: --%s has no meaning here yet and is ignored\n", bound->is->name);
        return OK;
    case OPTION_REFUSED:
    case OPTION_REFUSED_SWITCH:
        return err_set(error, ERR_INVALID, "--%s: %s", bound->is->name, bound->is->help);
    case OPTION_SWITCH: break;
    }
    *(bool *)bound->target = true;
    return OK;
}

/* The first value from a source replaces the values from other sources. */
static void begin_source(struct bound_option *bound, const void *source, const char *origin) {
    if (bound->source != source && option_is_list(bound->is))
        ((struct option_list *)bound->target)->count = 0;
    bound->source = source;
    bound->origin = origin;
}

enum err options_set(struct bound_option *option, const void *source, const char *origin,
                     const char *value, struct error *error) {
    begin_source(option, source, origin);
    if (option->is->kind != OPTION_SWITCH) return set_value(option, value, error);
    bool is_true = strcmp(value, "true") == 0;
    if (!is_true && strcmp(value, "false") != 0)
        return err_set(error, ERR_INVALID, "'%s' is true or false, not '%.100s'", option->is->name,
                       value);
    *(bool *)option->target = is_true;
    return OK;
}

/* Sets an option of the command line; `value` NULL: the value is the next argument. */
static enum err take_value(struct reader *reader, struct bound_option *bound, const char *spelled,
                           const char *value, struct error *error) {
    if (value) return set_value(bound, value, error);
    if (reader->at + 1 >= reader->argc)
        return err_set(error, ERR_INVALID, "%s needs a value (%s)", spelled, bound->is->value);
    return set_value(bound, reader->argv[++reader->at], error);
}

/* `--no-NAME`. */
static bool turn_off(struct reader *reader, struct str name) {
    if (!str_starts_with(name, STR("no-"))) return false;
    struct bound_option *bound = options_find(reader->options, str_skip(name, 3));
    if (!bound || !is_switch(bound->is)) return false;
    begin_source(bound, reader->argv, "command line");
    if (bound->is->kind == OPTION_SWITCH) *(bool *)bound->target = false;
    return true;
}

/* An argument that starts with "--", and its value if that is the next argument. */
static enum err read_long(struct reader *reader, struct error *error) {
    const char *argument = reader->argv[reader->at];
    struct str whole = str_from(argument + 2);
    size_t equals = str_find_byte(whole, '=', 0);
    bool has_value = equals != SIZE_MAX;
    struct str name = {whole.at, has_value ? equals : whole.bytes};
    struct bound_option *bound = options_find(reader->options, name);
    if (!bound && !has_value && turn_off(reader, name)) return OK;
    if (!bound) return options_unknown(reader->options, name, error);
    begin_source(bound, reader->argv, "command line");
    if (is_switch(bound->is)) {
        if (has_value) return err_set(error, ERR_INVALID, "--%s takes no value", bound->is->name);
        return set_value(bound, NULL, error);
    }
    enum err err =
        take_value(reader, bound, argument, has_value ? whole.at + equals + 1 : NULL, error);
    while (err == OK && !has_value && bound->is->kind == OPTION_WORDS &&
           reader->at + 1 < reader->argc && reader->argv[reader->at + 1][0] != '-')
        err = set_value(bound, reader->argv[++reader->at], error);
    return err;
}

static enum err read_letter(struct reader *reader, struct error *error) {
    const char *argument = reader->argv[reader->at];
    const char spelled[] = {'-', argument[1], '\0'};
    struct bound_option *bound = find_letter(reader->options, argument[1]);
    if (!bound) return err_set(error, ERR_INVALID, "no option %s; see --help", argument);
    begin_source(bound, reader->argv, "command line");
    if (is_switch(bound->is) && argument[2])
        return err_set(error, ERR_INVALID, "no option %s; see --help", argument);
    if (is_switch(bound->is)) return set_value(bound, NULL, error);
    return take_value(reader, bound, spelled, argument[2] ? argument + 2 : NULL, error);
}

enum err options_read(struct options *options, int argc, char **argv, const char **ret_operands,
                      size_t operands_max, struct error *error) {
    struct reader reader = {.options = options, .argc = argc, .argv = argv};
    size_t operand_count = 0;
    enum err err = OK;
    for (; reader.at < argc && err == OK; reader.at++) {
        const char *argument = argv[reader.at];
        if (argument[0] == '-' && argument[1] == '-' && argument[2])
            err = read_long(&reader, error);
        else if (argument[0] == '-' && argument[1])
            err = read_letter(&reader, error);
        else if (operand_count < operands_max)
            ret_operands[operand_count++] = argument;
        else
            err = err_set(error, ERR_INVALID, "'%.80s' is one argument too many; see --help",
                          argument);
    }
    return err;
}

/* --- the help --- */

static void print_row(const struct option *option) {
    char left[64], letter[8] = "    ";
    if (option->letter) snprintf(letter, sizeof letter, "-%c, ", option->letter);
    snprintf(left, sizeof left, "%s--%s%s%s", letter, option->name, option->value ? " " : "",
             option->value ? option->value : "");
    printf("  %-34s %s\n", left, option->help);
}

void options_print(const struct options *options) {
    bool has_ignored = false;
    for (size_t i = 0; i < options->count; i++)
        if (!is_ignored(options->at[i].is) && !is_refused(options->at[i].is))
            print_row(options->at[i].is);
    for (size_t i = 0; i < options->count; i++) {
        if (!is_ignored(options->at[i].is)) continue;
        printf(has_ignored ? " --%s" : "\nAccepted for compatibility, without effect: --%s",
               options->at[i].is->name);
        has_ignored = true;
    }
    if (has_ignored) printf("\n");
}
