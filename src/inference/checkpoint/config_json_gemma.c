/* SPDX-License-Identifier: Apache-2.0 */

/* Gemma 4: layers with a window and without differ in their heads, the last ones read the keys of
 * others, and a token may have an embedding for each layer. The defaults are those of
 * Gemma4TextConfig in transformers 5. */

#include "checkpoint/config_gemma.h"
#include "checkpoint/config_json.h"

#include <stdio.h>

/* A count that may be 0. */
static enum err read_or_zero(const json_t *text, const char *key, uint32_t max, uint32_t *value,
                             struct error *error) {
    const json_t *field = json_member(text, key);
    if (json_is_integer(field) && json_integer_value(field) == 0) {
        *value = 0;
        return OK;
    }
    return config_json_count(text, key, max, value, error);
}

/* What transformers 5 writes instead of global_head_dim and num_global_key_value_heads: an object
 * with the sizes of each layer without a window, by its number. All must have the same. */
static enum err read_per_layer(const struct model_config *config, const json_t *layers,
                               uint32_t *head_dim, uint32_t *kv_heads, struct error *error) {
    size_t found = 0;
    for (uint32_t i = 0; i < config->layers; i++) {
        char number[16];
        snprintf(number, sizeof number, "%u", i);
        const json_t *sizes = json_member(layers, number);
        const bool has_kv = json_member(sizes, "num_key_value_heads");
        uint32_t dim = config->head_dim, kv = *kv_heads;
        if (config_layer_is_local(config, i) ? sizes != NULL : !json_is_object(sizes))
            return err_set(error, ERR_INVALID,
                           "per_layer_config: layer %u is missing, or has a window", i);
        if (!sizes) continue;
        enum err err = config_json_count(sizes, "head_dim", CONFIG_HEAD_DIM_MAX, &dim, error);
        if (err == OK)
            err = config_json_count(sizes, "num_key_value_heads", CONFIG_HEADS_MAX, &kv, error);
        if (err != OK) return err;
        const size_t known = (json_member(sizes, "head_dim") != NULL) + has_kv;
        if (json_object_size(sizes) != known ||
            (found > 0 && (dim != *head_dim || kv != *kv_heads)))
            return err_set(error, ERR_INVALID, "per_layer_config: layer %u is not as the others",
                           i);
        *head_dim = dim;
        *kv_heads = kv;
        found++;
    }
    if (json_object_size(layers) != found)
        return err_set(error, ERR_INVALID, "per_layer_config names layers that are none");
    return OK;
}

/* Layers with the window have head_dim and num_key_value_heads. */
static enum err read_heads(struct model_config *config, const json_t *text, struct error *error) {
    const uint32_t local = config->head_dim, local_kv = config->kv_heads;
    const json_t *layers = json_member(text, "per_layer_config");
    uint32_t global = 512, global_kv = local_kv;
    bool v_is_k = false;
    enum err err = OK;
    if (layers && !json_is_object(layers))
        return err_set(error, ERR_INVALID, "per_layer_config is no object");
    if (layers)
        err = read_per_layer(config, layers, &global, &global_kv, error);
    else
        err = config_json_count(text, "global_head_dim", CONFIG_HEAD_DIM_MAX, &global, error);
    if (err == OK) err = config_json_bool(text, "attention_k_eq_v", &v_is_k, error);
    if (err == OK && v_is_k && !layers)
        err = config_json_count(text, "num_global_key_value_heads", CONFIG_HEADS_MAX, &global_kv,
                                error);
    if (err != OK) return err;
    if (global % 8 != 0)
        return err_set(error, ERR_INVALID, "global_head_dim is %u, no multiple of 8", global);
    if (local > global)
        return err_set(error, ERR_INVALID, "head_dim is %u, over the global_head_dim of %u", local,
                       global);
    if (config->heads % global_kv != 0)
        return err_set(error, ERR_INVALID, "%u attention heads cannot share %u key-value heads",
                       config->heads, global_kv);
    config->head_dim = global;
    for (uint32_t i = 0; i < config->layers; i++) {
        struct layer *layer = &config->list[i];
        if (config_layer_is_local(config, i)) {
            if (local != global) layer->head_dim = local;
        } else {
            if (global_kv != local_kv) layer->kv_heads = global_kv;
            layer->v_is_k = v_is_k;
        }
    }
    return OK;
}

static enum err read_shared(struct model_config *config, const json_t *text, struct error *error) {
    uint32_t shared = 0;
    bool is_wide = false;
    enum err err = read_or_zero(text, "num_kv_shared_layers", CONFIG_LAYERS_MAX, &shared, error);
    if (err == OK) err = config_json_bool(text, "use_double_wide_mlp", &is_wide, error);
    if (err == OK) err = config_share_keys(config, shared, "num_kv_shared_layers", error);
    for (uint32_t i = 0; i < config->layers && err == OK; i++) {
        if (config->list[i].kv_from == 0) continue;
        config->list[i].v_is_k = false;
        if (is_wide) config->list[i].width_of_ffn = 2 * config->ffn;
    }
    return err;
}

static enum err read_experts(struct model_config *config, const json_t *text, struct error *error) {
    bool has_experts = false;
    enum err err = config_json_bool(text, "enable_moe_block", &has_experts, error);
    if (err != OK || !has_experts) return err;
    const struct {
        const char *key;
        uint32_t max, *count;
    } counts[] = {{"num_experts", CONFIG_EXPERTS_MAX, &config->experts},
                  {"top_k_experts", CONFIG_EXPERTS_MAX, &config->experts_used},
                  {"moe_intermediate_size", CONFIG_FFN_MAX, &config->expert_ffn}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (!json_member(text, counts[i].key))
            return err_set(error, ERR_INVALID, "%s is missing", counts[i].key);
        err = config_json_count(text, counts[i].key, counts[i].max, counts[i].count, error);
        if (err != OK) return err;
    }
    if (config->experts_used > config->experts)
        return err_set(error, ERR_INVALID, "top_k_experts is %u, over the %u experts",
                       config->experts_used, config->experts);
    config->expert_weights_sum_to_one = true;
    for (uint32_t i = 0; i < config->layers; i++) config->list[i].ffn = FFN_BOTH;
    return OK;
}

enum err config_json_read_gemma(struct model_config *config, const json_t *text,
                                struct error *error) {
    config->attention_scale = 1.0f;
    config->input_width = 256;
    enum err err = read_or_zero(text, "hidden_size_per_layer_input", CONFIG_WIDTH_MAX,
                                &config->input_width, error);
    if (err == OK) err = read_heads(config, text, error);
    if (err == OK) err = read_shared(config, text, error);
    return err == OK ? read_experts(config, text, error) : err;
}
