/* SPDX-License-Identifier: Apache-2.0 */
#include "answer/answer_member.h"

enum answer_member answer_member_of(const struct answer_members *members) {
    if (members->content == MEMBER_FULL) return ANSWER_IS_CONTENT;
    if (members->calls == MEMBER_FULL) return ANSWER_IS_CALL;
    if (members->refusal == MEMBER_FULL) return ANSWER_IS_REFUSAL;
    if (members->text == MEMBER_FULL) return ANSWER_IS_TEXT;
    if (members->content == MEMBER_EMPTY) return ANSWER_IS_CONTENT;
    return members->text == MEMBER_EMPTY ? ANSWER_IS_TEXT : ANSWER_IS_NOTHING;
}
