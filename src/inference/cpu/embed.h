/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* embed: texts in, one vector per text out: of length 1, or with a number per label when the model
 * has a head for labels. It puts texts into steps, runs an encoder
 * or a decoder over them, and pools the hidden states; or a device runs and pools them
 * (program/text_runner.h), two steps at a time, and the rest is done here.
 *
 * A decoder that pools all tokens (mean) or the first (cls) sees the whole text from every row, as
 * GritLM does. A decoder that pools the last token is causal, unless its file says otherwise. An
 * embedder has memory of its own, so that a scheduler may have sequences in the model meanwhile.
 *
 * Thread: one caller at a time, which spreads the work over a pool.
 * Memory: sized in embedder_open; a call allocates nothing.
 * Invariant: a text's vector is bitwise the same whatever other texts are in the call. */

#include "program/text_runner.h"
#include "weights/weights.h"

/* One text to embed. Tokens before pool_first are read but not pooled (GritLM's instruction). */
struct embed_sequence {
    const int32_t *ids; /* (count) */
    uint32_t count;
    uint32_t pool_first;
    uint32_t second_first; /* first token of the second text of a pair; 0: the text is no pair */
};

struct embedder;

struct embedder_options {
    const struct model_config *config;
    const struct weights *weights;
    const struct kernels *kernels;
    struct pool *pool;
    enum pooling pooling; /* not NONE */
    uint32_t rows_max;    /* most rows of a step with several texts */
    uint32_t tokens_max;  /* most tokens of one text; may be above rows_max */
    /* Computes the steps in place of the CPU, for which kernels are not used then; or NULL. Its
     * limits are those of a step. */
    const struct text_runner *runner;
};

/* How a model pools: as asked, else by its file, else by its name or kind. NONE: no embeddings. */
enum pooling embed_pooling(const struct model_config *config, enum pooling asked);
/* True for a decoder that judges a pair by its next token, yes or no (Qwen3-Reranker). Its one
 * label is how much more likely yes is, as the logit of a sigmoid. */
bool embed_is_judge(const struct model_config *config);
/* Whether a device computes texts with such a model, and does not generate: it cannot generate, or
 * its files name a pooling, or it judges. */
bool embed_is_for_texts(const struct model_config *config);
/* Whether the rows of such an embedder's texts see later tokens. */
bool embed_sees_both(const struct model_config *config, enum pooling pooling);
/* Numbers of a vector. */
uint32_t embed_width(const struct model_config *config);
/* The most tokens of one text, in a context of context_max. */
uint32_t embed_tokens_max(const struct model_config *config, uint32_t context_max);

/* ERR_LIMIT without memory. Everything that the options point to must outlive the embedder. */
enum err embedder_open(struct embedder **ret_embedder, const struct embedder_options *options,
                       struct error *error) MUST_CHECK;
void embedder_close(struct embedder *embedder); /* NULL is allowed */
/* Gives a judge the rows of the head for its two tokens, (width) each, which are copied. */
void embedder_set_answers(struct embedder *embedder, const float *yes, const float *no);
uint64_t embedder_bytes(const struct embedder *embedder); /* 0 for NULL */

/* Embeds texts: ret_vectors (count, embed_width), each of length 1 unless they are labels.
 * ERR_INVALID for a text without tokens, an id out of range, or unsound weights; ERR_LIMIT for a
 * text longer than tokens_max. ret_vectors is undefined after an error. */
enum err embedder_run(struct embedder *embedder, const struct embed_sequence *sequences,
                      uint32_t count, float *ret_vectors, struct error *error) MUST_CHECK;
