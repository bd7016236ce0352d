/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* messages: the dialect of Anthropic's Messages API, and its count of tokens.
 *
 * Blocks become the messages, calls and results of a chat; the answer's text, thought and calls
 * become blocks again. Hosted tools, images and documents are refused by name. Marks that only
 * matter to a hosted service (cache_control, metadata, betas) are ignored.
 *
 * Thread: one at a time for each call.
 * Memory: as dialect.h.
 * Source: the types of Anthropic's Python library 2.14 and 0.75. */

#include "dialects/dialect.h"
#include "dialects/members.h"

extern const struct dialect messages_create;
extern const struct dialect messages_count; /* answers with the tokens of the prompt */

/* --- the parts of the dialect --- */

/* Appends the member `messages`: the system text, then the turns. */
bool messages_add_turns(struct dialect_call *call, struct str system, struct str messages,
                        struct refusal *ret_refusal);
/* Appends `tools`, `tool_choice` and `parallel_tool_calls`. */
bool messages_add_tools(struct dialect_call *call, struct str tools, struct str choice,
                        struct refusal *ret_refusal);
/* True if a block's text is a mark that coding agents put first and change with each request. */
bool messages_is_mark(struct str text);
/* The events and bodies. */
void messages_take(struct dialect_call *call, const struct piece *piece, int64_t unix_ns,
                   struct buf *events);
void messages_end(struct dialect_call *call, const struct dialect_end *end, struct buf *events);
void messages_fail(struct dialect_call *call, int32_t status, struct str error, struct buf *events);
void messages_quiet(struct dialect_call *call, int64_t unix_ns, struct buf *events);
bool messages_body(struct dialect_call *call, struct str inner, const struct dialect_end *end,
                   struct buf *body);
/* Appends an error body of Anthropic's form. `message` is a raw string. */
void messages_add_error(int32_t status, struct str message, struct buf *body);
