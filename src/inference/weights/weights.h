/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* weights: the tensors of one model, checked by name and shape, as vectors and matrices by their
 * part in the forward pass.
 *
 * Matrices that read the same activations are fused (q|k|v, gate|up). Rows of q and k that the
 * llama converter permuted are put back, so that the forward program rotates halves for every
 * family. A tensor that the architecture does not have is refused: a model that is almost known
 * would run wrongly. Where a matrix lies and in which form is the store's choice
 * (program/weight_store.h).
 *
 * Loading has two phases, so that an executor can refuse a model before its weights are read:
 * weights_open checks all and opens the matrices, weights_fill reads their rows.
 *
 * Thread: one loads, and unpacks on the pool; any, afterwards.
 * Memory: owns vectors and matrices. The rows of one matrix at a time are in memory as the file has
 *     them.
 * Invariant: every matrix and vector has the config's shape. */

#include "checkpoint/checkpoint.h"
#include "kernels/kernels.h"
#include "kernels/pool.h"
#include "program/layer_weights.h"
#include "program/weight_store.h"

struct weights_loader; /* private */

/* The head of a model with labels; all NULL: it has none. */
struct label_weights {
    float *dense;      /* (width, width), as dense_bias only before tanh */
    float *dense_bias; /* (width), or NULL with a norm */
    float *norm;       /* (width) LayerNorm behind GELU instead of tanh, or NULL */
    float *output;     /* (labels, width) */
    float *bias;       /* (labels) or NULL */
};

struct weights {
    uint32_t layer_count;
    struct layer_weights *layers; /* (layer_count) */
    struct matrix *embedding;     /* (vocab_rows, width) */
    struct matrix *head;        /* (vocab_rows, width); the embedding itself when tied; NULL for an
                                   encoder */
    struct matrix *input_table; /* as program_weights has them, or NULL */
    struct matrix *input_projection;
    float *input_norm;
    float *output_norm;         /* (width); NULL for an encoder */
    float *output_norm_bias;    /* (width) or NULL */
    float *positions;           /* encoder: (context_max, width), with the first token type added;
                                   rotary encoder: (width), that type alone */
    float *embedding_norm;      /* (width), or NULL */
    float *embedding_norm_bias; /* (width) */
    float *second_type;         /* (width) what the second token type has more than the first;
                                   NULL: there is one type */
    float *distances; /* (heads, distance_stride) as struct attention has its bias, or NULL */
    size_t distance_stride, distance_zero;
    struct label_weights labels;
    float *dense[CONFIG_DENSE_MAX]; /* (dense_widths[i], the width before it) or NULL */
    size_t bytes;                   /* bytes of all matrices and vectors */
    uint64_t parameters;            /* elements of all tensors in the file */
    enum tensor_type type;          /* the type of most of them */
    struct weights_loader *loader;  /* NULL after weights_fill */
};

struct weights_options {
    const struct checkpoint *checkpoint;
    const struct model_config *config;
    struct weight_store store;
    struct pool *pool; /* unpacks rows of packed formats */
};

/* Checks the tensors, reads the vectors, and opens the matrices in the store. ERR_INVALID names the
 * tensor that is missing, too much, of a wrong shape or type, or the norm or bias that is no finite
 * number; ERR_LIMIT without memory. Everything that the options point to must outlive weights_fill.
 */
enum err weights_open(struct weights **ret_weights, const struct weights_options *options,
                      struct error *error) MUST_CHECK;
/* Reads the rows of the matrices that the store has not. Called once. An error of the store, or
 * ERR_LIMIT without memory for unpacked rows; then the weights can only be closed. */
enum err weights_fill(struct weights *weights, struct error *error) MUST_CHECK;
/* Reads a row of the head, or of the embedding that it is tied to, from the file: ret_row (width).
 */
enum err weights_read_head_row(const struct checkpoint *checkpoint, struct pool *pool, uint32_t row,
                               float *ret_row, struct error *error) MUST_CHECK;
/* Closes vectors and matrices, after the store. NULL is allowed. */
void weights_close(struct weights *weights);
