/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* regex_read: the characters of a regular expression: a place in its text, escapes and classes.
 *
 * What they are put together to (parts, sequences, choices) is regex.c's.
 *
 * Thread: any; a reader belongs to one call of regex_expr.
 * Memory: none; sets are the caller's. */

#include "base/err.h"
#include "base/str.h"
#include "grammar/charset.h"
#include "grammar/expr.h"

struct regex_reader {
    struct exprs *exprs;
    struct str text; /* valid UTF-8 */
    size_t at;
    enum spelling spelling;
    uint32_t any_text; /* any characters, for a search */
    bool is_ahead;     /* the next sequence is one of a look-ahead: nothing stands before it */
    int depth;
    struct error *error;
};

/* Sets the error: `what`, and where in the expression it is. ERR_INVALID. */
enum err regex_fail(struct regex_reader *reader, const char *what);
enum err regex_fail_unsupported(struct regex_reader *reader, const char *what);

bool regex_is_end(const struct regex_reader *reader);
/* The next byte; '\0' at the end. */
char regex_peek(const struct regex_reader *reader);
/* Whether `text` comes next. Then the reader stands after it. */
bool regex_take(struct regex_reader *reader, const char *text);
/* The next character; not at the end. */
uint32_t regex_next_char(struct regex_reader *reader);

/* Reads the rest of an escape, after its backslash, and adds it to the set. *ret_is_char: it is one
 * character, *ret_char. */
enum err regex_read_escape(struct regex_reader *reader, struct charset *set, bool in_class,
                           bool *ret_is_char, uint32_t *ret_char);
/* Reads the rest of a class, after its [, and adds it to the set. */
enum err regex_read_class(struct regex_reader *reader, struct charset *set);
