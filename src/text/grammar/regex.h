/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* regex: regular expressions as JSON Schema and clients write them (ECMA-262, with the u flag).
 *
 * Supported are characters, escapes, classes with \d \w \s, \p{general category} and [:names:] of
 * POSIX, groups without a meaning of their own, alternatives, quantifiers, the anchors ^ and $ at
 * the two ends of the expression or of its alternatives, and a look-ahead whose sequence goes on to
 * the end of the text, as it does after ^. What depends on neighbours or on what was matched before
 * is refused by name: look-behind, other look-aheads, references, \b, flags.
 *
 * Thread: any.
 * Memory: none of its own. */

#include "base/err.h"
#include "grammar/charset.h"

enum regex_match {
    REGEX_WHOLE,  /* the expression is the whole text */
    REGEX_SEARCH, /* the expression is found somewhere in the text */
};

/* ERR_INVALID for text that is no regular expression and for a part that is not supported,
 * ERR_LIMIT for an expression that is too large. */
enum err regex_expr(struct exprs *exprs, struct str pattern, enum regex_match match,
                    enum spelling spelling, uint32_t *ret_expr, struct error *error) MUST_CHECK;
