/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* charset: sets of Unicode characters, as expressions over the bytes that spell them.
 *
 * A character is spelled plainly, in UTF-8, or as JSON spells it inside a string. Each character
 * has one spelling in a string: itself, or a short escape, or \u00xx for the other control
 * characters. So a text has one spelling, too, and two different spellings are different texts.
 * Surrogates are no characters.
 *
 * Thread: any.
 * Memory: charset_release frees the ranges. */

#include "base/buf.h"
#include "grammar/expr.h"

#define CHAR_LAST 0x10FFFFu

enum spelling { SPELLING_PLAIN, SPELLING_JSON };

struct char_range {
    uint32_t first, last;
};

/* Zero is the empty set. */
struct charset {
    struct char_range *at; /* (count) */
    size_t count, capacity;
};

void charset_release(struct charset *set);
void charset_add(struct charset *set, uint32_t first, uint32_t last);
void charset_add_set(struct charset *set, const struct charset *other);
/* Puts all characters that are not in the set in its place. */
void charset_negate(struct charset *set);
/* Adds a general category or a group of them by its name: "L", "Letter", "Lu". False for others. */
bool charset_add_category(struct charset *set, struct str name);

/* Adds the characters of \d, \w or \s, or of \D, \W or \S all others, as ECMA-262 has them with the
 * u flag. False for another letter. */
bool charset_add_class(struct charset *set, char letter);

/* Adds the ASCII characters of a class of POSIX: "alpha", "digit". False for another name. */
bool charset_add_posix(struct charset *set, struct str name);

/* One character of the set. */
uint32_t charset_expr(struct exprs *exprs, const struct charset *set, enum spelling spelling);
/* Any character. */
uint32_t charset_any(struct exprs *exprs, enum spelling spelling);
/* The spelling of a text in UTF-8. */
void charset_spell(struct str text, enum spelling spelling, struct buf *buf);
