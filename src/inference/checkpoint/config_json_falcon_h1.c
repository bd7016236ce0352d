/* SPDX-License-Identifier: Apache-2.0 */

/* Falcon-H1: attention and Mamba-2 side by side in each layer, and the factors of their products.
 * The defaults are those of FalconH1Config in transformers 5. */

#include "checkpoint/config_json.h"
#include "checkpoint/config_recurrent.h"

#define FACTOR_MIN 1e-6
#define FACTOR_MAX 1e4

enum err config_json_read_falcon_h1(struct model_config *config, const json_t *text,
                                    struct error *error) {
    static const struct mamba_keys keys = {"mamba_d_conv", "mamba_n_groups", "mamba_n_heads",
                                           "mamba_d_state", "mamba_conv_bias"};
    uint32_t expand = 2, width = 1024;
    bool has_norm = false, has_bias = false;
    struct recurrent_sizes *sizes = &config->recurrent;
    *sizes = (struct recurrent_sizes){.taps = 4,
                                      .key_heads = 1,
                                      .value_heads = 128,
                                      .key_dim = 256,
                                      .has_conv_bias = true,
                                      .norm_is_first = true};
    for (uint32_t i = 0; i < config->layers; i++) config->list[i].mixer = MIXER_BOTH;
    enum err err = config_json_read_mamba_sizes(config, text, &keys, error);
    if (err == OK) err = config_json_count(text, "mamba_expand", 64, &expand, error);
    if (json_is_null(json_object_get(text, "mamba_d_ssm"))) width = expand * config->width;
    if (err == OK)
        err = config_json_count(text, "mamba_d_ssm", CONFIG_STATE_HEADS_MAX * CONFIG_STATE_DIM_MAX,
                                &width, error);
    if (err == OK) err = config_json_bool(text, "mamba_rms_norm", &has_norm, error);
    if (err == OK)
        err = config_json_bool(text, "mamba_norm_before_gate", &sizes->norm_is_first, error);
    if (err == OK) err = config_json_bool(text, "projectors_bias", &has_bias, error);
    if (err == OK && has_bias)
        err = err_set(error, ERR_INVALID, "projectors_bias true is not supported");
    sizes->has_no_norm = !has_norm;
    if (!has_norm) sizes->norm_is_first = false;
    if (err == OK) err = config_json_cut_mamba_heads(config, text, width, error);
    return err == OK ? config_check_recurrent(config, error) : err;
}

/* A list of `count` factors; without it they are 1. */
static enum err read_list(const json_t *text, const char *key, size_t count, float *ret_factors,
                          struct error *error) {
    const json_t *list = json_member(text, key);
    for (size_t i = 0; i < count; i++) ret_factors[i] = 1.0f;
    if (!list) return OK;
    if (json_array_size(list) != count)
        return err_set(error, ERR_INVALID, "%s is no list of %zu numbers", key, count);
    for (size_t i = 0; i < count; i++) {
        const double factor = json_number_value(json_array_get(list, i));
        if (!(factor >= FACTOR_MIN && factor <= FACTOR_MAX))
            return err_set(error, ERR_INVALID, "%s: element %zu is not within %g..%g", key, i,
                           FACTOR_MIN, FACTOR_MAX);
        ret_factors[i] = (float)factor;
    }
    return OK;
}

/* Factors of q and k are one of the scores, that of v is one of what attention leaves. */
enum err config_json_read_factors(struct model_config *config, const json_t *text,
                                  struct error *error) {
    float embedding = 1, head = 1, key = 1, attention_in = 1, attention_out = 1, state_in = 1;
    float state_out = 1, mlp[2], states[5];
    const struct {
        const char *key;
        float *factor;
    } fields[] = {{"embedding_multiplier", &embedding},
                  {"lm_head_multiplier", &head},
                  {"key_multiplier", &key},
                  {"attention_in_multiplier", &attention_in},
                  {"attention_out_multiplier", &attention_out},
                  {"ssm_in_multiplier", &state_in},
                  {"ssm_out_multiplier", &state_out}};
    enum err err = read_list(text, "mlp_multipliers", 2, mlp, error);
    if (err == OK) err = read_list(text, "ssm_multipliers", 5, states, error);
    for (size_t i = 0; i < sizeof fields / sizeof *fields && err == OK; i++)
        err = config_json_number(text, fields[i].key, FACTOR_MIN, FACTOR_MAX, fields[i].factor,
                                 error);
    if (err != OK) return err;
    config->embedding_scale = embedding;
    config->output_scale = head;
    config->attention_scale *= key * attention_in * attention_in;
    config->multipliers = (struct multipliers){
        .attention = attention_in * attention_out,
        .gate = mlp[0],
        .down = mlp[1],
        .state_gate = state_in * states[0],
        .state_channels = {state_in * states[1], state_in * states[2], state_in * states[3]},
        .state_step = state_in * states[4],
        .state = state_out};
    return OK;
}
