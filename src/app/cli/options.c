/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options.h"

#include "base/log.h"

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

struct bound_option *options_find(struct options *options, struct str name) {
    for (size_t i = 0; i < options->count; i++)
        if (str_is(name, options->at[i].is->name)) return &options->at[i];
    return NULL;
}

/* As options_find, where the command line may have '_' for '-'. */
static struct bound_option *find_spelled(struct options *options, struct str name) {
    char spelled[64];
    if (name.bytes >= sizeof spelled) return NULL;
    for (size_t i = 0; i < name.bytes; i++) spelled[i] = name.at[i] == '_' ? '-' : name.at[i];
    return options_find(options, (struct str){spelled, name.bytes});
}

/* The option with this short form of several letters. */
static struct bound_option *find_brief(struct options *options, const char *letters) {
    for (size_t i = 0; i < options->count; i++)
        if (options->at[i].is->brief && strcmp(options->at[i].is->brief, letters) == 0)
            return &options->at[i];
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

static bool is_same_text(const char *a, const char *b) {
    return !a == !b && (!a || strcmp(a, b) == 0);
}

bool option_is_same(const struct bound_option *a, const struct bound_option *b) {
    switch (a->is->kind) {
    case OPTION_TEXT:
        return is_same_text(*(const char *const *)a->target, *(const char *const *)b->target);
    case OPTION_INTEGER: return *(const int64_t *)a->target == *(const int64_t *)b->target;
    case OPTION_NUMBER:
        return memcmp(a->target, b->target, sizeof(double)) == 0; /* both read from texts */
    case OPTION_SWITCH: return *(const bool *)a->target == *(const bool *)b->target;
    case OPTION_LIST:
    case OPTION_WORDS: {
        const struct option_list *left = a->target, *right = b->target;
        if (left->count != right->count) return false;
        for (size_t i = 0; i < left->count; i++)
            if (!is_same_text(left->values[i], right->values[i])) return false;
        return true;
    }
    case OPTION_FOREIGN:
    case OPTION_FOREIGN_SWITCH: break;
    }
    return true;
}

bool option_is_foreign(const struct option *option) {
    return option->kind == OPTION_FOREIGN || option->kind == OPTION_FOREIGN_SWITCH;
}

bool option_is_switch(const struct option *option) {
    return option->kind == OPTION_SWITCH || option->kind == OPTION_FOREIGN_SWITCH;
}

bool option_is_setting(const struct option *option) {
    return !option_is_foreign(option) && !option->only_flag;
}

void options_bind(struct options *ret_options, const struct option_table *tables, size_t count,
                  void *chosen) {
    ret_options->count = 0;
    ret_options->is_quiet = false;
    for (size_t i = 0; i < count; i++)
        for (const struct option *row = tables[i].rows; row->name; row++) {
            /* A foreign option of this command is one of its own, too, in some commands. */
            if (option_is_foreign(row) && options_find(ret_options, str_from(row->name))) continue;
            assert(ret_options->count < OPTIONS_MAX);
            ret_options->at[ret_options->count++] =
                (struct bound_option){.is = row, .target = (char *)chosen + tables[i].at + row->at};
        }
}

#define NAME_BYTES_MAX 64
#define HELP_COLUMNS 100

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
        /* More than half of a name is no slip: --frob is not --json. */
        if (far < best && far * 2 <= name.bytes) {
            best = far;
            nearest = options->at[i].is->name;
        }
    }
    if (nearest)
        return err_set(error, ERR_INVALID, "no option --%.*s; did you mean --%s?", STR_ARGS(name),
                       nearest);
    return err_set(error, ERR_INVALID, "no option --%.*s; see --help", STR_ARGS(name));
}

/* --- sizes --- */

/* The factor of a unit; 0: no unit. */
static double unit_of(struct str unit) {
    static const char letters[] = "kmgt";
    if (unit.bytes == 0) return 1;
    char first = unit.at[0];
    bool is_upper = first >= 'A' && first <= 'Z';
    const char *at = strchr(letters, is_upper ? first - 'A' + 'a' : first);
    struct str rest = str_skip(unit, 1);
    bool is_single = rest.bytes == 0;
    bool is_binary = str_is(rest, "iB") || str_is(rest, "ib") || str_is(rest, "i");
    bool is_decimal = str_is(rest, "B") || str_is(rest, "b");
    if (!at || !*at || !(is_single || is_binary || is_decimal)) return 0;
    double base = is_binary || (is_single && is_upper) ? 1024 : 1000, factor = 1;
    for (const char *step = letters; step <= at; step++) factor *= base;
    return factor;
}

bool option_size(struct str text, int64_t *ret_value) {
    size_t digits = 0;
    char number[32];
    while (digits < text.bytes &&
           ((text.at[digits] >= '0' && text.at[digits] <= '9') || text.at[digits] == '.'))
        digits++;
    double factor = unit_of(str_trim(str_skip(text, digits)));
    if (digits == 0 || digits >= sizeof number || factor == 0) return false;
    snprintf(number, sizeof number, "%.*s", (int)digits, text.at);
    char *end;
    double value = strtod(number, &end) * factor;
    if (*end || !(value >= 0 && value <= 9e15) || value != (double)(int64_t)value) return false;
    *ret_value = (int64_t)value;
    return true;
}

static enum err set_number(const struct bound_option *bound, const char *value,
                           struct error *error) {
    const struct option *option = bound->is;
    int64_t integer = 0;
    double number;
    if (option->kind == OPTION_INTEGER) {
        bool is_good = str_to_i64(str_from(value), &integer);
        if (!is_good && option->is_size) {
            is_good = option_size(str_from(value), &integer);
            if (str_ends_with(str_from(option->name), STR("-mib"))) integer >>= 20;
        }
        if (!is_good)
            return err_set(error, ERR_INVALID, "--%s: '%s' is not %s", option->name, value,
                           option->is_size ? "a size such as 4096, 64k or 2GiB" : "an integer");
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

bool option_next_word(struct str *rest, struct str *ret_word) {
    if (rest->bytes == 0) return false;
    size_t end = str_find_byte(*rest, '|', 0);
    *ret_word = (struct str){rest->at, end == SIZE_MAX ? rest->bytes : end};
    *rest = str_skip(*rest, ret_word->bytes + 1);
    return true;
}

/* Whether `value` is one of the values of `list`, which '|' separates. */
static bool is_listed(const char *list, const char *value) {
    struct str rest = str_from(list), wanted = str_from(value), one;
    while (option_next_word(&rest, &one))
        if (str_equals(one, wanted)) return true;
    return false;
}

static enum err take_foreign(const struct option *option, const char *value, bool is_quiet,
                             struct error *error) {
    bool is_taken = !option->takes || (value && is_listed(option->takes, value));
    if (is_taken && is_quiet) return OK;
    if (is_taken && log_is_json()) {
        log_warn("event=option_changes_nothing option=%s value=\"%s\" reason=\"%s\"", option->name,
                 value ? value : "", option->help);
        return OK;
    }
    if (is_taken) {
        fprintf(stderr, "quern: --%s%s%s changes nothing: %s\n", option->name, value ? " " : "",
                value ? value : "", option->help);
        return OK;
    }
    if (option->takes[0])
        return err_set(error, ERR_INVALID, "--%s %.100s is not supported (%s): %s", option->name,
                       value ? value : "", option->takes, option->help);
    return err_set(error, ERR_INVALID, "--%s is not supported: %s", option->name, option->help);
}

/* `value` is NULL for a switch, which becomes true. */
static enum err set_value(const struct bound_option *bound, const char *value, bool is_quiet,
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
    case OPTION_FOREIGN:
    case OPTION_FOREIGN_SWITCH: return take_foreign(bound->is, value, is_quiet, error);
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
    if (option->is->kind != OPTION_SWITCH) return set_value(option, value, false, error);
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
    bool is_quiet = reader->options->is_quiet;
    if (value) return set_value(bound, value, is_quiet, error);
    if (reader->at + 1 >= reader->argc)
        return err_set(error, ERR_INVALID, "%s needs a value (%s)", spelled, bound->is->value);
    return set_value(bound, reader->argv[++reader->at], is_quiet, error);
}

/* `--no-NAME`. */
static bool turn_off(struct reader *reader, struct str name) {
    if (!str_starts_with(name, STR("no-"))) return false;
    struct bound_option *bound = find_spelled(reader->options, str_skip(name, 3));
    struct error error;
    if (!bound || !option_is_switch(bound->is)) return false;
    begin_source(bound, reader->argv, "command line");
    if (bound->is->kind == OPTION_FOREIGN_SWITCH && !bound->is->takes) {
        enum err noted = take_foreign(bound->is, NULL, reader->options->is_quiet, &error);
        assert(noted == OK);
    }
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
    struct bound_option *bound = find_spelled(reader->options, name);
    if (!bound && !has_value && turn_off(reader, name)) return OK;
    if (!bound) return options_unknown(reader->options, name, error);
    begin_source(bound, reader->argv, "command line");
    if (option_is_switch(bound->is)) {
        if (has_value) return err_set(error, ERR_INVALID, "--%s takes no value", bound->is->name);
        return set_value(bound, NULL, reader->options->is_quiet, error);
    }
    enum err err =
        take_value(reader, bound, argument, has_value ? whole.at + equals + 1 : NULL, error);
    while (err == OK && !has_value && bound->is->kind == OPTION_WORDS &&
           reader->at + 1 < reader->argc && reader->argv[reader->at + 1][0] != '-')
        err = set_value(bound, reader->argv[++reader->at], reader->options->is_quiet, error);
    return err;
}

static enum err read_letter(struct reader *reader, struct error *error) {
    const char *argument = reader->argv[reader->at];
    const char spelled[] = {'-', argument[1], '\0'};
    struct bound_option *bound = find_brief(reader->options, argument + 1);
    if (bound) {
        begin_source(bound, reader->argv, "command line");
        return take_value(reader, bound, argument, NULL, error);
    }
    bound = find_letter(reader->options, argument[1]);
    if (!bound) return err_set(error, ERR_INVALID, "no option %s; see --help", argument);
    begin_source(bound, reader->argv, "command line");
    if (option_is_switch(bound->is) && argument[2])
        return err_set(error, ERR_INVALID, "no option %s; see --help", argument);
    if (option_is_switch(bound->is))
        return set_value(bound, NULL, reader->options->is_quiet, error);
    return take_value(reader, bound, spelled, argument[2] ? argument + 2 : NULL, error);
}

enum err options_read(struct options *options, int argc, char **argv, const char **ret_operands,
                      size_t operands_max, const char *operand_as, struct error *error) {
    struct bound_option *as = operand_as ? options_find(options, str_from(operand_as)) : NULL;
    struct reader reader = {.options = options, .argc = argc, .argv = argv};
    size_t operand_count = 0;
    enum err err = OK;
    for (; reader.at < argc && err == OK; reader.at++) {
        const char *argument = argv[reader.at];
        if (argument[0] == '-' && argument[1] == '-' && argument[2])
            err = read_long(&reader, error);
        else if (argument[0] == '-' && argument[1])
            err = read_letter(&reader, error);
        else if (as) {
            begin_source(as, argv, "command line");
            err = set_value(as, argument, false, error);
        } else if (operand_count < operands_max)
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

/* Prints the names of the foreign options that are refused, or of those that are not. */
static void print_foreign(const struct options *options, bool is_refused, const char *title) {
    size_t column = 0;
    for (size_t i = 0; i < options->count; i++) {
        const struct option *is = options->at[i].is;
        bool refuses = is->takes && !is->takes[0];
        if (!option_is_foreign(is) || refuses != is_refused) continue;
        if (column == 0) printf("\n%s\n", title);
        size_t bytes = strlen(is->name) + 3;
        if (column > 0 && column + bytes > HELP_COLUMNS) column = 0, printf("\n");
        printf("%s--%s", column ? " " : "    ", is->name);
        column = (column ? column : 4) + bytes;
    }
    if (column > 0) printf("\n");
}

void options_print(const struct options *options) {
    for (size_t i = 0; i < options->count; i++)
        if (!option_is_foreign(options->at[i].is)) print_row(options->at[i].is);
    print_foreign(options, false,
                  "Options of vLLM that change nothing here, and say why when they are given:");
    print_foreign(options, true, "Options of vLLM that are refused, with the reason:");
}
