/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/config_json.h"
#include "checkpoint/config_json_families.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define WINDOW_PERIOD_MAX 1024u

/* ---- fields ---- */

static enum err required_count(const json_t *object, const char *key, uint32_t max,
                               uint32_t *ret_value, struct error *error) {
    if (!json_member(object, key)) return err_set(error, ERR_INVALID, "%s is missing", key);
    return config_json_count(object, key, max, ret_value, error);
}

/* Refuses a true field, which asks for a part that quern does not have. */
static enum err refuse_when_true(const json_t *text, const char *key, struct error *error) {
    bool value = false;
    enum err err = config_json_bool(text, key, &value, error);
    if (err == OK && value) err = err_set(error, ERR_INVALID, "%s true is not supported", key);
    return err;
}

/* ---- which model ---- */

/* A family that exists with experts and without writes one expert for none (Hunyuan). */
static bool is_one(const json_t *experts) {
    return json_is_integer(experts) && json_integer_value(experts) == 1;
}

static enum err check_activation(const json_t *text, const struct family *family,
                                 struct error *error) {
    const char *keys[] = {family->activation_key, family->older_activation_key};
    for (size_t i = 0; i < 2 && keys[i]; i++) {
        const struct str activation = json_member_str(text, keys[i]);
        const bool is_same =
            str_is(activation, family->activation) || (i == 1 && str_is(activation, "gelu"));
        if (activation.bytes > 0 && !is_same)
            return err_set(error, ERR_INVALID, "%s '%.*s' is not supported (%s is)", keys[i],
                           STR_ARGS(config_json_shown(activation)), family->activation);
    }
    return OK;
}

/* Checks fields that all families share and that no flag expresses. */
static enum err refuse_unknown(const json_t *text, const struct family *family,
                               struct error *error) {
    enum err err = check_activation(text, family, error);
    if (err != OK) return err;
    static const char *const flags[] = {"attention_bias", "attention_out_bias", "mlp_bias",
                                        "use_bidirectional_attention"};
    static const char *const parts[] = {"use_cla", "use_parallel_residual"};
    const struct architecture *architecture = config_architecture(str_from(family->architecture));
    const bool may_have_bias = architecture->has_qkv_bias || architecture->may_have_qkv_bias;
    const bool is_for_pictures =
        str_is(json_member_str(text, "use_bidirectional_attention"), "vision");
    for (size_t i = may_have_bias; i < sizeof flags / sizeof *flags; i++) {
        if (i == 3 && architecture->has_v_norm && is_for_pictures) continue;
        if (i == 3 && architecture->may_see_both) continue;
        err = refuse_when_true(text, flags[i], error);
        if (err != OK) return err;
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        err = refuse_when_true(text, parts[i], error);
        if (err != OK) return err;
    }
    if (architecture->halves_are_parallel) {
        err = refuse_when_true(text, "use_qk_norm", error);
        if (err != OK) return err;
    }
    if (json_object_size(json_member(text, "per_layer_config")) > 0 && !architecture->has_v_norm)
        return err_set(error, ERR_INVALID, "per_layer_config is not supported here");
    if (architecture->unrotated_period > 0) { /* SmolLM3: of the layers that do not turn */
        err = refuse_when_true(text, "use_sliding_window", error);
        if (err != OK) return err;
    }
    if (architecture->has_output_bias && json_is_false(json_member(text, "attention_bias")))
        return err_set(error, ERR_INVALID, "attention_bias false is not supported here");
    /* A family whose class has no such cap would pass over the field. */
    if (family->attention_softcap == 0.0f && json_member(text, "attn_logit_softcapping"))
        return err_set(error, ERR_INVALID, "attn_logit_softcapping is not supported here");
    static const char *const fields[] = {"kv_lora_rank", "num_local_experts", "num_experts"};
    const bool has_experts = architecture->ffn == FFN_EXPERTS || architecture->has_v_norm;
    for (size_t i = architecture->is_latent; i < (has_experts ? 1 : sizeof fields / sizeof *fields);
         i++)
        if (json_member(text, fields[i]) && !(i > 0 && is_one(json_member(text, fields[i]))))
            return err_set(error, ERR_INVALID, "%s is not supported", fields[i]);
    return OK;
}

/* ---- sizes ---- */

static enum err read_heads(struct model_config *config, const json_t *text,
                           const struct family *family, struct error *error) {
    config->heads = family->heads;
    enum err err =
        config_json_count(text, "num_attention_heads", CONFIG_HEADS_MAX, &config->heads, error);
    if (err != OK) return err;
    if (config->heads == 0) return err_set(error, ERR_INVALID, "num_attention_heads is missing");
    if (config->architecture->is_latent) return config_json_read_latent(config, text, error);
    config->kv_heads = family->kv_heads > 0 ? family->kv_heads : config->heads;
    err =
        config_json_count(text, "num_key_value_heads", CONFIG_HEADS_MAX, &config->kv_heads, error);
    if (err != OK) return err;
    assert(config->kv_heads > 0);
    if (config->heads % config->kv_heads != 0)
        return err_set(error, ERR_INVALID, "%u attention heads cannot share %u key-value heads",
                       config->heads, config->kv_heads);
    config->head_dim = family->head_dim > 0 ? family->head_dim : config->width / config->heads;
    bool is_stated = family->head_dim > 0 || json_member(text, "head_dim");
    if (!is_stated && config->width % config->heads != 0)
        return err_set(error, ERR_INVALID, "a hidden_size of %u cannot be cut into %u heads",
                       config->width, config->heads);
    err = OK;
    if (config->architecture->has_single_halves) /* the first files of Nemotron-H */
        err = config_json_count(text, "attention_head_dim", CONFIG_HEAD_DIM_MAX, &config->head_dim,
                                error);
    if (err == OK)
        err = config_json_count(text, "head_dim", CONFIG_HEAD_DIM_MAX, &config->head_dim, error);
    if (err != OK) return err;
    if (config->head_dim % 8 != 0 || config->head_dim > CONFIG_HEAD_DIM_MAX ||
        config->head_dim == 0)
        return err_set(error, ERR_INVALID,
                       "heads of %u are not supported: no multiple of 8 up to %u", config->head_dim,
                       CONFIG_HEAD_DIM_MAX);
    return OK;
}

static enum err read_sizes(struct json_config *json, const json_t *text,
                           const struct family *family, struct error *error) {
    struct model_config *config = &json->config;
    config->context_max = family->context;
    enum err err =
        config->architecture->has_single_halves
            ? config_json_read_halves(config, text, error)
            : required_count(text, "num_hidden_layers", CONFIG_LAYERS_MAX, &config->layers, error);
    if (err == OK)
        err = required_count(text, "hidden_size", CONFIG_WIDTH_MAX, &config->width, error);
    /* The width of layers without experts. */
    if (err == OK &&
        (config->architecture->ffn != FFN_EXPERTS || json_member(text, "intermediate_size")))
        err = required_count(text, "intermediate_size", CONFIG_FFN_MAX, &config->ffn, error);
    if (err == OK)
        err = config_json_count(text, "max_position_embeddings", CONFIG_CONTEXT_MAX,
                                &config->context_max, error);
    if (err == OK)
        err = config_json_count(text, "vocab_size", CONFIG_VOCAB_MAX, &json->vocab_size, error);
    if (err == OK && config->architecture->ffn == FFN_EXPERTS)
        err = config_json_read_experts(config, text, family, error);
    if (err == OK && config->architecture->recurrent == MIXER_DELTA)
        err = config_json_read_recurrent(config, text, error);
    if (err == OK && config->architecture->recurrent == MIXER_CONV)
        err = config_json_read_lfm2(config, text, error);
    if (err == OK && config->architecture->recurrent == MIXER_MAMBA)
        err = config_json_read_mamba(config, text, error);
    return err == OK ? read_heads(config, text, family, error) : err;
}

/* ---- attention ---- */

/* Reads a list with the type of each layer. */
static enum err read_layer_types(const struct model_config *config, const json_t *list,
                                 bool *ret_is_local, struct error *error) {
    if (json_array_size(list) != config->layers)
        return err_set(error, ERR_INVALID, "layer_types is no list of %u layers", config->layers);
    for (uint32_t i = 0; i < config->layers; i++) {
        struct str type = json_str(json_array_get(list, i));
        ret_is_local[i] = str_is(type, "sliding_attention");
        if (!ret_is_local[i] && !str_is(type, "full_attention"))
            return err_set(error, ERR_INVALID, "layer_types: '%.*s' is not supported",
                           STR_ARGS(config_json_shown(type)));
    }
    return OK;
}

/* Tells whether any layer has a window, and which layers by the family's rule. */
static enum err read_window_rule(const struct model_config *config, const json_t *text,
                                 const struct family *family, bool *ret_has, bool *ret_is_local,
                                 struct error *error) {
    uint32_t from = 0, period = 0;
    *ret_has = family->window_rule != WINDOW_NEVER;
    enum err err = OK;
    if (family->window_rule == WINDOW_PERIODIC && !json_member(text, "layer_types")) {
        period = family->window_period;
        err = config_json_count(text, "global_attn_every_n_layers", WINDOW_PERIOD_MAX, &period,
                                error);
        if (err == OK)
            err = config_json_count(text, "_sliding_window_pattern", WINDOW_PERIOD_MAX, &period,
                                    error);
        if (err == OK)
            err = config_json_count(text, "sliding_window_pattern", WINDOW_PERIOD_MAX, &period,
                                    error);
    } else if (family->window_rule == WINDOW_ASKED_OF_ALL) {
        *ret_has = false;
        err = config_json_bool(text, "use_sliding_window", ret_has, error);
    } else if (family->window_rule == WINDOW_ASKED) {
        from = 28;
        *ret_has = false;
        err = config_json_bool(text, "use_sliding_window", ret_has, error);
        const json_t *stated = json_member(text, "max_window_layers");
        if (err == OK && json_is_integer(stated) && json_integer_value(stated) == 0)
            from = 0;
        else if (err == OK)
            err = config_json_count(text, "max_window_layers", CONFIG_CONTEXT_MAX, &from, error);
    }
    config_local_layers_of(config, from, period, ret_is_local);
    return err;
}

static enum err read_window(struct model_config *config, const json_t *text,
                            const struct family *family, struct error *error) {
    bool has_window, is_local[CONFIG_LAYERS_MAX];
    uint32_t keys = family->window;
    const json_t *window = json_object_get(text, "sliding_window");
    enum err err = read_window_rule(config, text, family, &has_window, is_local, error);
    if (err != OK || !has_window || json_is_null(window)) return err;
    err = config_json_count(text, "local_attention", CONFIG_CONTEXT_MAX, &keys, error);
    if (err == OK)
        err = config_json_count(text, "sliding_window", CONFIG_CONTEXT_MAX, &keys, error);
    const json_t *types = json_member(text, "layer_types");
    if (family->window_rule == WINDOW_ASKED_OF_ALL) types = NULL; /* its class has no such list */
    if (err == OK && types) err = read_layer_types(config, types, is_local, error);
    if (err == OK) config_set_windows(config, keys, is_local);
    return err;
}

/* A null stands for no window. */
static enum err read_softcap(const json_t *text, const char *key, float fallback,
                             float *ret_softcap, struct error *error) {
    *ret_softcap = json_is_null(json_object_get(text, key)) ? 0.0f : fallback;
    return config_json_number(text, key, 1e-3, 1e6, ret_softcap, error);
}

static enum err read_attention(struct model_config *config, const json_t *text,
                               const struct family *family, struct error *error) {
    float scalar = family->scales_by_scalar ? 256.0f : (float)config->head_dim;
    config->eps = family->eps > 0 ? family->eps : 1e-6f;
    enum err err = config_json_number(text, "rms_norm_eps", 1e-20, 0.1, &config->eps, error);
    if (err == OK &&
        (config->architecture->recurrent == MIXER_CONV || config->architecture->has_layer_norm))
        err = config_json_number(text, "norm_eps", 1e-20, 0.1, &config->eps, error);
    if (err == OK && config->architecture->has_layer_norm)
        err = config_json_number(text, "layer_norm_eps", 1e-20, 0.1, &config->eps, error);
    if (err == OK && config->architecture->has_single_halves)
        err = config_json_number(text, "layer_norm_epsilon", 1e-20, 0.1, &config->eps, error);
    config->inner_eps = config->architecture->is_latent ? 1e-6f : config->eps;
    if (err == OK && family->scales_by_scalar)
        err = config_json_number(text, "query_pre_attn_scalar", 1e-6, 1e6, &scalar, error);
    if (err == OK)
        err = read_softcap(text, "attn_logit_softcapping", family->attention_softcap,
                           &config->attention_softcap, error);
    if (err == OK)
        err =
            read_softcap(text, "final_logit_softcapping", family->softcap, &config->softcap, error);
    config->attention_scale = 1.0f / sqrtf(scalar);
    return err == OK ? read_window(config, text, family, error) : err;
}

/* In a model with other parts the outer object counts; of Qwen2.5-VL, either. */
static enum err read_tie(struct json_config *json, const json_t *root, const json_t *text,
                         const struct family *family, struct error *error) {
    json->head_is_tied = family->head_is_tied;
    if (json->config.architecture->has_single_halves) return OK; /* its class ties none */
    enum err err = config_json_bool(root, "tie_word_embeddings", &json->head_is_tied, error);
    if (root != text && json_member(root, "tie_word_embeddings") &&
        !str_is(json_member_str(root, "model_type"), "qwen2_5_vl"))
        return err;
    /* The first files of LFM2. */
    if (err == OK && !json_member(text, "tie_word_embeddings"))
        err = config_json_bool(text, "tie_embedding", &json->head_is_tied, error);
    return err == OK ? config_json_bool(text, "tie_word_embeddings", &json->head_is_tied, error)
                     : err;
}

/* The architecture of an encoder's model_type, or NULL. */
static const char *encoder_of(struct str type) {
    if (str_is(type, "bert")) return "bert";
    if (str_is(type, "mpnet")) return "mpnet";
    return str_is(type, "xlm-roberta") || str_is(type, "roberta") ? "xlm-roberta" : NULL;
}

enum err config_json_init(struct json_config *ret_config, const json_t *root, struct error *error) {
    const struct family *family;
    const json_t *text;
    *ret_config = (struct json_config){.vocab_size = 0};
    const char *encoder = encoder_of(json_member_str(root, "model_type"));
    if (encoder) {
        ret_config->config.architecture = config_architecture(str_from(encoder));
        return config_json_read_encoder(ret_config, root, error);
    }
    enum err err = config_json_choose_family(root, &family, &text, error);
    if (err == OK) err = refuse_unknown(text, family, error);
    if (err != OK) return err;
    struct model_config *config = &ret_config->config;
    config->architecture = config_architecture(str_from(family->architecture));
    bool has_qk_norm = false;
    err = config_json_bool(text, "use_qk_norm", &has_qk_norm, error);
    if (err != OK) return err;
    if (has_qk_norm) config->architecture = config_with_qk_norm(config->architecture);
    ret_config->norms_lack_one = family->norms_lack_one;
    ret_config->is_part_of_another = text != root || json_member(root, "vision_config");
    err = read_sizes(ret_config, text, family, error);
    if (err == OK) err = read_attention(config, text, family, error);
    bool is_causal = true;
    if (err == OK) err = config_json_bool(text, "is_causal", &is_causal, error);
    config->is_bidirectional = !is_causal;
    if (err == OK && config->architecture->may_see_both) {
        bool sees_both = false;
        err = config_json_bool(text, "use_bidirectional_attention", &sees_both, error);
        if (sees_both) config_center_windows(config);
        config->is_bidirectional |= sees_both;
    }
    if (err == OK && config->architecture->has_v_norm)
        err = config_json_read_gemma(config, text, error);
    if (err == OK)
        err = config_json_read_rope(ret_config, text, &family->rope, family->rope_needs, error);
    if (config->architecture->is_latent) config_set_latent_scale(config);
    if (err == OK) err = config_json_read_multipliers(config, text, error);
    if (err == OK && config->architecture->logits_are_scaled) {
        config->output_scale = 0.0625f;
        err = config_json_number(text, "logit_scale", 1e-4, 1e4, &config->output_scale, error);
    }
    if (err == OK) err = config_json_read_unrotated(config, text, error);
    if (err == OK) err = read_tie(ret_config, root, text, family, error);
    if (err == OK) err = config_json_read_labels(ret_config, root, error);
    if (err == OK && config->architecture->embedding_is_normed)
        err = config_json_read_modern_bert(ret_config, text, error);
    if (err == OK) err = config_json_read_quantisation(ret_config, root, error);
    return err;
}
