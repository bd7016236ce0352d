/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* prep: from a checked request to token ids.
 *
 * Messages are cleaned up (messages.h), rendered by the model's template and encoded; prompts of
 * text completions are encoded as they are. Then the limits apply that need the length of the
 * prompt.
 *
 * In a chat, control tokens are recognised only in the text that the template and the model's own
 * variables wrote. Text from messages, tools and other fields of the request stays text, whatever
 * it spells, unless the request sets parse_special. The prompt of a text completion is the client's
 * own text, where control tokens are recognised unless the request says otherwise. A template
 * writes the BOS itself, so prep adds none to a chat.
 *
 * Thread: any, one request each.
 * Memory: fills buffers of the caller. */

#include "engine/logprobs.h"
#include "engine/request.h"
#include "engine/served_model.h"

/* One prompt of a request. Zero is a valid start. */
struct prompt {
    struct ids ids; /* until the scheduler has them, or to the end if the answer shows them */
    size_t token_count;
    struct buf echo;        /* the prompt's text, if the answer repeats it */
    struct logprobs scores; /* scores of its tokens but the first, if the answer has them */
    bool is_scored;         /* the scores are complete, or not wanted */
};

void prompt_release(struct prompt *prompt);

struct prep_options {
    uint32_t context_tokens_max;
    int64_t now_unix_s; /* the clock of templates */
    int32_t utc_offset_s;
    bool trusts_templates; /* a request may bring its own */
};

/* Fills prompts[0..prompt_count), of which a chat has one, and *ret_max_tokens, which all of them
 * share: the request's, or else the rest of the context after the longest prompt. Changes
 * request->messages and fills the members that request.h names for prep. False and *ret_refusal if
 * the request cannot be served. */
bool prep_prompts(struct request *request, const struct served_model *model,
                  const struct prep_options *options, struct prompt *prompts,
                  uint32_t *ret_max_tokens, struct refusal *ret_refusal) MUST_CHECK;
