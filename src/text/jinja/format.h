/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* format: Python's two ways of formatting text: "…{}…".format() and "…%s…" % values.
 *
 * Thread: as render.
 * Memory: the result lies in the arena of the rendering. */

#include "jinja/builtin.h"

struct format_spec {
    struct str fill; /* one code point; empty means a blank */
    char align;      /* '<' '>' '^' '=' (after the sign); 0: the type's default */
    char sign;       /* '+' or ' '; 0: only minus */
    bool alternate;  /* '#' */
    char group;      /* ',' or '_'; 0: none */
    bool has_precision;
    char type; /* 0: the type's default */
    size_t width;
    size_t precision;
    bool zeros; /* a 0 stands before the width: numbers are filled with zeros behind their sign */
};

/* Appends format(value, spec) to the output. */
enum err format_value(struct render *render, struct value value, const struct format_spec *spec);
/* Reads the digits at text[*at] as a number; ERR_LIMIT over a million. */
enum err format_read_count(struct render *render, struct str text, size_t *at, size_t *ret_count);

/* Computes template.format(*args, **kwargs). */
enum err format_braces(struct render *render, struct value template, const struct arguments *args,
                       struct value *ret_text);
/* Computes template % values; `values` is a tuple, a dict or one value. */
enum err format_percent(struct render *render, struct value template, struct value values,
                        struct value *ret_text);
