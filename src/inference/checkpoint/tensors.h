/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tensors: the tensors of a model, with GGUF's names and the shape that each must have.
 *
 * All of them are rows of one table, which checking and loading walk. It reads no weights.
 *
 * Thread: any.
 * Memory: none.
 * Invariant: after tensors_check, every tensor of the file is in the table, and has the config's
 *     shape and a type that kernels/ can read. */

#include "checkpoint/config.h"

enum tensor_role {
    ROLE_EMBEDDING,
    ROLE_OUTPUT_NORM,
    ROLE_OUTPUT_NORM_BIAS,
    ROLE_HEAD,
    ROLE_ROPE_FACTORS,
    ROLE_ROPE_FACTORS_SHORT,
    ROLE_ROPE_FACTORS_LONG,
    ROLE_INPUT_TABLE, /* all layers' parts */
    ROLE_INPUT_PROJECTION,
    ROLE_INPUT_NORM,
    ROLE_POSITIONS,
    ROLE_TOKEN_TYPES,
    ROLE_EMBEDDING_NORM,
    ROLE_EMBEDDING_NORM_BIAS,
    ROLE_DISTANCE_BIAS,
    ROLE_LABEL_DENSE,
    ROLE_LABEL_DENSE_BIAS,
    ROLE_LABEL_NORM,
    ROLE_LABELS,
    ROLE_LABELS_BIAS,
    ROLE_DENSE_FIRST, /* behind the pooling */
    ROLE_DENSE_SECOND,
    /* from here on one per layer */
    ROLE_ATTENTION_NORM,
    ROLE_Q,
    ROLE_K,
    ROLE_V,
    ROLE_QKV,
    ROLE_Q_BIAS,
    ROLE_K_BIAS,
    ROLE_V_BIAS,
    ROLE_QKV_BIAS,
    ROLE_SINKS,
    ROLE_Q_NORM,
    ROLE_K_NORM,
    ROLE_OUTPUT_PROJECTION,
    ROLE_POST_ATTENTION_NORM,
    ROLE_FFN_NORM,
    ROLE_ATTENTION_NORM_BIAS,
    ROLE_FFN_NORM_BIAS,
    /* the numbers of an activation */
    ROLE_XIELU_ALPHA_P,
    ROLE_XIELU_ALPHA_N,
    ROLE_XIELU_BETA,
    ROLE_XIELU_EPS,
    ROLE_GATE,
    ROLE_UP,
    ROLE_GATE_UP, /* both in one */
    ROLE_DOWN,
    ROLE_POST_FFN_NORM,
    ROLE_FFN_NORM_2, /* before the experts beside a feed-forward */
    ROLE_POST_FFN_NORM_1,
    ROLE_POST_FFN_NORM_2,
    ROLE_ROUTER_NORM,
    ROLE_EXPERT_SCALES,
    ROLE_INPUT_GATE, /* for the layer's own part of a token */
    ROLE_INPUT_OUT,
    ROLE_POST_INPUT_NORM,
    ROLE_LAYER_SCALE,
    ROLE_ROUTER,
    ROLE_ROUTER_BIAS,
    ROLE_CHOICE_BIAS,
    /* the rows of all experts in one tensor of three axes */
    ROLE_GATE_EXPERTS,
    ROLE_UP_EXPERTS,
    ROLE_GATE_UP_EXPERTS, /* for each expert gate, then up */
    ROLE_DOWN_EXPERTS,
    /* one line for each expert */
    ROLE_GATE_EXPERTS_BIAS,
    ROLE_UP_EXPERTS_BIAS,
    ROLE_GATE_UP_EXPERTS_BIAS,
    ROLE_DOWN_EXPERTS_BIAS,
    ROLE_SHARED_GATE,
    ROLE_SHARED_UP,
    ROLE_SHARED_GATE_UP, /* both in one */
    ROLE_SHARED_DOWN,
    ROLE_SHARED_SCALE, /* one row: how much of the shared expert a row gets */
    /* a recurrent layer's */
    ROLE_STATE_IN,   /* q, k and v */
    ROLE_STATE_GATE, /* factor of what the state leaves */
    ROLE_STATE_ALL,  /* the four, key head by key head */
    ROLE_STATE_ALPHA,
    ROLE_STATE_BETA,
    ROLE_STATE_RATES, /* beta, then alpha, of each key head */
    ROLE_STATE_CONV,
    ROLE_STATE_DECAY,
    ROLE_STATE_STEP_BIAS,
    ROLE_STATE_NORM,
    ROLE_STATE_OUTPUT,
    ROLE_CONV_BIAS,
    ROLE_STATE_SKIP, /* factor of x in what the state leaves */
    ROLE_MAMBA_IN,   /* gate, channels, steps */
    ROLE_CONV_IN,    /* two gates around the channels */
    ROLE_CONV,
    ROLE_CONV_OUTPUT,
    /* a latent layer's */
    ROLE_LATENT_Q,
    ROLE_LATENT_Q_A,
    ROLE_LATENT_Q_NORM,
    ROLE_LATENT_Q_B,
    ROLE_LATENT_KV_A,
    ROLE_LATENT_NORM,
    ROLE_LATENT_KV_B, /* for each head the rows of its keys, then those of its values */
    ROLE_LATENT_K_B,  /* three axes: a matrix for each head, that of keys turned */
    ROLE_LATENT_V_B,
    ROLE_LATENT_OUTPUT,
    ROLE_OUTPUT_BIAS,
    /* an encoder's, after each half layer */
    ROLE_ATTENTION_OUTPUT_NORM,
    ROLE_ATTENTION_OUTPUT_NORM_BIAS,
    ROLE_UP_BIAS,
    ROLE_DOWN_BIAS,
    ROLE_LAYER_OUTPUT_NORM,
    ROLE_LAYER_OUTPUT_NORM_BIAS,
    ROLE_COUNT,
};

/* The tensors of an expert that is stored alone. */
enum expert_part { EXPERT_GATE, EXPERT_UP, EXPERT_DOWN, EXPERT_PARTS };

struct tensor_name {
    char text[96];
};

/* GGUF's name, such as "blk.3.attn_q.weight"; `layer` is ignored outside the layers. */
struct tensor_name tensor_name_of(enum tensor_role role, uint32_t layer);
/* GGUF's name of a tensor of one expert, such as "blk.3.ffn_gate.17.weight". */
struct tensor_name tensor_name_of_expert(enum expert_part part, uint32_t layer, uint32_t expert);

/* True for a tensor of the encoder of pictures ("v.…") or sounds ("a.…"), of its projector ("mm.…"),
 * or of draft layers ("mtp.…"), which Ollama's files have next to those of the text model. */
bool tensor_is_of_other_part(struct str name);

/* The axes that layer `layer` of a model of this config must have; axes[0] runs fastest, unused
 * axes are 1. False when it needs no such tensor: of the optional ones only the head counts as
 * needed, and of the biases of experts those of gate and up apart. */
bool tensor_shape(const struct model_config *config, enum tensor_role role, uint32_t layer,
                  uint64_t ret_axes[GGUF_AXES_MAX], uint32_t *ret_axis_count);
/* The axes of a tensor of one expert. */
void tensor_shape_of_expert(const struct model_config *config, enum expert_part part,
                            uint64_t ret_axes[GGUF_AXES_MAX]);

struct checkpoint;

/* ERR_INVALID, naming the tensor, when one is missing, has a wrong shape or an unusable type, or is
 * no part of the architecture. */
enum err tensors_check(const struct checkpoint *checkpoint, const struct model_config *config,
                       struct error *error) MUST_CHECK;
