/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tags: schemas, regular expressions and literal texts put together, in the words of xgrammar's structural tags.
 *
 * A format is a JSON object with a `type`:
 *
 *     const_string         value: exactly this text
 *     json_schema          json_schema: a value of the schema
 *     regex                pattern: a text that matches as a whole
 *     any_text             excludes: any text that has none of these strings
 *     sequence             elements: one after another
 *     or                   elements: one of them
 *     tag                  begin, content, end: end may be an array of which one ends the tag; any_text inside ends
 *                          before the first end
 *     optional, star, plus content: at most once, any number of times, at least once
 *     repeat               content, min, max: max -1 is no limit
 *     tags_with_separator  tags, separator, at_least_one, stop_after_first
 *     triggered_tags       triggers, tags, excludes, at_least_one, stop_after_first: any text, in which a trigger is
 *                          the start of one of the tags
 *
 * A call of a tool is a tag, so "one of these tools must be called" is tags_with_separator.
 *
 * Thread: any.
 * Memory: none of its own; the format is borrowed during the call. */

#include "base/err.h"
#include "grammar/expr.h"

#include <jansson.h>

/* ERR_INVALID with the place for a format that is wrong or not supported; ERR_LIMIT for one that is
 * too large. */
enum err tags_expr(struct exprs *exprs, const json_t *format, uint32_t *ret_expr,
                   struct error *error) MUST_CHECK;
