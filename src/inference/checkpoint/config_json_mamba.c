/* SPDX-License-Identifier: Apache-2.0 */

/* Granite 4: which layers are of Mamba-2, their sizes, and whether the others rotate; and what
 * other families with Mamba-2 share. The defaults are those of GraniteMoeHybridConfig in
 * transformers 5. */

#include "checkpoint/config_json.h"
#include "checkpoint/config_recurrent.h"

#include <float.h>
#include <math.h>

/* Reads the kind of each layer; without a list all layers are of Mamba-2. */
static enum err read_kinds(struct model_config *config, const json_t *text, bool *ret_has_states,
                           struct error *error) {
    const json_t *list = json_member(text, "layer_types");
    *ret_has_states = false;
    if (list && json_array_size(list) != config->layers)
        return err_set(error, ERR_INVALID, "layer_types is no list of %u layers", config->layers);
    for (uint32_t i = 0; i < config->layers; i++) {
        const struct str type = json_str(json_array_get(list, i));
        const bool is_attention = str_is(type, "attention") || str_is(type, "full_attention");
        const bool is_state = str_is(type, "mamba") || str_is(type, "linear_attention");
        if (list && !is_attention && !is_state)
            return err_set(error, ERR_INVALID,
                           "layer_types: element %u is neither mamba nor attention", i);
        config->list[i].mixer = is_attention ? MIXER_ATTENTION : MIXER_MAMBA;
        *ret_has_states |= !is_attention;
    }
    return OK;
}

enum err config_json_cut_mamba_heads(struct model_config *config, const json_t *text,
                                     uint64_t width, struct error *error) {
    struct recurrent_sizes *sizes = &config->recurrent;
    const json_t *head = json_member(text, "mamba_d_head");
    if (width % sizes->value_heads != 0 || width / sizes->value_heads > CONFIG_STATE_DIM_MAX)
        return err_set(error, ERR_INVALID,
                       "a width of %llu cannot be cut into %u heads of a state of up to %u",
                       (unsigned long long)width, sizes->value_heads, CONFIG_STATE_DIM_MAX);
    sizes->value_dim = (uint32_t)(width / sizes->value_heads);
    if (!head || str_is(json_str(head), "auto")) return OK;
    if (!json_is_integer(head) || json_integer_value(head) != sizes->value_dim)
        return err_set(error, ERR_INVALID, "mamba_d_head is not %u, the width over the heads",
                       sizes->value_dim);
    return OK;
}

/* A number, or the object that transformers 5 writes for an infinite one. */
static double number_of(const json_t *value) {
    if (str_is(json_member_str(value, "__float__"), "Infinity")) return DBL_MAX;
    return json_number_value(value);
}

/* Two numbers, the second of which may be infinite. */
static enum err read_limits(struct model_config *config, const json_t *text, struct error *error) {
    const json_t *list = json_member(text, "time_step_limit");
    if (!list) return OK;
    const double min = json_number_value(json_array_get(list, 0));
    const double max = number_of(json_array_get(list, 1));
    if (json_array_size(list) != 2 || !json_is_number(json_array_get(list, 0)) || !(min >= 0) ||
        !(max > min))
        return err_set(error, ERR_INVALID, "time_step_limit is no list of two rising numbers");
    config->recurrent.step_min = (float)min;
    config->recurrent.step_max = max > (double)FLT_MAX ? INFINITY : (float)max;
    return OK;
}

enum err config_json_read_mamba_sizes(struct model_config *config, const json_t *text,
                                      const struct mamba_keys *keys, struct error *error) {
    struct recurrent_sizes *sizes = &config->recurrent;
    const struct {
        const char *key;
        uint32_t max, *count;
    } counts[] = {
        {keys->taps, CONFIG_TAPS_MAX, &sizes->taps},
        {keys->groups, CONFIG_STATE_HEADS_MAX, &sizes->key_heads},
        {keys->heads, CONFIG_STATE_HEADS_MAX, &sizes->value_heads},
        {keys->state, CONFIG_STATE_DIM_MAX, &sizes->key_dim},
    };
    bool has_bias = false;
    enum err err = OK;
    for (size_t i = 0; i < sizeof counts / sizeof *counts && err == OK; i++)
        err = config_json_count(text, counts[i].key, counts[i].max, counts[i].count, error);
    if (err == OK) err = config_json_bool(text, "mamba_proj_bias", &has_bias, error);
    if (err == OK && has_bias)
        err = err_set(error, ERR_INVALID, "mamba_proj_bias true is not supported");
    if (err == OK) err = config_json_bool(text, keys->has_bias, &sizes->has_conv_bias, error);
    return err == OK ? read_limits(config, text, error) : err;
}

static enum err read_granite(struct model_config *config, const json_t *text, struct error *error) {
    static const struct mamba_keys keys = {"mamba_d_conv", "mamba_n_groups", "mamba_n_heads",
                                           "mamba_d_state", "mamba_conv_bias"};
    uint32_t expand = 2;
    config->recurrent = (struct recurrent_sizes){
        .taps = 4, .key_heads = 1, .value_heads = 128, .key_dim = 256, .has_conv_bias = true};
    enum err err = config_json_read_mamba_sizes(config, text, &keys, error);
    if (err == OK) err = config_json_count(text, "mamba_expand", 64, &expand, error);
    return err == OK
               ? config_json_cut_mamba_heads(config, text, (uint64_t)expand * config->width, error)
               : err;
}

enum err config_json_read_mamba(struct model_config *config, const json_t *text,
                                struct error *error) {
    bool has_states = false;
    if (config->architecture->has_single_halves)
        return config_json_read_nemotron_h(config, text, error);
    if (config->architecture->mixers_are_parallel)
        return config_json_read_falcon_h1(config, text, error);
    config->does_not_turn = !str_is(json_member_str(text, "position_embedding_type"), "rope");
    enum err err = read_kinds(config, text, &has_states, error);
    if (err != OK || !has_states) return err;
    err = read_granite(config, text, error);
    return err == OK ? config_check_recurrent(config, error) : err;
}
