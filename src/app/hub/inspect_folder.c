/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os.h"
#include "checkpoint/safetensors.h"
#include "hub/catalog_path.h"
#include "hub/hub_internal.h"
#include "json/json.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CONFIG_BYTES_MAX ((size_t)4 << 20)

struct walk {
    struct inspection *inspection;
    const char *folder;
    bool has_weights;
    enum err err;
    struct error error;
};

static bool is_there(const char *folder, const char *name) {
    char path[PATH_MAX];
    struct stat status;
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           stat(path, &status) == 0;
}

/* The tensors of one file. */
static void take_file(void *context, const char *name) {
    struct walk *walk = context;
    char path[PATH_MAX];
    struct safetensors *file;
    if (walk->err != OK || !str_ends_with(str_from(name), STR(".safetensors")) ||
        str_starts_with(str_from(name), STR("consolidated")))
        return;
    if (snprintf(path, sizeof path, "%s/%s", walk->folder, name) >= (int)sizeof path) return;
    walk->err = safetensors_open(&file, path, &walk->error);
    if (walk->err != OK) return;
    walk->has_weights = true;
    walk->inspection->file_bytes += safetensors_file_bytes(file);
    for (size_t i = 0; i < safetensors_tensor_count(file); i++) {
        const struct safetensors_tensor *tensor = safetensors_tensor_at(file, i);
        uint64_t elements = 1;
        for (uint32_t j = 0; j < tensor->axis_count; j++) elements *= tensor->axes[j];
        inspect_add_tensor(walk->inspection, safetensors_type_name(tensor->type), elements,
                           tensor->bytes);
    }
    safetensors_close(file);
}

static uint32_t number(const json_t *config, const char *name, uint32_t otherwise) {
    const json_t *value = json_member(config, name);
    json_int_t is = json_is_integer(value) ? json_integer_value(value) : -1;
    return is >= 0 && is <= UINT32_MAX ? (uint32_t)is : otherwise;
}

/* Reads the keys that Hugging Face's decoders and encoders share. A model for pictures has them in
 * the configuration of its text half. */
static void read_config(struct inspection *inspection, const json_t *config) {
    const json_t *text = json_member(config, "text_config");
    if (!json_is_object(text)) text = config;
    hub_copy_printable(inspection->family, sizeof inspection->family,
                       json_member_str(config, "model_type"));
    inspection->layers = number(text, "num_hidden_layers", 0);
    inspection->width = number(text, "hidden_size", 0);
    inspection->context = number(text, "max_position_embeddings", 0);
    inspection->vocabulary = number(text, "vocab_size", 0);
    inspection->heads = number(text, "num_attention_heads", 0);
    inspection->kv_heads = number(text, "num_key_value_heads", inspection->heads);
    inspection->window = number(text, "sliding_window", 0);
    inspection->head_dim =
        number(text, "head_dim", inspection->heads > 0 ? inspection->width / inspection->heads : 0);
    if (!inspection->embeds)
        inspection->kv_bytes_per_token =
            4 * (uint64_t)inspection->kv_heads * inspection->head_dim * inspection->layers;
}

static enum err read_json(const char *folder, const char *name, json_t **ret_value,
                          struct error *error) {
    char path[PATH_MAX], *text;
    size_t bytes;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return err_set(error, ERR_INVALID, "the path is too long");
    enum err err = os_read_file(path, CONFIG_BYTES_MAX, &text, &bytes, error);
    if (err != OK) return err;
    err = json_read_python(ret_value, (struct str){text, bytes}, error);
    free(text);
    if (err != OK) return err_prefix(error, "%s", name);
    if (json_is_object(*ret_value)) return OK;
    json_decref(*ret_value);
    return err_set(error, ERR_INVALID, "%s is no object", name);
}

enum err inspect_folder(struct inspection *inspection, const char *path, struct error *error) {
    struct walk walk = {.inspection = inspection, .folder = path};
    json_t *config, *tokenizer;
    struct error ignored;
    enum err err = read_json(path, "config.json", &config, error);
    if (err != OK) return err;
    inspection->embeds = is_there(path, "modules.json");
    read_config(inspection, config);
    json_decref(config);
    inspection->has_template =
        is_there(path, "chat_template.jinja") || is_there(path, "chat_template.json");
    if (read_json(path, "tokenizer_config.json", &tokenizer, &ignored) == OK) {
        if (json_member(tokenizer, "chat_template")) inspection->has_template = true;
        json_decref(tokenizer);
    }
    catalog_each(path, take_file, &walk);
    if (walk.err == OK && !walk.has_weights)
        return err_set(error, ERR_INVALID, "%.300s has no .safetensors files", path);
    if (walk.err != OK) *error = walk.error;
    return walk.err;
}
