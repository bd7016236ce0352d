/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/folder_pooling.h"

#include "base/os.h"
#include "json/json.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define FILE_BYTES_MAX ((size_t)1 << 20)
#define MODULES_MAX 16
#define PATH_BYTES_MAX FOLDER_PATH_BYTES_MAX

/* *ret_root is NULL when the file is not there. */
static enum err read_json(const char *folder, const char *name, json_t **ret_root,
                          struct error *error) {
    char path[PATH_MAX];
    char *text;
    size_t bytes;
    *ret_root = NULL;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return err_set(error, ERR_INVALID, "the path of the folder is too long");
    enum err err = os_read_file(path, FILE_BYTES_MAX, &text, &bytes, error);
    if (err == ERR_NOT_FOUND) return OK;
    if (err != OK) return err;
    err = json_read(ret_root, (struct str){text, bytes}, error);
    free(text);
    return err == OK ? OK : err_prefix(error, "%s", name);
}

static bool names_mode(const json_t *root, const char *key, const char *mode) {
    return json_is_true(json_member(root, key)) ||
           str_is(json_member_str(root, "pooling_mode"), mode);
}

static enum err read_mode(const json_t *root, const char *name, struct model_config *config,
                          struct error *error) {
    static const struct {
        const char *key, *mode;
        enum pooling pooling; /* NONE: quern does not run it */
    } modes[] = {
        {"pooling_mode_mean_tokens", "mean", POOLING_MEAN},
        {"pooling_mode_cls_token", "cls", POOLING_CLS},
        {"pooling_mode_lasttoken", "lasttoken", POOLING_LAST},
        {"pooling_mode_max_tokens", "max", POOLING_NONE},
        {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", POOLING_NONE},
        {"pooling_mode_weightedmean_tokens", "weightedmean", POOLING_NONE},
    };
    config->pooling = POOLING_NONE;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (!names_mode(root, modes[i].key, modes[i].mode)) continue;
        if (modes[i].pooling == POOLING_NONE || config->pooling != POOLING_NONE)
            return err_set(error, ERR_INVALID, "%s: %s is not supported%s", name, modes[i].key,
                           config->pooling != POOLING_NONE ? " together with another mode" : "");
        config->pooling = modes[i].pooling;
    }
    if (config->pooling == POOLING_NONE)
        return err_set(error, ERR_INVALID, "%s says no mode of pooling that is supported", name);
    return OK;
}

/* A module lies in the folder itself, or in one right below. */
static bool is_plain(struct str path) {
    for (size_t i = 0; i < path.bytes; i++) {
        char byte = path.at[i];
        bool is_word = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                       (byte >= '0' && byte <= '9') || byte == '_' || byte == '-';
        if (!is_word) return false;
    }
    return path.bytes > 0 && path.bytes <= PATH_BYTES_MAX;
}

static enum err read_pooling_module(const char *folder, const json_t *module,
                                    struct model_config *config, struct error *error) {
    struct str path = json_member_str(module, "path");
    if (!is_plain(path))
        return err_set(error, ERR_INVALID,
                       "modules.json: the path of the pooling is no plain name");
    char name[PATH_BYTES_MAX + sizeof "/config.json"];
    snprintf(name, sizeof name, "%.*s/config.json", STR_ARGS(path));
    json_t *root;
    enum err err = read_json(folder, name, &root, error);
    if (err != OK) return err;
    err = root ? read_mode(root, name, config, error)
               : err_set(error, ERR_INVALID, "%s is missing", name);
    json_decref(root);
    return err;
}

/* A product without a bias and an activation. */
static enum err read_dense_config(const json_t *root, const char *name, struct model_config *config,
                                  uint32_t index, struct error *error) {
    const json_int_t in = json_integer_value(json_member(root, "in_features"));
    const json_int_t out = json_integer_value(json_member(root, "out_features"));
    const struct str bend = json_member_str(root, "activation_function");
    if (in != config_dense_width(config, index))
        return err_set(error, ERR_INVALID, "%s: in_features is not %u", name,
                       config_dense_width(config, index));
    if (out < 1 || out > CONFIG_FFN_MAX)
        return err_set(error, ERR_INVALID, "%s: out_features is no integer of 1..%u", name,
                       CONFIG_FFN_MAX);
    if (!json_is_false(json_member(root, "bias")))
        return err_set(error, ERR_INVALID, "%s: only bias false is supported", name);
    if (!str_ends_with(bend, STR("Identity")))
        return err_set(error, ERR_INVALID, "%s: only the activation_function Identity is supported",
                       name);
    config->dense_widths[index] = (uint32_t)out;
    return OK;
}

static enum err read_dense_module(const char *folder, const json_t *module,
                                  struct model_config *config, struct folder_modules *modules,
                                  struct error *error) {
    const struct str path = json_member_str(module, "path");
    char name[PATH_BYTES_MAX + sizeof "/config.json"];
    uint32_t index = 0;
    while (index < CONFIG_DENSE_MAX && config->dense_widths[index] > 0) index++;
    if (config->pooling == POOLING_NONE || index == CONFIG_DENSE_MAX)
        return err_set(error, ERR_INVALID,
                       "modules.json: a Dense before the Pooling, or more than %u of them, are not "
                       "supported",
                       CONFIG_DENSE_MAX);
    if (!is_plain(path))
        return err_set(error, ERR_INVALID, "modules.json: the path of a Dense is no plain name");
    snprintf(modules->dense[index], sizeof modules->dense[index], "%.*s", STR_ARGS(path));
    snprintf(name, sizeof name, "%.*s/config.json", STR_ARGS(path));
    json_t *root;
    enum err err = read_json(folder, name, &root, error);
    if (err != OK) return err;
    err = root ? read_dense_config(root, name, config, index, error)
               : err_set(error, ERR_INVALID, "%s is missing", name);
    json_decref(root);
    return err;
}

static enum err read_modules(const char *folder, const json_t *modules, struct model_config *config,
                             struct folder_modules *ret_modules, struct error *error) {
    size_t count = json_array_size(modules);
    if (count == 0 || count > MODULES_MAX)
        return err_set(error, ERR_INVALID, "modules.json is no list of 1..%d modules", MODULES_MAX);
    enum err err = OK;
    for (size_t i = 0; i < count && err == OK; i++) {
        const json_t *module = json_array_get(modules, i);
        struct str type = json_member_str(module, "type");
        if (str_ends_with(type, STR(".Pooling")))
            err = read_pooling_module(folder, module, config, error);
        else if (str_ends_with(type, STR(".Dense")))
            err = read_dense_module(folder, module, config, ret_modules, error);
        else if (!str_ends_with(type, STR(".Transformer")) &&
                 !str_ends_with(type, STR(".Normalize")))
            err = err_set(
                error, ERR_INVALID,
                "modules.json: module %zu is neither Transformer, Pooling, Dense nor Normalize", i);
    }
    return err;
}

enum err folder_read_pooling(const char *folder, struct model_config *config,
                             struct folder_modules *ret_modules, struct error *error) {
    json_t *modules, *lengths = NULL;
    *ret_modules = (struct folder_modules){0};
    enum err err = read_json(folder, "modules.json", &modules, error);
    if (err != OK || !modules) return err;
    err = read_modules(folder, modules, config, ret_modules, error);
    if (err == OK) err = read_json(folder, "sentence_bert_config.json", &lengths, error);
    const json_t *length = json_member(lengths, "max_seq_length");
    if (err == OK && length) {
        json_int_t tokens = json_integer_value(length);
        if (!json_is_integer(length) || tokens < 1 || tokens > CONFIG_CONTEXT_MAX)
            err = err_set(error, ERR_INVALID,
                          "sentence_bert_config.json: max_seq_length is no integer of 1..%u",
                          CONFIG_CONTEXT_MAX);
        else
            config->embed_tokens_max = (uint32_t)tokens;
    }
    json_decref(modules);
    json_decref(lengths);
    return err;
}
