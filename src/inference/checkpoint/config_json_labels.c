/* SPDX-License-Identifier: Apache-2.0 */

/* The head of a config.json whose model gives a text labels: a cross-encoder or a classifier. */

#include "checkpoint/config_json.h"

#define LABELS_DEFAULT 2 /* as transformers' PretrainedConfig has it */

static enum err read_count(struct model_config *config, const json_t *root, struct error *error) {
    const json_t *names = json_member(root, "id2label");
    config->labels = LABELS_DEFAULT;
    if (!names)
        return config_json_count(root, "num_labels", CONFIG_LABELS_MAX, &config->labels, error);
    const size_t count = json_object_size(names);
    if (count < 1 || count > CONFIG_LABELS_MAX)
        return err_set(error, ERR_INVALID, "id2label is no object of 1..%u labels",
                       CONFIG_LABELS_MAX);
    config->labels = (uint32_t)count;
    return OK;
}

/* A cross-encoder of sentence-transformers names the function of its scores, by default the
 * sigmoid. */
static enum err read_activation(struct model_config *config, const json_t *root,
                                struct error *error) {
    const char *key = "sentence_transformers.activation_fn";
    struct str name = json_member_str(json_member(root, "sentence_transformers"), "activation_fn");
    if (name.bytes == 0) {
        key = "sbert_ce_default_activation_function";
        name = json_member_str(root, key);
    }
    config->labels_are_raw = str_ends_with(name, STR(".Identity"));
    if (name.bytes == 0 || config->labels_are_raw || str_ends_with(name, STR(".Sigmoid")))
        return OK;
    return err_set(error, ERR_INVALID, "%s: only Identity and Sigmoid are supported", key);
}

enum err config_json_read_labels(struct json_config *json, const json_t *root,
                                 struct error *error) {
    const json_t *names = json_member(root, "architectures");
    struct model_config *config = &json->config;
    if (!str_ends_with(json_str(json_array_get(names, 0)), STR("ForSequenceClassification")))
        return OK;
    if (config_is_recurrent(config))
        return err_set(error, ERR_INVALID,
                       "labels of a model with recurrent layers are not supported");
    json->head_is_tied = true; /* its head gives labels, and no tokens */
    enum err err = read_count(config, root, error);
    return err == OK ? read_activation(config, root, error) : err;
}
