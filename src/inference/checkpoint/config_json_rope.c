/* SPDX-License-Identifier: Apache-2.0 */

/* How positions turn: rope_parameters (transformers 5), for all layers or for each kind of layer,
 * or the older rope_theta, rope_scaling and rope_local_base_freq. */

#include "checkpoint/config_json.h"

#include <math.h>
#include <string.h>

#define BASE_MAX 1e12
#define PI 3.14159265358979323846

/* The length of the first training: beside the other fields, which counts before the one in the
 * scaling, and without either `fallback`. */
static enum err read_original(const json_t *text, const json_t *scaling, uint32_t fallback,
                              uint32_t *ret_original, struct error *error) {
    static const char key[] = "original_max_position_embeddings";
    *ret_original = fallback;
    enum err err = config_json_count(scaling, key, CONFIG_CONTEXT_MAX, ret_original, error);
    return err == OK ? config_json_count(text, key, CONFIG_CONTEXT_MAX, ret_original, error) : err;
}

/* Llama 3.1: low frequencies are stretched by `factor`, high ones stay, and those between are
 * blended. The config holds divisors, as rope_freqs.weight of a GGUF does. */
static enum err read_llama3(struct json_config *json, const json_t *text, const json_t *scaling,
                            struct error *error) {
    float factor = 0, low = 1, high = 4;
    uint32_t original;
    struct model_config *config = &json->config;
    if (!json_member(scaling, "factor"))
        return err_set(error, ERR_INVALID, "the factor of rope_type llama3 is missing");
    enum err err = config_json_number(scaling, "factor", 1, 1e6, &factor, error);
    if (err == OK) err = config_json_number(scaling, "low_freq_factor", 1e-3, 1e3, &low, error);
    if (err == OK) err = config_json_number(scaling, "high_freq_factor", 1e-3, 1e3, &high, error);
    if (err == OK) err = read_original(text, scaling, config->context_max, &original, error);
    if (err != OK) return err;
    if (!(high > low))
        return err_set(error, ERR_INVALID, "high_freq_factor %g is not above low_freq_factor %g",
                       (double)high, (double)low);
    const uint32_t dimensions = config_rotary_dim(config);
    for (uint32_t i = 0; i < dimensions / 2; i++) {
        double frequency = pow((double)config->rope_base, -2.0 * i / dimensions);
        double waves = original * frequency / (2.0 * PI); /* turns in the original length */
        double blend = (waves - (double)low) / ((double)high - (double)low);
        if (blend < 0) blend = 0;
        if (blend > 1) blend = 1;
        json->rope_factors[i] = (float)(1.0 / ((1.0 - blend) / (double)factor + blend));
    }
    config->rope_factors = (const unsigned char *)json->rope_factors;
    return OK;
}

/* Phi 3: as read_long_rope of config.c, from the two lists of divisors. */
static enum err read_longrope(struct json_config *json, const json_t *text, const json_t *scaling,
                              struct error *error) {
    struct model_config *config = &json->config;
    uint32_t original;
    const json_t *factors = json_member(scaling, "short_factor");
    enum err err = read_original(text, scaling, 4096, &original, error); /* as Phi3Config has it */
    if (err != OK) return err;
    if (original < 2 || original > config->context_max)
        return err_set(error, ERR_INVALID, "original_max_position_embeddings is %u, not 2..%u",
                       original, config->context_max);
    const uint32_t pairs = config_rotary_dim(config) / 2;
    if (json_array_size(factors) != pairs)
        return err_set(error, ERR_INVALID, "short_factor is no list of %u numbers", pairs);
    for (uint32_t i = 0; i < pairs; i++) {
        double factor = json_number_value(json_array_get(factors, i));
        if (!(factor >= 1e-3 && factor <= 1e6))
            return err_set(error, ERR_INVALID, "short_factor %u is not within 0.001..1000000", i);
        json->rope_factors[i] = (float)factor;
    }
    config->rope_factors = (const unsigned char *)json->rope_factors;
    float ratio = (float)config->context_max / (float)original;
    err = config_json_number(scaling, "factor", 1, 1e6, &ratio, error);
    if (err != OK) return err;
    config->rope_magnitude = (float)sqrt(1.0 + log((double)ratio) / log(original));
    config->context_max = original;
    return config_json_number(scaling, "attention_factor", 0.1, 10, &config->rope_magnitude, error);
}

/* YaRN: the numbers themselves; config_rope_frequencies has the formula. */
static enum err read_yarn(struct json_config *json, const json_t *text, const json_t *scaling,
                          struct error *error) {
    struct model_config *config = &json->config;
    struct yarn *yarn = &config->yarn;
    uint32_t original;
    *yarn = (struct yarn){.beta_fast = 32, .beta_slow = 1, .is_rounded = true};
    if (!json_member(scaling, "factor"))
        return err_set(error, ERR_INVALID, "the factor of rope_type yarn is missing");
    enum err err = config_json_number(scaling, "factor", 1, 1e6, &yarn->factor, error);
    if (err == OK)
        err = config_json_number(scaling, "beta_fast", 1e-3, 1e6, &yarn->beta_fast, error);
    if (err == OK)
        err = config_json_number(scaling, "beta_slow", 1e-3, 1e6, &yarn->beta_slow, error);
    if (err == OK) err = config_json_bool(scaling, "truncate", &yarn->is_rounded, error);
    if (err == OK) err = read_original(text, scaling, config->context_max, &original, error);
    if (err != OK) return err;
    yarn->original = (float)original;
    config->rope_magnitude = 0.1f * logf(yarn->factor) + 1.0f;
    config->temper_tokens = original;
    float scale = 0, scale_all = 0;
    err = config_json_number(scaling, "mscale", 0, 100, &scale, error);
    if (err == OK) err = config_json_number(scaling, "mscale_all_dim", 0, 100, &scale_all, error);
    yarn->log_factor = (float)(0.1 * (double)scale_all);
    if (err == OK && scale > 0 && scale_all > 0)
        config->rope_magnitude = (0.1f * scale * logf(yarn->factor) + 1.0f) /
                                 (0.1f * scale_all * logf(yarn->factor) + 1.0f);
    if (err == OK && config->architecture->has_temper)
        err =
            config_json_number(scaling, "llama_4_scaling_beta", 0, 10, &config->temper_beta, error);
    if (err != OK) return err;
    return config_json_number(scaling, "attention_factor", 0.1, 10, &config->rope_magnitude, error);
}

/* Hunyuan: whatever the length of a text, the base is that of a longer one. */
static enum err scale_base(struct model_config *config, const json_t *scaling,
                           struct error *error) {
    const double dim = config_rotary_dim(config);
    float alpha = 1.0f, factor = 1.0f;
    enum err err = config_json_number(scaling, "alpha", 1, 1e6, &alpha, error);
    if (err == OK) err = config_json_number(scaling, "factor", 1, 1, &factor, error);
    const double base = (double)config->rope_base * pow((double)alpha, dim / (dim - 2));
    if (err == OK && !(dim > 2 && base <= BASE_MAX))
        err = err_set(error, ERR_INVALID, "alpha %g makes a base of rotations of %g", (double)alpha,
                      base);
    if (err == OK) config->rope_base = (float)base;
    return err;
}

static struct str type_of(const json_t *scaling) {
    struct str type = json_member_str(scaling, "rope_type");
    return type.bytes > 0 ? type : json_member_str(scaling, "type");
}

static bool is_plain(const json_t *scaling) {
    struct str type = type_of(scaling);
    return type.bytes == 0 || str_is(type, "default") || str_is(type, "none");
}

static enum err read_scaling(struct json_config *json, const json_t *text, const json_t *scaling,
                             struct error *error) {
    struct str type = type_of(scaling);
    json->config.rope_scale = 1.0f;
    if (!scaling || is_plain(scaling)) return OK;
    if (json->config.architecture->has_v_norm && str_is(type, "proportional")) return OK;
    if (json->config.architecture->base_is_scaled && str_is(type, "dynamic") &&
        json_member(scaling, "alpha"))
        return scale_base(&json->config, scaling, error);
    if (str_is(type, "llama3")) return read_llama3(json, text, scaling, error);
    if (json->config.architecture->has_long_rope &&
        (str_is(type, "longrope") || str_is(type, "su")))
        return read_longrope(json, text, scaling, error);
    if (json->config.architecture->has_yarn && str_is(type, "yarn"))
        return read_yarn(json, text, scaling, error);
    if (str_is(type, "linear")) {
        float factor = 1.0f;
        enum err err = config_json_number(scaling, "factor", 1e-3, 1e6, &factor, error);
        json->config.rope_scale = 1.0f / factor;
        return err;
    }
    static const char *const known[] = {"dynamic", "yarn", "longrope", "su", "mrope"};
    const char *name = "unknown, it";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (str_is(type, known[i])) name = known[i];
    return err_set(error, ERR_INVALID,
                   "rope_type %s is not supported (default, linear and llama3 are)", name);
}

/* Gemma 4: the rotated pairs are spread over the whole head, and the others stand still. */
static enum err read_turned(struct model_config *config, const json_t *global, float share,
                            struct error *error) {
    const bool is_proportional = str_is(type_of(global), "proportional");
    const uint32_t pairs = config->head_dim / 2;
    config->turned_pairs = (uint32_t)(share * (float)pairs);
    if (config->turned_pairs > 0 && (is_proportional || share >= 1.0f)) return OK;
    return err_set(error, ERR_INVALID,
                   "partial_rotary_factor is %g, without rope_type proportional", (double)share);
}

/* How much of a head is rotated. */
static enum err read_share(struct model_config *config, const json_t *text, const json_t *scaling,
                           struct error *error) {
    const float of_family = config->architecture->rotary_share;
    if (config->architecture->is_latent) return OK; /* a part of a head of its own turns */
    float share = of_family > 0.0f ? of_family : 1.0f;
    enum err err = config_json_number(text, "partial_rotary_factor", 0, 1, &share, error);
    if (err == OK) err = config_json_number(scaling, "partial_rotary_factor", 0, 1, &share, error);
    if (err != OK) return err;
    if (config->architecture->has_v_norm) return read_turned(config, scaling, share, error);
    const uint32_t dimensions = (uint32_t)((float)config->head_dim * share);
    if (of_family == 0.0f && dimensions != config->head_dim)
        return err_set(error, ERR_INVALID,
                       "partial_rotary_factor is %g: only whole heads can be rotated",
                       (double)share);
    if (dimensions < 2 || dimensions % 2 != 0)
        return err_set(error, ERR_INVALID,
                       "partial_rotary_factor is %g: %u of %u elements cannot be rotated in pairs",
                       (double)share, dimensions, config->head_dim);
    config->rotary_dim = dimensions;
    return OK;
}

/* Where a file has both forms, transformers takes rope_scaling: people add it to a config by hand.
 * An empty one is none. `part`: what rope_parameters says of the layers without a window. */
static enum err choose_scaling(const json_t *text, const json_t *part, const json_t **ret_scaling,
                               struct error *error) {
    static const char *const names[] = {"rope_parameters", "rope_scaling"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *member = json_member(text, names[i]);
        const json_t *type = json_member(member, "rope_type");
        if (!type) type = json_member(member, "type");
        if (member && !json_is_object(member))
            return err_set(error, ERR_INVALID, "%s is no object", names[i]);
        if (type && !json_is_string(type))
            return err_set(error, ERR_INVALID, "%s: its type is no string", names[i]);
    }
    const json_t *scaling = json_member(text, "rope_scaling");
    *ret_scaling = part;
    if (json_object_size(scaling) == 0) return OK;
    if (part != json_member(text, "rope_parameters"))
        return err_set(error, ERR_INVALID,
                       "rope_scaling next to rope_parameters of each kind of layer is not "
                       "supported");
    *ret_scaling = scaling;
    return OK;
}

/* A base inside rope_parameters or rope_scaling counts before the one next to it, but not one in
 * rope_parameters that rope_scaling replaces. */
static enum err read_bases(struct model_config *config, const json_t *text, const json_t *global,
                           const json_t *scaling, struct error *error) {
    const json_t *local = json_member(json_member(text, "rope_parameters"), "sliding_attention");
    const bool is_replaced = scaling != global;
    const struct {
        const json_t *object;
        const char *key;
        float *base;
    } fields[] = {{is_replaced ? global : text, "rope_theta", &config->rope_base},
                  {is_replaced ? text : global, "rope_theta", &config->rope_base},
                  {scaling, "rope_theta", &config->rope_base},
                  {text, "global_rope_theta", &config->rope_base},
                  {text, "local_rope_theta", &config->rope_base_local},
                  {text, "rope_local_base_freq", &config->rope_base_local},
                  {local, "rope_theta", &config->rope_base_local}};
    enum err err = OK;
    for (size_t i = 0; i < sizeof fields / sizeof *fields && err == OK; i++)
        err =
            config_json_number(fields[i].object, fields[i].key, 1, BASE_MAX, fields[i].base, error);
    if (err == OK && local && !is_plain(local))
        err = err_set(error, ERR_INVALID,
                      "rope_parameters: sliding_attention with a scaling is not supported");
    return err;
}

enum err config_json_read_rope(struct json_config *json, const json_t *text,
                               const struct json_rope_defaults *defaults,
                               struct json_rope_needs needs, struct error *error) {
    struct model_config *config = &json->config;
    const json_t *parameters = json_member(text, "rope_parameters"), *scaling = NULL;
    const json_t *global = json_member(parameters, "full_attention");
    config->rope_base = defaults->base;
    config->rope_base_local = defaults->base_local;
    config->rope_magnitude = 1.0f;
    if (json_is_object(global) && !needs.is_by_kind)
        return err_set(error, ERR_INVALID,
                       "rope_parameters of each kind of layer are not supported here");
    if (!json_is_object(global)) global = parameters;
    enum err err = choose_scaling(text, global, &scaling, error);
    if (err == OK && needs.is_by_kind && scaling && scaling == parameters)
        err = err_set(error, ERR_INVALID,
                      "rope_parameters has neither full_attention nor sliding_attention");
    if (err == OK && needs.is_stated && !scaling)
        err = err_set(error, ERR_INVALID,
                      "rope_parameters and rope_scaling are missing: this family stretches "
                      "positions by numbers of its own");
    if (err == OK) err = read_bases(config, text, global, scaling, error);
    if (err == OK) err = read_share(config, text, scaling, error);
    return err == OK ? read_scaling(json, text, scaling, error) : err;
}
