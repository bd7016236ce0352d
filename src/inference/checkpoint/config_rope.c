/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/config_rope.h"

#include "checkpoint/config_key.h"
#include "checkpoint/tensors.h"

#include <math.h>
#include <string.h>

/* True for a file whose model also reads pictures, or did before it was cut down to text. */
static bool has_pictures(const struct model_config *config, const struct gguf *gguf) {
    const uint32_t *layers = config->architecture->layers_with_pictures;
    if (config->layers == layers[0] || config->layers == layers[1] || config->layers == layers[2])
        return true;
    for (size_t i = 0; i < gguf_tensor_count(gguf); i++)
        if (tensor_is_of_other_part(gguf_tensor_at(gguf, i)->name)) return true;
    /* The smaller models, which read none, have shorter contexts. */
    bool says_nothing = !config_key_exists(config, gguf, "rope.freq_base");
    return config_key_exists(config, gguf, "vision.block_count") ||
           (says_nothing && config->context_max >= 131072);
}

/* The linear factor of a file that has no key about scaling. */
static float factor_of_family(const struct model_config *config, const struct gguf *gguf) {
    float factor = config->architecture->scaling_with_pictures;
    if (factor == 0.0f || config_key_exists(config, gguf, "rope.scaling.type") ||
        config_key_exists(config, gguf, "rope.scaling.factor") ||
        config_key_exists(config, gguf, "rope.scale_linear"))
        return 1.0f;
    return has_pictures(config, gguf) ? factor : 1.0f;
}

/* A number of YaRN, which must be within min..max. */
static enum err read_yarn_number(const struct model_config *config, const struct gguf *gguf,
                                 const char *suffix, float min, float max, float *number,
                                 struct error *error) {
    struct config_key key = config_key_of(config, gguf, suffix);
    enum err err = gguf_get_f32(gguf, key.text, number, error);
    if (err == OK && !(*number >= min && *number <= max))
        err = err_set(error, ERR_INVALID, "%s is %g, not %g..%g", key.text, (double)*number,
                      (double)min, (double)max);
    return err;
}

/* Ollama's first files of Ministral 3 state the original context alone. All its models stretch it
 * to their whole context, at a magnitude of 1. */
static bool stretches_context(const struct model_config *config, const struct gguf *gguf) {
    return config->architecture->has_temper &&
           !config_key_exists(config, gguf, "rope.scaling.factor") &&
           config_key_exists(config, gguf, "rope.scaling.original_context_length");
}

/* YaRN (Peng et al. 2023). The format has no key for rounding. Where mscale_all_dim is stated and
 * not 0 (yarn_log_multiplier), mscale has the same value, and the magnitude is 1. */
static enum err read_yarn(struct model_config *config, const struct gguf *gguf,
                          struct error *error) {
    struct yarn *yarn = &config->yarn;
    uint32_t original = 0;
    *yarn = (struct yarn){
        .beta_fast = 32, .beta_slow = 1, .is_rounded = config->architecture->yarn_is_rounded};
    config->rope_scale = 1.0f;
    enum err err = config_key_count(config, gguf, "rope.scaling.original_context_length",
                                    CONFIG_CONTEXT_MAX, &original, error);
    const bool is_whole = stretches_context(config, gguf);
    if (err == OK && is_whole) yarn->factor = (float)config->context_max / (float)original;
    if (err == OK)
        err = read_yarn_number(config, gguf, "rope.scaling.factor", 1, 1e6f, &yarn->factor, error);
    if (err == OK)
        err = read_yarn_number(config, gguf, "rope.scaling.yarn_beta_fast", 1e-3f, 1e6f,
                               &yarn->beta_fast, error);
    if (err == OK)
        err = read_yarn_number(config, gguf, "rope.scaling.yarn_beta_slow", 1e-3f, 1e6f,
                               &yarn->beta_slow, error);
    if (err != OK) return err;
    yarn->original = (float)original;
    config->temper_tokens = original;
    float log_factor = 0;
    err = read_yarn_number(config, gguf, "rope.scaling.yarn_log_multiplier", 0, 10, &log_factor,
                           error);
    config->rope_magnitude = log_factor > 0 || is_whole ? 1.0f : 0.1f * logf(yarn->factor) + 1.0f;
    if (config->architecture->is_latent) yarn->log_factor = log_factor;
    if (err == OK && config->architecture->has_temper)
        err = read_yarn_number(config, gguf, "attention.temperature_scale", 0, 10,
                               &config->temper_beta, error);
    if (err == OK && config->architecture->has_yarn_magnitude)
        err = read_yarn_number(config, gguf, "rope.scaling.attn_factor", 0.1f, 10,
                               &config->rope_magnitude, error);
    return err;
}

/* True for YaRN; a file that names no type but a factor has it, too. Ollama's converters write an
 * empty type and a factor of 0 for none. */
static enum err find_yarn(const struct model_config *config, const struct gguf *gguf,
                          struct str type, bool *ret_is_yarn, struct error *error) {
    float factor = 0;
    enum err err = OK;
    const bool is_linear = config->architecture->scaling_with_pictures > 0;
    if (config->architecture->has_yarn && type.bytes == 0 && !is_linear)
        err = gguf_get_f32(gguf, config_key_of(config, gguf, "rope.scaling.factor").text, &factor,
                           error);
    *ret_is_yarn = config->architecture->has_yarn &&
                   (str_is(type, "yarn") || factor > 0 || stretches_context(config, gguf));
    return err;
}

/* Reads the scaling of positions: none, linear or YaRN. */
static enum err read_rope_scaling(struct model_config *config, const struct gguf *gguf,
                                  struct error *error) {
    struct str type = {0};
    struct config_key key = config_key_of(config, gguf, "rope.scaling.type");
    enum err err = gguf_get_str(gguf, key.text, &type, error);
    bool is_yarn = false;
    if (err == OK) err = find_yarn(config, gguf, type, &is_yarn, error);
    if (err != OK) return err;
    if (is_yarn) return read_yarn(config, gguf, error);
    bool is_linear = type.bytes == 0 || str_is(type, "linear");
    bool is_long = config->architecture->has_long_rope && str_is(type, "longrope");
    if (!is_linear && !is_long && !str_is(type, "none") && !str_is(type, "default")) {
        bool known = str_is(type, "yarn") || str_is(type, "longrope");
        return err_set(error, ERR_INVALID, "%s %s is not supported (none and linear are)", key.text,
                       !known                 ? "is unknown and"
                       : str_is(type, "yarn") ? "yarn"
                                              : "longrope");
    }
    float factor = factor_of_family(config, gguf);
    err = gguf_get_f32(gguf, config_key_of(config, gguf, "rope.scale_linear").text, &factor, error);
    key = config_key_of(config, gguf, "rope.scaling.factor");
    if (err == OK) err = gguf_get_f32(gguf, key.text, &factor, error);
    if (err != OK) return err;
    if (factor == 0.0f) factor = 1.0f; /* the value that writers use for "none" */
    if (factor < 1e-3f || factor > 1e6f)
        return err_set(error, ERR_INVALID, "%s is %g, not 0.001..1000000", key.text,
                       (double)factor);
    config->rope_scale = is_linear ? 1.0f / factor : 1.0f;
    return OK;
}

/* Takes the tensor with divisors of the frequencies, if it exists. */
static enum err read_rope_factors(struct model_config *config, const struct gguf *gguf,
                                  const char *name, struct error *error) {
    const struct gguf_tensor *tensor = gguf_tensor_find(gguf, str_from(name));
    bool is_empty = tensor && tensor->axis_count == 1 && tensor->axes[0] == 0;
    if (!tensor || is_empty) return OK; /* Ollama's converter writes empty ones for no factors */
    if (tensor->type != 0 || tensor->axis_count != 1 ||
        tensor->axes[0] != config_rotary_dim(config) / 2)
        return err_set(error, ERR_INVALID, "tensor %s is no F32 vector of %u", name,
                       config_rotary_dim(config) / 2);
    for (uint32_t i = 0; i < config_rotary_dim(config) / 2; i++) {
        float factor;
        memcpy(&factor, tensor->at + sizeof factor * i, sizeof factor);
        if (!(factor >= 1e-3f && factor <= (config->architecture->has_v_norm ? 1e32f : 1e6f)))
            return err_set(error, ERR_INVALID, "tensor %s: factor %u is not within 0.001..1000000",
                           name, i);
    }
    config->rope_factors = tensor->at;
    return OK;
}

/* Long rope (Phi 3): up to the length of the first training one set of factors counts, beyond it
 * another one for the whole text, keys in the cache included. Only the first is run, so the context
 * ends there. The magnitude counts at all lengths. */
static enum err read_long_rope(struct model_config *config, const struct gguf *gguf,
                               struct error *error) {
    if (!config->architecture->has_long_rope) return OK;
    enum err err = read_rope_factors(config, gguf, "rope_factors_short.weight", error);
    if (err != OK || !config->rope_factors) return err;
    uint32_t original = 0;
    struct config_key key = config_key_of(config, gguf, "rope.scaling.original_context_length");
    err = gguf_get_u32(gguf, key.text, &original, error);
    if (err != OK) return err;
    if (original < 2 || original > config->context_max)
        return err_set(error, ERR_INVALID, "%s is %u, not 2..%u", key.text, original,
                       config->context_max);
    double ratio = (double)config->context_max / original;
    config->rope_magnitude = (float)sqrt(1.0 + log(ratio) / log(original));
    config->context_max = original;
    key = config_key_of(config, gguf, "rope.scaling.attn_factor");
    err = gguf_get_f32(gguf, key.text, &config->rope_magnitude, error);
    if (err == OK && !(config->rope_magnitude >= 0.1f && config->rope_magnitude <= 10.0f))
        err = err_set(error, ERR_INVALID, "%s is not within 0.1..10", key.text);
    return err;
}

/* A base of frequencies; `of_family` is 0 where the file must have it. */
static enum err read_base(const struct model_config *config, const struct gguf *gguf,
                          const char *suffix, float of_family, float *ret_base,
                          struct error *error) {
    struct config_key key = config_key_of(config, gguf, suffix);
    if (of_family == 0.0f && !gguf_find(gguf, key.text))
        return err_set(error, ERR_INVALID, "%s is missing", key.text);
    *ret_base = of_family;
    enum err err = gguf_get_f32(gguf, key.text, ret_base, error);
    if (err == OK && !(*ret_base >= 1.0f && *ret_base <= 1e12f))
        err = err_set(error, ERR_INVALID, "%s is %g, not 1..1e12", key.text, (double)*ret_base);
    return err;
}

/* Whole heads must be rotated, except in families with a share. Ollama's converter for arch llama
 * states width / heads, also for a model that rotates its longer or shorter heads as a whole. */
static enum err read_dimensions(struct model_config *config, const struct gguf *gguf,
                                struct error *error) {
    uint32_t dimensions = config->head_dim;
    if (config->architecture->is_latent) return OK; /* config_latent.c reads them */
    const float share = config->architecture->rotary_share;
    struct config_key key = config_key_of(config, gguf, "rope.dimension_count");
    if (share > 0.0f) dimensions = (uint32_t)((float)config->head_dim * share);
    enum err err = gguf_get_u32(gguf, key.text, &dimensions, error);
    /* Gemma 4 has a number for each kind of layer, and turns a part of them by its factors. */
    if (err != OK || dimensions == config->head_dim || config->architecture->has_v_norm) return err;
    if (share > 0.0f && dimensions >= 2 && dimensions % 2 == 0 && dimensions < config->head_dim) {
        config->rotary_dim = dimensions;
        return OK;
    }
    if (config->architecture->rope_is_interleaved && dimensions == config->width / config->heads)
        return OK;
    return err_set(error, ERR_INVALID, "%s is %u: only whole heads of %u can be rotated", key.text,
                   dimensions, config->head_dim);
}

enum err config_read_rope(struct model_config *config, const struct gguf *gguf,
                          struct error *error) {
    const struct architecture *architecture = config->architecture;
    config->does_not_turn = architecture->never_turns;
    if (architecture->never_turns) return OK;
    enum err err = read_base(config, gguf, "rope.freq_base", architecture->rope_base,
                             &config->rope_base, error);
    if (err == OK && architecture->has_local_rope)
        err = read_base(config, gguf, "rope.freq_base_swa", architecture->rope_base_local,
                        &config->rope_base_local, error);
    if (err == OK && architecture->recurrent == MIXER_MAMBA) {
        bool turns = true; /* the key that llama.cpp's converter says it by */
        err = gguf_get_bool(gguf, config_key_of(config, gguf, "rope.scaling.finetuned").text,
                            &turns, error);
        config->does_not_turn = !turns;
    }
    if (err == OK) err = read_dimensions(config, gguf, error);
    if (err == OK) err = read_rope_scaling(config, gguf, error);
    if (err == OK) err = read_rope_factors(config, gguf, "rope_freqs.weight", error);
    if (err == OK) err = read_long_rope(config, gguf, error);
    return err;
}
