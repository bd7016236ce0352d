/* SPDX-License-Identifier: Apache-2.0 */

/* The fields of a mixture of experts, and which layers have one. The defaults are those of
 * Qwen3MoeConfig and GptOssConfig in transformers 5. */

#include "checkpoint/config_json.h"

/* Two names for one number: Hub's files have the first, transformers 5 writes the second. */
static enum err read_count(struct model_config *config, const json_t *text, struct error *error) {
    uint32_t local = config->experts = 128;
    enum err err =
        config_json_count(text, "num_experts", CONFIG_EXPERTS_MAX, &config->experts, error);
    local = config->experts;
    if (err == OK)
        err = config_json_count(text, "num_local_experts", CONFIG_EXPERTS_MAX, &local, error);
    if (err == OK && json_member(text, "num_experts") && local != config->experts)
        return err_set(error, ERR_INVALID, "num_experts is %u, but num_local_experts is %u",
                       config->experts, local);
    config->experts = local;
    return err;
}

/* Layers in mlp_only_layers, and all but each decoder_sparse_step-th, are dense. */
static enum err read_layers(struct model_config *config, const json_t *text, struct error *error) {
    uint32_t step = 1;
    const json_t *dense = json_member(text, "mlp_only_layers");
    enum err err = config_json_count(text, "decoder_sparse_step", CONFIG_LAYERS_MAX, &step, error);
    if (err != OK) return err;
    for (uint32_t i = 0; i < config->layers; i++)
        config->list[i].ffn = (i + 1) % step == 0 ? FFN_EXPERTS : FFN_GATED;
    if (dense && !json_is_array(dense))
        return err_set(error, ERR_INVALID, "mlp_only_layers is no list");
    for (size_t i = 0; i < json_array_size(dense); i++) {
        const json_t *number = json_array_get(dense, i);
        json_int_t layer = json_is_integer(number) ? json_integer_value(number) : -1;
        if (layer < 0 || layer >= config->layers)
            return err_set(error, ERR_INVALID, "mlp_only_layers: element %zu is no layer of 0..%u",
                           i, config->layers - 1);
        config->list[layer].ffn = FFN_GATED;
    }
    for (uint32_t i = 0; i < config->layers; i++)
        if (config->list[i].ffn == FFN_GATED && config->ffn == 0)
            return err_set(error, ERR_INVALID,
                           "intermediate_size is missing, but layer %u has no experts", i);
    return OK;
}

/* gpt-oss: all layers have experts as wide as intermediate_size. */
static enum err read_gpt_oss(struct model_config *config, const json_t *text, struct error *error) {
    config->expert_ffn = config->ffn;
    config->expert_weights_sum_to_one = true;
    config->gate_limit = 7.0f;
    config->gate_alpha = 1.702f;
    for (uint32_t i = 0; i < config->layers; i++) config->list[i].ffn = FFN_EXPERTS;
    enum err err = config_json_number(text, "swiglu_limit", 1e-3, 1e6, &config->gate_limit, error);
    return err == OK
               ? config_json_number(text, "swiglu_alpha", 1e-3, 1e3, &config->gate_alpha, error)
               : err;
}

static enum err read_qwen3(struct model_config *config, const json_t *text, struct error *error) {
    config->expert_ffn = 768;
    enum err err = config_json_count(text, "moe_intermediate_size", CONFIG_FFN_MAX,
                                     &config->expert_ffn, error);
    if (err == OK)
        err = config_json_bool(text, "norm_topk_prob", &config->expert_weights_sum_to_one, error);
    if (err == OK && config->architecture->has_shared_expert) {
        config->shared_ffn = 512;
        err = config_json_count(text, "shared_expert_intermediate_size", CONFIG_FFN_MAX,
                                &config->shared_ffn, error);
    }
    return err == OK ? read_layers(config, text, error) : err;
}

enum err config_json_read_experts(struct model_config *config, const json_t *text,
                                  struct error *error) {
    const bool is_gpt_oss = config->architecture->has_expert_bias;
    config->experts_used = is_gpt_oss ? 4 : 8;
    config->expert_weights_sum_to_one = config->architecture->expert_weights_sum_to_one;
    enum err err = read_count(config, text, error);
    if (err == OK)
        err = config_json_count(text, "num_experts_per_tok", CONFIG_EXPERTS_MAX,
                                &config->experts_used, error);
    if (err == OK && config->experts_used > config->experts)
        err = err_set(error, ERR_INVALID, "num_experts_per_tok is %u, over the %u experts",
                      config->experts_used, config->experts);
    if (err != OK) return err;
    return is_gpt_oss ? read_gpt_oss(config, text, error) : read_qwen3(config, text, error);
}
