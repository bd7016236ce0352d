/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* responses: the dialect of OpenAI's Responses API, and its count of input tokens.
 *
 * Items become the messages, calls and results of a chat; the answer's thought, text and calls
 * become items again. Nothing is kept: a request that needs an earlier response, a stored prompt or
 * a run in the background is refused by name, and so are hosted tools, images and files.
 *
 * Thread: one at a time for each call.
 * Memory: as dialect.h; an answer keeps its whole text, which the last event of a stream repeats.
 * Invariant: an item has one id and one index, in the events and in the body.
 * Source: the types of OpenAI's Python library 3.57. */

#include "dialects/dialect.h"
#include "dialects/members.h"

/* The members that mean the same in a chat: they go on to it, and its worker checks them. */
#define RESPONSES_SAME_MEMBERS                                                                     \
    "temperature", "top_p", "parallel_tool_calls", "user", "top_k", "min_p", "stop", "seed",       \
        "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "min_tokens", \
        "ignore_eos", "stop_token_ids", "chat_template_kwargs"

extern const struct dialect responses_create;
extern const struct dialect responses_count; /* answers with the tokens of the prompt */

/* --- the parts of the dialect --- */

/* What an item of the answer is. A message of text and one of a refusal differ. */
enum responses_item {
    ITEM_NONE,
    ITEM_THOUGHT,
    ITEM_TEXT,
    ITEM_REFUSAL,
    ITEM_CALL,
};

/* What a call of this dialect knows besides. */
struct responses_state {
    struct buf echo;     /* members that the answer repeats: `,"name":value` each */
    struct buf items;    /* finished items, with commas between */
    struct buf text;     /* inside of the open item's text */
    struct buf logprobs; /* entries of the open message, with commas between */
    size_t logprobs_shown;
    size_t index;    /* items before the open one */
    size_t call;     /* calls before the open one, or before the next */
    size_t shown;    /* bytes of the open call's arguments that are in the stream */
    uint64_t events; /* events written */
    enum responses_item open;
    bool shows_encrypted; /* a thought comes back as the text that its client is to send again */
};

/* Appends the member `messages`: the instructions, then the items. `input` is a text or a list. */
bool responses_add_items(struct dialect_call *call, struct str instructions, struct str input,
                         struct refusal *ret_refusal);
/* Appends `tools` and `tool_choice`. */
bool responses_add_tools(struct dialect_call *call, struct str tools, struct str choice,
                         struct refusal *ret_refusal);
/* Appends `response_format` from the member `text`. */
bool responses_add_text(struct dialect_call *call, struct str text, struct refusal *ret_refusal);
/* Appends `,"name":` and a value on one line. */
void responses_add_echo(struct buf *echo, const char *name, struct str value);
/* Refuses a value by what it should be: "Invalid type for 'x': expected …, got …". */
bool responses_refuse_kind(struct refusal *refusal, const char *param, const char *expected,
                           struct str got);

/* What stands before a thought that its client keeps as `encrypted_content`; base64 follows. */
#define RESPONSES_THOUGHT_MARK "quern1."

/* Appends the id of the item at `index`, in quotes. */
void responses_add_item_id(const struct dialect_call *call, enum responses_item kind, size_t index,
                           struct buf *out);
/* Appends the open item in that state: "in_progress" has no content yet. */
void responses_add_item(const struct dialect_call *call, const char *status, struct buf *out);
/* Appends the part of content that the open item has. */
void responses_add_part(const struct dialect_call *call, bool is_empty, struct buf *out);
/* Appends the whole response. `end` is NULL before the end; `error` is a raw sentence or empty. */
void responses_add_response(const struct dialect_call *call, const char *status,
                            const struct dialect_end *end, struct str error, struct buf *out);
/* "completed" or "incomplete": how an answer has ended. */
const char *responses_status(const struct dialect_call *call);
/* The events. */
void responses_take(struct dialect_call *call, const struct piece *piece, int64_t unix_ns,
                    struct buf *events);
void responses_end(struct dialect_call *call, const struct dialect_end *end, struct buf *events);
void responses_fail(struct dialect_call *call, int32_t status, struct str error,
                    struct buf *events);
bool responses_body(struct dialect_call *call, struct str inner, const struct dialect_end *end,
                    struct buf *body);
