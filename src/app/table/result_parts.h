/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* result_parts: the parts of a result line that a row of a table shows, from whatever server it
 * comes: the answer of its first choice, its error in any form, why it ended, its tokens.
 *
 * The answer of a choice is by the rule of answer/answer_member.h, with all calls; other endpoints
 * have theirs in other members. A part that the line does not have has `at` NULL.
 *
 * Thread: any; pure.
 * Memory: views of the line. */

#include "answer/answer_usage.h"
#include "base/buf.h"

struct result_parts {
    struct str error; /* raw: of the line, else of its response */
    struct str answer, finish_reason;
    struct answer_usage usage;
    struct str body;
    uint64_t status;   /* status of the response; 0: it has none */
    bool is_refusal;   /* the answer is a refusal */
    bool has_response; /* the line has a response, good or not */
    bool is_whole;     /* the answer and the error show all that the line says */
};

/* False for a line that is no JSON object in UTF-8. */
bool result_parts_read(struct str line, struct result_parts *ret_parts);
/* Appends the error as a sentence, "code: message" where it has both. A line that has neither an
 * answer nor an error has the error no_answer, with the reason. Appends nothing to the error of a
 * good line. */
void result_parts_write_error(struct buf *out, const struct result_parts *parts);
/* Appends the text that a raw value means: of a string its text, else the JSON. */
void result_parts_write_text(struct buf *out, struct str raw);
