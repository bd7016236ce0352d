/* SPDX-License-Identifier: Apache-2.0 */

/* Nemotron-H: each layer is a mixer or a feed-forward, by a letter of a pattern or a word of a
 * list. The defaults are those of NemotronHConfig in transformers 5. */

#include "checkpoint/config_experts.h"
#include "checkpoint/config_json.h"
#include "checkpoint/config_recurrent.h"

/* The halves, as files of the Hub and transformers 5 spell them. */
static const struct half {
    char letter;
    const char *words[2];
    enum mixer_kind mixer;
    enum ffn_kind ffn;
} halves[] = {
    {'M', {"mamba", "linear_attention"}, MIXER_MAMBA, FFN_NONE},
    {'*', {"attention", "full_attention"}, MIXER_ATTENTION, FFN_NONE},
    {'-', {"mlp", "mlp"}, MIXER_NONE, FFN_GATED},
    {'E', {"moe", "moe"}, MIXER_NONE, FFN_EXPERTS},
};

static const struct half *half_of(struct str pattern, const json_t *list, size_t index) {
    const struct str word = json_str(json_array_get(list, index));
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        const bool is_word = str_is(word, halves[i].words[0]) || str_is(word, halves[i].words[1]);
        if (list ? is_word : pattern.at[index] == halves[i].letter) return &halves[i];
    }
    return NULL;
}

enum err config_json_read_halves(struct model_config *config, const json_t *text,
                                 struct error *error) {
    static const char *const keys[] = {"layers_block_type", "layer_types",
                                       "hybrid_override_pattern"};
    const char *key = keys[2];
    const json_t *list = NULL;
    const struct str pattern = json_member_str(text, key);
    for (int i = 0; i < 2 && !list; i++)
        if ((list = json_member(text, keys[i]))) key = keys[i];
    const size_t count = list ? json_array_size(list) : pattern.bytes;
    bool has_experts = false;
    if (count < 1 || count > CONFIG_LAYERS_MAX)
        return err_set(error, ERR_INVALID, "%s names no layers (1 to %u)", key, CONFIG_LAYERS_MAX);
    config->layers = (uint32_t)count;
    uint32_t stated = config->layers;
    enum err err = config_json_count(text, "num_hidden_layers", CONFIG_LAYERS_MAX, &stated, error);
    if (err != OK) return err;
    if (stated != config->layers)
        return err_set(error, ERR_INVALID, "num_hidden_layers is %u, but %s has %u", stated, key,
                       config->layers);
    for (uint32_t i = 0; i < config->layers; i++) {
        const struct half *half = half_of(pattern, list, i);
        if (!half)
            return err_set(error, ERR_INVALID, "%s: element %u is no known kind of layer", key, i);
        config->list[i].mixer = half->mixer;
        config->list[i].ffn = half->ffn;
        has_experts |= half->ffn == FFN_EXPERTS;
    }
    if (!has_experts) config->architecture = config_architecture(STR("nemotron_h"));
    config->does_not_turn = true;
    return OK;
}

/* Parts of the class that no release of the first generations has. */
static enum err refuse_parts(const json_t *text, struct error *error) {
    const struct str activation = json_member_str(text, "mamba_hidden_act");
    const json_t *shared = json_member(text, "n_shared_experts");
    bool has_bias = false;
    if (activation.bytes > 0 && !str_is(activation, "silu"))
        return err_set(error, ERR_INVALID, "mamba_hidden_act '%.*s' is not supported (silu is)",
                       STR_ARGS(config_json_shown(activation)));
    if (json_member(text, "moe_latent_size"))
        return err_set(error, ERR_INVALID, "moe_latent_size is not supported");
    if (shared && !(json_is_integer(shared) && json_integer_value(shared) == 1))
        return err_set(error, ERR_INVALID, "n_shared_experts is not 1: not supported");
    enum err err = config_json_bool(text, "use_bias", &has_bias, error);
    if (err == OK && has_bias) err = err_set(error, ERR_INVALID, "use_bias true is not supported");
    return err;
}

static enum err read_routing(struct model_config *config, const json_t *text, struct error *error) {
    struct routing_rule *rule = &config->routing;
    if (config->experts == 0) return OK;
    rule->groups = rule->groups_used = 1;
    enum err err = config_json_count(text, "n_group", CONFIG_EXPERTS_MAX, &rule->groups, error);
    if (err == OK)
        err = config_json_count(text, "topk_group", CONFIG_EXPERTS_MAX, &rule->groups_used, error);
    if (rule->groups == 1) rule->groups = 0;
    return err == OK ? config_check_experts(config, error) : err;
}

enum err config_json_read_nemotron_h(struct model_config *config, const json_t *text,
                                     struct error *error) {
    static const struct mamba_keys keys = {"conv_kernel", "n_groups", "mamba_num_heads",
                                           "ssm_state_size", "use_conv_bias"};
    struct recurrent_sizes *sizes = &config->recurrent;
    enum err err = refuse_parts(text, error);
    if (err == OK) err = read_routing(config, text, error);
    for (uint32_t i = 0; i < config->layers && err == OK; i++)
        if (config->list[i].ffn == FFN_GATED && config->ffn == 0)
            err = err_set(error, ERR_INVALID, "intermediate_size is missing");
    *sizes = (struct recurrent_sizes){.taps = 4,
                                      .key_heads = 8,
                                      .value_heads = 128,
                                      .key_dim = 128,
                                      .value_dim = 64,
                                      .has_conv_bias = true};
    if (err == OK) err = config_json_read_mamba_sizes(config, text, &keys, error);
    if (err == OK)
        err = config_json_count(text, "mamba_head_dim", CONFIG_STATE_DIM_MAX, &sizes->value_dim,
                                error);
    return err == OK ? config_check_recurrent(config, error) : err;
}
