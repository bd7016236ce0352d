/* SPDX-License-Identifier: Apache-2.0 */

/* LFM2: which layers are a convolution, and the width of its dense layers. The defaults are those
 * of Lfm2Config and Lfm2MoeConfig in transformers 5. */

#include "checkpoint/config_json.h"
#include "checkpoint/config_recurrent.h"

/* Whether `list` has the number. */
static bool has_number(const json_t *list, uint32_t number) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == number) return true;
    return false;
}

/* layer_types has the kind of each layer; the first files number those of attention. */
static enum err read_kinds(struct model_config *config, const json_t *text, struct error *error) {
    const json_t *list = json_member(text, "layer_types");
    const json_t *numbers = json_member(text, "full_attn_idxs");
    if (list && json_array_size(list) != config->layers)
        return err_set(error, ERR_INVALID, "layer_types is no list of %u layers", config->layers);
    if (!list && numbers && !json_is_array(numbers))
        return err_set(error, ERR_INVALID, "full_attn_idxs is no list");
    for (uint32_t i = 0; i < config->layers; i++) {
        bool is_attention = !numbers || has_number(numbers, i);
        if (list) {
            const struct str type = json_str(json_array_get(list, i));
            is_attention = str_is(type, "full_attention");
            if (!is_attention && !str_is(type, "conv"))
                return err_set(error, ERR_INVALID,
                               "layer_types: element %u is neither conv nor full_attention", i);
        }
        config->list[i].mixer = is_attention ? MIXER_ATTENTION : MIXER_CONV;
    }
    return OK;
}

/* The stated width is that of a feed-forward without a gate: one with it is two thirds of it,
 * rounded up. */
static enum err read_width(struct model_config *config, const json_t *text, struct error *error) {
    bool is_adjusted = config->architecture->ffn != FFN_EXPERTS;
    uint32_t multiple = 256;
    float factor = 1.0f;
    enum err err = config_json_count(text, "block_ff_dim", CONFIG_FFN_MAX, &config->ffn, error);
    if (err == OK && is_adjusted)
        err = config_json_bool(text, "block_auto_adjust_ff_dim", &is_adjusted, error);
    if (err == OK)
        err = config_json_count(text, "block_multiple_of", CONFIG_FFN_MAX, &multiple, error);
    if (err == OK)
        err = config_json_number(text, "block_ffn_dim_multiplier", 1e-3, 1e3, &factor, error);
    if (err != OK || !is_adjusted) return err;
    const uint64_t whole = 2 * (uint64_t)config->ffn / 3; /* rounded down before the factor */
    const uint64_t width = (uint64_t)((double)factor * (double)whole);
    const uint64_t rounded = (width + multiple - 1) / multiple * multiple;
    if (rounded < 1 || rounded > CONFIG_FFN_MAX)
        return err_set(error, ERR_INVALID, "a feed-forward of %llu is not supported (1 to %u)",
                       (unsigned long long)rounded, CONFIG_FFN_MAX);
    config->ffn = (uint32_t)rounded;
    return OK;
}

enum err config_json_read_lfm2(struct model_config *config, const json_t *text,
                               struct error *error) {
    uint32_t taps = 3;
    bool has_bias = false;
    enum err err = config_json_count(text, "conv_L_cache", CONFIG_TAPS_MAX, &taps, error);
    if (err == OK) err = config_json_bool(text, "conv_bias", &has_bias, error);
    if (err == OK && has_bias) err = err_set(error, ERR_INVALID, "conv_bias true is not supported");
    if (err == OK) err = read_width(config, text, error);
    if (err == OK) err = read_kinds(config, text, error);
    if (err != OK) return err;
    config_set_conv(config, taps);
    return config_check_recurrent(config, error);
}
