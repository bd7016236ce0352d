/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* score: one request for scores inside an engine: its pairs as tokens, whose vectors the queue of
 * embeddings computes, then the body of the answer.
 *
 * A cross-encoder reads both texts of a pair, in the form of its family. Qwen3-Reranker reads them
 * in its own question, and is asked how likely yes is. Of a model that makes vectors, each text is
 * read alone, and the score is the cosine of two vectors.
 *
 * Thread: the stage that owns the job.
 * Memory: owns its request; the pairs belong to the embedding.
 * Invariant: texts of clients are text: no special token that is written in them counts. */

#include "engine/embedding.h"
#include "engine/score_request.h"

/* Zero is a valid start. */
struct score {
    struct score_request request;
    uint32_t pairs;
    bool is_by_vectors; /* the embedding's texts are the first ones, then the second ones */
};

struct score_question {
    enum endpoint endpoint; /* ENDPOINT_SCORE or ENDPOINT_RERANK */
    struct str body;
    const struct served_model *model;
    uint32_t text_tokens_max;
};

/* Reads the body and turns its pairs into the texts of `embedding`. A pair that is cut loses tokens
 * of its longer text first, as in transformers. False and *ret_refusal if it cannot be served. */
bool score_prepare(struct score *score, struct embedding *embedding,
                   const struct score_question *question, struct refusal *ret_refusal) MUST_CHECK;
void score_release(struct score *score);

struct score_answer {
    const char *id;
    struct str model_name;
    int64_t created_unix_s;
    const struct served_head *head;
    const struct vocabulary *vocabulary; /* for names of labels */
    uint32_t width;
};
/* Appends the body of a request whose vectors are all filled: pure ASCII JSON on one line. */
void score_write_body(struct buf *out, const struct score_answer *answer, const struct score *score,
                      const struct embedding *embedding);
/* The same of /classify: of each text the probabilities of all labels, and the likeliest. */
void score_write_labels(struct buf *out, const struct score_answer *answer,
                        const struct embedding *embedding);
