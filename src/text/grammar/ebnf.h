/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ebnf: context-free grammars as clients write them: GBNF of llama.cpp, EBNF of xgrammar, and the
 * plain part of Lark.
 *
 *     root ::= greeting (", " name)* "!"      # rules; the first one to be read is root, or start
 *     name ::= [A-Z] [a-z]{1,20} | 'du' .     # classes, counts, alternatives, any character
 *     date ::= /[0-9]{4}-[0-9]{2}/            # regular expressions (regex.h)
 *
 * In a text without `::=`, rules have a `:` and comments begin with `//`, as in Lark. A rule may
 * begin with itself (expr ::= expr "+" term | term), but not through other rules, which is refused
 * with the rule's name. So are look-ahead, macros, directives and flags.
 *
 * Thread: any.
 * Memory: none of its own. */

#include "base/err.h"
#include "grammar/expr.h"

/* ERR_INVALID with the line for a text that is wrong or not supported; ERR_LIMIT for one that is
 * too large. */
enum err ebnf_expr(struct exprs *exprs, struct str text, uint32_t *ret_expr,
                   struct error *error) MUST_CHECK;
