/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* checkpoint: the tensors and the config of one model, from a GGUF file or from a folder of Hugging
 * Face's tools (config.json and .safetensors).
 *
 * A loader sees one list of tensors under GGUF's names. The differences between files are flags or
 * forms: rows that a converter permuted, norms stored less one, weights that must be unpacked, and
 * made-up weights (--load-format dummy). No weight is read before checkpoint_read.
 *
 * Thread: any; immutable after opening.
 * Memory: owns the files and everything that it hands out.
 * Invariant: no two tensors have one name; every view lies inside a file. */

#include "checkpoint/config.h"
#include "checkpoint/shards.h"
#include "checkpoint/tensors.h"
#include "checkpoint/unpack.h"
#include "checkpoint/vocab.h"

/* All zero is the default. */
struct checkpoint_options {
    uint32_t token_count; /* tokens of a folder's tokenizer; 0: as many as the embedding has rows. A
                             GGUF has its own count */
    bool dummy_weights;   /* use a folder's config with made-up weights, and read none */
};

/* The usual files of a model: a folder of the Hub, GGUF files, and gpt-oss, whose experts are in
 * MXFP4 wherever they are. */
enum shape_types { SHAPE_BF16, SHAPE_Q8_0, SHAPE_Q4_K_M, SHAPE_MXFP4 };

#define CHECKPOINT_SOURCES_MAX 4

struct checkpoint_tensor {
    struct str name;    /* GGUF's name; the file's name for a tensor that is no part of a model */
    struct str spelled; /* the file's name, for sentences */
    uint32_t type;      /* GGUF's number of the type that checkpoint_read gives */
    uint32_t axis_count;
    uint64_t axes[GGUF_AXES_MAX]; /* axes[0] runs fastest; the axes not used are 1 */
    uint64_t row_bytes;           /* bytes of one run along axes[0] */
    uint64_t bytes;
    const unsigned char *at;            /* unaligned; NULL for a packed tensor */
    const struct packed_weight *packed; /* the form it is stored in; NULL: as its type says */
    /* the files' tensors that it is made of, for checkpoint_done */
    const struct gguf_tensor *in_gguf;
    struct shard_tensor sources[CHECKPOINT_SOURCES_MAX];
};

struct checkpoint;

/* Opens a .gguf file, or a folder. ERR_INVALID with one sentence unless it is a sound model of a
 * known architecture; ERR_NOT_FOUND or ERR_IO when it cannot be read. */
enum err checkpoint_open(struct checkpoint **ret_checkpoint, const char *path,
                         const struct checkpoint_options *options, struct error *error) MUST_CHECK;
/* Makes a checkpoint of an open GGUF, which must outlive it; it has no vocabulary and no config.
 * ERR_INVALID if two of the file's names are spellings of one tensor. */
enum err checkpoint_of_gguf(struct checkpoint **ret_checkpoint, const struct gguf *gguf,
                            struct error *error) MUST_CHECK;
/* Opens a folder in memory: the text of its config.json, and the bytes of its one .safetensors,
 * which must outlive it. */
enum err checkpoint_open_bytes(struct checkpoint **ret_checkpoint, struct str config,
                               const void *bytes, size_t count, struct error *error) MUST_CHECK;
/* Makes the checkpoint that files of these types would be, from the text of a config.json alone:
 * for sizes. It has no bytes, so checkpoint_read must not be called. */
enum err checkpoint_open_shape(struct checkpoint **ret_checkpoint, struct str config,
                               enum shape_types types, struct error *error) MUST_CHECK;
void checkpoint_close(struct checkpoint *checkpoint); /* NULL is allowed */

/* True for a folder with a config.json, which checkpoint_open opens as a folder. */
bool checkpoint_is_folder(const char *path);

const struct model_config *checkpoint_config(const struct checkpoint *checkpoint);
/* A GGUF's vocabulary; NULL for a folder, whose tokenizer.json the tokenizer reads. */
const struct checkpoint_vocab *checkpoint_vocab(const struct checkpoint *checkpoint);
uint64_t checkpoint_file_bytes(const struct checkpoint *checkpoint);
/* The form in which most weights are stored, such as "GPTQ"; NULL when they are stored as the type
 * they are read as. */
const char *checkpoint_form(const struct checkpoint *checkpoint);
/* The type of most numbers, which users call the quantisation of the file. */
enum tensor_type checkpoint_main_type(const struct checkpoint *checkpoint);
/* The mixture of types of a GGUF's weights, such as "Q4_K_M"; NULL for a folder, and for a file
 * that does not name it. */
const char *checkpoint_file_type(const struct checkpoint *checkpoint);
bool checkpoint_is_gguf(const struct checkpoint *checkpoint);
/* True when most weights are stored in at most 8 bits and are read as numbers of 16, as FP8 is, or
 * as blocks (struct packed_weight). */
bool checkpoint_is_packed(const struct checkpoint *checkpoint);
/* True when rows of q and k are in pairs (2i, 2i+1), as the converter to GGUF leaves them for an
 * interleaved family. */
bool checkpoint_is_permuted(const struct checkpoint *checkpoint);
/* The number to add to the weight of every RMSNorm: 0 or 1. */
float checkpoint_norm_offset(const struct checkpoint *checkpoint);

/* True when the decay of a state is stored as the rate -e^A, as GGUF has it, and not as A. */
bool checkpoint_has_rates(const struct checkpoint *checkpoint);

size_t checkpoint_tensor_count(const struct checkpoint *checkpoint);
const struct checkpoint_tensor *checkpoint_tensor_at(const struct checkpoint *checkpoint,
                                                     size_t index);
uint64_t checkpoint_numbers(const struct checkpoint_tensor *tensor);
/* The tensor with this GGUF name, or NULL. */
const struct checkpoint_tensor *checkpoint_find(const struct checkpoint *checkpoint,
                                                struct str name);
/* The name that this checkpoint's files would give to a GGUF tensor, for sentences. */
struct tensor_name checkpoint_spell(const struct checkpoint *checkpoint, const char *name);

/* True when the rows of a tensor of gate and up together alternate: gate 0, up 0, gate 1, … */
bool checkpoint_alternates_experts(const struct checkpoint *checkpoint);

/* The elements of a tensor, by its type and axes: bytes of the file, or unpacked ones. */
struct checkpoint_bytes {
    const unsigned char *at;
    void *owned;
};
/* Matrix `slice` of a tensor of three axes, or with 0 all of another. ERR_LIMIT without memory for
 * unpacked elements. */
enum err checkpoint_read(const struct checkpoint_tensor *tensor, uint32_t slice, struct pool *pool,
                         struct checkpoint_bytes *ret_bytes, struct error *error) MUST_CHECK;
/* Frees unpacked elements. */
void checkpoint_free(struct checkpoint_bytes *bytes);
/* The same, and drops the file's pages: no loader needs the model twice. */
void checkpoint_done(const struct checkpoint *checkpoint, const struct checkpoint_tensor *tensor,
                     struct checkpoint_bytes *bytes);
