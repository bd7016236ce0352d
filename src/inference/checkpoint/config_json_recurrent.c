/* SPDX-License-Identifier: Apache-2.0 */

/* Which layers are recurrent, and their sizes. The defaults are those of Qwen3_5TextConfig in
 * transformers 5. */

#include "checkpoint/config_json.h"
#include "checkpoint/config_recurrent.h"

/* Reads the kind of each layer, or makes each full_attention_interval-th one of attention. */
static enum err read_kinds(struct model_config *config, const json_t *text, struct error *error) {
    uint32_t interval = 4;
    const json_t *list = json_member(text, "layer_types");
    enum err err =
        config_json_count(text, "full_attention_interval", CONFIG_LAYERS_MAX, &interval, error);
    if (err == OK && list && json_array_size(list) != config->layers)
        err = err_set(error, ERR_INVALID, "layer_types is no list of %u layers", config->layers);
    for (uint32_t i = 0; i < config->layers && err == OK; i++) {
        bool is_attention = (i + 1) % interval == 0;
        if (list) {
            const struct str type = json_str(json_array_get(list, i));
            is_attention = str_is(type, "full_attention");
            if (!is_attention && !str_is(type, "linear_attention"))
                err = err_set(error, ERR_INVALID,
                              "layer_types: element %u is neither linear_attention nor "
                              "full_attention",
                              i);
        }
        config->list[i].mixer = is_attention ? MIXER_ATTENTION : MIXER_DELTA;
    }
    return err;
}

enum err config_json_read_recurrent(struct model_config *config, const json_t *text,
                                    struct error *error) {
    struct recurrent_sizes *sizes = &config->recurrent;
    *sizes = (struct recurrent_sizes){
        .taps = 4, .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128};
    const struct {
        const char *key;
        uint32_t max, *count;
    } counts[] = {
        {"linear_conv_kernel_dim", CONFIG_TAPS_MAX, &sizes->taps},
        {"linear_num_key_heads", CONFIG_STATE_HEADS_MAX, &sizes->key_heads},
        {"linear_num_value_heads", CONFIG_STATE_HEADS_MAX, &sizes->value_heads},
        {"linear_key_head_dim", CONFIG_STATE_DIM_MAX, &sizes->key_dim},
        {"linear_value_head_dim", CONFIG_STATE_DIM_MAX, &sizes->value_dim},
    };
    enum err err = read_kinds(config, text, error);
    for (size_t i = 0; i < sizeof counts / sizeof *counts && err == OK; i++)
        err = config_json_count(text, counts[i].key, counts[i].max, counts[i].count, error);
    return err == OK ? config_check_recurrent(config, error) : err;
}
