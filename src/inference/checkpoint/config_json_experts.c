/* SPDX-License-Identifier: Apache-2.0 */

/* The fields of a mixture of experts, which layers have one, and how a row's experts are chosen.
 * The defaults of families are in config_json_families.c. */

#include "checkpoint/config_experts.h"
#include "checkpoint/config_json_families.h"

/* Several names for one number: Hub's files have one, transformers 5 may write another. */
static enum err read_count(struct model_config *config, const json_t *text,
                           const struct family *family, struct error *error) {
    static const char *const keys[] = {"num_experts", "num_local_experts", "n_routed_experts"};
    const char *first = NULL;
    config->experts = family->experts;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        uint32_t count = 0;
        const json_t *field = json_member(text, keys[i]);
        if (!field) continue;
        if (json_is_integer(field) && json_integer_value(field) == 0 &&
            config_without_experts(config->architecture)) {
            config->experts = 0;
            return OK;
        }
        enum err err = config_json_count(text, keys[i], CONFIG_EXPERTS_MAX, &count, error);
        if (err != OK) return err;
        if (first && count != config->experts)
            return err_set(error, ERR_INVALID, "%s is %u, but %s is %u", first, config->experts,
                           keys[i], count);
        first = keys[i];
        config->experts = count;
    }
    return OK;
}

/* The first layers may be dense: two names for their number. */
static enum err read_dense(struct model_config *config, const json_t *text,
                           const struct family *family, struct error *error) {
    static const char *const keys[] = {"first_k_dense_replace", "num_dense_layers"};
    json_int_t dense = family->dense_layers;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *field = json_member(text, keys[i]);
        if (!field) continue;
        dense = json_is_integer(field) ? json_integer_value(field) : -1;
        if (dense < 0 || dense > config->layers)
            return err_set(error, ERR_INVALID, "%s is no integer of 0..%u", keys[i],
                           config->layers);
    }
    const json_t *types = json_member(text, "mlp_layer_types"); /* transformers 5 writes it */
    if (types && json_array_size(types) != config->layers)
        return err_set(error, ERR_INVALID, "mlp_layer_types is no list of %u layers",
                       config->layers);
    for (uint32_t i = 0; i < config->layers; i++) {
        const struct str type = json_str(json_array_get(types, i));
        const bool is_dense = types ? str_is(type, "dense") : i < dense;
        if (types && !is_dense && !str_is(type, "sparse"))
            return err_set(error, ERR_INVALID,
                           "mlp_layer_types: element %u is neither dense nor sparse", i);
        if (is_dense) config->list[i].ffn = FFN_GATED;
    }
    return OK;
}

/* Layers in mlp_only_layers, and all but each decoder_sparse_step-th, are dense. */
static enum err read_layers(struct model_config *config, const json_t *text,
                            const struct family *family, struct error *error) {
    uint32_t step = 1;
    if (config->architecture->has_single_halves) return OK; /* its pattern says it */
    const json_t *dense = json_member(text, "mlp_only_layers");
    enum err err = config_json_count(text, "decoder_sparse_step", CONFIG_LAYERS_MAX, &step, error);
    if (err != OK) return err;
    for (uint32_t i = 0; i < config->layers; i++)
        config->list[i].ffn = (i + 1) % step == 0 ? FFN_EXPERTS : FFN_GATED;
    step = 1; /* DeepSeek's counts from the first layer on */
    err = config_json_count(text, "moe_layer_freq", CONFIG_LAYERS_MAX, &step, error);
    if (err != OK) return err;
    for (uint32_t i = 0; i < config->layers; i++)
        if (i % step != 0) config->list[i].ffn = FFN_GATED;
    err = read_dense(config, text, family, error);
    if (err == OK && dense && !json_is_array(dense))
        err = err_set(error, ERR_INVALID, "mlp_only_layers is no list");
    for (size_t i = 0; err == OK && i < json_array_size(dense); i++) {
        const json_t *number = json_array_get(dense, i);
        json_int_t layer = json_is_integer(number) ? json_integer_value(number) : -1;
        if (layer < 0 || layer >= config->layers)
            return err_set(error, ERR_INVALID, "mlp_only_layers: element %zu is no layer of 0..%u",
                           i, config->layers - 1);
        config->list[layer].ffn = FFN_GATED;
    }
    for (uint32_t i = 0; err == OK && i < config->layers; i++)
        if (config->list[i].ffn == FFN_GATED && config->ffn == 0)
            err = err_set(error, ERR_INVALID,
                          "intermediate_size is missing, but layer %u has no experts", i);
    return err;
}

/* Only a family with experts that are as wide as intermediate_size has no name of their own. */
static enum err read_widths(struct model_config *config, const json_t *text,
                            const struct family *family, struct error *error) {
    config->expert_ffn = family->expert_ffn > 0 ? family->expert_ffn : config->ffn;
    enum err err = OK;
    if (family->expert_ffn > 0)
        err = config_json_count(text, "moe_intermediate_size", CONFIG_FFN_MAX, &config->expert_ffn,
                                error);
    if (err == OK && config->architecture->has_shared_expert && family->shared_experts == 0) {
        config->shared_ffn = family->shared_ffn;
        err = config_json_count(text, "shared_expert_intermediate_size", CONFIG_FFN_MAX,
                                &config->shared_ffn, error);
        if (err == OK && config->architecture->has_single_halves)
            err = config_json_count(text, "moe_shared_expert_intermediate_size", CONFIG_FFN_MAX,
                                    &config->shared_ffn, error);
        if (err == OK)
            err = config_json_count(text, "shared_intermediate_size", CONFIG_FFN_MAX,
                                    &config->shared_ffn, error);
    }
    config->gate_limit = 7.0f;
    config->gate_alpha = 1.702f;
    if (err == OK)
        err = config_json_number(text, "swiglu_limit", 1e-3, 1e6, &config->gate_limit, error);
    if (err == OK)
        err = config_json_number(text, "swiglu_alpha", 1e-3, 1e3, &config->gate_alpha, error);
    return err;
}

static enum err read_rule(struct model_config *config, const json_t *text,
                          const struct family *family, struct error *error) {
    struct routing_rule *rule = &config->routing;
    rule->is_sigmoid = rule->has_bias = family->router_is_sigmoid;
    config->expert_weights_sum_to_one = family->expert_weights_sum_to_one;
    enum err err =
        config_json_bool(text, "norm_topk_prob", &config->expert_weights_sum_to_one, error);
    if (err == OK && family->always_sums_to_one && !config->expert_weights_sum_to_one)
        err = err_set(error, ERR_INVALID, "norm_topk_prob false is not what %s computes",
                      family->model_type);
    if (err == OK && rule->is_sigmoid)
        err = config_json_bool(text, "use_expert_bias", &rule->has_bias, error);
    if (err == OK && rule->is_sigmoid)
        err = config_json_number(text, "routed_scaling_factor", 1e-3, 1e3, &rule->scale, error);
    if (err == OK && family->shared_experts > 0)
        err = config_json_read_groups(config, text, family, error);
    return err == OK ? config_check_experts(config, error) : err;
}

enum err config_json_read_experts(struct model_config *config, const json_t *text,
                                  const struct family *family, struct error *error) {
    config->experts_used = family->experts_used;
    enum err err = read_count(config, text, family, error);
    if (err == OK && config->experts == 0) { /* what all rows go through is the feed-forward */
        err = read_widths(config, text, family, error);
        config->architecture = config_without_experts(config->architecture);
        config->ffn = config->shared_ffn;
        config->shared_ffn = config->experts_used = config->expert_ffn = 0;
        return err;
    }
    if (err == OK)
        err = config_json_count(text, "num_experts_per_tok", CONFIG_EXPERTS_MAX,
                                &config->experts_used, error);
    if (err == OK && config->experts_used == 0)
        err = err_set(error, ERR_INVALID, "num_experts_per_tok is missing");
    if (err == OK && config->experts_used > config->experts)
        err = err_set(error, ERR_INVALID, "num_experts_per_tok is %u, over the %u experts",
                      config->experts_used, config->experts);
    if (err == OK) err = read_widths(config, text, family, error);
    if (err == OK) err = read_rule(config, text, family, error);
    return err == OK ? read_layers(config, text, family, error) : err;
}
