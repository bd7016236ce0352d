/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* program: the forward pass of a decoder as a list of operations (program/op.h).
 *
 * program_of walks the layers of a config (checkpoint/config.h), each by the kinds of its halves. A
 * layer of a llama is NORM MATMUL HEADS ATTENTION MATMUL NORM MATMUL GATE MATMUL; other families
 * differ in the fields. The list is in the order of execution: EMBED, the layers, KEEP between
 * HEADS and ATTENTION of the last one (or behind its DELTA), NORM, LOGITS. It knows no processor
 * and no thread.
 *
 * Thread: any; constant after program_of.
 * Memory: owns the list and the frequencies. Config, layout and weights must outlive it.
 * Invariant: HEADS of a layer stands before its ATTENTION, and an executor runs each operation for
 *     all rows before the next one: this is the promise of scheduler/backend.h. */

#include "program/kv_layout.h"
#include "program/layer_weights.h"
#include "program/op.h"
#include "program/state_layout.h"

/* The numbers that hold for all operations. */
struct program_shape {
    uint32_t layers;
    uint32_t width; /* width of x and h */
    uint32_t ffn;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t q_width;   /* heads · head_dim; the widest of all layers, as the next two */
    uint32_t kv_width;  /* kv_heads · head_dim */
    uint32_t qkv_width; /* width of wide before ATTENTION: q | k | v, and perhaps gate */
    struct recurrent_sizes recurrent;
    struct latent_sizes latent; /* then q_width is that of what attention leaves */
    uint32_t channels;          /* width in wide before CONV, where the gate follows */
    uint32_t state_width;       /* width of what DELTA leaves */
    uint32_t vocab_rows;        /* logits per row */
    uint32_t input_width;       /* a layer's part of inputs; 0: none */
    uint32_t rope_count;        /* tables of frequencies: 1 or 2 */
    float rope_magnitude;       /* factor of cosines and sines; 0 means 1 */
    float eps;                  /* epsilon of the norms of x and of heads */
    float inner_eps;            /* epsilon of the norm behind a state */
    uint32_t rope_width[2];     /* leading elements of a head that are rotated, per table */
    bool is_causal;             /* false: a row sees all rows of its sequence, also later ones */
};

struct program_weights {
    const struct layer_weights *layers;    /* (config->layers) */
    const struct matrix *embedding;        /* (vocab_rows, width) */
    const struct matrix *input_table;      /* (vocab_rows, layers · input_width) or NULL */
    const struct matrix *input_projection; /* (layers · input_width, width) or NULL */
    const float *input_norm;               /* (input_width) or NULL */
    const float *embedding_norm;           /* (width) LayerNorm behind the embedding, or NULL */
    const float *embedding_norm_bias;      /* (width) or NULL; of an encoder, as the next two */
    const float *positions;                /* (position_rows, width) rows that are added by place */
    uint32_t position_rows;
    const struct matrix *head;     /* (vocab_rows, width); NULL: the pass ends in hidden
                                           states */
    const float *output_norm;      /* (width) */
    const float *output_norm_bias; /* (width) or NULL */
};

struct program_options {
    const struct model_config *config; /* config of a decoder */
    const struct kv_layout *layout;
    struct program_weights weights;
    bool is_bidirectional;
    /* True: a product adds into x by itself where no norm stands between (the CPU). False: it goes
     * to h, and the next NORM adds it (a device, whose x is wider than its products). */
    bool matmul_adds;
    /* The pass ends in the sums of the rows of whole texts (OP_POOL), and no weights->head. Without
     * matmul_adds alone; an encoder has no other pass. */
    bool pools;
};

struct program {
    struct program_shape shape;
    struct state_layout states;
    /* [0, rope_count): (rope_width / 2) radians per position, by which pair i of a head turns */
    float *frequencies[2];
    struct op *ops; /* (op_count) */
    uint32_t op_count;
};

void program_of(struct program *ret_program, const struct program_options *options);
/* The same of an encoder (program/encoder_program.c): EMBED, NORM, then layers of MATMUL HEADS
 * ATTENTION MATMUL NORM MATMUL GATE MATMUL NORM, whose norms replace x. */
void program_of_encoder(struct program *ret_program, const struct program_options *options);
void program_release(struct program *program); /* one that is all zero is allowed */
