/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* said_tree: the answer of a choice in a tree, by the rule of said_kind.h, for places that compare
 * or edit its values.
 *
 * Thread: one per tree.
 * Memory: borrows everything from the tree. */

#include "answer/said_kind.h"
#include "base/buf.h"

#include <jansson.h>

struct said_tree {
    enum said_kind kind;
    json_t *place; /* the object whose member `member` is the answer; NULL if nothing is said */
    const char *member;  /* in a call "arguments", which a call may lack */
    json_t *choice;      /* the one with the lowest index; NULL without choices */
    const json_t *calls; /* the list `tool_calls`, or `function_call`; NULL without calls */
};

/* Finds the answer of a response body. */
void said_tree_find(struct said_tree *ret_said, const json_t *body);
/* Appends the text of the answer. */
void said_tree_add_text(struct buf *buf, const struct said_tree *said);
