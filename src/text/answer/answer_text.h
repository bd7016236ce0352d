/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* answer_text: what a response body says, found in its text without building a tree: the answer by
 * the rule of answer_member.h, its calls, its thought and its end. A body has choices, or it is one
 * of OpenAI's Responses or Anthropic's Messages.
 *
 * One pass over the members of the choice and one over those of its message, since each step over
 * a value reads it: the index of a million answers is made by these passes. A piece of a stream is
 * read as well: its `delta` counts as a message.
 *
 * Thread: any; pure.
 * Memory: views of the text. */

#include "answer/answer_member.h"
#include "base/buf.h"

struct answer_text {
    enum answer_member kind;
    struct str raw;           /* the member, a JSON value; of calls the arguments of the first */
    struct str calls;         /* the list `tool_calls`, or `function_call`; none without calls */
    struct str message;       /* raw object; none without one */
    struct str thought;       /* what users call reasoning; none if it is empty */
    struct str finish_reason; /* raw; none for null */
    struct str logprobs;      /* raw; none for null */
    struct str index;         /* raw */
    unsigned count;           /* number of contents, calls, refusals and texts that are not empty */
};

/* Reads a choice. One that is no object says nothing. */
void answer_text_read(struct answer_text *ret_answer, struct str choice);
/* Reads the choice with the lowest index; false, and nothing said, if there is none. *ret_count, if
 * it is wanted, is the number of choices; without it only as many are read as must be. */
bool answer_text_first(struct answer_text *ret_answer, struct str choices, uint64_t *ret_count);
/* Reads the first answer of a body: of its choices as answer_text_first; else of the items of
 * OpenAI's Responses, or of the blocks of Anthropic's Messages, whose ends have the words of a chat.
 * False if the body has none of these. */
bool answer_text_of_body(struct answer_text *ret_answer, struct str body, uint64_t *ret_count);
/* Appends the text of the answer, decoded. */
void answer_text_add(struct buf *buf, const struct answer_text *found);
