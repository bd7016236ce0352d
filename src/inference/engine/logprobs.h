/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* logprobs: the log probabilities of a run of tokens, each with those of its most probable
 * alternatives, and the forms in which the API writes them.
 *
 * Thread: one at a time.
 * Memory: owns its arrays; logprobs_release frees. Zero is a valid start. */

#include "base/buf.h"
#include "scheduler/backend.h"
#include "tokenizer/tokenizer.h"

struct logprob_entry {
    int32_t token;
    float logprob;
    uint32_t rank; /* among all tokens, for a token of a prompt; else 0 */
    size_t raw_at; /* offset of the token in the text of its choice, in bytes */
    size_t offset; /* the same in characters, once the text is repaired */
    size_t top_at; /* index of its first alternative in tops */
    uint32_t top_count;
};

struct logprobs {
    struct logprob_entry *entries; /* (count) */
    size_t count, capacity;
    struct token_logprob *tops; /* (top_count) */
    size_t top_count, top_capacity;
};

/* Adds a token with its sample. `text` is the whole text before the token; it begins with the text
 * of the call before. */
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
    const struct logprobs *scores; /* scores of all tokens but the first */
    uint32_t top_max;              /* most alternatives shown per token */
    bool shows_special;            /* special tokens are part of the text that offsets count */
};

/* Appends the JSON value of `logprobs` of a chat choice: the entries [first, end). */
void logprobs_write_chat(struct buf *out, const struct logprobs_form *form,
                         const struct logprobs *logprobs, size_t first, size_t end);
/* Appends the same for a text completion, in columns. Offsets count the characters of the whole
 * text, of which `before_count` precede the entries. The tokens of a `prompt` (NULL: none) come
 * first. */
void logprobs_write_text(struct buf *out, const struct logprobs_form *form,
                         const struct logprobs_prompt *prompt, const struct logprobs *logprobs,
                         size_t first, size_t end, size_t before_count);
/* Appends the JSON value of `prompt_logprobs` in vLLM's form. */
void logprobs_write_prompt(struct buf *out, const struct logprobs_form *form,
                           const struct logprobs_prompt *prompt);

/* The number of characters of `bytes` once they are repaired. */
size_t logprobs_characters(struct str bytes);
