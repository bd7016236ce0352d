/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* op: one operation of a forward pass over the rows of a step.
 *
 * An executor runs a list of operations in order (program/program.h). It knows no architecture: the
 * maker of the list read the config's flags. Between two operations a row's state is a few buffers,
 * which each executor keeps in its own types and its own memory:
 *
 *     x         (width)            the residual stream
 *     h         (width)            what NORM leaves, or the product of a half layer before its sum
 *     wide      (q | k | v)        or q | k | v | gate; or the channels | gate of a recurrent
 *                                  layer; or gate | up, of which GATE leaves the first half; or
 *                                  the logits of a router; or q | entry of a latent layer, and the
 *                                  values of its heads
 *     queries   (heads entries)    q of a latent layer
 *     narrow    (few)              the rates of a recurrent layer, or the factor of a shared
 *                                  expert, before its sigmoid
 *     experts   (used)             the row's experts, and the weights of their sum (ROUTE)
 *     attended  (heads · head_dim) what ATTENTION or DELTA leaves
 *     prepared  (next's form)      the last result, in the form that the matrix `next` reads
 *
 * Thread: any; constant.
 * Memory: matrices and vectors are the weights', which outlive the list. */

#include "kernels/kernels.h"
#include "kernels/op_kind.h"
#include "program/layer_weights.h"

#include <stdbool.h>
#include <stdint.h>

/* The heads of a layer. */
struct head_sizes {
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t q_width;  /* heads · head_dim */
    uint32_t kv_width; /* kv_heads · head_dim */
    uint32_t stride;   /* a row of wide: q | k | v, or q alone */
};

/* A field that the kind does not name is zero. */
struct op {
    enum op_kind kind;
    uint16_t layer;                    /* from 0; the number of layers behind the last one */
    bool ends_slice;                   /* an urgent step may pass behind this operation */
    const struct matrix *matrix;       /* EMBED, MATMUL, LOGITS */
    const struct experts *experts;     /* ROUTE, EXPERTS */
    const struct recurrent *recurrent; /* CONV, DELTA, MAMBA, GATED_NORM */
    const struct latent *latent;       /* LATENT_LINE, LATENT_Q, LATENT_OUT */
    const struct matrix
        *next; /* NORM, ATTENTION, GATE, ROUTE, PREPARE, GATED_NORM, LATENT_LINE, LATENT_OUT:
                                  reader of the
                                  result, whose form it gets; NULL: the result stays as numbers
                                  (NORM without a head) */
    uint32_t state_at; /* CONV, DELTA, MAMBA: where the layer's part of a state begins, in floats */
    uint32_t width;    /* GATE: width of a half; KEEP: of a row of wide */
    uint32_t attended; /* KEEP: width of a row of attended; 0: ATTENTION is yet to come. PREPARE:
                          the same, which is prepared instead of h; 0: h is */
    /* CONV: wide is before | after | channels, the result goes to attended; GATED_NORM: the gate
     * comes before the norm; ATTENTION: times the sigmoid of the gate in
     * wide; GATE: times that of narrow. */
    bool is_gated;
    enum op_add add;     /* NORM */
    const float *weight; /* NORM: (width), or NULL: h = x; ASIDE, JOIN: (width); INPUTS: (a part);
                            EMBED: (width) of a LayerNorm, or NULL */
    const float
        *positions; /* EMBED: (position_rows, width) rows that are added by place, or NULL */
    uint32_t position_rows;
    const float *x_scale;    /* NORM: (1) factor of x after the sum, or NULL */
    const float *post;       /* NORM with ADD_NORMED_H: (width) */
    enum op_to to;           /* MATMUL, EXPERTS: not TO_WIDE */
    const float *bias;       /* MATMUL: (matrix->rows) or NULL; NORM: (width) or NULL */
    bool is_layer_norm;      /* NORM: LayerNorm instead of RMSNorm */
    bool replaces;           /* NORM: x = h as well, as behind the halves of an encoder */
    bool turns_first;        /* HEADS: the norms come behind the rotation */
    const float *xielu;      /* GATE: (4) numbers of GATE_XIELU */
    const float *sinks;      /* ATTENTION: (heads) or NULL */
    const float *q_norm;     /* HEADS: (head_dim) or NULL */
    const float *k_norm;     /* HEADS: (head_dim) or NULL */
    struct head_sizes heads; /* HEADS, ATTENTION, KEEP */
    bool norms_v;            /* HEADS: RMSNorm of each head of v, without weights */
    bool is_query_only;      /* HEADS: keys and values are another layer's */
    bool gates_inputs;       /* GATE: the second half is the layer's part of inputs */
    bool norms_all; /* HEADS: the norms are of all heads at once: (heads · head_dim) of q */
    float temper; /* HEADS: q · (1 + temper · log(1 + position / temper_tokens)); 0: no factor */
    uint32_t temper_tokens;
    uint8_t rope;      /* HEADS: table of frequencies, 0 global, 1 local */
    uint16_t kv_group; /* HEADS, ATTENTION, LATENT, LATENT_LINE: group of the layer, whose pages it
                          has */
    uint16_t kv_place; /* likewise: place of the layer in its group */
    uint32_t window;   /* ATTENTION: keys that a row sees, its own too; 0: all */
    enum op_gate gate; /* GATE, EXPERTS */
    float factor;      /* ATTENTION, GATE, GATED_NORM: factor of the result; ADD; 0: 1 */
    float gate_factor; /* GATE, GATED_NORM: factor of the gate, before its activation; MAMBA: of
                          the steps; 0: 1 */
    float scale;       /* EMBED, INPUTS: factor of the row; ATTENTION: factor of q · k */
    float softcap;     /* ATTENTION: cap of scores; LOGITS: cap of logits; 0: none */
};
