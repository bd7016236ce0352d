/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* weights: the tensors of one model, checked by name and shape and laid out in tiles for a table of
 * kernels.
 *
 * Matrices that read the same activations are fused (q|k|v, gate|up). Rows of q and k that the
 * llama converter permuted are put back, so that the forward program rotates halves for every
 * family. A tensor that the architecture does not have is refused: a model that is almost known
 * would run wrongly.
 *
 * Thread: one opens them and spreads the work over a pool; any, afterwards.
 * Memory: owns tiled copies of all matrices, or the mapping that they lie in; the checkpoint may be
 *     closed after weights_open.
 * Invariant: every matrix and vector has the config's shape. */

#include "checkpoint/checkpoint.h"
#include "cpu/tiled_cache.h"
#include "kernels/kernels.h"
#include "kernels/pool.h"
#include "program/layer_weights.h"

struct weights {
    uint32_t layer_count;
    struct layer_weights *layers; /* (layer_count) */
    struct matrix *embedding;     /* (vocab_rows, width) */
    struct matrix *head;        /* (vocab_rows, width); the embedding itself when tied; NULL for an
                                   encoder */
    float *output_norm;         /* (width); NULL for an encoder */
    float *positions;           /* encoder: (context_max, width), with the first token type added;
                                   rotary encoder: (width), that type alone */
    float *embedding_norm;      /* (width) */
    float *embedding_norm_bias; /* (width) */
    size_t bytes;               /* bytes of all matrices and vectors */
    uint64_t parameters;        /* elements of all tensors in the file */
    enum tensor_type type;      /* the type of most of them */
    struct tiled_cache *cache;  /* owner of mapped matrices; NULL: no cache */
};

/* Checks that the file has exactly the tensors of the architecture, with the config's shapes and
 * with types that kernels/ knows. Reads no weights. ERR_INVALID names the tensor. */
enum err weights_check(const struct checkpoint *checkpoint, const struct model_config *config,
                       struct error *error) MUST_CHECK;
/* Checks the tensors, then lays the matrices out in tiles, or takes the tiles from the cache (NULL:
 * no cache). ERR_INVALID as weights_check, or for a norm or bias that is no finite number;
 * ERR_LIMIT without memory. */
enum err weights_open(struct weights **ret_weights, const struct checkpoint *checkpoint,
                      const struct model_config *config, const struct kernels *kernels,
                      struct pool *pool, const struct tiled_cache_options *cache,
                      struct error *error) MUST_CHECK;
void weights_close(struct weights *weights); /* NULL is allowed */
