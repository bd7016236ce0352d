/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* served_model: the one model that an engine serves: tokenizer, chat template, the backend that
 * generates, the function that embeds, and a few facts.
 *
 * served_model_open fills it from a model file; tests fill the struct themselves.
 *
 * Thread: immutable while an engine uses it (the backend belongs to the engine's loop).
 * Memory: after served_model_open it owns all its members; served_model_close frees them. */

#include "chat/tool_format.h"
#include "engine/vocabulary.h"
#include "gpu/gpu_load.h"
#include "json/refusal.h"
#include "model/draft_model.h"
#include "model/model.h"
#include "protocol/wire_messages.h"
#include "scheduler/backend.h"

#define SERVED_END_TOKENS_MAX 64
/* Steps of a device in one call: two are under way, and the host has time for the next ones. */
#define SERVED_DEVICE_STEPS 4u
#define SERVED_EMBED_TOKENS_DEFAULT 512u /* tokens per step, as in a step that generates */
#define SERVED_SEQS_DEFAULT 128u         /* sequences that run at a time */
/* Sequences of interactive requests that may run in addition to a full batch. */
#define SERVED_URGENT_SEQS 16u

/* How vectors are scores, in a model that gives a text numbers of labels. */
struct served_head {
    uint32_t labels;          /* 0: vectors */
    bool is_raw;              /* a number counts as it is, not its sigmoid */
    bool is_judge;            /* pairs stand in the question of Qwen3-Reranker */
    enum pair_form pair_form; /* form of the others */
};

/* How texts become vectors. */
struct served_embedder {
    /* As model_embed; NULL: the model makes no embeddings. */
    enum err (*embed)(void *self, const struct embed_sequence *sequences, uint32_t count,
                      float *ret_vectors, struct error *error);
    void *self;
    uint32_t width;           /* numbers of a vector */
    uint32_t vocab;           /* token ids are below it; a tokenizer may know more */
    uint32_t text_tokens_max; /* most tokens of one text */
    uint32_t step_tokens;     /* tokens of one call that uses the whole machine */
    bool takes_instruction;   /* texts are wrapped in GritLM's form */
    bool is_matryoshka;       /* trained so that the beginning of a vector is a vector, too */
    struct served_head head;
};

struct served_model {
    struct vocabulary vocabulary;  /* without a template, chat requests are refused */
    const struct backend *backend; /* NULL: the model generates nothing */
    struct served_embedder embedder;
    struct draft_model *drafts;   /* guesses next tokens; NULL: none does */
    enum tool_format tool_format; /* named by the owner for calls; NONE: from the template */
    const char *name;  /* the file's, without folders and ".gguf": the default name of the model */
    const char *title; /* the name that the files give; may be empty */
    const char *description;   /* one line for the log */
    struct card_ledger ledger; /* memory on the GPU; all zero: the CPU computes */
    struct model_about about;  /* its texts live as long as the model */
    int64_t created_unix_s;    /* time of the file */

    /* Only served_model_open fills these, and served_model_close frees them. */
    struct model *model;
    struct model *draft_source; /* the model behind `drafts` */
    char *text;                 /* name, title and description */
};

/* Reads the model file that HELLO names, with its threads, kv_bytes, kernels and limits. It runs on
 * the open device, or on the CPU if `device` is NULL or has none. ERR_INVALID or ERR_NOT_FOUND with
 * one clear sentence. */
enum err served_model_open(struct served_model *ret_model, const struct wire_hello *options,
                           struct loaded_gpu *device, struct error *error) MUST_CHECK;
void served_model_close(struct served_model *model);
/* ERR_INVALID, with the names that are known, for a tool_call_parser of HELLO that is none of them;
 * NULL is allowed. */
enum err served_model_check_parser(const char *name, struct error *error) MUST_CHECK;

/* True if the model serves the endpoint; else *ret_refusal names the endpoint that it does
 * serve. */
bool served_model_does(const struct served_model *model, enum endpoint endpoint,
                       struct refusal *ret_refusal);
