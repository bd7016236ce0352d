/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* result_line: one line of a result file, as `quern run` and the batch APIs write it, read into
 * what two such lines can be compared by.
 *
 * An answer becomes a flat list of values by name:
 *
 *   a JSON object       its members; a member of a member is "outer.inner". An array is one value
 *   a call of a tool    "call" is the function's name; its arguments are "NAME.argument"
 *   another text        "(text)"; a text that is a number is that number. Also a refusal
 *   /v1/decisions       "QUESTION": true or false of a predicate (true from 0.5 on), the choice of
 *   and /v1/systemone   a choice, the score of a score; "QUESTION.probability" of a predicate
 *   any other body      "(body)", the whole body
 *
 * The answer is the one of answer/answer_member.h, next to all calls. A JSON text inside a code
 * fence of Markdown counts as the JSON.
 *
 * Thread: any.
 * Memory: owns the values; result_line_release frees them. The id lies in the caller's buf. */

#include "base/buf.h"

#include <jansson.h>

#define RESULT_TEXT "(text)"
#define RESULT_BODY "(body)"

struct result_usage {
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
};

struct result_line {
    struct str custom_id;
    bool is_answered; /* a response of status 200, and no error */
    bool is_json;     /* the answer was JSON, a call or a decision */
    struct result_usage usage;
    json_t *values; /* an object of values by name; NULL if not wanted, or without an answer */
};

/* Reads a line into *ret_line, and the id into `id`, which it clears. With `wants_values` also the
 * values. ERR_INVALID for a text that is no result. After OK the caller releases the line. */
enum err result_line_read(struct result_line *ret_line, struct str text, bool wants_values,
                          struct buf *id, struct error *error) MUST_CHECK;
void result_line_release(struct result_line *line);
/* Appends the answer for a reader: its text, or its JSON if it is no text. */
void result_line_write_answer(struct buf *out, const struct result_line *line);
