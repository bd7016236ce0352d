/* SPDX-License-Identifier: Apache-2.0 */

/* Fields that only some families have: Granite's multipliers, and SmolLM3's layers without a
 * rotation. */

#include "checkpoint/config_json.h"

enum err config_json_read_multipliers(struct model_config *config, const json_t *text,
                                      struct error *error) {
    float embedding = 1.0f, residual = 1.0f, logits = 1.0f, attention = 1.0f;
    if (config->architecture->mixers_are_parallel)
        return config_json_read_factors(config, text, error);
    if (!config->architecture->has_multipliers) return OK;
    enum err err = config_json_number(text, "embedding_multiplier", 1e-4, 1e4, &embedding, error);
    if (err == OK)
        err = config_json_number(text, "residual_multiplier", 1e-4, 1e4, &residual, error);
    if (err == OK) err = config_json_number(text, "logits_scaling", 1e-4, 1e4, &logits, error);
    if (err == OK)
        err = config_json_number(text, "attention_multiplier", 1e-6, 1e3, &attention, error);
    if (err != OK) return err;
    config->attention_scale = attention;
    config->embedding_scale = embedding;
    config->output_scale = 1.0f / logits;
    config_set_residual(config, residual);
    return OK;
}

/* no_rope_layers has a 1 for each layer that rotates; without it each no_rope_layer_interval-th
 * does not. */
enum err config_json_read_unrotated(struct model_config *config, const json_t *text,
                                    struct error *error) {
    uint32_t period = config->architecture->unrotated_period;
    const json_t *list = json_member(text, "no_rope_layers");
    if (period == 0) return OK;
    enum err err =
        config_json_count(text, "no_rope_layer_interval", CONFIG_LAYERS_MAX, &period, error);
    if (err != OK) return err;
    if (!list) {
        config_set_unrotated(config, period);
        return OK;
    }
    if (json_array_size(list) != config->layers)
        return err_set(error, ERR_INVALID, "no_rope_layers is no list of %u layers",
                       config->layers);
    for (uint32_t i = 0; i < config->layers; i++) {
        const json_t *element = json_array_get(list, i);
        const json_int_t rotates = json_is_integer(element) ? json_integer_value(element) : -1;
        if (rotates != 0 && rotates != 1)
            return err_set(error, ERR_INVALID, "no_rope_layers: element %u is not 0 or 1", i);
        config->list[i].rope = rotates == 0;
    }
    return OK;
}
