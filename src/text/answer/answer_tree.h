/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* answer_tree: the answer of a choice in a tree, by the rule of answer_member.h, for places that
 * compare or edit its values.
 *
 * Thread: one per tree.
 * Memory: borrows everything from the tree. */

#include "answer/answer_member.h"
#include "base/buf.h"

#include <jansson.h>

struct answer_tree {
    enum answer_member kind;
    json_t *place; /* the object whose member `member` is the answer; NULL if nothing is said */
    const char *member;  /* in a call "arguments", which a call may lack */
    json_t *choice;      /* the one with the lowest index; NULL without choices */
    const json_t *calls; /* the list `tool_calls`, or `function_call`; NULL without calls */
};

/* Finds the answer of a response body. */
void answer_tree_find(struct answer_tree *ret_answer, const json_t *body);
/* Appends the text of the answer. */
void answer_tree_add_text(struct buf *buf, const struct answer_tree *found);
