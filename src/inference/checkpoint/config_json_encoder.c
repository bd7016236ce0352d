/* SPDX-License-Identifier: Apache-2.0 */

/* The config.json of an encoder of BERT's kind. */

#include "checkpoint/config_json.h"

#include <math.h>
#include <string.h>

static enum err refuse_unless(const json_t *root, const char *key, const char *value,
                              struct error *error) {
    struct str text = json_member_str(root, key);
    if (text.bytes == 0 || str_is(text, value)) return OK;
    return err_set(error, ERR_INVALID, "%s: only %s is supported", key, value);
}

static enum err required(const json_t *root, const char *key, uint32_t max, uint32_t *ret_value,
                         struct error *error) {
    if (!json_member(root, key)) return err_set(error, ERR_INVALID, "%s is missing", key);
    return config_json_count(root, key, max, ret_value, error);
}

static enum err read_counts(struct json_config *json, const json_t *root, struct error *error) {
    struct model_config *config = &json->config;
    const struct {
        const char *key;
        uint32_t max;
        uint32_t *value;
    } counts[] = {
        {"num_hidden_layers", CONFIG_LAYERS_MAX, &config->layers},
        {"hidden_size", CONFIG_WIDTH_MAX, &config->width},
        {"intermediate_size", CONFIG_FFN_MAX, &config->ffn},
        {"num_attention_heads", CONFIG_HEADS_MAX, &config->heads},
        {"max_position_embeddings", CONFIG_CONTEXT_MAX, &config->context_max},
        {"vocab_size", CONFIG_VOCAB_MAX, &json->vocab_size},
    };
    enum err err = OK;
    for (size_t i = 0; i < sizeof counts / sizeof *counts && err == OK; i++)
        err = required(root, counts[i].key, counts[i].max, counts[i].value, error);
    if (config->architecture->has_distance_bias) return err;
    config->token_types = 2;
    if (err == OK)
        err = config_json_count(root, "type_vocab_size", 1024, &config->token_types, error);
    return err;
}

/* The first rows of RoBERTa's positions are those of padding. */
static enum err read_first_position(struct model_config *config, const json_t *root,
                                    struct error *error) {
    uint32_t padding = 1; /* the class's default; 0 is no count */
    const bool is_constant = config->architecture->has_distance_bias; /* whatever the file states */
    const json_t *stated = is_constant ? NULL : json_member(root, "pad_token_id");
    if (config->architecture->pair_form != PAIR_TWO_MARKS && !is_constant) return OK;
    if (json_is_integer(stated) && json_integer_value(stated) == 0) padding = 0;
    enum err err = padding == 0 || is_constant
                       ? OK
                       : config_json_count(root, "pad_token_id", CONFIG_VOCAB_MAX, &padding, error);
    if (err != OK) return err;
    config->position_first = padding + 1;
    if (config->context_max <= config->position_first)
        return err_set(error, ERR_INVALID, "max_position_embeddings is %u, not above %u",
                       config->context_max, config->position_first);
    config->context_max -= config->position_first;
    return OK;
}

/* Files whose weights only the code next to them can read. */
static enum err refuse_own_code(const json_t *root, struct error *error) {
    json_t *classes = json_member(root, "auto_map");
    for (void *at = json_object_iter(classes); at; at = json_object_iter_next(classes, at)) {
        const char *name = json_string_value(json_object_iter_value(at));
        if (name && strstr(name, "flash-implementation"))
            return err_set(error, ERR_INVALID,
                           "auto_map: jina's own encoder is not supported (fused tensors, rotary "
                           "positions and adapters of tasks)");
    }
    return OK;
}

/* MPNet's class computes with 32 buckets, whatever the file states. */
static enum err check_distances(const struct model_config *config, const json_t *root,
                                struct error *error) {
    uint32_t buckets = CONFIG_DISTANCES;
    if (!config->architecture->has_distance_bias) return OK;
    enum err err =
        config_json_count(root, "relative_attention_num_buckets", 1u << 20, &buckets, error);
    if (err != OK || buckets == CONFIG_DISTANCES) return err;
    return err_set(error, ERR_INVALID, "relative_attention_num_buckets is %u, not %u", buckets,
                   CONFIG_DISTANCES);
}

enum err config_json_read_encoder(struct json_config *json, const json_t *root,
                                  struct error *error) {
    struct model_config *config = &json->config;
    enum err err = refuse_own_code(root, error);
    if (err == OK) err = refuse_unless(root, "hidden_act", "gelu", error);
    if (err == OK) err = refuse_unless(root, "position_embedding_type", "absolute", error);
    if (err == OK) err = read_counts(json, root, error);
    if (err == OK) err = read_first_position(config, root, error);
    if (err == OK) err = check_distances(config, root, error);
    if (err != OK) return err;
    config->kv_heads = config->heads;
    config->head_dim = config->width / config->heads;
    if (config->width % config->heads != 0 || config->head_dim % 8 != 0 ||
        config->head_dim > CONFIG_HEAD_DIM_MAX || config->head_dim == 0)
        return err_set(error, ERR_INVALID,
                       "a hidden_size of %u in %u heads is not supported: heads are a multiple of "
                       "8 up to %u",
                       config->width, config->heads, CONFIG_HEAD_DIM_MAX);
    config->attention_scale = 1.0f / sqrtf((float)config->head_dim);
    config->is_bidirectional = true;
    config->eps = 1e-12f;
    err = config_json_read_labels(json, root, error);
    if (err != OK) return err;
    return config_json_number(root, "layer_norm_eps", 1e-20, 0.1, &config->eps, error);
}
