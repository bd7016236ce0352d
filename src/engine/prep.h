/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* prep: from a checked request to token ids: messages are cleaned up as models.md §4.2 has it,
 * rendered by the model's template and encoded; prompts of text completions are encoded as they
 * are. Then the limits that need the length of the prompt are applied.
 *
 * Of a chat, only what the template and the model's own variables wrote is searched for control
 * tokens; what messages, tools and the other fields brought into the prompt is text, whatever it
 * spells, unless the request says parse_special. The prompt of a text completion is all the
 * client's own, and is searched unless the request says not to. A template writes the BOS itself,
 * so none is added after it.
 *
 * Thread: any, one request each.  Memory: fills buffers of the caller. */

#include "engine/logprobs.h"
#include "engine/request.h"
#include "engine/served_model.h"

/* One prompt of a request. Zero is a valid start. */
struct prompt {
    struct ids ids; /* until it is in the scheduler, or for ever when the answer shows them */
    size_t token_count;
    struct buf echo;        /* the text that goes before the answer, when asked for */
    struct logprobs scores; /* of its tokens but the first, when they are part of the answer */
    bool is_scored;         /* all of them are there, or none are wanted */
};

void prompt_release(struct prompt *prompt);

struct prep_options {
    uint32_t context_tokens_max;
    int64_t now_unix_s; /* the clock of templates */
    int32_t utc_offset_s;
    bool trusts_templates; /* a request may bring its own */
};

/* Fills prompts[0..prompt_count) (one for a chat) and *ret_max_tokens, the same for all of them;
 * sets *ret_max_tokens to the rest of the context after the longest prompt when the request does
 * not say. Changes request->messages, and fills what
 * request.h says is prep's. False and *ret_refusal when the request cannot be served. */
bool prep_prompts(struct request *request, const struct served_model *model,
                  const struct prep_options *options, struct prompt *prompts,
                  uint32_t *ret_max_tokens, struct refusal *ret_refusal) MUST_CHECK;
