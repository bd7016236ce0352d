/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/config_gemma.h"

#include "checkpoint/config_key.h"

#include <assert.h>
#include <stdio.h>

enum err config_share_keys(struct model_config *config, uint32_t shared, const char *key,
                           struct error *error) {
    if (shared >= config->layers)
        return err_set(error, ERR_INVALID, "%s is %u, not below the %u layers", key, shared,
                       config->layers);
    const uint32_t first = config->layers - shared;
    for (uint32_t i = first; i < config->layers; i++) {
        uint32_t from = first;
        while (from > 0 &&
               config_layer_is_local(config, from - 1) != config_layer_is_local(config, i))
            from--;
        if (from == 0)
            return err_set(error, ERR_INVALID,
                           "%s is %u, but no layer before has keys for layer %u", key, shared, i);
        config->list[i].kv_from = from;
    }
    return OK;
}

/* A number of each layer: one for all of them, or a list. */
static enum err read_each(const struct model_config *config, const struct gguf *gguf,
                          const char *suffix, uint32_t max, uint32_t ret_counts[CONFIG_LAYERS_MAX],
                          struct error *error) {
    struct config_key key = config_key_of(config, gguf, suffix);
    const struct gguf_value *value = gguf_find(gguf, key.text);
    if (!value) return err_set(error, ERR_INVALID, "%s is missing", key.text);
    assert(config->layers > 0);
    const bool is_list = value->kind == GGUF_ARRAY;
    if (is_list && value->count != config->layers)
        return err_set(error, ERR_INVALID, "%s has %llu elements for %u layers", key.text,
                       (unsigned long long)value->count, config->layers);
    for (uint32_t i = 0; i < config->layers; i++) {
        int64_t count;
        if (!gguf_element_i64(value, is_list ? i : 0, &count) || count < 1 || count > max)
            return err_set(error, ERR_INVALID, "%s is no integer of 1..%u in layer %u", key.text,
                           max, i);
        ret_counts[i] = (uint32_t)count;
    }
    return OK;
}

static enum err read_widths(struct model_config *config, const struct gguf *gguf,
                            struct error *error) {
    uint32_t counts[CONFIG_LAYERS_MAX] = {0};
    enum err err = read_each(config, gguf, "feed_forward_length", CONFIG_FFN_MAX, counts, error);
    if (err != OK) return err;
    config->ffn = counts[0];
    for (uint32_t i = 0; i < config->layers; i++) {
        if (counts[i] != config->ffn) config->list[i].width_of_ffn = counts[i];
    }
    return OK;
}

static enum err read_heads(struct model_config *config, const struct gguf *gguf,
                           struct error *error) {
    uint32_t counts[CONFIG_LAYERS_MAX] = {0}, local = config->head_dim;
    enum err err =
        read_each(config, gguf, "attention.head_count_kv", CONFIG_HEADS_MAX, counts, error);
    if (err == OK && config_key_exists(config, gguf, "attention.key_length_swa"))
        err = config_key_count(config, gguf, "attention.key_length_swa", CONFIG_HEAD_DIM_MAX,
                               &local, error);
    if (err != OK) return err;
    if (local % 8 != 0)
        return err_set(error, ERR_INVALID, "heads of %u are not supported: no multiple of 8",
                       local);
    if (local > config->head_dim)
        return err_set(error, ERR_INVALID,
                       "attention.key_length_swa is %u, over the attention.key_length of %u", local,
                       config->head_dim);
    config->kv_heads = counts[0];
    for (uint32_t i = 0; i < config->layers; i++) {
        if (config->heads % counts[i] != 0)
            return err_set(error, ERR_INVALID, "%u attention heads cannot share %u key-value heads",
                           config->heads, counts[i]);
        if (counts[i] != config->kv_heads) config->list[i].kv_heads = counts[i];
        if (config_layer_is_local(config, i) && local != config->head_dim)
            config->list[i].head_dim = local;
    }
    return OK;
}

static enum err read_experts(struct model_config *config, const struct gguf *gguf,
                             struct error *error) {
    uint32_t count = 0;
    enum err err =
        gguf_get_u32(gguf, config_key_of(config, gguf, "expert_count").text, &count, error);
    if (err != OK || count == 0) return err;
    err =
        config_key_count(config, gguf, "expert_count", CONFIG_EXPERTS_MAX, &config->experts, error);
    if (err == OK)
        err = config_key_count(config, gguf, "expert_used_count", config->experts,
                               &config->experts_used, error);
    if (err == OK)
        err = config_key_count(config, gguf, "expert_feed_forward_length", CONFIG_FFN_MAX,
                               &config->expert_ffn, error);
    config->expert_weights_sum_to_one = true;
    for (uint32_t i = 0; i < config->layers; i++) config->list[i].ffn = FFN_BOTH;
    return err;
}

/* A layer without the tensor of v takes k for it. */
static void find_values(struct model_config *config, const struct gguf *gguf) {
    for (uint32_t i = 0; i < config->layers; i++) {
        char name[48];
        snprintf(name, sizeof name, "blk.%u.attn_v.weight", i);
        config->list[i].v_is_k =
            config->list[i].kv_from == 0 && !gguf_tensor_find(gguf, str_from(name));
    }
}

enum err config_read_gemma(struct model_config *config, const struct gguf *gguf,
                           struct error *error) {
    uint32_t shared = 0;
    struct config_key inputs = config_key_of(config, gguf, "embedding_length_per_layer_input");
    struct config_key sharing = config_key_of(config, gguf, "attention.shared_kv_layers");
    enum err err = read_widths(config, gguf, error);
    if (err == OK) err = read_heads(config, gguf, error);
    if (err == OK) err = gguf_get_u32(gguf, inputs.text, &config->input_width, error);
    if (err == OK && config->input_width > CONFIG_WIDTH_MAX)
        err = err_set(error, ERR_INVALID, "%s is %u, not 0..%u", inputs.text, config->input_width,
                      CONFIG_WIDTH_MAX);
    if (err == OK) err = gguf_get_u32(gguf, sharing.text, &shared, error);
    if (err == OK) err = config_share_keys(config, shared, sharing.text, error);
    if (err == OK) err = read_experts(config, gguf, error);
    if (err == OK) find_values(config, gguf);
    return err;
}
