/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/config_key.h"

#include <stdio.h>

/* Numbers that have two names. */
static const struct {
    const char *suffix;
    const char *of_ollama;
} spellings[] = {
    {"rope.freq_base", "rope.global.freq_base"},
    {"rope.freq_base_swa", "rope.local.freq_base"},
    {"rope.scaling.yarn_beta_fast", "rope.scaling.beta_fast"},
    {"rope.scaling.yarn_beta_slow", "rope.scaling.beta_slow"},
    {"rope.scaling.yarn_log_multiplier", "rope.scaling.mscale_all_dim"},
    {"attention.temperature_scale", "rope.scaling_beta"},
    {"expert_weights_norm", "norm_top_k_prob"},
};
#define SPELLING_COUNT (sizeof spellings / sizeof *spellings)

static struct config_key spell(const struct model_config *config, const char *suffix) {
    struct config_key key;
    snprintf(key.text, sizeof key.text, "%s.%s", config->architecture->name, suffix);
    return key;
}

struct config_key config_key_of(const struct model_config *config, const struct gguf *gguf,
                                const char *suffix) {
    struct config_key key = spell(config, suffix);
    if (gguf_find(gguf, key.text)) return key;
    for (size_t i = 0; i < SPELLING_COUNT; i++) {
        if (!str_is(str_from(suffix), spellings[i].suffix)) continue;
        struct config_key other = spell(config, spellings[i].of_ollama);
        if (gguf_find(gguf, other.text)) return other;
    }
    return key;
}

bool config_key_exists(const struct model_config *config, const struct gguf *gguf,
                       const char *suffix) {
    return gguf_find(gguf, config_key_of(config, gguf, suffix).text) != NULL;
}

/* A number, or a flag as 0 or 1. */
static enum err read_either(const struct gguf *gguf, const char *key, float *ret_number,
                            struct error *error) {
    bool is_true = false;
    if (gguf_find(gguf, key)->kind != GGUF_BOOL) return gguf_get_f32(gguf, key, ret_number, error);
    enum err err = gguf_get_bool(gguf, key, &is_true, error);
    *ret_number = is_true ? 1.0f : 0.0f;
    return err;
}

enum err config_keys_check(const struct model_config *config, const struct gguf *gguf,
                           struct error *error) {
    for (size_t i = 0; i < SPELLING_COUNT; i++) {
        struct config_key key = spell(config, spellings[i].suffix);
        struct config_key other = spell(config, spellings[i].of_ollama);
        float first = 0.0f, second = 0.0f;
        if (!gguf_find(gguf, key.text) || !gguf_find(gguf, other.text)) continue;
        enum err err = read_either(gguf, key.text, &first, error);
        if (err == OK) err = read_either(gguf, other.text, &second, error);
        if (err != OK) return err;
        if (first < second || first > second)
            return err_set(error, ERR_INVALID, "%s is %g, but %s is %g", key.text, (double)first,
                           other.text, (double)second);
    }
    return OK;
}

enum err config_key_check_range(const char *key, uint64_t value, uint64_t max,
                                struct error *error) {
    if (value >= 1 && value <= max) return OK;
    return err_set(error, ERR_INVALID, "%s is %llu, not 1..%llu", key, (unsigned long long)value,
                   (unsigned long long)max);
}

enum err config_key_count(const struct model_config *config, const struct gguf *gguf,
                          const char *suffix, uint32_t max, uint32_t *ret_count,
                          struct error *error) {
    struct config_key key = config_key_of(config, gguf, suffix);
    const struct gguf_value *value = gguf_find(gguf, key.text);
    if (!value) return err_set(error, ERR_INVALID, "%s is missing", key.text);
    int64_t first = 0;
    if (value->kind == GGUF_ARRAY) {
        for (uint64_t i = 0; i < value->count; i++) {
            int64_t count;
            if (!gguf_element_i64(value, i, &count))
                return err_set(error, ERR_INVALID, "%s is no array of integers", key.text);
            if (i == 0) first = count;
            if (count != first)
                return err_set(error, ERR_INVALID, "%s differs between layers: not supported",
                               key.text);
        }
    } else if (!gguf_element_i64(value, 0, &first)) {
        return err_set(error, ERR_INVALID, "%s is no integer that fits", key.text);
    }
    if (first < 1 || first > max)
        return err_set(error, ERR_INVALID, "%s is %lld, not 1..%u", key.text, (long long)first,
                       max);
    *ret_count = (uint32_t)first;
    return OK;
}
