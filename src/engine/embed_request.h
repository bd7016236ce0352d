/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* embed_request: the body of an embeddings request, checked.
 *
 * Knows the fields, types and ranges of OpenAI's API and of vLLM's extras, and no tokenizer. What
 * would change the vectors and is not supported is refused, never ignored; a field nobody knows is
 * ignored.
 *
 * Thread: any; one request belongs to one thread.  Memory: owns the parsed body;
 * embed_request_release frees. Invariant: after embed_request_parse the fields keep the ranges
 * stated beside them. */

#include "engine/refusal.h"
#include "engine/served_model.h"

#define EMBED_INPUTS_MAX 2048 /* as OpenAI has it, and the next */
#define EMBED_TOKENS_MAX 300000
#define EMBED_INSTRUCTION_BYTES_MAX ((size_t)64 * 1024)
#define EMBED_PARAM_BYTES 32

/* Zero is a valid start. */
struct embed_request {
    json_t *body;        /* owned */
    const json_t *input; /* string, [string], [integer] or [[integer]], nothing of it empty */
    uint32_t count;      /* texts: 1..EMBED_INPUTS_MAX */
    bool is_list;        /* `input` has one element for each text */
    bool is_base64;
    uint32_t dimensions; /* 1..width */
    bool add_special_tokens;
    bool parse_special;     /* special tokens written in a text become their ids */
    uint32_t cut_tokens;    /* longer texts are cut to so many; 0: refused */
    struct str instruction; /* at is NULL: none */
};

/* Parses and checks. `text_tokens_max`: tokens of one text. False and *ret_refusal (status 400)
 * when something is wrong; nothing is to be released then. */
bool embed_request_parse(struct embed_request *ret_request, struct str body,
                         const struct served_model *model, uint32_t text_tokens_max,
                         struct refusal *ret_refusal) MUST_CHECK;
void embed_request_release(struct embed_request *request);
/* Frees the texts, and the instruction; the numbers stay. */
void embed_request_drop_body(struct embed_request *request);

/* The text's value in `input`: a string or an array of checked token ids. */
const json_t *embed_request_text(const struct embed_request *request, uint32_t index);
/* How a refusal names it: "input" or "input[3]". Returns `param`. */
const char *embed_request_param(const struct embed_request *request, uint32_t index,
                                char param[EMBED_PARAM_BYTES]);
