/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* asked_shape: the fields by which a client asks for a shape of the answer: response_format,
 * structured_outputs, the guided_* fields of older vLLM, and the spellings of llama.cpp, SGLang,
 * TGI, Ollama, Anthropic and OpenAI's Responses. A constraint in yet another spelling is refused
 * (asked_foreign.h).
 *
 * The engine reads them from the body of a request, and the validation of a batch from each line,
 * so that both refuse the same.
 *
 * Thread: any.
 * Memory: a shape owns its source; json_decref frees it. */

#include "grammar/grammar.h"
#include "json/refusal.h"

/* The shape that an answer is held to. */
struct asked_shape {
    const char *param; /* the field that asks for it */
    enum grammar_kind kind;
    json_t *source; /* owned; NULL: any text */
};

/* Reads the fields of a body; at most one of them may ask for a shape. False and *ret_refusal if
 * one is wrong; then nothing is owned. */
bool asked_shape_read(const json_t *body, struct asked_shape *ret_shape,
                      struct refusal *ret_refusal);
/* Takes the source as a format of grammar/tags.h, for an answer that has more than the shape; NULL:
 * there is none. `place` is the format's name in errors, "" if the refusal names the field. */
json_t *asked_shape_take_format(struct asked_shape *shape, const char *place);
/* False, and *ret_refusal says why the shape does not compile. */
bool asked_shape_refuse(const struct asked_shape *shape, const struct error *error,
                        struct refusal *ret_refusal);
