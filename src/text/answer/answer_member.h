/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* answer_member: which member of a choice is its answer. The one rule of quern.
 *
 *   1. the content of the message, if it is not empty
 *   2. else its calls of tools: the arguments of the first one, or all where a place shows all
 *   3. else its refusal: an answer, too, and marked as a refusal
 *   4. else the text of a completion
 *   5. else the content or the text that is empty, else nothing
 *
 * A content is a text, or a list of parts, whose texts are joined; a list without any text is
 * empty. Another value than a text is its JSON: some servers give arguments as an object. The file
 * tests/unit/text/answer/cases.json says the same in cases, also for service/pages/web/answer.js.
 *
 * Thread: any; pure.
 * Memory: owns nothing. */

enum answer_member {
    ANSWER_IS_NOTHING,
    ANSWER_IS_CONTENT,
    ANSWER_IS_CALL,
    ANSWER_IS_REFUSAL,
    ANSWER_IS_TEXT
};

/* How much a member says. */
enum member_fill { MEMBER_ABSENT, MEMBER_EMPTY, MEMBER_FULL };

struct answer_members {
    enum member_fill content, calls, refusal, text;
};

enum answer_member answer_member_of(const struct answer_members *members);
