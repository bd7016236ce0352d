/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* model: one GGUF file, or a folder with config.json and .safetensors, ready to run on this
 * machine: the scheduler's backend, and a source of embeddings.
 *
 * It opens checkpoint, weights, executor (program/executor.h) and embedder, and describes them. The
 * executor is opened before the weights are read, so that it can refuse them. It knows no
 * arithmetic, no request, no text and no tokenizer; it hands on the vocabulary's metadata as the
 * file has it.
 *
 * Thread: one at a time (the engine loop); it has a pool of threads of its own.
 * Memory: everything is sized and allocated in model_open and listed by model_describe. The KV
 *     cache and the workspace are mapped and take memory as they are first used. The files stay
 *     mapped, for the vocabulary's strings.
 * Invariant: the tokens of a sequence depend on its prompt, sampling and seed only. */

#include "checkpoint/config.h"
#include "checkpoint/vocab.h"
#include "cpu/embed.h"
#include "gpu/gpu_load.h"
#include "scheduler/backend.h"

#define MODEL_SEQUENCES_MAX 65536u

struct model;

/* All zero means all defaults. */
struct model_options {
    const char *kernels;  /* a name of kernels/kernels.h (default: the best for this CPU) */
    bool reference;       /* plain C in float32 with a float32 KV cache: the definition */
    uint32_t threads;     /* (default: one per core) */
    uint32_t block_count; /* KV blocks (default: as many as fit kv_bytes) */
    bool kv_is_int8;      /* on the CPU, keys and values of 8 bits */
    uint64_t kv_bytes;    /* (default 1 GiB, or less when sequences_max whole contexts need less) */
    uint64_t state_bytes; /* memory for states of recurrent layers (default 2 GiB) */
    uint32_t rows_max;    /* rows of a step (default 512; with a device see gpu_rows.h) */
    uint32_t sequences_max;    /* sequences of a step (default 128, with a device up to 1024) */
    uint32_t urgent_sequences; /* part of sequences_max that no option counts, for sentences */
    uint32_t context_max;      /* positions of a sequence (default: the file's limit) */
    enum pooling pooling; /* pooling of embeddings (default: the file's; a decoder may have none) */
    uint32_t token_count; /* tokens of a folder's tokenizer (default: rows of the embedding) */
    bool dummy_weights;   /* make weights up; a folder then needs only a config.json */
    const char *packed_dir;    /* folder of packed weights (cpu/tiled_cache.h); NULL: keep none */
    uint64_t packed_bytes_max; /* largest file to write there; 0: use existing ones, write none */
    uint64_t weight_bytes_max; /* memory for weights; experts beyond it stay in the file, on the
                                   CPU. (default: no limit) */
    /* Its threads compute this model, too: only one of the two computes at a time. It outlives this
     * one; NULL: threads of its own. */
    const struct model *beside;
    /* With an open device, which must outlive the model and serves one only; NULL: the CPU. Kernels
     * and packed weights are not used then. */
    const struct loaded_gpu *device;
};

struct model_description {
    char name[129];           /* general.name, printable; may be empty */
    const char *architecture; /* "llama" */
    const char *type;         /* the type or form of most weights: "Q4_1", "GPTQ" */
    const char *mixture;      /* name of the mixture of their types: "Q4_K_M"; else as `type` */
    bool is_gguf;             /* else a folder of .safetensors */
    const char *kernels;      /* "avx512"; the CPU's also when a device computes */
    char card[64];            /* name of the device's GPU; empty: the CPU computes */
    const char *kv_type; /* "F16", "INT8"; NULL when it does not generate, as kv_… below are 0 */
    uint64_t parameters;
    uint32_t layers;
    uint32_t width;
    uint32_t vocab;
    uint32_t context_model; /* the file's limit */
    uint32_t context_max;   /* the limit it was opened with */
    uint32_t threads;
    uint32_t kv_blocks;
    bool embeds;              /* model_embed can be used */
    bool generates;           /* model_backend and model_logits can be used */
    uint32_t embedding_width; /* floats of a vector; 0 when it does not embed */
    /* A vector has one number per label, or of a judge how much more likely yes is (embed.h). */
    uint32_t labels; /* 0: it is no such model */
    bool is_judge;
    bool labels_are_raw; /* they count as they are */
    enum pair_form pair_form;
    uint32_t embed_tokens_max; /* tokens of one text; 0 when it does not embed */
    uint32_t text_rows;        /* tokens of a device's step of texts; 0: the CPU embeds */
    /* memory */
    uint64_t file_bytes;
    uint64_t weight_bytes;    /* in memory */
    uint64_t left_file_bytes; /* experts that stay in the file */
    bool is_from_packed;      /* the weights are mapped from a file of packed_dir */
    uint64_t kv_bytes_per_token;
    uint64_t kv_bytes;           /* when every block is in use */
    uint64_t state_bytes;        /* size of a sequence's state; 0: no layer is recurrent */
    uint64_t states_bytes;       /* when every place for a state is in use */
    uint64_t workspace_bytes;    /* for a step of rows_max rows, and for sampling */
    struct memory_ledger ledger; /* memory on the GPU; all zero: the CPU computes */
    uint64_t peak_rss_bytes;     /* peak of this process when model_open returned */
};

/* Opens a model file. ERR_INVALID with one sentence for a file that is not a sound model of a known
 * architecture, or for an option out of range; ERR_NOT_FOUND or ERR_IO when it cannot be read;
 * ERR_LIMIT without memory, on a device with the settings that fit; ERR_UNAVAILABLE for a model
 * that only the CPU computes, but a device was given: the device can only be closed then. */
enum err model_open(struct model **ret_model, const char *path, const struct model_options *options,
                    struct error *error) MUST_CHECK;
/* NULL is allowed. */
void model_close(struct model *model);

/* Both live as long as the model; the backend's ops->close is NULL. No step may be submitted to the
 * backend of a model that does not generate; of its caps, only context_tokens_max and vocab are
 * valid then. */
const struct backend *model_backend(const struct model *model);
const struct checkpoint_vocab *model_vocab(const struct model *model); /* NULL for a folder */
void model_describe(const struct model *model, struct model_description *ret_description);

struct logits_request {
    const int32_t *ids; /* (count) a prompt */
    uint32_t count;
    const uint32_t *positions; /* (position_count) ascending and below count */
    uint32_t position_count;
};
/* Runs a prompt alone and gives the logits at some of its positions: ret_logits (position_count,
 * vocab). It uses the KV blocks from 0 on as scratch, so no scheduler may have sequences in this
 * model. ERR_INVALID for an id or position out of range, ERR_LIMIT when the prompt does not fit. */
enum err model_logits(struct model *model, const struct logits_request *request, float *ret_logits,
                      struct error *error) MUST_CHECK;

/* Gives a judge its tokens, once its weights are filled; ERR_INVALID for ids out of range. */
enum err model_set_answers(struct model *model, int32_t yes, int32_t no,
                           struct error *error) MUST_CHECK;

/* Embeds sequences: ret_vectors (count, embedding_width), each of length 1 or labels, and bitwise
 * the same for any other sequences in the call. ERR_INVALID for a model without pooling, a text
 * without tokens or an id out of range; ERR_LIMIT when a text is longer than embed_tokens_max.
 * ret_vectors is undefined after an error. Called on the backend's thread; steps may be under way.
 * */
enum err model_embed(struct model *model, const struct embed_sequence *sequences, uint32_t count,
                     float *ret_vectors, struct error *error) MUST_CHECK;
