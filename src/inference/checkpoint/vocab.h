/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* vocab: a GGUF file's metadata of its tokenizer, as plain views.
 *
 * It reads and checks the metadata. It builds no tokenizer, and knows only the rules that the
 * format leaves to the reader as defaults.
 *
 * Thread: any.
 * Memory: owns the tables; all strings lie in the gguf, which must outlive it.
 * Invariant: kinds and scores are token_count long or NULL; every id is CHECKPOINT_VOCAB_NONE or
 *     below token_count. */

#include "checkpoint/gguf.h"

enum { CHECKPOINT_VOCAB_NONE = -1 };
#define CHECKPOINT_VOCAB_TOKENS_MAX (1u << 21)
#define CHECKPOINT_VOCAB_MERGES_MAX (1u << 22)
#define CHECKPOINT_VOCAB_ENDS_MAX 16

/* All zero is an empty vocabulary. */
struct checkpoint_vocab {
    struct str model;   /* tokenizer.ggml.model: "gpt2", "llama", … */
    struct str pre;     /* tokenizer.ggml.pre; empty when absent */
    struct str *tokens; /* (token_count) as the file spells them */
    uint8_t *kinds;     /* (token_count) 1..6, tokenizer.ggml.token_type; or NULL */
    float *scores;      /* (token_count) or NULL */
    size_t token_count;
    struct str *merges; /* (merge_count) "left right", best first */
    size_t merge_count;
    int32_t bos, eos, eot, eom, unknown, padding, separator, cls, mask;
    /* (end_count) tokenizer.ggml.eos_token_ids, which Ollama's files have: they end an answer too
     */
    int32_t ends[CHECKPOINT_VOCAB_ENDS_MAX];
    size_t end_count;
    bool add_bos, add_eos, add_space_prefix; /* the model's default when absent */
    struct str charsmap;      /* bytes of tokenizer.ggml.precompiled_charsmap; empty when absent */
    char *own_charsmap;       /* they, where the file has them as text; NULL otherwise */
    bool collapses_spaces;    /* tokenizer.ggml.remove_extra_whitespaces */
    struct str chat_template; /* Jinja; empty when absent */
    struct str tool_template; /* Jinja for requests with tools; empty when absent */
};

/* ERR_INVALID, naming the key, when the tokens are missing, the tables disagree in length, a kind
 * is unknown, a score is no number or an id has no token. */
enum err checkpoint_vocab_init(struct checkpoint_vocab *ret_vocab, const struct gguf *gguf,
                               struct error *error) MUST_CHECK;
void checkpoint_vocab_release(struct checkpoint_vocab *vocab);
/* The chat template of a file that has none: that of its family, if all its models share one. Files
 * of Ollama's store have theirs elsewhere, in another language. Empty for other families. */
struct str checkpoint_family_template(const struct gguf *gguf);
