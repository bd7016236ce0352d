/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tensors: which tensors a model has, what GGUF calls them and what shape each must have.
 *
 * One table says it all; checking and loading walk it. It reads no weights.
 *
 * Thread: any.  Memory: none.
 * Invariant: after tensors_check, every tensor of the file is one of the table, with the shape the
 * config says and a type kernels/ can read. */

#include "checkpoint/config.h"

enum tensor_role {
    ROLE_EMBEDDING,
    ROLE_OUTPUT_NORM,
    ROLE_HEAD,
    ROLE_ROPE_FACTORS,
    ROLE_ROPE_FACTORS_SHORT,
    ROLE_ROPE_FACTORS_LONG,
    ROLE_POSITIONS,
    ROLE_TOKEN_TYPES,
    ROLE_EMBEDDING_NORM,
    ROLE_EMBEDDING_NORM_BIAS,
    /* From here on one for each layer. */
    ROLE_ATTENTION_NORM,
    ROLE_Q,
    ROLE_K,
    ROLE_V,
    ROLE_QKV,
    ROLE_Q_BIAS,
    ROLE_K_BIAS,
    ROLE_V_BIAS,
    ROLE_Q_NORM,
    ROLE_K_NORM,
    ROLE_OUTPUT_PROJECTION,
    ROLE_POST_ATTENTION_NORM,
    ROLE_FFN_NORM,
    ROLE_GATE,
    ROLE_UP,
    ROLE_DOWN,
    ROLE_POST_FFN_NORM,
    /* An encoder's: after each half layer. */
    ROLE_OUTPUT_BIAS,
    ROLE_ATTENTION_OUTPUT_NORM,
    ROLE_ATTENTION_OUTPUT_NORM_BIAS,
    ROLE_UP_BIAS,
    ROLE_DOWN_BIAS,
    ROLE_LAYER_OUTPUT_NORM,
    ROLE_LAYER_OUTPUT_NORM_BIAS,
    ROLE_COUNT,
};

struct tensor_name {
    char text[96];
};

/* "blk.3.attn_q.weight"; `layer` is ignored for what there is only one of. */
struct tensor_name tensor_name_of(enum tensor_role role, uint32_t layer);

/* The axes a model of this config must have; axes[0] runs fastest, those not used are 1. False when
 * it needs no such tensor: optional ones, but for the head, are not needed. */
bool tensor_shape(const struct model_config *config, enum tensor_role role,
                  uint64_t ret_axes[GGUF_AXES_MAX], uint32_t *ret_axis_count);

struct checkpoint;

/* ERR_INVALID, naming the tensor, when one is missing, ill-shaped, of a type that cannot be used or
 * not part of the architecture. */
enum err tensors_check(const struct checkpoint *checkpoint, const struct model_config *config,
                       struct error *error) MUST_CHECK;
