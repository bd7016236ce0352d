/* SPDX-License-Identifier: Apache-2.0 */
#include "answer/said_kind.h"

enum said_kind said_kind_of(const struct said_members *members) {
    if (members->content == SAID_FULL) return SAID_CONTENT;
    if (members->calls == SAID_FULL) return SAID_CALL;
    if (members->refusal == SAID_FULL) return SAID_REFUSAL;
    if (members->text == SAID_FULL) return SAID_TEXT;
    if (members->content == SAID_EMPTY) return SAID_CONTENT;
    return members->text == SAID_EMPTY ? SAID_TEXT : SAID_NOTHING;
}
