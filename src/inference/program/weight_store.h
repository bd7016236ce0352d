/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* weight_store: the receiver of a model's matrices as they are loaded.
 *
 * The loader (weights/weights.h) knows tensors and their names; a store knows how an executor keeps
 * a matrix: tiled for a CPU (cpu/tile_store.h), or rows that a device converts. The loader opens
 * all matrices before it fills the first, so that an executor can refuse a model that is too large
 * before its weights are read.
 *
 * Thread: the thread that loads.
 * Memory: the loader closes the matrices with matrix_close, after the store, which may still be
 *     reading them. Names and parts are borrowed for the call. */

#include "kernels/kernels.h"

/* A matrix to be stored. */
struct weight_matrix {
    const char *name;                /* name of its first tensor: a key for caches and messages */
    const struct matrix_part *parts; /* (part_count) one after another, as q | k | v */
    uint32_t part_count;
    uint32_t cols;
    uint32_t expert;  /* its number among `experts` of one shape, which are opened in their order */
    uint32_t experts; /* 0: it is of no expert */
    uint32_t head;    /* likewise among the matrices that a latent layer has for its heads */
    uint32_t heads;
    bool is_mapped; /* the blocks that fill gets lie in the model's file, mapped, and stay until the
                           checkpoint is closed */
    bool is_exact;  /* its products choose experts, or how fast a state forgets: small, and worth
                           all bits */
    bool is_head;   /* its products are the logits; false for an embedding that is both */
    bool is_looked_up;      /* an embedding: its rows are read one by one */
    bool is_only_looked_up; /* the embedding of a decoder with a head of its own */
    bool is_multiplied; /* a product reads it: true but for an embedding that no head is tied to */
};

struct weight_store_ops {
    /* Makes the matrix without reading rows: blocks of the parts are NULL. *ret_is_filled is true
     * when the store has its rows already, from a cache. ERR_LIMIT without memory. */
    enum err (*open)(void *self, const struct weight_matrix *from, struct matrix **ret_matrix,
                     bool *ret_is_filled, struct error *error);
    /* Takes the rows: `from` as in open, with the blocks. Called for each matrix without rows. */
    enum err (*fill)(void *self, struct matrix *matrix, const struct weight_matrix *from,
                     struct error *error);
    /* All matrices have their rows. NULL: the store need not know. */
    enum err (*finish)(void *self, struct error *error);
};

struct weight_store {
    const struct weight_store_ops *ops;
    void *self;
};
