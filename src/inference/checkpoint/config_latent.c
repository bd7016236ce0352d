/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/config_latent.h"

#include "checkpoint/config_key.h"

#include <math.h>

bool config_is_latent(const struct model_config *config) {
    return config->latent.rank > 0;
}

enum err config_set_latent(struct model_config *config, struct error *error) {
    const struct latent_sizes *sizes = &config->latent;
    if (sizes->rank % 16 != 0)
        return err_set(error, ERR_INVALID,
                       "a latent rank of %u is not supported: no multiple of 16", sizes->rank);
    if (sizes->turned_dim % 16 != 0)
        return err_set(error, ERR_INVALID,
                       "%u elements of a head cannot be turned: no multiple of 16",
                       sizes->turned_dim);
    for (uint32_t i = 0; i < config->layers; i++) config->list[i].mixer = MIXER_LATENT;
    config->kv_heads = 1;
    config->head_dim = sizes->rank + sizes->turned_dim;
    config->rotary_dim = sizes->turned_dim;
    return OK;
}

void config_set_latent_scale(struct model_config *config) {
    const struct yarn *yarn = &config->yarn;
    const struct latent_sizes *sizes = &config->latent;
    const float grown = yarn->factor > 0 ? 1.0f + yarn->log_factor * logf(yarn->factor) : 1.0f;
    config->attention_scale = grown * grown / sqrtf((float)(sizes->still_dim + sizes->turned_dim));
}

/* Files of today state the sizes of a line of the cache as those of keys and values, and those of
 * heads under names of their own; the first files have the sizes of heads alone. Ollama's files of
 * GLM-4.7-Flash have both the other way around. */
static enum err read_heads(struct model_config *config, const struct gguf *gguf,
                           struct error *error) {
    struct latent_sizes *sizes = &config->latent;
    const bool is_new = config_key_exists(config, gguf, "attention.key_length_mla") &&
                        !config->architecture->head_sizes_are_plain;
    const char *key_suffix = is_new ? "attention.key_length_mla" : "attention.key_length";
    uint32_t key_dim = 0;
    enum err err = config_key_count(
        config, gguf, key_suffix, CONFIG_HEAD_DIM_MAX + CONFIG_LATENT_TURNED_MAX, &key_dim, error);
    if (err == OK)
        err = config_key_count(config, gguf,
                               is_new ? "attention.value_length_mla" : "attention.value_length",
                               CONFIG_HEAD_DIM_MAX, &sizes->value_dim, error);
    if (err != OK) return err;
    if (key_dim <= sizes->turned_dim || key_dim - sizes->turned_dim > CONFIG_HEAD_DIM_MAX)
        return err_set(error, ERR_INVALID, "%s is %u, not %u..%u",
                       config_key_of(config, gguf, key_suffix).text, key_dim, sizes->turned_dim + 1,
                       sizes->turned_dim + CONFIG_HEAD_DIM_MAX);
    sizes->still_dim = key_dim - sizes->turned_dim;
    return OK;
}

enum err config_read_latent(struct model_config *config, const struct gguf *gguf,
                            struct error *error) {
    struct latent_sizes *sizes = &config->latent;
    enum err err = config_key_count(config, gguf, "attention.kv_lora_rank", CONFIG_LATENT_RANK_MAX,
                                    &sizes->rank, error);
    /* Ollama's converter writes 0 for a model without it. */
    const struct config_key key = config_key_of(config, gguf, "attention.q_lora_rank");
    if (err == OK) err = gguf_get_u32(gguf, key.text, &sizes->q_rank, error);
    if (err == OK && sizes->q_rank > 0)
        err = config_key_check_range(key.text, sizes->q_rank, CONFIG_WIDTH_MAX, error);
    if (err == OK)
        err = config_key_count(config, gguf, "rope.dimension_count", CONFIG_LATENT_TURNED_MAX,
                               &sizes->turned_dim, error);
    if (err == OK) err = read_heads(config, gguf, error);
    return err == OK ? config_set_latent(config, error) : err;
}
