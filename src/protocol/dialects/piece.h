/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* piece: what one chunk of a streamed chat answer says, or the whole body of one, as spans.
 *
 * A whole message has the members of a delta, so a body is one large piece. Only the choice of
 * index 0 is read: no dialect asks for more than one.
 *
 * Thread: any; pure.
 * Memory: spans are views of the chunk.
 * Invariant: a text is a raw JSON string with its quotes; `at` is NULL where nothing is said. */

#include "base/str.h"

struct piece {
    struct str id;
    struct str content, thought; /* strings that are not empty */
    struct str refusal;          /* a string that is not empty */
    struct str calls;            /* an array of calls, or of parts of them */
    struct str logprobs;         /* the array of entries, one per token */
    struct str finish_reason, stop_reason;
    struct str usage;   /* an object */
    struct str created; /* a number */
};

/* Reads a chunk, or the body of a chat or text completion. False if it is neither. */
bool piece_read(struct str text, struct piece *ret_piece);
/* The member `name` of a usage object as a number, and of its object `inside` unless that is NULL;
 * 0 if it is absent. */
uint64_t piece_count(struct str usage, const char *inside, const char *name);
