/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* options: static tables of options, and a command line read against them.
 *
 * A row says where its value lies inside the command's struct, so tables are constants and several
 * commands share one. A line takes `--name value`, `--name=value`, `-i value`, `--switch` and
 * `--no-switch`; `_` in a name is `-`. A name that no row has is an error that suggests the nearest
 * one.
 *
 * Thread: main.
 * Memory: values point into argv, or into the texts of settings.h. */

#include "base/err.h"
#include "base/str.h"

#include <stddef.h>
#include <stdint.h>

enum option_kind {
    OPTION_TEXT,    /* const char * */
    OPTION_INTEGER, /* int64_t, within min..max */
    OPTION_NUMBER,  /* double, within min..max */
    OPTION_SWITCH,  /* bool */
    OPTION_LIST,    /* struct option_list: the option may be repeated */
    OPTION_WORDS,   /* struct option_list: takes all arguments up to the next option */
    OPTION_FOREIGN, /* another program's, with a value: a note on standard error, or an error */
    OPTION_FOREIGN_SWITCH,
};

#define OPTION_LIST_MAX 32
#define OPTIONS_MAX 256 /* rows of one command, all tables together */

struct option_list {
    const char *values[OPTION_LIST_MAX];
    size_t count;
};

struct option {
    const char *name; /* without dashes */
    enum option_kind kind;
    size_t at;         /* the value's place in the table's struct */
    const char *value; /* the value's name in the help; NULL for a switch */
    const char *help;  /* a phrase that stands alone */
    double min, max;   /* bounds of a number; both 0: no bounds */
    char letter;       /* the short form; 0: none */
    bool only_flag;    /* allowed on the command line only, in no file and no variable */
    bool reloads;      /* SIGHUP takes a changed value over in a running server */
    bool is_size;      /* an integer that takes a unit, too: 64k, 2GiB (option_size) */
    const char *brief; /* a short form of several letters, without its dash; NULL: none */
    /* For a foreign option: the values that change nothing here, separated by '|', "" for none;
     * NULL: each. `help` then says why, and what to use instead. */
    const char *takes;
    const char *words; /* the values to choose from, separated by '|', for completions; NULL: any */
};

/* Rows that fill one struct, which lies at `at` in the command's struct. */
struct option_table {
    const struct option *rows; /* up to a row without a name */
    size_t at;
};

/* A row with the place of its value in memory. */
struct bound_option {
    const struct option *is;
    void *target;
    const void *source; /* identifies the file, the variable or the line; NULL: the default */
    const char *origin; /* "FILE:LINE", "QUERN_PORT" or "command line"; NULL: the default */
};

struct options {
    struct bound_option at[OPTIONS_MAX];
    size_t count;
    bool is_quiet; /* foreign options that change nothing leave no note */
};

/* Binds the tables to `chosen`, the command's struct. */
void options_bind(struct options *ret_options, const struct option_table *tables, size_t count,
                  void *chosen);
/* The integer of "64k" and the like. k, m, g and t, and kB to TB, are powers of 1000; K, M, G and
 * T, and KiB to TiB, are powers of 1024, as vLLM has them. False for other texts. */
bool option_size(struct str text, int64_t *ret_value);
bool option_is_foreign(const struct option *option);
bool option_is_switch(const struct option *option);
/* The next of the words that '|' separates; *rest begins as the whole text. False at its end. */
bool option_next_word(struct str *rest, struct str *ret_word);
/* Prints the rows as --help does. */
void options_print(const struct options *options);

/* The option of that name, or NULL. */
struct bound_option *options_find(struct options *options, struct str name);
/* ERR_INVALID with a sentence that suggests the nearest name. */
enum err options_unknown(const struct options *options, struct str name,
                         struct error *error) MUST_CHECK;
bool option_is_list(const struct option *option);
/* Whether two bindings of one row have the same value. */
bool option_is_same(const struct bound_option *a, const struct bound_option *b);
/* False for rows that only a command line takes. */
bool option_is_setting(const struct option *option);

/* Sets an option from outside a command line; a switch is "true" or "false". A list's first value
 * from one source replaces the values from other sources. */
enum err options_set(struct bound_option *option, const void *source, const char *origin,
                     const char *value, struct error *error) MUST_CHECK;
/* Reads argv[0..argc-1]. Arguments that are no options become operands; more than operands_max are
 * an error. `operand_as`: the option whose values they are instead; NULL: none. ERR_INVALID with a
 * sentence that names the option. */
enum err options_read(struct options *options, int argc, char **argv, const char **ret_operands,
                      size_t operands_max, const char *operand_as, struct error *error) MUST_CHECK;
