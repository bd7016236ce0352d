/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/folder_names.h"

#include <stdio.h>
#include <string.h>

/* Families differ in the names around the feed-forward. */
enum norms {
    NORMS_ANY,
    NORMS_TWO,
    NORMS_FOUR,
    NORMS_OF_GLM,
    NORMS_OF_ENCODER,
    NAMES_OF_MPNET,
    NAMES_OF_GPT_OSS,
    NAMES_OF_GEMMA_4,
    NAMES_OF_LFM2,
    NAMES_OF_MAMBA,
    NAMES_OF_GRANITE,
    NAMES_OF_NEMOTRON_H,
    NAMES_OF_FALCON_H1,
    NAMES_OF_MODERN_BERT,
    NAMES_OF_APERTUS,
    NAMES_OF_HUNYUAN,
    NAMES_OF_DEEPSEEK
};

/* Granite's: beside the experts, or alone. */
static const char shared_in[] = "shared_mlp.input_linear.weight";
static const char shared_out[] = "shared_mlp.output_linear.weight";

static const struct name_pair {
    const char *gguf;   /* behind "blk.N." */
    const char *folder; /* behind "PREFIXlayers.N.", or "PREFIXencoder.layer.N." of an encoder */
    enum norms norms;
} layer_names[] = {
    {"attn_norm.weight", "input_layernorm.weight", NORMS_ANY},
    {"attn_q.weight", "self_attn.q_proj.weight", NORMS_ANY},
    {"attn_k.weight", "self_attn.k_proj.weight", NORMS_ANY},
    {"attn_v.weight", "self_attn.v_proj.weight", NORMS_ANY},
    {"attn_qkv.weight", "self_attn.qkv_proj.weight", NORMS_ANY},
    {"attn_q.bias", "self_attn.q_proj.bias", NORMS_ANY},
    {"attn_k.bias", "self_attn.k_proj.bias", NORMS_ANY},
    {"attn_v.bias", "self_attn.v_proj.bias", NORMS_ANY},
    {"attn_q_norm.weight", "self_attn.q_norm.weight", NORMS_ANY},
    {"attn_k_norm.weight", "self_attn.k_norm.weight", NORMS_ANY},
    {"attn_output.weight", "self_attn.o_proj.weight", NORMS_ANY},
    {"ffn_gate.weight", "mlp.gate_proj.weight", NORMS_ANY},
    {"ffn_up.weight", "mlp.up_proj.weight", NORMS_ANY},
    {"ffn_up.weight", "mlp.gate_up_proj.weight", NORMS_ANY},
    {"ffn_down.weight", "mlp.down_proj.weight", NORMS_ANY},
    {"ffn_gate_inp.weight", "mlp.gate.weight", NORMS_ANY},
    {"ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj", NORMS_ANY},
    {"ffn_down_exps.weight", "mlp.experts.down_proj", NORMS_ANY},
    {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight", NORMS_ANY},
    {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight", NORMS_ANY},
    {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight", NORMS_ANY},
    {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", NORMS_ANY},
    {"attn_qkv.weight", "linear_attn.in_proj_qkv.weight", NORMS_ANY},
    {"attn_gate.weight", "linear_attn.in_proj_z.weight", NORMS_ANY},
    {"ssm_in.weight", "linear_attn.in_proj_qkvz.weight", NORMS_ANY},
    {"ssm_ba.weight", "linear_attn.in_proj_ba.weight", NORMS_ANY},
    {"ssm_alpha.weight", "linear_attn.in_proj_a.weight", NORMS_ANY},
    {"ssm_beta.weight", "linear_attn.in_proj_b.weight", NORMS_ANY},
    {"ssm_conv1d.weight", "linear_attn.conv1d.weight", NORMS_ANY},
    {"ssm_a", "linear_attn.A_log", NORMS_ANY},
    {"ssm_dt.bias", "linear_attn.dt_bias", NORMS_ANY},
    {"ssm_norm.weight", "linear_attn.norm.weight", NORMS_ANY},
    {"ssm_out.weight", "linear_attn.out_proj.weight", NORMS_ANY},
    {"attn_q_a.weight", "self_attn.q_a_proj.weight", NORMS_ANY},
    {"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight", NORMS_ANY},
    {"attn_q_b.weight", "self_attn.q_b_proj.weight", NORMS_ANY},
    {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight", NORMS_ANY},
    {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight", NORMS_ANY},
    {"attn_kv_b.weight", "self_attn.kv_b_proj.weight", NORMS_ANY},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias", NAMES_OF_DEEPSEEK},
    {"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight", NAMES_OF_DEEPSEEK},
    {"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight", NAMES_OF_DEEPSEEK},
    {"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight", NAMES_OF_DEEPSEEK},
    {"ffn_norm.weight", "post_attention_layernorm.weight", NORMS_TWO},
    {"post_attention_norm.weight", "post_attention_layernorm.weight", NORMS_FOUR},
    {"ffn_norm.weight", "pre_feedforward_layernorm.weight", NORMS_FOUR},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", NORMS_FOUR},
    {"post_attention_norm.weight", "post_self_attn_layernorm.weight", NORMS_OF_GLM},
    {"ffn_norm.weight", "post_attention_layernorm.weight", NORMS_OF_GLM},
    {"post_ffw_norm.weight", "post_mlp_layernorm.weight", NORMS_OF_GLM},
    {"attn_sinks.weight", "self_attn.sinks", NAMES_OF_GPT_OSS},
    {"attn_output.bias", "self_attn.o_proj.bias", NAMES_OF_GPT_OSS},
    {"ffn_gate_inp.weight", "mlp.router.weight", NAMES_OF_GPT_OSS},
    {"ffn_gate_inp.bias", "mlp.router.bias", NAMES_OF_GPT_OSS},
    {"ffn_gate_up_exps.bias", "mlp.experts.gate_up_proj_bias", NAMES_OF_GPT_OSS},
    {"ffn_down_exps.bias", "mlp.experts.down_proj_bias", NAMES_OF_GPT_OSS},
    {"ffn_gate_inp.weight", "router.proj.weight", NAMES_OF_GEMMA_4},
    {"ffn_gate_inp.scale", "router.scale", NAMES_OF_GEMMA_4},
    {"ffn_down_exps.scale", "router.per_expert_scale", NAMES_OF_GEMMA_4},
    {"ffn_gate_up_exps.weight", "experts.gate_up_proj", NAMES_OF_GEMMA_4},
    {"ffn_down_exps.weight", "experts.down_proj", NAMES_OF_GEMMA_4},
    {"pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight", NAMES_OF_GEMMA_4},
    {"post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight", NAMES_OF_GEMMA_4},
    {"post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight", NAMES_OF_GEMMA_4},
    {"inp_gate.weight", "per_layer_input_gate.weight", NAMES_OF_GEMMA_4},
    {"proj.weight", "per_layer_projection.weight", NAMES_OF_GEMMA_4},
    {"post_norm.weight", "post_per_layer_input_norm.weight", NAMES_OF_GEMMA_4},
    {"layer_output_scale.weight", "layer_scalar", NAMES_OF_GEMMA_4},
    {"attn_norm.bias", "input_layernorm.bias", NORMS_ANY},
    {"ffn_norm.bias", "post_attention_layernorm.bias", NORMS_TWO},
    {"attn_norm.weight", "attention_layernorm.weight", NAMES_OF_APERTUS},
    {"ffn_norm.weight", "feedforward_layernorm.weight", NAMES_OF_APERTUS},
    {"xielu.alpha_p", "mlp.act_fn.alpha_p", NAMES_OF_APERTUS},
    {"xielu.alpha_n", "mlp.act_fn.alpha_n", NAMES_OF_APERTUS},
    {"xielu.beta", "mlp.act_fn.beta", NAMES_OF_APERTUS},
    {"xielu.eps", "mlp.act_fn.eps", NAMES_OF_APERTUS},
    {"attn_q_norm.weight", "self_attn.query_layernorm.weight", NAMES_OF_HUNYUAN},
    {"attn_k_norm.weight", "self_attn.key_layernorm.weight", NAMES_OF_HUNYUAN},
    {"ssm_in.weight", "mamba.in_proj.weight", NAMES_OF_MAMBA},
    {"ssm_conv1d.weight", "mamba.conv1d.weight", NAMES_OF_MAMBA},
    {"ssm_conv1d.bias", "mamba.conv1d.bias", NAMES_OF_MAMBA},
    {"ssm_a", "mamba.A_log", NAMES_OF_MAMBA},
    {"ssm_d", "mamba.D", NAMES_OF_MAMBA},
    {"ssm_dt.bias", "mamba.dt_bias", NAMES_OF_MAMBA},
    {"ssm_norm.weight", "mamba.norm.weight", NAMES_OF_MAMBA},
    {"ssm_out.weight", "mamba.out_proj.weight", NAMES_OF_MAMBA},
    {"ffn_gate_inp.weight", "block_sparse_moe.router.layer.weight", NAMES_OF_GRANITE},
    {"ffn_gate_up_exps.weight", "block_sparse_moe.input_linear.weight", NAMES_OF_GRANITE},
    {"ffn_down_exps.weight", "block_sparse_moe.output_linear.weight", NAMES_OF_GRANITE},
    {"ffn_gate_up_shexp.weight", shared_in, NAMES_OF_GRANITE},
    {"ffn_down_shexp.weight", shared_out, NAMES_OF_GRANITE},
    {"ffn_gate_up.weight", shared_in, NAMES_OF_GRANITE},
    {"ffn_down.weight", shared_out, NAMES_OF_GRANITE},
    {"attn_norm.weight", "norm.weight", NAMES_OF_NEMOTRON_H},
    {"attn_q.weight", "mixer.q_proj.weight", NAMES_OF_NEMOTRON_H},
    {"attn_k.weight", "mixer.k_proj.weight", NAMES_OF_NEMOTRON_H},
    {"attn_v.weight", "mixer.v_proj.weight", NAMES_OF_NEMOTRON_H},
    {"attn_output.weight", "mixer.o_proj.weight", NAMES_OF_NEMOTRON_H},
    {"ffn_up.weight", "mixer.up_proj.weight", NAMES_OF_NEMOTRON_H},
    {"ffn_down.weight", "mixer.down_proj.weight", NAMES_OF_NEMOTRON_H},
    {"ffn_gate_inp.weight", "mixer.gate.weight", NAMES_OF_NEMOTRON_H},
    {"exp_probs_b.bias", "mixer.gate.e_score_correction_bias", NAMES_OF_NEMOTRON_H},
    {"ffn_up_exps.weight", "mixer.experts.up_proj", NAMES_OF_NEMOTRON_H},
    {"ffn_down_exps.weight", "mixer.experts.down_proj", NAMES_OF_NEMOTRON_H},
    {"ffn_up_shexp.weight", "mixer.shared_experts.up_proj.weight", NAMES_OF_NEMOTRON_H},
    {"ffn_down_shexp.weight", "mixer.shared_experts.down_proj.weight", NAMES_OF_NEMOTRON_H},
    {"ssm_in.weight", "mixer.in_proj.weight", NAMES_OF_NEMOTRON_H},
    {"ssm_conv1d.weight", "mixer.conv1d.weight", NAMES_OF_NEMOTRON_H},
    {"ssm_conv1d.bias", "mixer.conv1d.bias", NAMES_OF_NEMOTRON_H},
    {"ssm_a", "mixer.A_log", NAMES_OF_NEMOTRON_H},
    {"ssm_d", "mixer.D", NAMES_OF_NEMOTRON_H},
    {"ssm_dt.bias", "mixer.dt_bias", NAMES_OF_NEMOTRON_H},
    {"ssm_norm.weight", "mixer.norm.weight", NAMES_OF_NEMOTRON_H},
    {"ssm_out.weight", "mixer.out_proj.weight", NAMES_OF_NEMOTRON_H},
    {"ffn_norm.weight", "pre_ff_layernorm.weight", NAMES_OF_FALCON_H1},
    {"ffn_gate.weight", "feed_forward.gate_proj.weight", NAMES_OF_FALCON_H1},
    {"ffn_up.weight", "feed_forward.up_proj.weight", NAMES_OF_FALCON_H1},
    {"ffn_down.weight", "feed_forward.down_proj.weight", NAMES_OF_FALCON_H1},
    {"attn_norm.weight", "attn_norm.weight", NAMES_OF_MODERN_BERT},
    {"attn_qkv.weight", "attn.Wqkv.weight", NAMES_OF_MODERN_BERT},
    {"attn_output.weight", "attn.Wo.weight", NAMES_OF_MODERN_BERT},
    {"ffn_norm.weight", "mlp_norm.weight", NAMES_OF_MODERN_BERT},
    {"ffn_up.weight", "mlp.Wi.weight", NAMES_OF_MODERN_BERT},
    {"ffn_down.weight", "mlp.Wo.weight", NAMES_OF_MODERN_BERT},
    {"attn_norm.weight", "operator_norm.weight", NAMES_OF_LFM2},
    {"ffn_norm.weight", "ffn_norm.weight", NAMES_OF_LFM2},
    {"attn_q_norm.weight", "self_attn.q_layernorm.weight", NAMES_OF_LFM2},
    {"attn_k_norm.weight", "self_attn.k_layernorm.weight", NAMES_OF_LFM2},
    {"attn_output.weight", "self_attn.out_proj.weight", NAMES_OF_LFM2},
    {"shortconv.in_proj.weight", "conv.in_proj.weight", NAMES_OF_LFM2},
    {"shortconv.conv.weight", "conv.conv.weight", NAMES_OF_LFM2},
    {"shortconv.out_proj.weight", "conv.out_proj.weight", NAMES_OF_LFM2},
    {"ffn_gate.weight", "feed_forward.w1.weight", NAMES_OF_LFM2},
    {"ffn_up.weight", "feed_forward.w3.weight", NAMES_OF_LFM2},
    {"ffn_down.weight", "feed_forward.w2.weight", NAMES_OF_LFM2},
    {"ffn_gate_inp.weight", "feed_forward.gate.weight", NAMES_OF_LFM2},
    {"exp_probs_b.bias", "feed_forward.expert_bias", NAMES_OF_LFM2},
    {"ffn_gate_up_exps.weight", "feed_forward.experts.gate_up_proj", NAMES_OF_LFM2},
    {"ffn_down_exps.weight", "feed_forward.experts.down_proj", NAMES_OF_LFM2},
    {"attn_q.weight", "attention.self.query.weight", NORMS_OF_ENCODER},
    {"attn_q.bias", "attention.self.query.bias", NORMS_OF_ENCODER},
    {"attn_k.weight", "attention.self.key.weight", NORMS_OF_ENCODER},
    {"attn_k.bias", "attention.self.key.bias", NORMS_OF_ENCODER},
    {"attn_v.weight", "attention.self.value.weight", NORMS_OF_ENCODER},
    {"attn_v.bias", "attention.self.value.bias", NORMS_OF_ENCODER},
    {"attn_output.weight", "attention.output.dense.weight", NORMS_OF_ENCODER},
    {"attn_output.bias", "attention.output.dense.bias", NORMS_OF_ENCODER},
    {"attn_output_norm.weight", "attention.output.LayerNorm.weight", NORMS_OF_ENCODER},
    {"attn_output_norm.bias", "attention.output.LayerNorm.bias", NORMS_OF_ENCODER},
    {"ffn_up.weight", "intermediate.dense.weight", NORMS_OF_ENCODER},
    {"ffn_up.bias", "intermediate.dense.bias", NORMS_OF_ENCODER},
    {"ffn_down.weight", "output.dense.weight", NORMS_OF_ENCODER},
    {"ffn_down.bias", "output.dense.bias", NORMS_OF_ENCODER},
    {"layer_output_norm.weight", "output.LayerNorm.weight", NORMS_OF_ENCODER},
    {"layer_output_norm.bias", "output.LayerNorm.bias", NORMS_OF_ENCODER},
    {"attn_q.weight", "attention.attn.q.weight", NAMES_OF_MPNET},
    {"attn_q.bias", "attention.attn.q.bias", NAMES_OF_MPNET},
    {"attn_k.weight", "attention.attn.k.weight", NAMES_OF_MPNET},
    {"attn_k.bias", "attention.attn.k.bias", NAMES_OF_MPNET},
    {"attn_v.weight", "attention.attn.v.weight", NAMES_OF_MPNET},
    {"attn_v.bias", "attention.attn.v.bias", NAMES_OF_MPNET},
    {"attn_output.weight", "attention.attn.o.weight", NAMES_OF_MPNET},
    {"attn_output.bias", "attention.attn.o.bias", NAMES_OF_MPNET},
    {"attn_output_norm.weight", "attention.LayerNorm.weight", NAMES_OF_MPNET},
    {"attn_output_norm.bias", "attention.LayerNorm.bias", NAMES_OF_MPNET},
};
#define LAYER_NAME_COUNT (sizeof layer_names / sizeof *layer_names)

/* The tensors of one expert: "ffn_gate.E.weight" and "mlp.experts.E.gate_proj.weight". */
static const struct expert_name {
    const char *gguf, *before, *behind;
} expert_names[] = {{"ffn_gate.", "mlp.experts.", ".gate_proj.weight"},
                    {"ffn_up.", "mlp.experts.", ".up_proj.weight"},
                    {"ffn_down.", "mlp.experts.", ".down_proj.weight"}},
  expert_names_of_lfm2[] = {{"ffn_gate.", "feed_forward.experts.", ".w1.weight"},
                            {"ffn_up.", "feed_forward.experts.", ".w3.weight"},
                            {"ffn_down.", "feed_forward.experts.", ".w2.weight"}},
  expert_names_of_nemotron_h[] = {{"ffn_gate.", "mixer.experts.", ".gate_proj.weight"},
                                  {"ffn_up.", "mixer.experts.", ".up_proj.weight"},
                                  {"ffn_down.", "mixer.experts.", ".down_proj.weight"}};
#define EXPERT_NAME_COUNT (sizeof expert_names / sizeof *expert_names)

static const struct expert_name *expert_names_of(const struct architecture *architecture) {
    if (architecture->has_single_halves) return expert_names_of_nemotron_h;
    return architecture->recurrent == MIXER_CONV ? expert_names_of_lfm2 : expert_names;
}

static const char head[] = "lm_head.weight";
static const char fused_gate_up[] = "mlp.gate_up_proj.weight";

/* Tensors outside the layers, behind the prefix. */
static const struct name_pair single_names[] = {
    {"token_embd.weight", "embed_tokens.weight", NORMS_ANY},
    {"output_norm.weight", "norm.weight", NORMS_ANY},
    {"output_norm.bias", "norm.bias", NORMS_ANY},
    {"output_norm.weight", "embedding_norm.weight", NAMES_OF_LFM2},
    {"token_embd.weight", "embedding.weight", NAMES_OF_NEMOTRON_H}, /* the first files */
    {"token_embd.weight", "embeddings.weight", NAMES_OF_NEMOTRON_H},
    {"output_norm.weight", "norm_f.weight", NAMES_OF_NEMOTRON_H},
    {"output_norm.weight", "final_layernorm.weight", NAMES_OF_FALCON_H1},
    {"token_embd.weight", "embeddings.tok_embeddings.weight", NAMES_OF_MODERN_BERT},
    {"token_embd_norm.weight", "embeddings.norm.weight", NAMES_OF_MODERN_BERT},
    {"output_norm.weight", "final_norm.weight", NAMES_OF_MODERN_BERT},
    {"per_layer_token_embd.weight", "embed_tokens_per_layer.weight", NAMES_OF_GEMMA_4},
    {"per_layer_model_proj.weight", "per_layer_model_projection.weight", NAMES_OF_GEMMA_4},
    {"per_layer_proj_norm.weight", "per_layer_projection_norm.weight", NAMES_OF_GEMMA_4},
    {"token_embd.weight", "embeddings.word_embeddings.weight", NORMS_OF_ENCODER},
    {"position_embd.weight", "embeddings.position_embeddings.weight", NORMS_OF_ENCODER},
    {"token_types.weight", "embeddings.token_type_embeddings.weight", NORMS_OF_ENCODER},
    {"token_embd_norm.weight", "embeddings.LayerNorm.weight", NORMS_OF_ENCODER},
    {"token_embd_norm.bias", "embeddings.LayerNorm.bias", NORMS_OF_ENCODER},
    {"attn_rel_b.weight", "encoder.relative_attention_bias.weight", NAMES_OF_MPNET},
    {"cls.weight", "pooler.dense.weight", NORMS_OF_ENCODER},
    {"cls.bias", "pooler.dense.bias", NORMS_OF_ENCODER},
};
#define SINGLE_NAME_COUNT (sizeof single_names / sizeof *single_names)

/* The head for labels, which no prefix stands before. */
static const struct {
    const char *gguf, *folder;
    const char *architecture; /* NULL: decoders */
} label_names[] = {
    {"cls.output.weight", "classifier.weight", "bert"},
    {"cls.output.bias", "classifier.bias", "bert"},
    {"cls.weight", "classifier.dense.weight", "xlm-roberta"},
    {"cls.bias", "classifier.dense.bias", "xlm-roberta"},
    {"cls.output.weight", "classifier.out_proj.weight", "xlm-roberta"},
    {"cls.output.bias", "classifier.out_proj.bias", "xlm-roberta"},
    {"cls.weight", "classifier.dense.weight", "mpnet"},
    {"cls.bias", "classifier.dense.bias", "mpnet"},
    {"cls.output.weight", "classifier.out_proj.weight", "mpnet"},
    {"cls.output.bias", "classifier.out_proj.bias", "mpnet"},
    {"cls.weight", "head.dense.weight", "modern-bert"},
    {"cls.norm.weight", "head.norm.weight", "modern-bert"},
    {"cls.output.weight", "classifier.weight", "modern-bert"},
    {"cls.output.bias", "classifier.bias", "modern-bert"},
    {"cls.output.weight", "score.weight", NULL},
    {"cls.output.bias", "score.bias", NULL},
};
#define LABEL_NAME_COUNT (sizeof label_names / sizeof *label_names)

static bool has_label_name(const struct architecture *architecture, size_t index) {
    const char *of = label_names[index].architecture;
    if (of) return strcmp(of, architecture->name) == 0;
    return !architecture->is_encoder && !architecture->embedding_is_normed;
}

static bool is_of(const struct name_pair *pair, const struct architecture *architecture) {
    if (pair->norms == NAMES_OF_MPNET) return architecture->has_distance_bias;
    if (architecture->is_encoder || pair->norms == NORMS_OF_ENCODER)
        return architecture->is_encoder && pair->norms == NORMS_OF_ENCODER;
    if (pair->norms == NAMES_OF_GEMMA_4) return architecture->has_layer_scale;
    if (pair->norms == NAMES_OF_NEMOTRON_H) return architecture->has_single_halves;
    if (pair->norms == NAMES_OF_MODERN_BERT) return architecture->embedding_is_normed;
    if (pair->norms == NAMES_OF_FALCON_H1) return architecture->mixers_are_parallel;
    if (pair->norms == NAMES_OF_MAMBA)
        return architecture->recurrent == MIXER_MAMBA && !architecture->has_single_halves;
    if (pair->norms == NAMES_OF_GRANITE) {
        const bool is_of_shared = str_ends_with(str_from(pair->gguf), STR("shexp.weight"));
        const bool is_shared = pair->folder == shared_in || pair->folder == shared_out;
        return architecture->recurrent == MIXER_MAMBA && architecture->has_multipliers &&
               (!is_shared || is_of_shared == architecture->has_shared_expert);
    }
    if (pair->norms == NAMES_OF_APERTUS) return architecture->activation == ACTIVATION_XIELU;
    if (pair->norms == NAMES_OF_HUNYUAN) return architecture->norms_follow_turn;
    if (pair->norms == NAMES_OF_DEEPSEEK) return architecture->shared_experts_are_counted;
    if (pair->norms == NAMES_OF_LFM2) return architecture->recurrent == MIXER_CONV;
    if (pair->norms == NAMES_OF_GPT_OSS) return architecture->has_sinks;
    if (pair->norms == NORMS_ANY)
        return architecture->has_fused_gate_up || !str_is(str_from(pair->folder), fused_gate_up);
    if (architecture->recurrent == MIXER_CONV) return false;
    const enum norms norms = architecture->has_glm_norms   ? NORMS_OF_GLM
                             : architecture->has_post_norm ? NORMS_FOUR
                                                           : NORMS_TWO;
    return pair->norms == norms;
}

static const char *layers_of(const struct architecture *architecture) {
    return architecture->is_encoder ? "encoder.layer." : "layers.";
}

/* Whether `rest` is the pair's; the first files of BERT called the two vectors of a norm otherwise.
 */
static bool is_spelled(const struct name_pair *pair, struct str rest) {
    struct str name = str_from(pair->folder);
    if (str_equals(rest, name)) return true;
    bool is_weight = str_ends_with(name, STR("LayerNorm.weight"));
    if (!is_weight && !str_ends_with(name, STR("LayerNorm.bias"))) return false;
    name.bytes -= is_weight ? strlen("weight") : strlen("bias");
    return str_starts_with(rest, name) &&
           str_is(str_skip(rest, name.bytes), is_weight ? "gamma" : "beta");
}

/* "12.rest"; false when no number of a layer stands there as it is written. */
static bool cut_layer(struct str text, uint64_t *ret_layer, struct str *ret_rest) {
    size_t dot = str_find_byte(text, '.', 0);
    if (dot == SIZE_MAX || dot > 6 || (dot > 1 && text.at[0] == '0')) return false;
    *ret_rest = str_skip(text, dot + 1);
    return str_to_u64((struct str){text.at, dot}, ret_layer);
}

static bool read_expert(const struct architecture *architecture, uint64_t layer, struct str rest,
                        struct tensor_name *ret_name) {
    const struct expert_name *names = expert_names_of(architecture);
    uint64_t expert;
    struct str part;
    if (!str_starts_with(rest, str_from(names->before)) ||
        !cut_layer(str_skip(rest, strlen(names->before)), &expert, &part))
        return false;
    for (size_t i = 0; i < EXPERT_NAME_COUNT; i++) {
        if (!str_is(part, names[i].behind + 1)) continue;
        snprintf(ret_name->text, sizeof ret_name->text, "blk.%u.%s%u.weight", (unsigned)layer,
                 names[i].gguf, (unsigned)expert);
        return true;
    }
    return false;
}

/* "ffn_gate.E.weight" as a folder has it. */
static bool spell_expert(const struct architecture *architecture, struct str rest,
                         const char *prefix, unsigned layer, struct tensor_name *ret_name) {
    const struct expert_name *names = expert_names_of(architecture);
    uint64_t expert;
    struct str ending;
    for (size_t i = 0; i < EXPERT_NAME_COUNT; i++) {
        struct str begin = str_from(names[i].gguf);
        if (!str_starts_with(rest, begin) ||
            !cut_layer(str_skip(rest, begin.bytes), &expert, &ending))
            continue;
        snprintf(ret_name->text, sizeof ret_name->text, "%slayers.%u.%s%u%s", prefix, layer,
                 names[i].before, (unsigned)expert, names[i].behind);
        return true;
    }
    return false;
}

bool folder_name_read(const struct architecture *architecture, const char *prefix, struct str name,
                      struct tensor_name *ret_name) {
    if (!architecture->is_encoder &&
        (str_is(name, head) || str_is(name, "language_model.lm_head.weight"))) {
        snprintf(ret_name->text, sizeof ret_name->text, "output.weight");
        return true;
    }
    for (size_t i = 0; i < LABEL_NAME_COUNT; i++) {
        if (!has_label_name(architecture, i) || !str_is(name, label_names[i].folder)) continue;
        snprintf(ret_name->text, sizeof ret_name->text, "%s", label_names[i].gguf);
        return true;
    }
    if (!str_starts_with(name, str_from(prefix))) return false;
    struct str rest = str_skip(name, strlen(prefix));
    for (size_t i = 0; i < SINGLE_NAME_COUNT; i++) {
        if (!is_of(&single_names[i], architecture) || !is_spelled(&single_names[i], rest)) continue;
        snprintf(ret_name->text, sizeof ret_name->text, "%s", single_names[i].gguf);
        return true;
    }
    uint64_t layer;
    const char *layers = layers_of(architecture);
    if (!str_starts_with(rest, str_from(layers)) ||
        !cut_layer(str_skip(rest, strlen(layers)), &layer, &rest))
        return false;
    for (size_t i = 0; i < LAYER_NAME_COUNT; i++) {
        if (!is_of(&layer_names[i], architecture) || !is_spelled(&layer_names[i], rest)) continue;
        snprintf(ret_name->text, sizeof ret_name->text, "blk.%u.%s", (unsigned)layer,
                 layer_names[i].gguf);
        return true;
    }
    return read_expert(architecture, layer, rest, ret_name);
}

struct tensor_name folder_name_of(const struct architecture *architecture, const char *prefix,
                                  const char *gguf_name) {
    struct tensor_name name;
    struct str text = str_from(gguf_name), rest;
    uint64_t layer;
    snprintf(name.text, sizeof name.text, "%s", gguf_name);
    if (str_is(text, "output.weight")) snprintf(name.text, sizeof name.text, "%s", head);
    for (size_t i = 0; i < SINGLE_NAME_COUNT; i++)
        if (is_of(&single_names[i], architecture) && str_is(text, single_names[i].gguf))
            snprintf(name.text, sizeof name.text, "%s%s", prefix, single_names[i].folder);
    for (size_t i = 0; i < LABEL_NAME_COUNT; i++)
        if (has_label_name(architecture, i) && str_is(text, label_names[i].gguf))
            snprintf(name.text, sizeof name.text, "%s", label_names[i].folder);
    if (!str_starts_with(text, STR("blk.")) || !cut_layer(str_skip(text, 4), &layer, &rest))
        return name;
    if (spell_expert(architecture, rest, prefix, (unsigned)layer, &name)) return name;
    for (size_t i = 0; i < LAYER_NAME_COUNT; i++)
        if (str_is(rest, layer_names[i].gguf) && is_of(&layer_names[i], architecture))
            snprintf(name.text, sizeof name.text, "%s%s%u.%s", prefix, layers_of(architecture),
                     (unsigned)layer, layer_names[i].folder);
    return name;
}

bool folder_name_is_needless(const struct architecture *architecture, struct str name,
                             bool is_part_of_another) {
    static const char *const behind[] = {"pooler.",       "bert.pooler.", "roberta.pooler.",
                                         "mpnet.pooler.", "cls.",         "lm_head."};
    static const char *const endings[] = {"rotary_emb.inv_freq", ".position_ids",
                                          "self_attn.masked_bias"};
    /* Layers that guess further tokens, and the part that sees: a flat config may stand beside
     * them.
     */
    static const char *const of_hybrids[] = {"mtp.", "model.visual.", "visual."};
    static const char *const parts[] = {"vision_tower.",
                                        "vision_model.",
                                        "multi_modal_projector.",
                                        "model.vision_tower.",
                                        "model.vision_model.",
                                        "model.multi_modal_projector.",
                                        "audio_tower.",
                                        "model.audio_tower.",
                                        "model.embed_vision.",
                                        "model.embed_audio.",
                                        "visual.",
                                        "model.visual."};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (str_ends_with(name, str_from(endings[i]))) return true;
    for (size_t i = 0; architecture->is_encoder && i < sizeof behind / sizeof *behind; i++)
        if (str_starts_with(name, str_from(behind[i]))) return true;
    for (size_t i = 0;
         (architecture->recurrent == MIXER_DELTA || architecture->has_single_halves) &&
         i < sizeof of_hybrids / sizeof *of_hybrids;
         i++)
        if (str_starts_with(name, str_from(of_hybrids[i]))) return true;
    for (size_t i = 0; is_part_of_another && i < sizeof parts / sizeof *parts; i++)
        if (str_starts_with(name, str_from(parts[i]))) return true;
    return false;
}
