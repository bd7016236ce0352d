/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/tensors.h"

#include "checkpoint/checkpoint.h"
#include "kernels/quant.h"

#include <stdio.h>

enum need {
    NEED_ALWAYS,
    NEED_DECODER,
    NEED_ENCODER,
    NEED_ENCODER_BIAS,
    NEED_OUTPUT_BIAS,
    NEED_SINKS,
    NEED_EXPERT_BIAS,
    NEED_POSITIONS,
    NEED_GATED, /* a layer without experts */
    NEED_GATE,
    NEED_EXPERTS,
    NEED_ATTENTION,
    NEED_DELTA,
    NEED_SHARED_EXPERT,
    NEED_QKV_BIAS,
    NEED_QK_NORM,
    NEED_POST_NORM,
    /* From here on it may be absent. */
    NEED_OPTIONAL,
    NEED_FUSED_QKV,
    NEED_LONG_ROPE,
    NEED_FUSED_EXPERTS,
    NEED_FUSED_BIAS,
    NEED_BIAS_OF_EXPERTS,
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
    EXTENT_HEADS,
    EXTENT_PAIRS,
    EXTENT_EXPERTS,
    EXTENT_EXPERT_FFN,
    EXTENT_EXPERT_UP,
    EXTENT_Q_GATED,
    EXTENT_SHARED,
    EXTENT_ONE,
    EXTENT_CHANNELS,
    EXTENT_TAPS,
    EXTENT_STATE_WIDTH,
    EXTENT_STATE_HEADS,
    EXTENT_VALUE_DIM,
};

static const struct row {
    const char *name; /* without "blk.N." */
    enum need need;
    enum extent cols; /* axes[0] */
    enum extent rows; /* axes[1]; EXTENT_NONE for a vector */
} table[ROLE_COUNT] = {
    [ROLE_EMBEDDING] = {"token_embd.weight", NEED_ALWAYS, EXTENT_WIDTH, EXTENT_VOCAB},
    [ROLE_OUTPUT_NORM] = {"output_norm.weight", NEED_DECODER, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_HEAD] = {"output.weight", NEED_OPTIONAL, EXTENT_WIDTH, EXTENT_VOCAB},
    [ROLE_ROPE_FACTORS] = {"rope_freqs.weight", NEED_OPTIONAL, EXTENT_PAIRS, EXTENT_NONE},
    [ROLE_ROPE_FACTORS_SHORT] = {"rope_factors_short.weight", NEED_LONG_ROPE, EXTENT_PAIRS,
                                 EXTENT_NONE},
    [ROLE_ROPE_FACTORS_LONG] = {"rope_factors_long.weight", NEED_LONG_ROPE, EXTENT_PAIRS,
                                EXTENT_NONE},
    [ROLE_POSITIONS] = {"position_embd.weight", NEED_POSITIONS, EXTENT_WIDTH, EXTENT_CONTEXT},
    [ROLE_TOKEN_TYPES] = {"token_types.weight", NEED_ENCODER, EXTENT_WIDTH, EXTENT_TYPES},
    [ROLE_EMBEDDING_NORM] = {"token_embd_norm.weight", NEED_ENCODER, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_EMBEDDING_NORM_BIAS] = {"token_embd_norm.bias", NEED_ENCODER, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_ATTENTION_NORM] = {"attn_norm.weight", NEED_DECODER, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_Q] = {"attn_q.weight", NEED_ATTENTION, EXTENT_WIDTH, EXTENT_Q_GATED},
    [ROLE_K] = {"attn_k.weight", NEED_ATTENTION, EXTENT_WIDTH, EXTENT_KV},
    [ROLE_V] = {"attn_v.weight", NEED_ATTENTION, EXTENT_WIDTH, EXTENT_KV},
    [ROLE_QKV] = {"attn_qkv.weight", NEED_FUSED_QKV, EXTENT_WIDTH, EXTENT_QKV},
    [ROLE_Q_BIAS] = {"attn_q.bias", NEED_QKV_BIAS, EXTENT_Q, EXTENT_NONE},
    [ROLE_K_BIAS] = {"attn_k.bias", NEED_QKV_BIAS, EXTENT_KV, EXTENT_NONE},
    [ROLE_V_BIAS] = {"attn_v.bias", NEED_QKV_BIAS, EXTENT_KV, EXTENT_NONE},
    [ROLE_QKV_BIAS] = {"attn_qkv.bias", NEED_FUSED_BIAS, EXTENT_QKV, EXTENT_NONE},
    [ROLE_SINKS] = {"attn_sinks.weight", NEED_SINKS, EXTENT_HEADS, EXTENT_NONE},
    [ROLE_Q_NORM] = {"attn_q_norm.weight", NEED_QK_NORM, EXTENT_HEAD, EXTENT_NONE},
    [ROLE_K_NORM] = {"attn_k_norm.weight", NEED_QK_NORM, EXTENT_HEAD, EXTENT_NONE},
    [ROLE_OUTPUT_PROJECTION] = {"attn_output.weight", NEED_ATTENTION, EXTENT_Q, EXTENT_WIDTH},
    [ROLE_POST_ATTENTION_NORM] = {"post_attention_norm.weight", NEED_POST_NORM, EXTENT_WIDTH,
                                  EXTENT_NONE},
    [ROLE_FFN_NORM] = {"ffn_norm.weight", NEED_DECODER, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_GATE] = {"ffn_gate.weight", NEED_GATE, EXTENT_WIDTH, EXTENT_FFN},
    [ROLE_UP] = {"ffn_up.weight", NEED_GATED, EXTENT_WIDTH, EXTENT_UP},
    [ROLE_DOWN] = {"ffn_down.weight", NEED_GATED, EXTENT_FFN, EXTENT_WIDTH},
    [ROLE_POST_FFN_NORM] = {"post_ffw_norm.weight", NEED_POST_NORM, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_ROUTER] = {"ffn_gate_inp.weight", NEED_EXPERTS, EXTENT_WIDTH, EXTENT_EXPERTS},
    [ROLE_ROUTER_BIAS] = {"ffn_gate_inp.bias", NEED_EXPERT_BIAS, EXTENT_EXPERTS, EXTENT_NONE},
    [ROLE_GATE_EXPERTS] = {"ffn_gate_exps.weight", NEED_FUSED_EXPERTS, EXTENT_WIDTH,
                           EXTENT_EXPERT_FFN},
    [ROLE_UP_EXPERTS] = {"ffn_up_exps.weight", NEED_FUSED_EXPERTS, EXTENT_WIDTH, EXTENT_EXPERT_FFN},
    [ROLE_GATE_UP_EXPERTS] = {"ffn_gate_up_exps.weight", NEED_FUSED_EXPERTS, EXTENT_WIDTH,
                              EXTENT_EXPERT_UP},
    [ROLE_DOWN_EXPERTS] = {"ffn_down_exps.weight", NEED_FUSED_EXPERTS, EXTENT_EXPERT_FFN,
                           EXTENT_WIDTH},
    [ROLE_GATE_EXPERTS_BIAS] = {"ffn_gate_exps.bias", NEED_BIAS_OF_EXPERTS, EXTENT_EXPERT_FFN,
                                EXTENT_EXPERTS},
    [ROLE_UP_EXPERTS_BIAS] = {"ffn_up_exps.bias", NEED_BIAS_OF_EXPERTS, EXTENT_EXPERT_FFN,
                              EXTENT_EXPERTS},
    [ROLE_GATE_UP_EXPERTS_BIAS] = {"ffn_gate_up_exps.bias", NEED_BIAS_OF_EXPERTS, EXTENT_EXPERT_UP,
                                   EXTENT_EXPERTS},
    [ROLE_DOWN_EXPERTS_BIAS] = {"ffn_down_exps.bias", NEED_EXPERT_BIAS, EXTENT_WIDTH,
                                EXTENT_EXPERTS},
    [ROLE_SHARED_GATE] = {"ffn_gate_shexp.weight", NEED_SHARED_EXPERT, EXTENT_WIDTH, EXTENT_SHARED},
    [ROLE_SHARED_UP] = {"ffn_up_shexp.weight", NEED_SHARED_EXPERT, EXTENT_WIDTH, EXTENT_SHARED},
    [ROLE_SHARED_DOWN] = {"ffn_down_shexp.weight", NEED_SHARED_EXPERT, EXTENT_SHARED, EXTENT_WIDTH},
    [ROLE_SHARED_SCALE] = {"ffn_gate_inp_shexp.weight", NEED_SHARED_EXPERT, EXTENT_WIDTH,
                           EXTENT_ONE},
    [ROLE_STATE_IN] = {"attn_qkv.weight", NEED_DELTA, EXTENT_WIDTH, EXTENT_CHANNELS},
    [ROLE_STATE_GATE] = {"attn_gate.weight", NEED_DELTA, EXTENT_WIDTH, EXTENT_STATE_WIDTH},
    [ROLE_STATE_ALPHA] = {"ssm_alpha.weight", NEED_DELTA, EXTENT_WIDTH, EXTENT_STATE_HEADS},
    [ROLE_STATE_BETA] = {"ssm_beta.weight", NEED_DELTA, EXTENT_WIDTH, EXTENT_STATE_HEADS},
    [ROLE_STATE_CONV] = {"ssm_conv1d.weight", NEED_DELTA, EXTENT_TAPS, EXTENT_CHANNELS},
    [ROLE_STATE_DECAY] = {"ssm_a", NEED_DELTA, EXTENT_STATE_HEADS, EXTENT_NONE},
    [ROLE_STATE_STEP_BIAS] = {"ssm_dt.bias", NEED_DELTA, EXTENT_STATE_HEADS, EXTENT_NONE},
    [ROLE_STATE_NORM] = {"ssm_norm.weight", NEED_DELTA, EXTENT_VALUE_DIM, EXTENT_NONE},
    [ROLE_STATE_OUTPUT] = {"ssm_out.weight", NEED_DELTA, EXTENT_STATE_WIDTH, EXTENT_WIDTH},
    [ROLE_OUTPUT_BIAS] = {"attn_output.bias", NEED_OUTPUT_BIAS, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_ATTENTION_OUTPUT_NORM] = {"attn_output_norm.weight", NEED_ENCODER, EXTENT_WIDTH,
                                    EXTENT_NONE},
    [ROLE_ATTENTION_OUTPUT_NORM_BIAS] = {"attn_output_norm.bias", NEED_ENCODER, EXTENT_WIDTH,
                                         EXTENT_NONE},
    [ROLE_UP_BIAS] = {"ffn_up.bias", NEED_ENCODER_BIAS, EXTENT_FFN, EXTENT_NONE},
    [ROLE_DOWN_BIAS] = {"ffn_down.bias", NEED_ENCODER_BIAS, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_LAYER_OUTPUT_NORM] = {"layer_output_norm.weight", NEED_ENCODER, EXTENT_WIDTH,
                                EXTENT_NONE},
    [ROLE_LAYER_OUTPUT_NORM_BIAS] = {"layer_output_norm.bias", NEED_ENCODER, EXTENT_WIDTH,
                                     EXTENT_NONE},
};

static const struct row expert_rows[EXPERT_PARTS] = {
    [EXPERT_GATE] = {"ffn_gate", NEED_EXPERTS, EXTENT_WIDTH, EXTENT_EXPERT_FFN},
    [EXPERT_UP] = {"ffn_up", NEED_EXPERTS, EXTENT_WIDTH, EXTENT_EXPERT_FFN},
    [EXPERT_DOWN] = {"ffn_down", NEED_EXPERTS, EXTENT_EXPERT_FFN, EXTENT_WIDTH},
};

static uint64_t extent_of(const struct model_config *config, enum extent extent) {
    switch (extent) {
    case EXTENT_NONE: return 1;
    case EXTENT_WIDTH: return config->width;
    case EXTENT_FFN: return config->ffn;
    case EXTENT_UP: return (config->architecture->has_fused_gate_up ? 2ull : 1ull) * config->ffn;
    case EXTENT_CONTEXT: return config->context_max;
    case EXTENT_TYPES: return config->token_types;
    case EXTENT_VOCAB: return config->vocab_rows;
    case EXTENT_Q: return (uint64_t)config->heads * config->head_dim;
    case EXTENT_KV: return (uint64_t)config->kv_heads * config->head_dim;
    case EXTENT_QKV: return (uint64_t)(config->heads + 2 * config->kv_heads) * config->head_dim;
    case EXTENT_HEAD: return config->head_dim;
    case EXTENT_HEADS: return config->heads;
    case EXTENT_PAIRS: return config->head_dim / 2;
    case EXTENT_EXPERTS: return config->experts;
    case EXTENT_EXPERT_FFN: return config->expert_ffn;
    case EXTENT_EXPERT_UP: return 2ull * config->expert_ffn;
    case EXTENT_Q_GATED:
        return (config->architecture->has_output_gate ? 2ull : 1ull) * config->heads *
               config->head_dim;
    case EXTENT_SHARED: return config->shared_ffn;
    case EXTENT_ONE: return 1;
    case EXTENT_CHANNELS: return config_state_channels(config);
    case EXTENT_TAPS: return config->recurrent.taps;
    case EXTENT_STATE_WIDTH: return config_state_width(config);
    case EXTENT_STATE_HEADS: return config->recurrent.value_heads;
    case EXTENT_VALUE_DIM: return config->recurrent.value_dim;
    }
    return 0;
}

/* Whether this layer can have the tensor at all; outside the layers any layer serves. */
static bool is_known(const struct model_config *config, uint32_t layer, enum need need) {
    const struct architecture *architecture = config->architecture;
    const bool is_gated = config->list[layer].ffn == FFN_GATED;
    const bool is_attention = !config_layer_is_recurrent(config, layer);
    switch (need) {
    case NEED_ALWAYS: return true;
    case NEED_DECODER:
    case NEED_OPTIONAL: return !architecture->is_encoder;
    case NEED_ENCODER: return architecture->is_encoder;
    case NEED_ENCODER_BIAS:
    case NEED_POSITIONS: return architecture->is_encoder && !architecture->is_rotary_encoder;
    case NEED_OUTPUT_BIAS:
        return architecture->has_output_bias || is_known(config, layer, NEED_ENCODER_BIAS);
    case NEED_SINKS: return architecture->has_sinks;
    case NEED_EXPERT_BIAS:
    case NEED_BIAS_OF_EXPERTS: return !is_gated && architecture->has_expert_bias;
    case NEED_FUSED_BIAS: return architecture->has_qkv_bias && !architecture->is_encoder;
    case NEED_FUSED_QKV:
        return is_attention && !architecture->has_output_gate &&
               (!architecture->is_encoder || architecture->is_rotary_encoder);
    case NEED_ATTENTION: return is_attention;
    case NEED_DELTA: return config->list[layer].mixer == MIXER_DELTA;
    case NEED_SHARED_EXPERT: return !is_gated && config->shared_ffn > 0;
    case NEED_GATED: return is_gated;
    case NEED_GATE:
        return is_gated && (!architecture->is_encoder || architecture->is_rotary_encoder) &&
               !architecture->has_fused_gate_up;
    case NEED_EXPERTS:
    case NEED_FUSED_EXPERTS: return !is_gated;
    case NEED_LONG_ROPE: return architecture->has_long_rope;
    case NEED_QKV_BIAS: return is_attention && architecture->has_qkv_bias;
    case NEED_QK_NORM: return is_attention && architecture->has_qk_norm;
    case NEED_POST_NORM: return architecture->has_post_norm;
    }
    return false;
}

struct tensor_name tensor_name_of(enum tensor_role role, uint32_t layer) {
    struct tensor_name name;
    if (role < ROLE_ATTENTION_NORM)
        snprintf(name.text, sizeof name.text, "%s", table[role].name);
    else
        snprintf(name.text, sizeof name.text, "blk.%u.%s", layer, table[role].name);
    return name;
}

struct tensor_name tensor_name_of_expert(enum expert_part part, uint32_t layer, uint32_t expert) {
    struct tensor_name name;
    snprintf(name.text, sizeof name.text, "blk.%u.%s.%u.weight", layer, expert_rows[part].name,
             expert);
    return name;
}

bool tensor_is_of_pictures(struct str name) {
    return str_starts_with(name, STR("v.")) || str_starts_with(name, STR("mm."));
}

/* axes[2]: a matrix of each expert, or one. */
static uint64_t slices_of(const struct model_config *config, const struct row *row) {
    return row->need == NEED_FUSED_EXPERTS ? config->experts : 1;
}

static void set_axes(const struct model_config *config, const struct row *row,
                     uint64_t ret_axes[GGUF_AXES_MAX]) {
    for (int i = 0; i < GGUF_AXES_MAX; i++) ret_axes[i] = 1;
    ret_axes[0] = extent_of(config, row->cols);
    ret_axes[1] = extent_of(config, row->rows);
    ret_axes[2] = slices_of(config, row);
}

void tensor_shape_of_expert(const struct model_config *config, enum expert_part part,
                            uint64_t ret_axes[GGUF_AXES_MAX]) {
    set_axes(config, &expert_rows[part], ret_axes);
}

bool tensor_shape(const struct model_config *config, enum tensor_role role, uint32_t layer,
                  uint64_t ret_axes[GGUF_AXES_MAX], uint32_t *ret_axis_count) {
    const struct row *row = &table[role];
    const bool is_optional = row->need >= NEED_OPTIONAL && role != ROLE_HEAD &&
                             role != ROLE_GATE_EXPERTS_BIAS && role != ROLE_UP_EXPERTS_BIAS;
    if (is_optional || !is_known(config, layer, row->need)) return false;
    set_axes(config, row, ret_axes);
    *ret_axis_count = row->rows == EXTENT_NONE ? 1 : 2;
    return true;
}

static enum err check_shape(const struct checkpoint_tensor *tensor,
                            const struct model_config *config, const struct row *row,
                            struct error *error) {
    bool is_vector = row->rows == EXTENT_NONE;
    uint64_t cols = extent_of(config, row->cols), rows = extent_of(config, row->rows);
    const uint64_t slices = slices_of(config, row);
    const uint32_t axis_count = is_vector ? 1 : row->need == NEED_FUSED_EXPERTS ? 3 : 2;
    if (axis_count == 3 && (tensor->axis_count != 3 || tensor->axes[0] != cols ||
                            tensor->axes[1] != rows || tensor->axes[2] != slices))
        return err_set(error, ERR_INVALID,
                       "tensor %.*s has %u axes, %llu x %llu x %llu, instead of %llu x %llu x %llu",
                       STR_ARGS(tensor->spelled), tensor->axis_count,
                       (unsigned long long)tensor->axes[0], (unsigned long long)tensor->axes[1],
                       (unsigned long long)tensor->axes[2], (unsigned long long)cols,
                       (unsigned long long)rows, (unsigned long long)slices);
    const bool is_flat = rows == 1 && tensor->axis_count == 1; /* a matrix of one row */
    if ((tensor->axis_count != axis_count && !is_flat) || tensor->axes[0] != cols ||
        tensor->axes[1] != rows)
        return err_set(error, ERR_INVALID,
                       "tensor %.*s has %u axes, %llu x %llu, instead of %llu x %llu",
                       STR_ARGS(tensor->spelled), tensor->axis_count,
                       (unsigned long long)tensor->axes[0], (unsigned long long)tensor->axes[1],
                       (unsigned long long)cols, (unsigned long long)rows);
    bool usable = tensor_type_is_known(tensor->type) &&
                  !(is_vector && tensor_type_is_quantised((enum tensor_type)tensor->type));
    if (!usable)
        return err_set(error, ERR_INVALID, "tensor %.*s: type %s is not supported here",
                       STR_ARGS(tensor->spelled), gguf_type_find(tensor->type)->name);
    return OK;
}

/* Checks one tensor of the table; *count grows if it exists. */
static enum err check_role(const struct checkpoint *checkpoint, const struct model_config *config,
                           enum tensor_role role, uint32_t layer, size_t *count,
                           struct error *error) {
    const struct row *row = &table[role];
    if (!is_known(config, layer, row->need)) return OK;
    struct tensor_name name = tensor_name_of(role, layer);
    const struct checkpoint_tensor *tensor = checkpoint_find(checkpoint, str_from(name.text));
    if (!tensor) {
        if (row->need >= NEED_OPTIONAL) return OK;
        return err_set(error, ERR_INVALID, "tensor %s is missing",
                       checkpoint_spell(checkpoint, name.text).text);
    }
    ++*count;
    return check_shape(tensor, config, row, error);
}

static const struct checkpoint_tensor *find_role(const struct checkpoint *checkpoint,
                                                 enum tensor_role role, uint32_t layer) {
    return checkpoint_find(checkpoint, str_from(tensor_name_of(role, layer).text));
}

/* Checks one part of all experts of a layer, each a tensor of its own, or all in `fused`. They have
 * one type: the rows of a step are prepared once for all experts. */
static enum err check_expert_part(const struct checkpoint *checkpoint,
                                  const struct model_config *config, enum expert_part part,
                                  enum tensor_role fused, uint32_t layer, size_t *count,
                                  struct error *error) {
    uint32_t type = 0;
    if (find_role(checkpoint, fused, layer)) return OK; /* its row of the table checks it */
    for (uint32_t i = 0; i < config->experts; i++) {
        struct tensor_name name = tensor_name_of_expert(part, layer, i);
        const struct checkpoint_tensor *tensor = checkpoint_find(checkpoint, str_from(name.text));
        if (!tensor) {
            struct tensor_name spelled = checkpoint_spell(checkpoint, name.text);
            /* A GGUF of today has them fused. */
            if (str_is(str_from(spelled.text), name.text)) spelled = tensor_name_of(fused, layer);
            return err_set(error, ERR_INVALID, "tensor %s is missing", spelled.text);
        }
        ++*count;
        enum err err = check_shape(tensor, config, &expert_rows[part], error);
        if (err != OK) return err;
        if (i == 0) type = tensor->type;
        if (tensor->type != type)
            return err_set(error, ERR_INVALID,
                           "tensor %.*s has type %s, but the layer's first expert has %s",
                           STR_ARGS(tensor->spelled), gguf_type_find(tensor->type)->name,
                           gguf_type_find(type)->name);
    }
    return OK;
}

/* The biases of the first halves are stored as their weights are. */
static enum err check_expert_biases(const struct checkpoint *checkpoint,
                                    const struct model_config *config, uint32_t layer,
                                    bool is_paired, struct error *error) {
    static const enum tensor_role apart[] = {ROLE_GATE_EXPERTS_BIAS, ROLE_UP_EXPERTS_BIAS};
    static const enum tensor_role paired[] = {ROLE_GATE_UP_EXPERTS_BIAS};
    const enum tensor_role *wanted = is_paired ? paired : apart;
    const enum tensor_role *others = is_paired ? apart : paired;
    if (!config->architecture->has_expert_bias) return OK;
    for (int i = 0; i < (is_paired ? 1 : 2); i++)
        if (!find_role(checkpoint, wanted[i], layer))
            return err_set(
                error, ERR_INVALID, "tensor %s is missing",
                checkpoint_spell(checkpoint, tensor_name_of(wanted[i], layer).text).text);
    for (int i = 0; i < (is_paired ? 2 : 1); i++)
        if (find_role(checkpoint, others[i], layer))
            return err_set(
                error, ERR_INVALID, "tensor %s does not belong to the layer's form of experts",
                checkpoint_spell(checkpoint, tensor_name_of(others[i], layer).text).text);
    return OK;
}

static enum err check_experts(const struct checkpoint *checkpoint,
                              const struct model_config *config, uint32_t layer, size_t *count,
                              struct error *error) {
    const bool is_paired = find_role(checkpoint, ROLE_GATE_UP_EXPERTS, layer) != NULL;
    enum err err = OK;
    if (config->list[layer].ffn != FFN_EXPERTS) return OK;
    if (is_paired && (find_role(checkpoint, ROLE_GATE_EXPERTS, layer) ||
                      find_role(checkpoint, ROLE_UP_EXPERTS, layer)))
        return err_set(error, ERR_INVALID,
                       "layer %u has both ffn_gate_up_exps.weight and ffn_gate_exps or ffn_up_exps",
                       layer);
    err = check_expert_biases(checkpoint, config, layer, is_paired, error);
    if (!is_paired && err == OK) {
        err = check_expert_part(checkpoint, config, EXPERT_GATE, ROLE_GATE_EXPERTS, layer, count,
                                error);
        if (err == OK)
            err = check_expert_part(checkpoint, config, EXPERT_UP, ROLE_UP_EXPERTS, layer, count,
                                    error);
    }
    return err == OK ? check_expert_part(checkpoint, config, EXPERT_DOWN, ROLE_DOWN_EXPERTS, layer,
                                         count, error)
                     : err;
}

static enum err check_layer(const struct checkpoint *checkpoint, const struct model_config *config,
                            uint32_t layer, size_t *count, struct error *error) {
    const bool is_fused =
        !config_layer_is_recurrent(config, layer) && find_role(checkpoint, ROLE_QKV, layer) != NULL;
    const bool has_fused_bias = find_role(checkpoint, ROLE_QKV_BIAS, layer) != NULL;
    enum err err = OK;
    for (int i = ROLE_ATTENTION_NORM; i < ROLE_COUNT && err == OK; i++) {
        /* A layer with both forms keeps its q, k and v uncounted and is refused below. */
        bool stands_in = (is_fused && i >= ROLE_Q && i <= ROLE_V) ||
                         (has_fused_bias && i >= ROLE_Q_BIAS && i <= ROLE_V_BIAS);
        if (!stands_in)
            err = check_role(checkpoint, config, (enum tensor_role)i, layer, count, error);
    }
    return err == OK ? check_experts(checkpoint, config, layer, count, error) : err;
}

/* The layer of a name "blk.N.…"; false for any other. */
static bool layer_of(struct str name, uint32_t layers, uint32_t *ret_layer) {
    if (!str_starts_with(name, STR("blk."))) return false;
    size_t dot = str_find_byte(name, '.', 4);
    uint64_t layer;
    if (dot == SIZE_MAX || !str_to_u64((struct str){name.at + 4, dot - 4}, &layer)) return false;
    if (layer >= layers) return false;
    *ret_layer = (uint32_t)layer;
    return true;
}

/* "blk.N.ffn_gate.E.weight" and the like. */
static bool is_of_expert(struct str name, const struct model_config *config, uint32_t layer) {
    const size_t layer_end = str_find_byte(name, '.', 4);
    const size_t stem_end = str_find_byte(name, '.', layer_end + 1);
    uint64_t expert;
    if (config->list[layer].ffn != FFN_EXPERTS || stem_end == SIZE_MAX) return false;
    const size_t number_end = str_find_byte(name, '.', stem_end + 1);
    if (number_end == SIZE_MAX ||
        !str_to_u64((struct str){name.at + stem_end + 1, number_end - stem_end - 1}, &expert) ||
        expert >= config->experts)
        return false;
    for (int part = 0; part < EXPERT_PARTS; part++)
        if (str_is(name,
                   tensor_name_of_expert((enum expert_part)part, layer, (uint32_t)expert).text))
            return true;
    return false;
}

static bool is_part_of(const struct checkpoint_tensor *tensor, const struct model_config *config) {
    for (int role = 0; role < ROLE_ATTENTION_NORM; role++)
        if (is_known(config, 0, table[role].need) && str_is(tensor->name, table[role].name))
            return true;
    uint32_t layer;
    if (!layer_of(tensor->name, config->layers, &layer)) return false;
    for (int role = ROLE_ATTENTION_NORM; role < ROLE_COUNT; role++) {
        struct tensor_name name = tensor_name_of((enum tensor_role)role, layer);
        if (is_known(config, layer, table[role].need) && str_is(tensor->name, name.text))
            return true;
    }
    return is_of_expert(tensor->name, config, layer);
}

/* Only reached for a file that is refused: names the tensor that nothing above has counted. */
static enum err refuse_rest(const struct checkpoint *checkpoint, const struct model_config *config,
                            struct error *error) {
    for (size_t i = 0; i < checkpoint_tensor_count(checkpoint); i++) {
        const struct checkpoint_tensor *tensor = checkpoint_tensor_at(checkpoint, i);
        if (!is_part_of(tensor, config))
            return err_set(error, ERR_INVALID, "tensor %.*s is not part of architecture %s",
                           STR_ARGS(tensor->spelled), config->architecture->name);
    }
    for (uint32_t i = 0; i < config->layers; i++)
        if (find_role(checkpoint, ROLE_QKV, i) &&
            (find_role(checkpoint, ROLE_Q, i) || find_role(checkpoint, ROLE_K, i) ||
             find_role(checkpoint, ROLE_V, i)))
            return err_set(error, ERR_INVALID,
                           "a layer has both attn_qkv.weight and attn_q, k or v");
    return err_set(error, ERR_INVALID,
                   "a layer has an expert both alone and in a tensor of all experts");
}

enum err tensors_check(const struct checkpoint *checkpoint, const struct model_config *config,
                       struct error *error) {
    size_t count = 0;
    enum err err = OK;
    for (int i = 0; i < ROLE_ATTENTION_NORM && err == OK; i++)
        err = check_role(checkpoint, config, (enum tensor_role)i, 0, &count, error);
    for (uint32_t layer = 0; layer < config->layers && err == OK; layer++)
        err = check_layer(checkpoint, config, layer, &count, error);
    if (err == OK && count != checkpoint_tensor_count(checkpoint))
        err = refuse_rest(checkpoint, config, error);
    return err;
}
