/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* options: a command line read against a table, from which `--help` is printed too.
 *
 * `--name value`, `--name=value`, `-i value`, `--flag`, `--no-flag` for switches. A name that no
 * row has is an error that suggests the nearest one.
 *
 * Thread: main.  Memory: values point into argv. */

#include "base/err.h"
#include "base/str.h"

#include <stddef.h>
#include <stdint.h>

enum option_kind {
    OPTION_TEXT,    /* const char ** */
    OPTION_INTEGER, /* int64_t *, within min..max */
    OPTION_NUMBER,  /* double *, within min..max */
    OPTION_SWITCH,  /* bool * */
    OPTION_LIST,    /* struct option_list *: may be given several times */
    OPTION_WORDS,   /* the same, and takes all arguments up to the next option */
    OPTION_IGNORED, /* taken for compatibility with its value; said once on standard error */
    OPTION_IGNORED_SWITCH,
};

#define OPTION_LIST_MAX 32
#define OPTIONS_MAX 128 /* of a table with settings */

struct option_list {
    const char *values[OPTION_LIST_MAX];
    size_t count;
};

struct option {
    const char *name; /* without dashes */
    char letter;      /* 0 for none */
    enum option_kind kind;
    void *target;
    const char *value; /* what the value is called in the help; NULL for a switch */
    const char *help;
    double min, max; /* for numbers; both 0 means no bound */
    bool only_flag;  /* on the command line only: in no file and no environment */
};

struct options_help {
    const char *usage; /* after "usage: quern " */
    const char *text;  /* a paragraph, and examples */
};

/* Where an option's value comes from. Zero: it has its default. */
struct option_origin {
    const void *source; /* the file, the variable or the command line: tells them apart */
    const char *text;   /* for people */
};

/* Sets an option from outside of a command line: switches are "true" or "false". The first value a
 * source gives for a list takes the place of the values from other sources. */
enum err option_set(const struct option *option, struct option_origin *origin, const void *source,
                    const char *text, const char *value, struct error *error) MUST_CHECK;
const struct option *options_find(const struct option *options, size_t count, struct str name);
/* ERR_INVALID with the nearest name. */
enum err options_unknown(const struct option *options, size_t count, struct str name,
                         struct error *error) MUST_CHECK;
bool option_is_list(const struct option *option);
/* False for options that only the command line has. */
bool option_is_setting(const struct option *option);

/* As options_read, over what other sources have set: `origins` has one for each
 * row. */
enum err options_read_over(const struct option *options, size_t count,
                           const struct options_help *help, int argc, char **argv,
                           struct option_origin *origins, const char **ret_rest, size_t rest_max,
                           bool *ret_done, struct error *error) MUST_CHECK;

/* Reads argv[0..argc-1]. Arguments that are no options go to `ret_rest` (at most rest_max), or are
 * an error. Prints the help and sets *ret_done for --help. ERR_INVALID with a sentence that names
 * the option. */
enum err options_read(const struct option *options, size_t count, const struct options_help *help,
                      int argc, char **argv, const char **ret_rest, size_t rest_max, bool *ret_done,
                      struct error *error) MUST_CHECK;
