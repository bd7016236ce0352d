/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* translated: lines in the form of another API (endpoint_is_translated). A line becomes one of a
 * chat before a worker gets it, so that each worker runs it and equal requests share an answer; its
 * record has the body that a client of that API reads.
 *
 * Thread: reading on the dispatch thread, writing on that of the line's result.
 * Memory: the call belongs to the line's slot, and keeps no more of the request than its answer
 *     repeats.
 * Invariant: what is written is a function of the line and of the worker's answer. */

#include "batch/line.h"
#include "dialects/dialect.h"

/* Makes *line, which names its model, one of a chat; its parts are then views of `room`. NULL, with
 * *ret_refusal, if its API refuses it. */
struct dialect_call *translated_read(struct batch_line *line, struct buf *room,
                                     struct refusal *ret_refusal);
/* Writes the body of a line's record from that of the chat: JSON on one line, in ASCII. `call` may
 * be NULL if the status is no success. False if the body is no answer of a chat. */
bool translated_write(struct dialect_call *call, enum endpoint endpoint, int32_t status,
                      struct str body, const struct usage *usage, struct buf *out);
