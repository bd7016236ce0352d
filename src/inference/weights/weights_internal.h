/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* weights_internal: the state of loading one model, for the files of this folder.
 *
 * Thread: the thread that loads.
 * Memory: the loader lives from weights_open to the end of weights_fill. */

#include "checkpoint/tensors.h"
#include "weights/weights.h"

#define MATRIX_PARTS_MAX 4

/* An open matrix, and the tensors that its rows come from. */
struct weights_source {
    struct matrix *matrix;
    bool is_filled;
    struct tensor_name name;
    const struct checkpoint_tensor *tensors[MATRIX_PARTS_MAX]; /* (tensor_count) */
    uint32_t tensor_count; /* as many as parts, or one that has the rows of all parts */
    struct matrix_part parts[MATRIX_PARTS_MAX]; /* (part_count) */
    uint32_t part_count;
    uint32_t slice;       /* which of the tensors' matrices, for those of three axes */
    uint32_t experts;     /* experts of the layer, `slice` one of them; 0: none */
    uint32_t head, heads; /* number of its head, and how many there are; 0: it is of none */
    uint32_t first_row;   /* where in the tensor the part begins */
    bool is_of_head;      /* a part of a tensor of all heads */
    bool is_turned; /* the part has a row for each column of the tensor, and its rows as cols */
    uint32_t turned_cols;
    bool is_exact;
    bool is_head;
    bool is_looked_up;
    bool is_only_looked_up;
    bool is_multiplied;
};

struct weights_loader {
    struct weights_options options;
    uint32_t *row_order;    /* (heads · head_dim) for q, its start for k; NULL: the file's */
    uint32_t *halves_order; /* (2 expert_ffn) for gate | up that alternate; NULL: the file's */
    uint32_t
        *gated_order; /* (2 heads · head_dim) the rows of q, then those of its gate; NULL: it has
                              none */
    uint32_t *mamba_order; /* the numbers from 0 on: parts of a Mamba's first product begin there */
    uint32_t *delta_order; /* (channels | gate) for those that a file has key head by key head */
    uint32_t *rates_order; /* (2 value_heads) likewise */
    /* The rows of q, and of a line of the cache, of latent layers, as row_order. */
    uint32_t *latent_q_order, *latent_entry_order;
    /* The tensor that several heads' matrices come from, while they are filled. */
    const struct checkpoint_tensor *open_tensor;
    struct checkpoint_bytes open_bytes;
    struct weights *weights;
    struct weights_source *sources; /* (source_count) in the order of opening */
    size_t source_count, source_capacity;
    struct error *error; /* the caller's, during a call */
};

/* ---- sources.c ---- */

/* A tensor that tensors_check has found, or NULL. */
const struct checkpoint_tensor *weights_find(const struct weights_loader *loader, uint32_t layer,
                                             enum tensor_role role);

/* Opens one more matrix, by a source of which all but the matrix is set. */
enum err weights_open_source(struct weights_loader *loader, struct weights_source *source,
                             struct matrix **ret_matrix) MUST_CHECK;
/* All of a tensor as a part of a matrix; its bytes are yet to be read. */
struct matrix_part weights_part_of(const struct checkpoint_tensor *tensor);
/* What a store gets of a source. */
struct weight_matrix weights_matrix_of(const struct weights_source *source);

/* ---- vectors.c ---- */

/* Reads one vector, or several joined, into new memory. NULL when the architecture has none. */
enum err weights_read_vector(struct weights_loader *loader, uint32_t layer,
                             const enum tensor_role *roles, size_t role_count,
                             float **ret_vector) MUST_CHECK;
/* weights_read_vector for a norm, which some files store less one. */
enum err weights_read_norm(struct weights_loader *loader, uint32_t layer, enum tensor_role role,
                           float **ret_norm) MUST_CHECK;
/* Reads the four numbers of a layer's activation, if it has some. */
enum err weights_read_xielu(struct weights_loader *loader, uint32_t layer,
                            float **ret_xielu) MUST_CHECK;
/* Reads the biases of router and experts, if the architecture has them. */
enum err weights_read_expert_biases(struct weights_loader *loader, uint32_t layer,
                                    struct experts *ret_experts) MUST_CHECK;
/* Reads the weights of a convolution, transposed: (taps, channels). */
enum err weights_read_conv(struct weights_loader *loader, uint32_t layer, enum tensor_role role,
                           float **ret_conv) MUST_CHECK;
/* Reads the logarithms of a state's rates of decay. ERR_INVALID for a rate that is none. */
enum err weights_read_decay(struct weights_loader *loader, uint32_t layer,
                            float **ret_decay) MUST_CHECK;
/* Reads the vectors at which the positions of an encoder begin, and those of token types. */
enum err weights_read_positions(struct weights_loader *loader) MUST_CHECK;
/* The bias of scores by distance, as a row for each head; nothing in a model without one. */
enum err weights_read_distances(struct weights_loader *loader) MUST_CHECK;
/* Reads the products behind the pooling, if the model has some. */
enum err weights_read_dense(struct weights_loader *loader) MUST_CHECK;
/* Reads the head for labels, if the model has one. */
enum err weights_read_labels(struct weights_loader *loader) MUST_CHECK;

/* ---- row_orders.c ---- */

/* Sets row_order and halves_order, if the file has such rows. */
enum err weights_make_row_order(struct weights_loader *loader) MUST_CHECK;
/* Sets gated_order, once. */
enum err weights_make_gated_order(struct weights_loader *loader) MUST_CHECK;
/* Sets delta_order and rates_order, once. */
enum err weights_make_delta_orders(struct weights_loader *loader) MUST_CHECK;

/* ---- matrices.c ---- */

/* Opens the matrix of the tensors of these roles, one after another. */
enum err weights_open_matrix(struct weights_loader *loader, uint32_t layer,
                             const enum tensor_role *roles, uint32_t role_count,
                             struct matrix **ret_matrix) MUST_CHECK;
/* Opens the matrix of one tensor that has the rows of q, then k, then v. */
enum err weights_open_fused_qkv(struct weights_loader *loader, uint32_t layer,
                                struct matrix **ret_matrix) MUST_CHECK;
/* Opens the matrix of q, k, v and the gate of what attention leaves, whose rows stand behind those
 * of q, head by head. */
enum err weights_open_gated_qkv(struct weights_loader *loader, uint32_t layer,
                                struct matrix **ret_matrix) MUST_CHECK;
/* Opens matrices and reads vectors of a recurrent layer. */
enum err weights_open_recurrent(struct weights_loader *loader, uint32_t layer,
                                struct recurrent *ret_recurrent) MUST_CHECK;
/* Opens router and experts of a layer that has them; weights_close closes what is open. */
enum err weights_open_experts(struct weights_loader *loader, uint32_t layer,
                              struct experts *ret_experts) MUST_CHECK;
/* Reads the rows of all matrices that have none. */
enum err weights_fill_matrices(struct weights_loader *loader) MUST_CHECK;

/* ---- latent.c ---- */

/* Opens matrices and reads vectors of a latent layer. */
enum err weights_open_latent(struct weights_loader *loader, uint32_t layer,
                             struct latent *ret_latent) MUST_CHECK;
/* Fills a matrix that is a part of a tensor for all heads. */
enum err weights_fill_head(struct weights_loader *loader, struct weights_source *source) MUST_CHECK;
/* Frees what the last head's tensor was unpacked to. */
void weights_end_heads(struct weights_loader *loader);
