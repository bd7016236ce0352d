/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* reach: how many plain characters a state takes, whichever they are.
 *
 * Most tokens are plain: UTF-8 without control characters, quotes and backslashes. Most states of
 * an answer stand inside a string and take all of them. So a mask need not walk through plain
 * tokens that are shorter than the reach of its state. Nothing here knows JSON: a state that takes
 * other characters only has a reach of 0, and its mask takes longer.
 *
 * Thread: as expr.h.
 * Memory: a reach is kept in its expression. */

#include "grammar/expr.h"

#define REACH_ANY 254 /* every text of plain characters */

/* A place in a plain text: PLAIN_WHOLE between characters, others inside one. */
enum plain_place {
    PLAIN_WHOLE,
    PLAIN_ONE,   /* one more byte of the character */
    PLAIN_TWO,   /* two more */
    PLAIN_THREE, /* three more */
    PLAIN_E0,    /* after these bytes fewer second bytes are UTF-8 */
    PLAIN_ED,
    PLAIN_F0,
    PLAIN_F4,
    PLAIN_NOT, /* the byte is not plain here */
};

/* The place after a byte. */
enum plain_place plain_step(enum plain_place place, unsigned char byte);

/* The reach of a state. Every text of so many plain characters may come next, wherever it stops,
 * also inside its last character. If the reach is closed, no text of more plain characters may
 * come. */
struct reach {
    uint32_t characters; /* REACH_ANY: any number */
    bool is_closed;
};

/* For a sealed grammar; meaningless when it overflowed. */
struct reach expr_reach(struct exprs *exprs, uint32_t number);
