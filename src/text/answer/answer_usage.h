/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* answer_usage: the counts of tokens in the `usage` of an answer, in both spellings of OpenAI:
 * prompt_tokens and completion_tokens of chats, input_tokens and output_tokens of batches and
 * responses; the cached ones in `prompt_tokens_details` or `input_tokens_details`. The input_tokens of
 * Anthropic's Messages leave out those that were read from a cache or written into one, which have
 * members of their own.
 *
 * Thread: any; pure.
 * Memory: views of the text. */

#include "base/str.h"

struct answer_usage {
    struct str prompt, cached, completion; /* raw values; none where absent or null */
    uint64_t prompt_more;                  /* tokens of the prompt that `prompt` leaves out */
};

/* Reads a raw `usage`. One that is no object tells nothing. */
void answer_usage_read(struct answer_usage *ret_usage, struct str usage);
/* The tokens of the prompt, cached or not; 0 if they are not told. */
uint64_t answer_usage_prompt(const struct answer_usage *usage);
/* A count; 0 for a value that is none. */
uint64_t answer_usage_count(struct str value);
