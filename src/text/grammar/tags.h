/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tags: schemas, regular expressions and literal texts put together, in the words of xgrammar's
 * structural tags.
 *
 * A format is a JSON object with a `type`:
 *
 *     const_string         value: exactly this text
 *     json_schema          json_schema: a value of the schema; one that cannot be held gives way to
 *                          `otherwise`
 *     any_bytes            as any_text, but bytes need not be UTF-8
 *     mark                 mark: the control token of this number, below TAGS_MARKS_MAX
 *     regex                pattern: a text that matches as a whole
 *     grammar              grammar: a text of these rules (ebnf.h)
 *     any_text             excludes: any text that has none of these strings
 *     sequence             elements: one after another
 *     or                   elements: one of them
 *     tag                  begin, content, end: end may be an array of which one ends the tag;
 *                          any_text inside ends before the first end
 *     optional, star, plus content: at most once, any number of times, at least once
 *     repeat               content, min, max: max -1 is no limit
 *     tags_with_separator  tags, separator, at_least_one, stop_after_first, max: the most tags,
 *                          from 1 to TAGS_TIMES_MAX; the separator is a string or a format
 *     triggered_tags       triggers, tags, excludes, at_least_one, stop_after_first: any text, in
 *                          which a trigger is the start of one of the tags
 *
 * A call of a tool is a tag, so "one of these tools must be called" is tags_with_separator.
 *
 * A mark is two bytes, of which the first is TAGS_MARK_BYTE. It occurs in no UTF-8, so no text
 * takes it. The types and members that xgrammar does not have (any_bytes, mark, place, otherwise,
 * max, a separator that is a format) are for the engine. `place` is the name of a json_schema,
 * regex or grammar in errors; "" if the refusal names it.
 *
 * Thread: any.
 * Memory: none of its own; the format is borrowed during the call. */

#include "base/err.h"
#include "grammar/expr.h"

#include <jansson.h>

#define TAGS_MARK_BYTE 0xFFu
#define TAGS_MARKS_MAX 64
#define TAGS_TIMES_MAX 1000000000

/* ERR_INVALID with the place for a format that is wrong or not supported; ERR_LIMIT for one that is
 * too large. */
enum err tags_expr(struct exprs *exprs, const json_t *format, uint32_t *ret_expr,
                   struct error *error) MUST_CHECK;
