/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* answer: the answer in one line of an output or error file, as a curator sees and corrects it.
 *
 *   a text that is a JSON object     the object; also inside a Markdown code block
 *   a call of a tool                 the arguments of the first call
 *   /v1/decisions, /v1/systemone     {question: value}: true or false of a predicate, the value of
 *                                    a choice, the most probable level of a score; a question
 *                                    without a name is called by its place, "0" and so on
 *   any other text                   no object, and the text; also a refusal
 *
 * The rule of answer/answer_member.h says which text that is. A line without a response of status
 * 200 has no answer.
 *
 * Thread: one per struct.
 * Memory: owns the tree of the line; answer_release frees it. Texts are views of the tree. All
 * trees of a line take at most answer_tree_room of its bytes. */

#include "base/buf.h"

#include <jansson.h>

enum answer_kind { ANSWER_NONE, ANSWER_TEXT, ANSWER_CALL, ANSWER_DECISIONS };

struct answer {
    json_t *line;
    enum answer_kind kind;
    json_t *object;  /* owned; NULL: the answer is no object */
    struct str text; /* bytes of a text; else empty */
    json_t *place;   /* borrowed: the object whose member `member` has the text */
    const char *member;
    const json_t *calls; /* borrowed: the calls that the answer makes; NULL if it makes none */
    bool is_refusal;     /* the text is a refusal */
    size_t room;         /* bytes that further trees may take */
};

/* The memory that the trees of a line may take: 8 times its bytes, 8 MiB at least. */
size_t answer_tree_room(size_t text_bytes);
/* Reads a line. A line that json_read_within refuses, such as one nested too deeply or one whose
 * tree would take too much memory, has no answer. */
void answer_read(struct answer *ret_answer, struct str text);
void answer_release(struct answer *answer);

/* Puts corrected fields, the text of a JSON object, into the answer and into the tree of the line.
 * All other fields of a text stay byte by byte. */
void answer_correct(struct answer *answer, struct str fields);
/* Appends the object as JSON, or null. */
void answer_write_object(struct buf *buf, const struct answer *answer);
