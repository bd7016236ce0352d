/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* embed: texts in, one vector of length 1 for each out. It packs texts into steps, runs an encoder
 * or a decoder over them, and pools the hidden states.
 *
 * A decoder that pools all tokens (mean) or the first (cls) sees the whole text from every row, as
 * GritLM was made; one that pools the last token is causal, unless its file says that it is not. It
 * has memory of its own: a scheduler may have sequences in the model meanwhile.
 *
 * Thread: one caller at a time, which spreads the work over a pool.
 * Memory: sized in embedder_open; a call allocates nothing.
 * Invariant: a text's vector is bitwise the same whatever else is in the call. */

#include "cpu/model.h"
#include "cpu/weights.h"

struct embedder;

struct embedder_options {
    const struct model_config *config;
    const struct weights *weights;
    const struct kernels *kernels;
    struct pool *pool;
    enum pooling pooling; /* not NONE */
    uint32_t rows_max;    /* of a step of several texts */
    uint32_t tokens_max;  /* of one text; may be more than rows_max */
};

/* How a model pools: as asked, else as its file says, else as its name or kind do. NONE: it does
 * not embed. */
enum pooling embed_pooling(const struct model_config *config, enum pooling asked);
/* Tokens of one text at most, in a context of context_max. */
uint32_t embed_tokens_max(const struct model_config *config, uint32_t context_max);

/* ERR_LIMIT when there is no memory. All that the options point to must outlive it. */
enum err embedder_open(struct embedder **ret_embedder, const struct embedder_options *options,
                       struct error *error) MUST_CHECK;
void embedder_close(struct embedder *embedder); /* NULL is allowed */
uint64_t embedder_bytes(const struct embedder *embedder);

/* As model_embed. */
enum err embedder_run(struct embedder *embedder, const struct embed_sequence *sequences,
                      uint32_t count, float *ret_vectors, struct error *error) MUST_CHECK;
