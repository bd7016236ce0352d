/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/tensor_roles.h"

const struct tensor_row tensor_rows[ROLE_COUNT] = {
    [ROLE_EMBEDDING] = {"token_embd.weight", NEED_ALWAYS, EXTENT_WIDTH, EXTENT_VOCAB},
    [ROLE_OUTPUT_NORM] = {"output_norm.weight", NEED_DECODER, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_OUTPUT_NORM_BIAS] = {"output_norm.bias", NEED_NORM_BIAS, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_HEAD] = {"output.weight", NEED_OPTIONAL, EXTENT_WIDTH, EXTENT_VOCAB},
    [ROLE_ROPE_FACTORS] = {"rope_freqs.weight", NEED_OPTIONAL, EXTENT_PAIRS, EXTENT_NONE},
    [ROLE_ROPE_FACTORS_SHORT] = {"rope_factors_short.weight", NEED_LONG_ROPE, EXTENT_PAIRS,
                                 EXTENT_NONE},
    [ROLE_ROPE_FACTORS_LONG] = {"rope_factors_long.weight", NEED_LONG_ROPE, EXTENT_PAIRS,
                                EXTENT_NONE},
    [ROLE_INPUT_TABLE] = {"per_layer_token_embd.weight", NEED_INPUTS, EXTENT_INPUTS, EXTENT_VOCAB},
    [ROLE_INPUT_PROJECTION] = {"per_layer_model_proj.weight", NEED_INPUTS, EXTENT_WIDTH,
                               EXTENT_INPUTS},
    [ROLE_INPUT_NORM] = {"per_layer_proj_norm.weight", NEED_INPUTS, EXTENT_INPUT, EXTENT_NONE},
    [ROLE_POSITIONS] = {"position_embd.weight", NEED_POSITIONS, EXTENT_WIDTH, EXTENT_CONTEXT},
    [ROLE_TOKEN_TYPES] = {"token_types.weight", NEED_TYPES, EXTENT_WIDTH, EXTENT_TYPES},
    [ROLE_EMBEDDING_NORM] = {"token_embd_norm.weight", NEED_EMBEDDING_NORM, EXTENT_WIDTH,
                             EXTENT_NONE},
    [ROLE_EMBEDDING_NORM_BIAS] = {"token_embd_norm.bias", NEED_ENCODER, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_DISTANCE_BIAS] = {"attn_rel_b.weight", NEED_DISTANCES, EXTENT_HEADS, EXTENT_DISTANCES},
    [ROLE_LABEL_DENSE] = {"cls.weight", NEED_LABEL_DENSE, EXTENT_WIDTH, EXTENT_WIDTH},
    [ROLE_LABEL_DENSE_BIAS] = {"cls.bias", NEED_LABEL_BIAS, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_LABEL_NORM] = {"cls.norm.weight", NEED_LABEL_NORM, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_LABELS] = {"cls.output.weight", NEED_LABELS, EXTENT_WIDTH, EXTENT_LABELS},
    [ROLE_LABELS_BIAS] = {"cls.output.bias", NEED_LABELS_BIAS, EXTENT_LABELS, EXTENT_NONE},
    [ROLE_DENSE_FIRST] = {"dense_2.weight", NEED_DENSE_FIRST, EXTENT_WIDTH, EXTENT_DENSE_FIRST},
    [ROLE_DENSE_SECOND] = {"dense_3.weight", NEED_DENSE_SECOND, EXTENT_DENSE_FIRST,
                           EXTENT_DENSE_SECOND},
    [ROLE_ATTENTION_NORM] = {"attn_norm.weight", NEED_PRE_NORM, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_Q] = {"attn_q.weight", NEED_ATTENTION, EXTENT_WIDTH, EXTENT_Q_GATED},
    [ROLE_K] = {"attn_k.weight", NEED_KEYS, EXTENT_WIDTH, EXTENT_KV},
    [ROLE_V] = {"attn_v.weight", NEED_VALUES, EXTENT_WIDTH, EXTENT_KV},
    [ROLE_QKV] = {"attn_qkv.weight", NEED_FUSED_QKV, EXTENT_WIDTH, EXTENT_QKV},
    [ROLE_Q_BIAS] = {"attn_q.bias", NEED_QKV_BIAS, EXTENT_Q, EXTENT_NONE},
    [ROLE_K_BIAS] = {"attn_k.bias", NEED_QKV_BIAS, EXTENT_KV, EXTENT_NONE},
    [ROLE_V_BIAS] = {"attn_v.bias", NEED_QKV_BIAS, EXTENT_KV, EXTENT_NONE},
    [ROLE_QKV_BIAS] = {"attn_qkv.bias", NEED_FUSED_BIAS, EXTENT_QKV, EXTENT_NONE},
    [ROLE_SINKS] = {"attn_sinks.weight", NEED_SINKS, EXTENT_HEADS, EXTENT_NONE},
    [ROLE_Q_NORM] = {"attn_q_norm.weight", NEED_QK_NORM, EXTENT_Q_NORM, EXTENT_NONE},
    [ROLE_K_NORM] = {"attn_k_norm.weight", NEED_K_NORM, EXTENT_K_NORM, EXTENT_NONE},
    [ROLE_OUTPUT_PROJECTION] = {"attn_output.weight", NEED_ATTENTION, EXTENT_Q, EXTENT_WIDTH},
    [ROLE_POST_ATTENTION_NORM] = {"post_attention_norm.weight", NEED_POST_NORM, EXTENT_WIDTH,
                                  EXTENT_NONE},
    [ROLE_FFN_NORM] = {"ffn_norm.weight", NEED_FFN_NORM, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_ATTENTION_NORM_BIAS] = {"attn_norm.bias", NEED_NORM_BIAS, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_FFN_NORM_BIAS] = {"ffn_norm.bias", NEED_FFN_NORM_BIAS, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_XIELU_ALPHA_P] = {"xielu.alpha_p", NEED_XIELU, EXTENT_ONE, EXTENT_NONE},
    [ROLE_XIELU_ALPHA_N] = {"xielu.alpha_n", NEED_XIELU, EXTENT_ONE, EXTENT_NONE},
    [ROLE_XIELU_BETA] = {"xielu.beta", NEED_XIELU, EXTENT_ONE, EXTENT_NONE},
    [ROLE_XIELU_EPS] = {"xielu.eps", NEED_XIELU, EXTENT_ONE, EXTENT_NONE},
    [ROLE_GATE] = {"ffn_gate.weight", NEED_GATE, EXTENT_WIDTH, EXTENT_FFN},
    [ROLE_UP] = {"ffn_up.weight", NEED_GATED, EXTENT_WIDTH, EXTENT_UP},
    [ROLE_GATE_UP] = {"ffn_gate_up.weight", NEED_FUSED_GATE_UP, EXTENT_WIDTH, EXTENT_GATE_UP},
    [ROLE_DOWN] = {"ffn_down.weight", NEED_GATED, EXTENT_FFN, EXTENT_WIDTH},
    [ROLE_FFN_NORM_2] = {"pre_ffw_norm_2.weight", NEED_BOTH, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_POST_FFN_NORM_1] = {"post_ffw_norm_1.weight", NEED_BOTH, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_POST_FFN_NORM_2] = {"post_ffw_norm_2.weight", NEED_BOTH, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_ROUTER_NORM] = {"ffn_gate_inp.scale", NEED_BOTH, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_EXPERT_SCALES] = {"ffn_down_exps.scale", NEED_BOTH, EXTENT_EXPERTS, EXTENT_NONE},
    [ROLE_INPUT_GATE] = {"inp_gate.weight", NEED_INPUTS, EXTENT_WIDTH, EXTENT_INPUT},
    [ROLE_INPUT_OUT] = {"proj.weight", NEED_INPUTS, EXTENT_INPUT, EXTENT_WIDTH},
    [ROLE_POST_INPUT_NORM] = {"post_norm.weight", NEED_INPUTS, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_LAYER_SCALE] = {"layer_output_scale.weight", NEED_LAYER_SCALE, EXTENT_ONE, EXTENT_NONE},
    [ROLE_POST_FFN_NORM] = {"post_ffw_norm.weight", NEED_POST_NORM, EXTENT_WIDTH, EXTENT_NONE},
    [ROLE_ROUTER] = {"ffn_gate_inp.weight", NEED_EXPERTS, EXTENT_WIDTH, EXTENT_EXPERTS},
    [ROLE_ROUTER_BIAS] = {"ffn_gate_inp.bias", NEED_EXPERT_BIAS, EXTENT_EXPERTS, EXTENT_NONE},
    [ROLE_CHOICE_BIAS] = {"exp_probs_b.bias", NEED_CHOICE_BIAS, EXTENT_EXPERTS, EXTENT_NONE},
    [ROLE_GATE_EXPERTS] = {"ffn_gate_exps.weight", NEED_GATED_EXPERTS, EXTENT_WIDTH,
                           EXTENT_EXPERT_FFN},
    [ROLE_UP_EXPERTS] = {"ffn_up_exps.weight", NEED_FUSED_EXPERTS, EXTENT_WIDTH, EXTENT_EXPERT_FFN},
    [ROLE_GATE_UP_EXPERTS] = {"ffn_gate_up_exps.weight", NEED_GATED_EXPERTS, EXTENT_WIDTH,
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
    [ROLE_SHARED_GATE] = {"ffn_gate_shexp.weight", NEED_SHARED_GATE, EXTENT_WIDTH, EXTENT_SHARED},
    [ROLE_SHARED_UP] = {"ffn_up_shexp.weight", NEED_SHARED_EXPERT, EXTENT_WIDTH, EXTENT_SHARED},
    [ROLE_SHARED_GATE_UP] = {"ffn_gate_up_shexp.weight", NEED_FUSED_SHARED, EXTENT_WIDTH,
                             EXTENT_SHARED_GATE_UP},
    [ROLE_SHARED_DOWN] = {"ffn_down_shexp.weight", NEED_SHARED_EXPERT, EXTENT_SHARED, EXTENT_WIDTH},
    [ROLE_SHARED_SCALE] = {"ffn_gate_inp_shexp.weight", NEED_SHARED_SCALE, EXTENT_WIDTH,
                           EXTENT_ONE},
    [ROLE_STATE_IN] = {"attn_qkv.weight", NEED_DELTA, EXTENT_WIDTH, EXTENT_CHANNELS},
    [ROLE_STATE_GATE] = {"attn_gate.weight", NEED_DELTA, EXTENT_WIDTH, EXTENT_STATE_WIDTH},
    [ROLE_STATE_ALL] = {"ssm_in.weight", NEED_FUSED_DELTA, EXTENT_WIDTH, EXTENT_STATE_ROWS},
    [ROLE_STATE_ALPHA] = {"ssm_alpha.weight", NEED_DELTA_APART, EXTENT_WIDTH, EXTENT_STATE_HEADS},
    [ROLE_STATE_BETA] = {"ssm_beta.weight", NEED_DELTA_APART, EXTENT_WIDTH, EXTENT_STATE_HEADS},
    [ROLE_STATE_RATES] = {"ssm_ba.weight", NEED_DELTA_RATES, EXTENT_WIDTH, EXTENT_STATE_RATES},
    [ROLE_STATE_CONV] = {"ssm_conv1d.weight", NEED_STATE, EXTENT_TAPS, EXTENT_CHANNELS},
    [ROLE_STATE_DECAY] = {"ssm_a", NEED_STATE, EXTENT_STATE_HEADS, EXTENT_NONE},
    [ROLE_STATE_STEP_BIAS] = {"ssm_dt.bias", NEED_STATE, EXTENT_STATE_HEADS, EXTENT_NONE},
    [ROLE_STATE_NORM] = {"ssm_norm.weight", NEED_STATE_NORM, EXTENT_STATE_NORM, EXTENT_NONE},
    [ROLE_STATE_OUTPUT] = {"ssm_out.weight", NEED_STATE, EXTENT_STATE_WIDTH, EXTENT_WIDTH},
    [ROLE_CONV_BIAS] = {"ssm_conv1d.bias", NEED_CONV_BIAS, EXTENT_CHANNELS, EXTENT_NONE},
    [ROLE_STATE_SKIP] = {"ssm_d", NEED_MAMBA, EXTENT_STATE_HEADS, EXTENT_NONE},
    [ROLE_MAMBA_IN] = {"ssm_in.weight", NEED_MAMBA, EXTENT_WIDTH, EXTENT_MAMBA_IN},
    [ROLE_CONV_IN] = {"shortconv.in_proj.weight", NEED_CONV, EXTENT_WIDTH, EXTENT_STATE_ROWS},
    [ROLE_CONV] = {"shortconv.conv.weight", NEED_CONV, EXTENT_TAPS, EXTENT_CHANNELS},
    [ROLE_CONV_OUTPUT] = {"shortconv.out_proj.weight", NEED_CONV, EXTENT_STATE_WIDTH, EXTENT_WIDTH},
    [ROLE_LATENT_Q] = {"attn_q.weight", NEED_LATENT_Q, EXTENT_WIDTH, EXTENT_LATENT_Q},
    [ROLE_LATENT_Q_A] = {"attn_q_a.weight", NEED_LATENT_QA, EXTENT_WIDTH, EXTENT_Q_RANK},
    [ROLE_LATENT_Q_NORM] = {"attn_q_a_norm.weight", NEED_LATENT_QA, EXTENT_Q_RANK, EXTENT_NONE},
    [ROLE_LATENT_Q_B] = {"attn_q_b.weight", NEED_LATENT_QA, EXTENT_Q_RANK, EXTENT_LATENT_Q},
    [ROLE_LATENT_KV_A] = {"attn_kv_a_mqa.weight", NEED_LATENT, EXTENT_WIDTH, EXTENT_LINE},
    [ROLE_LATENT_NORM] = {"attn_kv_a_norm.weight", NEED_LATENT, EXTENT_RANK, EXTENT_NONE},
    [ROLE_LATENT_KV_B] = {"attn_kv_b.weight", NEED_LATENT_KV, EXTENT_RANK, EXTENT_LATENT_KV},
    [ROLE_LATENT_K_B] = {"attn_k_b.weight", NEED_LATENT_APART, EXTENT_STILL, EXTENT_RANK},
    [ROLE_LATENT_V_B] = {"attn_v_b.weight", NEED_LATENT_APART, EXTENT_RANK, EXTENT_VALUE},
    [ROLE_LATENT_OUTPUT] = {"attn_output.weight", NEED_LATENT, EXTENT_LATENT_V, EXTENT_WIDTH},
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

const struct tensor_row tensor_expert_rows[EXPERT_PARTS] = {
    [EXPERT_GATE] = {"ffn_gate", NEED_EXPERTS, EXTENT_WIDTH, EXTENT_EXPERT_FFN},
    [EXPERT_UP] = {"ffn_up", NEED_EXPERTS, EXTENT_WIDTH, EXTENT_EXPERT_FFN},
    [EXPERT_DOWN] = {"ffn_down", NEED_EXPERTS, EXTENT_EXPERT_FFN, EXTENT_WIDTH},
};

uint64_t tensor_extent(const struct model_config *config, uint32_t layer, enum extent extent) {
    const struct latent_sizes *latent = &config->latent;
    const uint64_t dim = config_head_dim(config, layer), kv_heads = config_kv_heads(config, layer);
    switch (extent) {
    case EXTENT_NONE: return 1;
    case EXTENT_WIDTH: return config->width;
    case EXTENT_FFN: return config_ffn(config, layer);
    case EXTENT_UP:
        return (config->architecture->has_fused_gate_up ? 2ull : 1ull) * config_ffn(config, layer);
    case EXTENT_CONTEXT: return (uint64_t)config->context_max + config->position_first;
    case EXTENT_TYPES: return config->token_types;
    case EXTENT_VOCAB: return config->vocab_rows;
    case EXTENT_Q: return config->heads * dim;
    case EXTENT_KV: return kv_heads * dim;
    case EXTENT_QKV: return (config->heads + 2 * kv_heads) * dim;
    case EXTENT_HEAD: return dim;
    case EXTENT_Q_NORM: return config->architecture->qk_norm_is_wide ? config->heads * dim : dim;
    case EXTENT_K_NORM: return config->architecture->qk_norm_is_wide ? kv_heads * dim : dim;
    case EXTENT_ONE: return 1;
    case EXTENT_INPUT: return config->input_width;
    case EXTENT_INPUTS: return (uint64_t)config->layers * config->input_width;
    case EXTENT_HEADS: return config->heads;
    case EXTENT_DISTANCES: return CONFIG_DISTANCES;
    case EXTENT_PAIRS: return config_rotary_dim(config) / 2;
    case EXTENT_EXPERTS: return config->experts;
    case EXTENT_EXPERT_FFN: return config->expert_ffn;
    case EXTENT_EXPERT_UP: return 2ull * config->expert_ffn;
    case EXTENT_Q_GATED:
        return (config->architecture->has_output_gate ? 2ull : 1ull) * config->heads * dim;
    case EXTENT_SHARED: return config->shared_ffn;
    case EXTENT_CHANNELS: return config_state_channels(config);
    case EXTENT_STATE_ROWS: return config_state_rows(config);
    case EXTENT_TAPS: return config->recurrent.taps;
    case EXTENT_STATE_WIDTH: return config_state_width(config);
    case EXTENT_STATE_HEADS: return config->recurrent.value_heads;
    case EXTENT_STATE_RATES: return 2ull * config->recurrent.value_heads;
    case EXTENT_LABELS: return config->labels;
    case EXTENT_DENSE_FIRST: return config->dense_widths[0];
    case EXTENT_DENSE_SECOND: return config->dense_widths[1];
    case EXTENT_STATE_NORM: /* one for all heads, or each its own */
        return config->architecture->recurrent == MIXER_MAMBA ? config_state_width(config)
                                                              : config->recurrent.value_dim;
    case EXTENT_MAMBA_IN: return config_state_rows(config) + config->recurrent.value_heads;
    case EXTENT_GATE_UP: return 2ull * config_ffn(config, layer);
    case EXTENT_SHARED_GATE_UP: return 2ull * config->shared_ffn;
    case EXTENT_RANK: return latent->rank;
    case EXTENT_Q_RANK: return latent->q_rank;
    case EXTENT_LINE: return latent->rank + latent->turned_dim;
    case EXTENT_STILL: return latent->still_dim;
    case EXTENT_VALUE: return latent->value_dim;
    case EXTENT_LATENT_Q: return (uint64_t)config->heads * (latent->still_dim + latent->turned_dim);
    case EXTENT_LATENT_KV: return (uint64_t)config->heads * (latent->still_dim + latent->value_dim);
    case EXTENT_LATENT_V: return (uint64_t)config->heads * latent->value_dim;
    }
    return 0;
}

/* Whether a layer of that kind can have a tensor that only layers with a state have. */
static bool is_of_state(const struct model_config *config, enum mixer_kind mixer, enum need need) {
    const bool is_grouped = config->architecture->delta_is_grouped;
    const bool is_mamba = mixer == MIXER_MAMBA || mixer == MIXER_BOTH;
    if (need == NEED_CONV) return mixer == MIXER_CONV;
    if (need == NEED_MAMBA) return is_mamba;
    if (need == NEED_CONV_BIAS) return is_mamba && config->recurrent.has_conv_bias;
    if (need == NEED_STATE) return mixer == MIXER_DELTA || is_mamba;
    if (need == NEED_STATE_NORM)
        return mixer == MIXER_DELTA || (is_mamba && !config->recurrent.has_no_norm);
    if (need == NEED_DELTA) return mixer == MIXER_DELTA;
    const bool is_of_delta =
        need == NEED_DELTA_APART || need == NEED_DELTA_RATES || need == NEED_FUSED_DELTA;
    return is_of_delta && mixer == MIXER_DELTA && (need == NEED_DELTA_APART) != is_grouped;
}

/* Whether a decoder can have a tensor of the norms before its halves, of an activation, or behind
 * the pooling. */
static bool is_of_decoder(const struct model_config *config, enum need need) {
    const struct architecture *architecture = config->architecture;
    if (need == NEED_DENSE_FIRST) return config->dense_widths[0] > 0;
    if (need == NEED_DENSE_SECOND) return config->dense_widths[1] > 0;
    const bool is_before = !architecture->is_encoder && !architecture->has_no_pre_norm;
    const bool is_own =
        is_before && !architecture->halves_are_parallel && !architecture->has_single_halves;
    if (need == NEED_PRE_NORM) return is_before;
    if (need == NEED_FFN_NORM) return is_own;
    if (need == NEED_NORM_BIAS) return is_before && architecture->has_norm_bias;
    if (need == NEED_FFN_NORM_BIAS) return is_own && architecture->has_norm_bias;
    return need == NEED_XIELU && architecture->activation == ACTIVATION_XIELU;
}

/* Whether a layer can have a tensor that only latent layers have. */
static bool is_of_latent(const struct model_config *config, enum mixer_kind mixer, enum need need) {
    if (mixer != MIXER_LATENT) return false;
    if (need == NEED_LATENT_Q) return config->latent.q_rank == 0;
    if (need == NEED_LATENT_QA) return config->latent.q_rank > 0;
    return need == NEED_LATENT || need == NEED_LATENT_KV || need == NEED_LATENT_APART;
}

/* Whether a model can have a tensor of the head for labels. */
static bool is_of_labels(const struct model_config *config, enum need need) {
    const enum label_form form = config->architecture->label_form;
    if (config->labels == 0) return false;
    if (need == NEED_LABELS || need == NEED_LABELS_BIAS) return true;
    if (need == NEED_LABEL_DENSE) return form != LABEL_FORM_PLAIN;
    if (need == NEED_LABEL_BIAS) return form == LABEL_FORM_TANH;
    return need == NEED_LABEL_NORM && form == LABEL_FORM_NORM;
}

bool tensor_is_known(const struct model_config *config, uint32_t layer, enum need need) {
    const struct architecture *architecture = config->architecture;
    const struct layer *kind = &config->list[layer];
    const bool is_gated = config_layer_is_gated(config, layer);
    const bool has_experts = config_layer_has_experts(config, layer);
    const bool has_gate = !config_has_no_gate(config);
    const bool is_attention = kind->mixer == MIXER_ATTENTION || kind->mixer == MIXER_BOTH;
    switch (need) {
    case NEED_ALWAYS: return true;
    case NEED_DECODER:
    case NEED_OPTIONAL: return !architecture->is_encoder;
    case NEED_ENCODER: return architecture->is_encoder;
    case NEED_TYPES: return architecture->is_encoder && !architecture->has_distance_bias;
    case NEED_DISTANCES: return architecture->has_distance_bias;
    case NEED_ENCODER_BIAS:
    case NEED_POSITIONS: return architecture->is_encoder && !architecture->is_rotary_encoder;
    case NEED_OUTPUT_BIAS:
        return architecture->has_output_bias || tensor_is_known(config, layer, NEED_ENCODER_BIAS);
    case NEED_SINKS: return architecture->has_sinks;
    case NEED_EXPERT_BIAS:
    case NEED_BIAS_OF_EXPERTS: return has_experts && architecture->has_expert_bias;
    case NEED_FUSED_BIAS: return architecture->has_qkv_bias && !architecture->is_encoder;
    case NEED_FUSED_QKV:
        return is_attention && !architecture->has_output_gate &&
               (!architecture->is_encoder || architecture->is_rotary_encoder);
    case NEED_ATTENTION: return is_attention;
    case NEED_CHOICE_BIAS: return has_experts && config->routing.has_bias;
    case NEED_SHARED_SCALE:
        return has_experts && config->shared_ffn > 0 && !architecture->shared_expert_is_plain;
    case NEED_FUSED_GATE_UP: return is_gated && !architecture->is_encoder && has_gate;
    case NEED_FUSED_SHARED:
    case NEED_SHARED_GATE: return has_experts && config->shared_ffn > 0 && has_gate;
    case NEED_SHARED_EXPERT: return has_experts && config->shared_ffn > 0;
    case NEED_KEYS: return is_attention;
    case NEED_VALUES: return is_attention && !kind->v_is_k;
    case NEED_K_NORM: return is_attention && architecture->has_qk_norm;
    case NEED_INPUTS: return config->input_width > 0;
    case NEED_LAYER_SCALE: return architecture->has_layer_scale;
    case NEED_BOTH: return kind->ffn == FFN_BOTH;
    case NEED_GATED: return is_gated;
    case NEED_GATE:
        return is_gated && (!architecture->is_encoder || architecture->is_rotary_encoder) &&
               !architecture->has_fused_gate_up && has_gate;
    case NEED_GATED_EXPERTS: return has_experts && has_gate;
    case NEED_EXPERTS:
    case NEED_FUSED_EXPERTS: return has_experts;
    case NEED_LONG_ROPE: return architecture->has_long_rope;
    case NEED_QKV_BIAS:
        return is_attention && (architecture->has_qkv_bias || architecture->may_have_qkv_bias);
    case NEED_QK_NORM: return is_attention && architecture->has_qk_norm;
    case NEED_POST_NORM: return architecture->has_post_norm;
    case NEED_EMBEDDING_NORM: return architecture->is_encoder || architecture->embedding_is_normed;
    case NEED_PRE_NORM:
        if (architecture->embedding_is_normed && layer == 0) return false;
        return is_of_decoder(config, need);
    default:
        return is_of_labels(config, need) || is_of_decoder(config, need) ||
               is_of_state(config, kind->mixer, need) || is_of_latent(config, kind->mixer, need);
    }
}
