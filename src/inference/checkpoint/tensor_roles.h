/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tensor_roles: the table that tensors.c walks: each tensor's name, extents, and which layers have
 * it.
 *
 * Thread: any; constant.
 * Memory: none. */

#include "checkpoint/tensors.h"

/* Which layers, or models, have a tensor. */
enum need {
    NEED_ALWAYS,
    NEED_DECODER,
    NEED_PRE_NORM,
    NEED_FFN_NORM,
    NEED_NORM_BIAS,
    NEED_FFN_NORM_BIAS,
    NEED_ENCODER,
    NEED_ENCODER_BIAS,
    NEED_OUTPUT_BIAS,
    NEED_SINKS,
    NEED_EXPERT_BIAS,
    NEED_POSITIONS,
    NEED_KEYS,
    NEED_VALUES,
    NEED_K_NORM,
    NEED_INPUTS,
    NEED_LAYER_SCALE,
    NEED_BOTH,  /* a layer with experts beside the others */
    NEED_GATED, /* a layer without experts */
    NEED_GATE,
    NEED_EXPERTS,
    NEED_ATTENTION,
    NEED_DELTA,
    NEED_DELTA_APART, /* rates that are no tensor of both */
    NEED_DELTA_RATES,
    NEED_STATE,
    NEED_STATE_NORM,
    NEED_MAMBA,
    NEED_CONV_BIAS,
    NEED_SHARED_SCALE,
    NEED_CONV,
    NEED_CHOICE_BIAS,
    NEED_LATENT,
    NEED_LATENT_Q,  /* q in one product */
    NEED_LATENT_QA, /* in two */
    NEED_LATENT_KV, /* keys and values of a head in one tensor */
    NEED_SHARED_EXPERT,
    NEED_SHARED_GATE,
    NEED_QKV_BIAS,
    NEED_QK_NORM,
    NEED_POST_NORM,
    NEED_LABELS,
    NEED_LABEL_DENSE,
    NEED_LABEL_BIAS, /* the dense layer's */
    NEED_LABEL_NORM,
    NEED_EMBEDDING_NORM,
    NEED_TYPES,
    NEED_DISTANCES,
    NEED_DENSE_FIRST,
    NEED_DENSE_SECOND,
    /* From here on it may be absent. */
    NEED_OPTIONAL,
    NEED_LABELS_BIAS,
    NEED_FUSED_QKV,
    NEED_FUSED_DELTA,
    NEED_LONG_ROPE,
    NEED_FUSED_EXPERTS,
    NEED_GATED_EXPERTS, /* likewise, where experts have gates */
    NEED_FUSED_GATE_UP,
    NEED_FUSED_SHARED,
    NEED_FUSED_BIAS,
    NEED_BIAS_OF_EXPERTS,
    NEED_XIELU,        /* tensors in a folder only */
    NEED_LATENT_APART, /* instead, each in its own, that of keys turned */
};

/* Extents a shape is made of. */
enum extent {
    EXTENT_NONE,
    EXTENT_WIDTH,
    EXTENT_FFN,
    EXTENT_UP,
    EXTENT_CONTEXT,
    EXTENT_TYPES,
    EXTENT_VOCAB,
    EXTENT_Q,
    EXTENT_KV,
    EXTENT_QKV,
    EXTENT_HEAD,
    EXTENT_Q_NORM,
    EXTENT_K_NORM,
    EXTENT_ONE,
    EXTENT_INPUT,
    EXTENT_INPUTS,
    EXTENT_HEADS,
    EXTENT_DISTANCES,
    EXTENT_PAIRS,
    EXTENT_EXPERTS,
    EXTENT_EXPERT_FFN,
    EXTENT_EXPERT_UP,
    EXTENT_Q_GATED,
    EXTENT_SHARED,
    EXTENT_CHANNELS,
    EXTENT_TAPS,
    EXTENT_STATE_ROWS,
    EXTENT_STATE_WIDTH,
    EXTENT_STATE_HEADS,
    EXTENT_STATE_RATES,
    EXTENT_LABELS,
    EXTENT_DENSE_FIRST,
    EXTENT_DENSE_SECOND,
    EXTENT_STATE_NORM,
    EXTENT_MAMBA_IN,
    EXTENT_GATE_UP,
    EXTENT_SHARED_GATE_UP,
    EXTENT_RANK,
    EXTENT_Q_RANK,
    EXTENT_LINE, /* what the cache has for a token */
    EXTENT_STILL,
    EXTENT_VALUE,
    EXTENT_LATENT_Q,
    EXTENT_LATENT_KV,
    EXTENT_LATENT_V,
};

struct tensor_row {
    const char *name; /* without "blk.N." */
    enum need need;
    enum extent cols; /* axes[0] */
    enum extent rows; /* axes[1]; EXTENT_NONE for a vector */
};

extern const struct tensor_row tensor_rows[ROLE_COUNT];
extern const struct tensor_row tensor_expert_rows[EXPERT_PARTS];

/* The number that an extent stands for in a layer; outside the layers any layer serves. */
uint64_t tensor_extent(const struct model_config *config, uint32_t layer, enum extent extent);
/* Whether this layer can have such a tensor at all; likewise. */
bool tensor_is_known(const struct model_config *config, uint32_t layer, enum need need);
