/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tokenize: the answers to /tokenize, /detokenize and /tokenizer_info, as vLLM has them.
 *
 * They need the vocabulary and the template of a model, and no device. A prompt or the messages of
 * a chat become the tokens that a request with them would have; tokens become text; and the
 * tokenizer tells of itself what clients read from a tokenizer_config.json.
 *
 * Thread: any.
 * Memory: none is kept. */

#include "engine/prep.h"

struct tokenize_question {
    enum endpoint endpoint; /* one of the three */
    struct str body;
    const struct served_model *model;
    const struct prep_options *limits;
    uint32_t text_tokens_max; /* limit for a model that only embeds */
};

/* Appends the answer's body, one JSON object. False and *ret_refusal if the question is wrong. */
bool tokenize_answer(const struct tokenize_question *question, struct buf *body,
                     struct refusal *ret_refusal) MUST_CHECK;
