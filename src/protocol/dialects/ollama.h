/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ollama: the dialect of Ollama's own API: chat, generate, embed and embeddings.
 *
 * Members that change an answer are translated or refused by name; members that only tune Ollama's
 * own engine are ignored, as Ollama ignores unknown ones. A prompt is never cut: num_ctx changes
 * nothing. Samplers have Ollama's defaults, which differ from OpenAI's.
 *
 * Thread: one at a time for each call.
 * Memory: as dialect.h.
 * Source: the types and routes of Ollama 0.33. */

#include "dialects/dialect.h"
#include "dialects/members.h"

extern const struct dialect ollama_chat;
extern const struct dialect ollama_generate;
extern const struct dialect ollama_embed;
extern const struct dialect ollama_embeddings; /* the older one, for a single prompt */

/* --- the parts of the dialect --- */

/* Reads `model`, which must be a text that is not empty. */
bool ollama_read_model(struct dialect_call *call, struct str model, struct refusal *ret_refusal);
/* Reads `keep_alive`: a number of seconds, or a duration of Go's form ("5m", "1h30m", "-1m"). */
bool ollama_read_keep_alive(struct dialect_call *call, struct str value,
                            struct refusal *ret_refusal);
/* Appends the samplers of `options` as members of the request inside. `is_bare`: of a completion,
 * not of a chat. */
bool ollama_add_options(struct dialect_call *call, struct str options, struct refusal *ret_refusal);
/* Appends the member `messages`. */
bool ollama_add_messages(struct dialect_call *call, struct str messages,
                         struct refusal *ret_refusal);
/* Refuses images, but for none, null and []. `param` names them. */
bool ollama_check_images(struct str images, const char *param, struct refusal *ret_refusal);
/* What the model must do for the call, as far as it is known. */
bool ollama_fits(const struct dialect_call *call, const struct worker_model *model,
                 struct refusal *ret_refusal);
/* The events and bodies of chat and generate. */
void ollama_take(struct dialect_call *call, const struct piece *piece, int64_t unix_ns,
                 struct buf *events);
void ollama_end(struct dialect_call *call, const struct dialect_end *end, struct buf *events);
void ollama_fail(struct dialect_call *call, int32_t status, struct str error, struct buf *events);
void ollama_quiet(struct dialect_call *call, int64_t unix_ns, struct buf *events);
bool ollama_body(struct dialect_call *call, struct str inner, const struct dialect_end *end,
                 struct buf *body);
void ollama_idle(struct dialect_call *call, const struct dialect_times *times, struct buf *body);
