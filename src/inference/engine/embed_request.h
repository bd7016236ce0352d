/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* embed_request: the body of an embeddings request, checked.
 *
 * It knows the fields, types and ranges of OpenAI's API and of vLLM's extensions, and no tokenizer.
 * It refuses unsupported fields that would change the vectors, and ignores fields that neither API
 * has.
 *
 * Thread: any; one request belongs to one thread.
 * Memory: owns the parsed body; embed_request_release frees.
 * Invariant: after embed_request_parse the fields keep the ranges stated next to them. */

#include "engine/request_body.h"
#include "engine/served_model.h"
#include "json/refusal.h"

#define EMBED_INPUTS_MAX 2048 /* this limit and the next are OpenAI's */
#define EMBED_TOKENS_MAX 300000
#define EMBED_INSTRUCTION_BYTES_MAX ((size_t)64 * 1024)
#define EMBED_PARAM_BYTES 32

/* Zero is a valid start. */
struct embed_request {
    json_t *body;       /* owned */
    size_t memory_left; /* bytes that its texts may take to be encoded */
    /* string, [string], [integer] or [[integer]]; no string or array is empty */
    const json_t *input;
    struct id_lists ids; /* the texts, if they were a long array of ids; `input` is 0 then */
    uint32_t count;      /* texts: 1..EMBED_INPUTS_MAX */
    bool is_list;        /* `input` has one element per text */
    bool is_base64;
    uint32_t dimensions; /* 1..width */
    bool add_special_tokens;
    bool parse_special;     /* special tokens written in a text become their ids */
    uint32_t cut_tokens;    /* length to which longer texts are cut; 0: they are refused */
    struct str instruction; /* at is NULL: none */
};

/* Parses and checks a body. `text_tokens_max`: most tokens of one text. False and *ret_refusal
 * (status 400, or 503 without memory) if something is wrong; then nothing is to be released. */
bool embed_request_parse(struct embed_request *ret_request, struct str body,
                         const struct served_model *model, uint32_t text_tokens_max,
                         struct refusal *ret_refusal) MUST_CHECK;
void embed_request_release(struct embed_request *request);
/* Frees the texts and the instruction; the numbers stay. */
void embed_request_drop_body(struct embed_request *request);

/* The text's value in `input`, unless there are `ids`: a string or an array of checked token ids.
 */
const json_t *embed_request_text(const struct embed_request *request, uint32_t index);
/* The text's name in a refusal: "input" or "input[3]". Returns `param`. */
const char *embed_request_param(const struct embed_request *request, uint32_t index,
                                char param[EMBED_PARAM_BYTES]);
