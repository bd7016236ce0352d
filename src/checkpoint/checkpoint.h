/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* checkpoint: the tensors and the config of one model, wherever they lie: in a GGUF file, or in a
 * folder of Hugging Face's tools (config.json beside .safetensors).
 *
 * Whoever loads weights sees one list of tensors under GGUF's names. What differs behind them is a
 * flag or a form: rows that a converter permuted, norms stored less one, weights that must be
 * unpacked first, and weights that are made up (--load-format dummy). It reads no weights itself
 * before checkpoint_read.
 *
 * Thread: immutable after opening; any.  Memory: owns the files and all that it hands out.
 * Invariant: no two tensors have one name; every view lies inside a file. */

#include "checkpoint/config.h"
#include "checkpoint/shards.h"
#include "checkpoint/tensors.h"
#include "checkpoint/unpack.h"
#include "checkpoint/vocab.h"

/* Zero is the default of each. */
struct checkpoint_options {
    uint32_t token_count; /* that a folder's tokenizer knows; 0: as many as the embedding has rows.
                             A GGUF says it itself */
    bool dummy_weights;   /* a folder's config with made-up weights; none are read */
};

#define CHECKPOINT_SOURCES_MAX 4

struct checkpoint_tensor {
    struct str name;    /* as GGUF calls it; the file's own name when it is no part of a model */
    struct str spelled; /* as the file calls it, for sentences */
    uint32_t type;      /* GGUF's number of what checkpoint_read gives */
    uint32_t axis_count;
    uint64_t axes[GGUF_AXES_MAX]; /* axes[0] runs fastest; the axes not used are 1 */
    uint64_t row_bytes;           /* one run along axes[0] */
    uint64_t bytes;
    const unsigned char *at;            /* unaligned; NULL when it is packed */
    const struct packed_weight *packed; /* or NULL */
    /* Where its bytes are, for checkpoint_done. */
    const struct gguf_tensor *in_gguf;
    struct shard_tensor sources[CHECKPOINT_SOURCES_MAX];
};

struct checkpoint;

/* Opens a .gguf file, or a folder. ERR_INVALID with one sentence for what is no sound model of a
 * known architecture, ERR_NOT_FOUND or ERR_IO when it cannot be read. */
enum err checkpoint_open(struct checkpoint **ret_checkpoint, const char *path,
                         const struct checkpoint_options *options, struct error *error) MUST_CHECK;
/* The tensors of a GGUF that the caller has open and keeps open; without vocabulary and config. */
struct checkpoint *checkpoint_of_gguf(const struct gguf *gguf);
/* A folder that is in memory: the text of its config.json, and its one .safetensors, which the
 * caller keeps. */
enum err checkpoint_open_bytes(struct checkpoint **ret_checkpoint, struct str config,
                               const void *bytes, size_t count, struct error *error) MUST_CHECK;
void checkpoint_close(struct checkpoint *checkpoint); /* NULL is allowed */

/* What a path means to checkpoint_open: a folder with a config.json in it. */
bool checkpoint_is_folder(const char *path);

const struct model_config *checkpoint_config(const struct checkpoint *checkpoint);
/* A GGUF's vocabulary; NULL for a folder, whose tokenizer.json is another reader's. */
const struct checkpoint_vocab *checkpoint_vocab(const struct checkpoint *checkpoint);
uint64_t checkpoint_file_bytes(const struct checkpoint *checkpoint);
/* How most weights are stored, when that is not the type they are read as: "GPTQ"; else NULL. */
const char *checkpoint_form(const struct checkpoint *checkpoint);
/* q and k stand in pairs (2i, 2i+1), as an interleaved family's converter to GGUF leaves them. */
bool checkpoint_is_permuted(const struct checkpoint *checkpoint);
/* What is to be added to the weight of every RMSNorm: 0 or 1. */
float checkpoint_norm_offset(const struct checkpoint *checkpoint);

size_t checkpoint_tensor_count(const struct checkpoint *checkpoint);
const struct checkpoint_tensor *checkpoint_tensor_at(const struct checkpoint *checkpoint,
                                                     size_t index);
/* By GGUF's name; NULL when there is none. */
const struct checkpoint_tensor *checkpoint_find(const struct checkpoint *checkpoint,
                                                struct str name);
/* How this checkpoint would spell the GGUF name of a tensor it lacks. */
struct tensor_name checkpoint_spell(const struct checkpoint *checkpoint, const char *name);

/* The elements of a tensor, as its type and axes say: those of the file, or unpacked ones. */
struct checkpoint_bytes {
    const unsigned char *at;
    void *owned;
};
/* ERR_LIMIT when there is no memory to unpack into. */
enum err checkpoint_read(const struct checkpoint_tensor *tensor, struct pool *pool,
                         struct checkpoint_bytes *ret_bytes, struct error *error) MUST_CHECK;
/* They are not needed again: what was unpacked is freed, and the pages of a file are let go, so
 * that a loader's peak memory need not hold the whole model twice. */
void checkpoint_done(const struct checkpoint *checkpoint, const struct checkpoint_tensor *tensor,
                     struct checkpoint_bytes *bytes);
