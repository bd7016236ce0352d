/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* model_about: what a model's files say about it, for clients that ask a server about its models.
 *
 * The engine that has read the files tells it, because the server reads no model. No answer depends
 * on it.
 *
 * Thread: any; plain values.
 * Memory: texts are borrowed from the owner of the struct.
 * Invariant: all zero: nothing is known. */

#include "base/str.h"

struct model_about {
    struct str architecture; /* "llama", as GGUF names families; empty: nothing is known */
    struct str title;        /* the name that the files give; may be empty */
    struct str format;       /* "gguf" or "safetensors" */
    struct str quantization; /* "Q4_K_M", "GPTQ", …: the mixture, type or form of the weights */
    struct str template;     /* the text of its chat template; empty: it has none */
    uint64_t parameters;     /* numbers of the weights */
    uint64_t file_bytes;
    uint64_t memory_bytes;   /* weights, KV blocks and workspace when all are in use */
    uint32_t context_tokens; /* the files' limit; what is served may be less */
    uint32_t layers;
    uint32_t width;      /* numbers of a hidden state, and of a vector of texts */
    bool knows_template; /* the next two are known */
    bool takes_tools;    /* its template shows tools to it */
    bool thinks;         /* its template lets it think before it answers */
};
