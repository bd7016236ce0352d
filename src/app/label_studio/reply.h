/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* reply: the answer in a result line, as an object of fields.
 *
 *     a text that is a JSON object    the object; also inside a code fence of Markdown
 *     a call of a tool                the arguments of the first call
 *     /v1/decisions, /v1/systemone    {question: value}
 *     any other text, or a refusal    {".text": the text}
 *     calls without arguments         {".text": the calls as JSON}
 *
 * A judgement corrects fields by these names. A value inside a field that is an object has the name
 * "outer.inner", one inside the third object of an array the name "outer.2.inner". Which of them an
 * answer is says answer/answer_member.h. A line with an error has
 * no answer, nor has a response in which none of these is.
 *
 * Thread: any.
 * Memory: reply_release frees the line and the object. */

#include "base/buf.h"

#include <jansson.h>

#define REPLY_TEXT ".text"

struct reply {
    json_t *line;
    const json_t *body; /* body of the response; NULL: there is no answer */
    json_t *object;     /* owned; NULL with `body` */
};

/* ERR_INVALID for a text that is no JSON object. */
enum err reply_read(struct reply *ret_reply, struct str line, struct error *error) MUST_CHECK;
void reply_release(struct reply *reply);
/* Appends the answer for a person. */
void reply_write(struct buf *out, const struct reply *reply);
/* The value of a field, "outer.inner" included; borrowed. NULL: none. */
json_t *reply_find(const json_t *object, const char *field);
/* Sets a field in `fields`, the corrections of `object`. A value inside an object or an array puts
 * that whole one there, with its other values unchanged. An array grows up to an object that it
 * lacks. */
void reply_correct(json_t *fields, const json_t *object, const char *field, json_t *value);
/* Takes an object of an array, "outer.2", out of it in the same way. The others keep their places
 * until reply_close. */
void reply_remove(json_t *fields, const json_t *object, const char *field);
/* Closes the gaps of removed objects. */
void reply_close(json_t *fields);
