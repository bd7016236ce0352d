/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* chat_reply: what a chat answer has said so far: text, thought, calls of tools, how it ended.
 *
 * Texts are kept as the inside of JSON strings, with their escapes and without quotes, so that they
 * are copied from the chunks and into the answer without being decoded. Each chunk has whole
 * escapes.
 *
 * Thread: one at a time.
 * Memory: owns its buffers; chat_reply_release frees. An answer's own limits bound them.
 * Invariant: calls stand in the order of their indexes, which begin at 0; all but the last are
 *     whole until the end is known. */

#include "base/buf.h"
#include "dialects/piece.h"

#define CHAT_REPLY_CALLS_MAX 4096 /* further calls of one answer are left out */

struct chat_reply_call {
    struct buf id, name;
    struct buf arguments;
};

enum chat_reply_end {
    CHAT_REPLY_OPEN,
    CHAT_REPLY_STOP,
    CHAT_REPLY_LENGTH,
    CHAT_REPLY_CALLS,
    CHAT_REPLY_FILTERED
};

struct chat_reply {
    struct buf id; /* the answer's own */
    struct buf text, thought;
    struct buf logprobs; /* entries with commas between */
    struct buf stop;     /* the stop text that ended it; empty: none is known */
    struct chat_reply_call *calls;
    size_t call_count, call_room;
    enum chat_reply_end end;
    bool is_refusal;        /* the text is a refusal of the model */
    int64_t created_unix_s; /* 0: the worker has not said */
    uint64_t input_tokens, cached_tokens, output_tokens;
};

void chat_reply_init(struct chat_reply *reply);
void chat_reply_release(struct chat_reply *reply);
/* Adds what a piece says. */
void chat_reply_take(struct chat_reply *reply, const struct piece *piece);
/* True if the call can be run: it has a name, and its arguments are a JSON object, or none. */
bool chat_reply_call_is_whole(const struct chat_reply *reply, size_t index);
/* Appends the arguments of a whole call as the object that they are. */
void chat_reply_add_arguments(const struct chat_reply *reply, size_t index, struct buf *out);
/* Appends `start` and the end of the answer's own id, without quotes, so that two readings of one
 * answer agree. */
void chat_reply_add_id(const struct chat_reply *reply, const char *start, struct buf *out);
/* Appends a kept text as a JSON string. */
void chat_reply_add_string(struct buf *out, const struct buf *inside);
