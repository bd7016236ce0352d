/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* logprobs: the log probabilities of a run of tokens, each with those of the tokens beside it, and
 * the forms in which the API writes them.
 *
 * Thread: one at a time.  Memory: owns its arrays; logprobs_release frees. Zero is a valid start.
 */

#include "base/buf.h"
#include "scheduler/backend.h"
#include "tokenizer/tokenizer.h"

struct logprob_entry {
    int32_t token;
    float logprob;
    uint32_t rank; /* of a prompt's token; else 0 */
    size_t raw_at; /* where the token's bytes begin in the text of its choice… */
    size_t offset; /* …in characters, once they are repaired */
    size_t top_at; /* index of the first in tops */
    uint32_t top_count;
};

struct logprobs {
    struct logprob_entry *entries; /* (count) */
    size_t count, capacity;
    struct token_logprob *tops; /* (top_count) */
    size_t top_count, top_capacity;
};

/* `text` is what the token comes after, and what it came after at the last call, and more. */
void logprobs_add(struct logprobs *logprobs, const struct sample *sample, struct str text);
void logprobs_release(struct logprobs *logprobs);

/* How tokens are written. */
struct logprobs_form {
    const struct tokenizer *tokenizer;
    bool as_ids; /* "token_id:17" in place of the token's text */
};

/* A prompt with its scores, for the forms that show both. */
struct logprobs_prompt {
    const int32_t *ids; /* (count) */
    size_t count;
    const struct logprobs *scores; /* of all but the first token */
    uint32_t top_max;              /* neighbours of a token that are shown at most */
    bool shows_special;            /* in the text whose offsets are meant */
};

/* The JSON value of `logprobs` of a chat choice: the entries [first, end). */
void logprobs_write_chat(struct buf *out, const struct logprobs_form *form,
                         const struct logprobs *logprobs, size_t first, size_t end);
/* The same of a text completion: columns. Offsets count the characters of the whole text, of which
 * `before_count` come before that of the entries. With a `prompt` (else NULL) its tokens come
 * first. */
void logprobs_write_text(struct buf *out, const struct logprobs_form *form,
                         const struct logprobs_prompt *prompt, const struct logprobs *logprobs,
                         size_t first, size_t end, size_t before_count);
/* The JSON value of `prompt_logprobs`, as vLLM has it. */
void logprobs_write_prompt(struct buf *out, const struct logprobs_form *form,
                           const struct logprobs_prompt *prompt);

/* Characters of `bytes` once they are repaired. */
size_t logprobs_characters(struct str bytes);
