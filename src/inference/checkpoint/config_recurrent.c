/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/config_recurrent.h"

#include "checkpoint/config_key.h"

bool config_layer_has_keys(const struct model_config *config, uint32_t layer) {
    const enum mixer_kind mixer = config->list[layer].mixer;
    return mixer == MIXER_ATTENTION || mixer == MIXER_LATENT || mixer == MIXER_BOTH;
}

bool config_layer_is_recurrent(const struct model_config *config, uint32_t layer) {
    const enum mixer_kind mixer = config->list[layer].mixer;
    return mixer != MIXER_ATTENTION && mixer != MIXER_LATENT && mixer != MIXER_NONE;
}

bool config_is_recurrent(const struct model_config *config) {
    return config->recurrent.taps > 0;
}

uint32_t config_state_width(const struct model_config *config) {
    return config->recurrent.value_heads * config->recurrent.value_dim;
}

uint32_t config_state_rows(const struct model_config *config) {
    const uint32_t width = config_state_width(config);
    const bool has_two_gates = config->architecture->recurrent == MIXER_CONV;
    return config_state_channels(config) + (has_two_gates ? 2 : 1) * width;
}

uint32_t config_state_channels(const struct model_config *config) {
    const struct recurrent_sizes *sizes = &config->recurrent;
    return 2 * sizes->key_heads * sizes->key_dim + config_state_width(config);
}

static enum err check_heads(const struct recurrent_sizes *sizes, struct error *error) {
    if (sizes->key_heads == 0 || sizes->value_heads % sizes->key_heads != 0)
        return err_set(error, ERR_INVALID, "%u value heads cannot share %u key heads of a state",
                       sizes->value_heads, sizes->key_heads);
    if (sizes->key_dim > CONFIG_STATE_DIM_MAX || sizes->value_dim > CONFIG_STATE_DIM_MAX)
        return err_set(error, ERR_INVALID, "states of %u x %u are not supported (up to %u)",
                       sizes->key_dim, sizes->value_dim, CONFIG_STATE_DIM_MAX);
    return OK;
}

enum err config_check_recurrent(const struct model_config *config, struct error *error) {
    const struct recurrent_sizes *sizes = &config->recurrent;
    uint32_t attention = 0, states = 0;
    for (uint32_t i = 0; i < config->layers; i++) {
        attention += config_layer_has_keys(config, i);
        states += config_layer_is_recurrent(config, i);
    }
    if (states == 0 && config->architecture->recurrent == MIXER_MAMBA) return OK;
    if (attention == 0)
        return err_set(error, ERR_INVALID, "no layer is of attention: not supported");
    if (sizes->taps < 2 || sizes->taps > CONFIG_TAPS_MAX)
        return err_set(error, ERR_INVALID,
                       "a convolution over %u inputs is not supported (2 to %u)", sizes->taps,
                       CONFIG_TAPS_MAX);
    enum err err = config->architecture->recurrent == MIXER_CONV ? OK : check_heads(sizes, error);
    const uint64_t bytes = config_state_bytes(config);
    if (err == OK && bytes > CONFIG_STATE_BYTES_MAX)
        err = err_set(error, ERR_INVALID, "the state of a sequence takes %llu bytes, over %llu",
                      (unsigned long long)bytes, CONFIG_STATE_BYTES_MAX);
    return err;
}

void config_set_conv(struct model_config *config, uint32_t taps) {
    config->recurrent =
        (struct recurrent_sizes){.taps = taps, .value_heads = 1, .value_dim = config->width};
}

/* Gives a layer its kind. */
static void set_kind(struct model_config *config, uint32_t layer, bool is_attention) {
    config->list[layer].mixer = is_attention ? MIXER_ATTENTION : config->architecture->recurrent;
}

/* The list of KV heads has a 0 for each layer without. */
static enum err read_kinds_by_heads(struct model_config *config, const struct gguf *gguf,
                                    struct error *error) {
    const struct config_key key = config_key_of(config, gguf, "attention.head_count_kv");
    const struct gguf_value *list = gguf_find(gguf, key.text);
    if (!list || list->kind != GGUF_ARRAY || list->count < config->layers)
        return err_set(error, ERR_INVALID, "%s is no list of %u layers", key.text, config->layers);
    for (uint32_t i = 0; i < config->layers; i++) {
        int64_t heads = 0;
        if (!gguf_element_i64(list, i, &heads))
            return err_set(error, ERR_INVALID, "%s is no list of integers", key.text);
        set_kind(config, i, heads != 0);
    }
    return OK;
}

/* Each layer is a mixer or a feed-forward: one with KV heads is of attention, one with a width of
 * its own is a feed-forward, any other has a state. */
static enum err read_kinds_by_widths(struct model_config *config, const struct gguf *gguf,
                                     struct error *error) {
    const struct config_key key = config_key_of(config, gguf, "attention.head_count_kv");
    const struct config_key width_key = config_key_of(config, gguf, "feed_forward_length");
    const struct gguf_value *heads = gguf_find(gguf, key.text);
    const struct gguf_value *widths = gguf_find(gguf, width_key.text);
    if (!heads || heads->kind != GGUF_ARRAY || heads->count < config->layers)
        return err_set(error, ERR_INVALID, "%s is no list of %u layers", key.text, config->layers);
    if (!widths || widths->kind != GGUF_ARRAY || widths->count < config->layers)
        return err_set(error, ERR_INVALID, "%s is no list of %u layers", width_key.text,
                       config->layers);
    for (uint32_t i = 0; i < config->layers; i++) {
        int64_t kv = 0, ffn = 0;
        if (!gguf_element_i64(heads, i, &kv) || !gguf_element_i64(widths, i, &ffn))
            return err_set(error, ERR_INVALID, "%s or %s is no list of integers", key.text,
                           width_key.text);
        if (ffn < 0 || ffn > CONFIG_FFN_MAX || (ffn > 0 && config->ffn > 0 && config->ffn != ffn))
            return err_set(error, ERR_INVALID,
                           "%s: element %u is %lld, not 0 or one width of all layers",
                           width_key.text, i, (long long)ffn);
        if (kv != 0 && ffn != 0)
            return err_set(error, ERR_INVALID,
                           "layer %u has KV heads and a feed-forward: not supported", i);
        if (ffn > 0) config->ffn = (uint32_t)ffn;
        config->list[i].mixer = kv != 0    ? MIXER_ATTENTION
                                : ffn != 0 ? MIXER_NONE
                                           : config->architecture->recurrent;
        config->list[i].ffn = ffn != 0 ? config->architecture->ffn : FFN_NONE;
    }
    return OK;
}

/* All layers have both; whether a norm is behind the states is told by its tensor. */
static void read_both(struct model_config *config, const struct gguf *gguf) {
    for (uint32_t i = 0; i < config->layers; i++) config->list[i].mixer = MIXER_BOTH;
    config->recurrent.has_no_norm = !gguf_tensor_find(gguf, STR("blk.0.ssm_norm.weight"));
}

/* Each full_attention_interval-th layer is of attention, unless a list says which are recurrent. */
static enum err read_kinds(struct model_config *config, const struct gguf *gguf,
                           struct error *error) {
    const struct config_key key = config_key_of(config, gguf, "attention.recurrent_layers");
    const struct gguf_value *list = gguf_find(gguf, key.text);
    uint32_t interval = 4;
    enum err err = gguf_get_u32(gguf, config_key_of(config, gguf, "full_attention_interval").text,
                                &interval, error);
    if (err != OK) return err;
    if (interval < 1) return err_set(error, ERR_INVALID, "full_attention_interval is 0");
    if (list && (list->kind != GGUF_ARRAY || list->count < config->layers))
        return err_set(error, ERR_INVALID, "%s is no list of %u layers", key.text, config->layers);
    for (uint32_t i = 0; i < config->layers; i++) {
        int64_t is_recurrent = (i + 1) % interval != 0;
        if (list && list->element == GGUF_BOOL)
            is_recurrent = list->at[i] != 0;
        else if (list && !gguf_element_i64(list, i, &is_recurrent))
            return err_set(error, ERR_INVALID, "%s is no list of flags", key.text);
        set_kind(config, i, is_recurrent == 0);
    }
    return OK;
}

/* Layers that guess further tokens stand behind the others and are not run. */
static enum err skip_layers(struct model_config *config, const struct gguf *gguf,
                            struct error *error) {
    const struct config_key key = config_key_of(config, gguf, "nextn_predict_layers");
    enum err err = gguf_get_u32(gguf, key.text, &config->layers_skipped, error);
    if (err == OK && config->layers_skipped >= config->layers)
        err = err_set(error, ERR_INVALID, "%s is %u, but there are %u layers", key.text,
                      config->layers_skipped, config->layers);
    if (err == OK) config->layers -= config->layers_skipped;
    return err;
}

/* True when all layers are of attention. */
static bool has_no_states(const struct model_config *config) {
    for (uint32_t i = 0; i < config->layers; i++)
        if (config_layer_is_recurrent(config, i)) return false;
    return true;
}

/* The sizes of layers with a state of keys and values. */
static enum err read_sizes(struct model_config *config, const struct gguf *gguf,
                           struct error *error) {
    struct recurrent_sizes *sizes = &config->recurrent;
    const struct {
        const char *suffix;
        uint32_t max, *count;
    } counts[] = {
        {"ssm.conv_kernel", CONFIG_TAPS_MAX, &sizes->taps},
        {"ssm.group_count", CONFIG_STATE_HEADS_MAX, &sizes->key_heads},
        {"ssm.time_step_rank", CONFIG_STATE_HEADS_MAX, &sizes->value_heads},
        {"ssm.state_size", CONFIG_STATE_DIM_MAX, &sizes->key_dim},
    };
    uint32_t inner = 0;
    enum err err = OK;
    for (size_t i = 0; i < sizeof counts / sizeof *counts && err == OK; i++)
        err =
            config_key_count(config, gguf, counts[i].suffix, counts[i].max, counts[i].count, error);
    if (err == OK)
        err = config_key_count(config, gguf, "ssm.inner_size",
                               CONFIG_STATE_HEADS_MAX * CONFIG_STATE_DIM_MAX, &inner, error);
    if (err != OK) return err;
    if (inner % sizes->value_heads != 0)
        return err_set(error, ERR_INVALID, "%s is %u: it cannot be cut into %u heads",
                       config_key_of(config, gguf, "ssm.inner_size").text, inner,
                       sizes->value_heads);
    sizes->value_dim = inner / sizes->value_heads;
    sizes->heads_are_tiled = !config->architecture->delta_is_grouped;
    sizes->has_conv_bias = true;
    return OK;
}

static enum err read_conv(struct model_config *config, const struct gguf *gguf,
                          struct error *error) {
    uint32_t taps = 0;
    enum err err =
        config_key_count(config, gguf, "shortconv.l_cache", CONFIG_TAPS_MAX, &taps, error);
    if (err == OK) config_set_conv(config, taps);
    return err;
}

enum err config_read_recurrent(struct model_config *config, const struct gguf *gguf,
                               struct error *error) {
    const enum mixer_kind kind = config->architecture->recurrent;
    enum err err = skip_layers(config, gguf, error);
    if (kind == MIXER_ATTENTION || err != OK) return err;
    if (config->architecture->has_single_halves)
        err = read_kinds_by_widths(config, gguf, error);
    else if (config->architecture->mixers_are_parallel)
        read_both(config, gguf);
    else
        err = kind == MIXER_DELTA ? read_kinds(config, gguf, error)
                                  : read_kinds_by_heads(config, gguf, error);
    if (err == OK && kind == MIXER_MAMBA && has_no_states(config)) return OK;
    if (err == OK)
        err = kind == MIXER_CONV ? read_conv(config, gguf, error) : read_sizes(config, gguf, error);
    return err == OK ? config_check_recurrent(config, error) : err;
}

enum err config_read_kv_heads(struct model_config *config, const struct gguf *gguf,
                              struct error *error) {
    const struct config_key key = config_key_of(config, gguf, "attention.head_count_kv");
    const struct gguf_value *value = gguf_find(gguf, key.text);
    if (!value) return OK;
    if (value->kind != GGUF_ARRAY)
        return config_key_count(config, gguf, "attention.head_count_kv", CONFIG_HEADS_MAX,
                                &config->kv_heads, error);
    if (value->count < config->layers)
        return err_set(error, ERR_INVALID, "%s is no list of %u layers", key.text, config->layers);
    int64_t heads = 0;
    for (uint32_t i = 0; i < config->layers; i++) {
        int64_t count = 0;
        if (!gguf_element_i64(value, i, &count) || count < 0 || count > CONFIG_HEADS_MAX)
            return err_set(error, ERR_INVALID, "%s: element %u is not 0..%u", key.text, i,
                           CONFIG_HEADS_MAX);
        if (count > 0 && heads > 0 && count != heads)
            return err_set(error, ERR_INVALID, "%s differs between layers: not supported",
                           key.text);
        if (count > 0) heads = count;
        if ((count > 0) != config_layer_has_keys(config, i))
            return err_set(error, ERR_INVALID,
                           "%s: element %u is %lld, but the layer is%s of attention", key.text, i,
                           (long long)count, config_layer_has_keys(config, i) ? "" : " not");
    }
    if (heads > 0) config->kv_heads = (uint32_t)heads;
    return OK;
}
