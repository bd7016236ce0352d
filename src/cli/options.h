/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* options: a command line read against a table, from which `--help` is printed too.
 *
 * `--name value`, `--name=value`, `-i value`, `--flag`, `--no-flag` for switches. A name that no
 * row has is an error that suggests the nearest one.
 *
 * Thread: main.  Memory: values point into argv. */

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum option_kind {
    OPTION_TEXT,    /* const char ** */
    OPTION_INTEGER, /* int64_t *, within min..max */
    OPTION_NUMBER,  /* double *, within min..max */
    OPTION_SWITCH,  /* bool * */
    OPTION_LIST,    /* struct option_list *: may be given several times */
    OPTION_IGNORED, /* taken for compatibility with its value; said once on standard error */
    OPTION_IGNORED_SWITCH,
};

#define OPTION_LIST_MAX 32

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
};

struct options_help {
    const char *usage; /* after "usage: quern " */
    const char *text;  /* a paragraph, and examples */
};

/* Reads argv[0..argc-1]. Arguments that are no options go to `ret_rest` (at most rest_max), or are
 * an error. Prints the help and sets *ret_done for --help. ERR_INVALID with a sentence that names
 * the option. */
enum err options_read(const struct option *options, size_t count, const struct options_help *help,
                      int argc, char **argv, const char **ret_rest, size_t rest_max, bool *ret_done,
                      struct error *error) MUST_CHECK;
