/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* served_model: all that an engine needs to know of the one model it serves: tokenizer, chat
 * template, what generates, what embeds, and a few facts.
 *
 * Opened from a model file; tests fill the struct themselves.
 *
 * Thread: immutable while an engine uses it (the backend belongs to the engine's loop).
 * Memory: one that served_model_open filled owns all that is in it; served_model_close frees. */

#include "cpu/model.h"
#include "engine/refusal.h"
#include "engine/vocabulary.h"
#include "protocol/wire_messages.h"
#include "scheduler/backend.h"

#define SERVED_END_TOKENS_MAX 64
#define SERVED_EMBED_TOKENS_DEFAULT 512u /* of a step, as of one that generates */
#define SERVED_SEQS_DEFAULT 128u         /* that run at a time */
/* Sequences of people who wait that may run beside a full batch. */
#define SERVED_URGENT_SEQS 16u

/* How texts become vectors. */
struct served_embedder {
    /* As model_embed; NULL: the model makes no embeddings. */
    enum err (*embed)(void *self, const struct embed_sequence *sequences, uint32_t count,
                      float *ret_vectors, struct error *error);
    void *self;
    uint32_t width;           /* numbers of a vector */
    uint32_t vocab;           /* ids are below; a tokenizer may know more */
    uint32_t text_tokens_max; /* of one text */
    uint32_t step_tokens;     /* of one call that fills the machine */
    bool takes_instruction;   /* texts are wrapped as GritLM has it */
    bool is_matryoshka;       /* trained so that the beginning of a vector is one, too */
};

struct served_model {
    struct vocabulary vocabulary;  /* without a template, chat requests are refused */
    const struct backend *backend; /* NULL: the model generates nothing */
    struct served_embedder embedder;
    const char *name; /* of the file, without folders and ".gguf"; the default to serve under */
    const char *description; /* one line for the log */
    int64_t created_unix_s;  /* of the file */

    /* What only served_model_open fills and served_model_close frees. */
    struct model *model;
    char *text; /* name and description */
};

/* Reads the model file that HELLO names, with its threads, kv_bytes, kernels and limits.
 * ERR_INVALID or ERR_NOT_FOUND with one clear sentence. */
enum err served_model_open(struct served_model *ret_model, const struct wire_hello *options,
                           struct error *error) MUST_CHECK;
void served_model_close(struct served_model *model);

/* Whether the model does what the endpoint is for; if not, *ret_refusal says what it does. */
bool served_model_does(const struct served_model *model, enum endpoint endpoint,
                       struct refusal *ret_refusal);
