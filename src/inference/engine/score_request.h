/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* score_request: the body of a request for scores, checked: vLLM's pairs of texts (/v1/score), or a
 * query and its documents in the form of Jina and Cohere (/v1/rerank).
 *
 * It knows fields, types and ranges, and no tokenizer. Fields that no API has are ignored.
 *
 * Thread: any; one request belongs to one thread.
 * Memory: owns the parsed body, which score_request_release frees.
 * Invariant: the first texts are one, or as many as the second ones. */

#include "engine/request_body.h"
#include "json/refusal.h"
#include "protocol/request.h"

#define SCORE_PAIRS_MAX 10000
#define SCORE_TOKENS_MAX 2000000 /* tokens of all pairs of a request */
#define SCORE_INSTRUCTION_BYTES_MAX ((size_t)64 * 1024)
#define SCORE_PARAM_BYTES 48

/* The texts of one side. */
struct score_side {
    const char *name;     /* "documents" */
    const json_t *values; /* a text, or a list of them */
    uint32_t count;
    bool is_list;
};

/* Zero is a valid start. */
struct score_request {
    json_t *body;       /* owned */
    size_t memory_left; /* bytes that its texts may take to be encoded */
    bool is_rerank;     /* the answer is a list by score */
    struct score_side first, second;
    uint32_t top_n; /* most results of a rerank; 0: all */
    bool returns_documents;
    bool is_raw;              /* use_activation false: numbers as the model gives them */
    uint32_t cut_tokens;      /* length to which longer pairs are cut; 0: they are refused */
    uint32_t document_tokens; /* likewise of a second text */
    struct str instruction;   /* at is NULL: none */
};

/* Parses and checks a body. `text_tokens_max`: most tokens of one pair. False and *ret_refusal if
 * something is wrong; then nothing is to be released. */
bool score_request_parse(struct score_request *ret_request, enum endpoint endpoint, struct str body,
                         uint32_t text_tokens_max, struct refusal *ret_refusal) MUST_CHECK;
void score_request_release(struct score_request *request);

/* A text of a side, and its name in a refusal: "query" or "documents[3]". */
struct str score_side_text(const struct score_side *side, uint32_t index);
const char *score_side_param(const struct score_side *side, uint32_t index,
                             char param[SCORE_PARAM_BYTES]);
