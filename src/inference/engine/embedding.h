/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* embedding: one embeddings request inside an engine: its texts as tokens, then their vectors, then
 * the body of the answer.
 *
 * Thread: the stage that owns the job.
 * Memory: owns all it points to except its neighbours in the queue.
 * Invariant: vectors [0, done) are filled, texts [0, given) are computed or in the step under way;
 * done <= given <= request.count. */

#include "engine/embed_request.h"

struct job;

/* Zero is a valid start. */
struct embedding {
    struct embed_request request;
    struct ids ids;                   /* ids of all texts, one after the other */
    struct embed_sequence *sequences; /* (request.count) one per text, parts of ids */
    float *vectors;                   /* (request.count, width); NULL before its turn */
    size_t vector_bytes;
    uint32_t given, done;

    /* The queue's list. */
    int64_t level;
    struct job *next, *previous;
};

/* Reads the body and turns its texts into tokens, with the special tokens that the vocabulary adds.
 * A text that is cut keeps its beginning and these tokens, as in sentence-transformers. For GritLM
 * a text is "<|user|>\n{instruction}\n<|embed|>\n{text}", or "<|embed|>\n{text}" without an
 * instruction, and only the tokens after the last mark are pooled. False and *ret_refusal if the
 * request cannot be served. */
bool embedding_prepare(struct embedding *embedding, struct str body,
                       const struct served_model *model, uint32_t text_tokens_max,
                       struct refusal *ret_refusal) MUST_CHECK;
void embedding_release(struct embedding *embedding);

/* Appends the body of a request whose vectors are all filled: pure ASCII JSON on one line. With
 * is_pooling a vector is called as /pooling calls it. */
void embedding_write_body(struct buf *out, struct str model_name, uint32_t width, bool is_pooling,
                          const struct embedding *embedding);
