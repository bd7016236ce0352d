/* SPDX-License-Identifier: Apache-2.0 */

/* A folder of Hugging Face's tools as a checkpoint: config.json, then the tensors of its
 * .safetensors files under GGUF's names. */

#include "base/mem.h"
#include "base/os.h"
#include "checkpoint/checkpoint_internal.h"
#include "checkpoint/folder_names.h"
#include "checkpoint/folder_pooling.h"
#include "checkpoint/shape_types.h"
#include "checkpoint/tensors.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_BYTES_MAX ((size_t)1 << 20)

/* ---- the config ---- */

static enum err parse_config(struct checkpoint *checkpoint, struct str text, struct error *error) {
    json_t *root;
    enum err err = json_read_python(&root, text, error);
    checkpoint->json = mem_new(1, sizeof *checkpoint->json);
    if (err == OK) {
        err = config_json_init(checkpoint->json, root, error);
        json_decref(root);
    }
    if (err != OK) return err_prefix(error, "config.json");
    checkpoint->config = checkpoint->json->config;
    return OK;
}

static enum err read_config(struct checkpoint *checkpoint, struct error *error) {
    char path[PATH_MAX];
    char *text;
    size_t bytes;
    if (snprintf(path, sizeof path, "%s/config.json", checkpoint->path) >= (int)sizeof path)
        return err_set(error, ERR_INVALID, "the path of the folder is too long");
    enum err err = os_read_file(path, CONFIG_BYTES_MAX, &text, &bytes, error);
    if (err == ERR_NOT_FOUND) return err_set(error, ERR_INVALID, "the folder has no config.json");
    if (err != OK) return err;
    err = parse_config(checkpoint, (struct str){text, bytes}, error);
    free(text);
    return err;
}

/* The last part of the path names the model; in Hugging Face's cache, where that is a commit, the
 * part "models--OWNER--NAME" does. */
static void name_model(struct checkpoint *checkpoint) {
    static const char stored[] = "/models--";
    size_t bytes = strlen(checkpoint->path);
    while (bytes > 1 && checkpoint->path[bytes - 1] == '/') checkpoint->path[--bytes] = '\0';
    const char *slash = strrchr(checkpoint->path, '/'), *repository = NULL;
    struct str name = str_from(slash && slash[1] ? slash + 1 : checkpoint->path);
    for (const char *at = checkpoint->path; (at = strstr(at, stored)); at++) repository = at;
    if (repository) {
        const char *begin = repository + strlen(stored), *owner_end = strstr(begin, "--");
        if (owner_end) begin = owner_end + 2;
        name = (struct str){begin, strcspn(begin, "/")};
    }
    if (name.bytes > 128) name.bytes = 128;
    checkpoint->config.name = name;
}

/* ---- tensors ---- */

static const char *find_prefix(const struct shards *shards, bool is_encoder) {
    if (is_encoder) {
        if (shards_find(shards, STR("bert.embeddings.word_embeddings.weight")).file) return "bert.";
        if (shards_find(shards, STR("mpnet.embeddings.word_embeddings.weight")).file)
            return "mpnet.";
        const bool is_inside =
            shards_find(shards, STR("roberta.embeddings.word_embeddings.weight")).file != NULL;
        return is_inside ? "roberta." : "";
    }
    if (shards_find(shards, STR("backbone.embeddings.weight")).file ||
        shards_find(shards, STR("backbone.embedding.weight")).file)
        return "backbone.";
    if (shards_find(shards, STR("embeddings.tok_embeddings.weight")).file) return "";
    static const char *const prefixes[] = {"model.", "language_model.model.",
                                           "model.language_model.", ""};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        char name[64];
        snprintf(name, sizeof name, "%sembed_tokens.weight", prefixes[i]);
        if (shards_find(shards, str_from(name)).file) return prefixes[i];
    }
    return prefixes[0];
}

/* Tensors that belong to a quantised weight and are read with it. */
static bool is_companion(const struct checkpoint *checkpoint, struct str name) {
    static const char *const fp8[] = {".weight_scale",
                                      ".weight_scale_inv",
                                      ".input_scale",
                                      ".k_scale",
                                      ".v_scale",
                                      ".weight_zero_point",
                                      ".weight_shape",
                                      ".weight_g_idx",
                                      ".weight_global_scale",
                                      ".input_global_scale",
                                      ".input_zero_point"};
    static const char *const words[] = {".qzeros", ".scales", ".g_idx"};
    enum quantisation_method method = checkpoint->json->quantisation.method;
    if (method == QUANTISATION_FP8 || method == QUANTISATION_ROWS || method == QUANTISATION_INT8 ||
        method == QUANTISATION_NVFP4)
        for (size_t i = 0; i < sizeof fp8 / sizeof *fp8; i++)
            if (str_ends_with(name, str_from(fp8[i]))) return true;
    if (method == QUANTISATION_MXFP4 && str_ends_with(name, STR("_scales"))) return true;
    if (method == QUANTISATION_AWQ || method == QUANTISATION_GPTQ)
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (str_ends_with(name, str_from(words[i]))) return true;
    return false;
}

/* GGUF's numbers of the types that kernels/ reads without unpacking. */
static bool plain_type(enum safetensors_type type, uint32_t *ret_type) {
    if (type == SAFETENSORS_F32)
        *ret_type = TENSOR_F32;
    else if (type == SAFETENSORS_F16)
        *ret_type = TENSOR_F16;
    else if (type == SAFETENSORS_BF16)
        *ret_type = TENSOR_BF16;
    else
        return false;
    return true;
}

static enum err take_plain(const struct shard_tensor *from, struct checkpoint_tensor *tensor,
                           struct error *error) {
    const struct safetensors_tensor *source = from->tensor;
    if (!plain_type(source->type, &tensor->type))
        return err_set(error, ERR_INVALID, "tensor %.*s: dtype %s is not supported here",
                       STR_ARGS(source->name), safetensors_type_name(source->type));
    if (source->axis_count > GGUF_AXES_MAX)
        return err_set(error, ERR_INVALID, "tensor %.*s has %u axes, more than %d",
                       STR_ARGS(source->name), source->axis_count, GGUF_AXES_MAX);
    tensor->axis_count = source->axis_count;
    for (uint32_t i = 0; i < GGUF_AXES_MAX; i++)
        tensor->axes[i] = i < source->axis_count ? source->axes[source->axis_count - 1 - i] : 1;
    /* A convolution of each channel alone is (channels, 1, taps). */
    if (source->axis_count == 3 && source->axes[1] == 1) {
        tensor->axis_count = 2;
        tensor->axes[1] = tensor->axes[2];
        tensor->axes[2] = 1;
    }
    tensor->bytes = source->bytes;
    /* The product of all axes was checked, unless one axis is 0; then no row is read. */
    if (source->bytes > 0)
        tensor->row_bytes =
            tensor_type_row_bytes((enum tensor_type)tensor->type, (size_t)tensor->axes[0]);
    tensor->at = source->at;
    tensor->sources[0] = *from;
    return OK;
}

/* "X.qweight" is the weight of X in parts; so is one of 8-bit floats. */
static bool is_packed(const struct checkpoint *checkpoint, const struct safetensors_tensor *source,
                      struct str *ret_module) {
    enum quantisation_method method = checkpoint->json->quantisation.method;
    const char *ending = ".qweight";
    if (method == QUANTISATION_FP8 || method == QUANTISATION_INT8) ending = ".weight";
    if (method == QUANTISATION_ROWS || method == QUANTISATION_NVFP4) ending = ".weight_packed";
    if (method == QUANTISATION_MXFP4) ending = "_blocks";
    if (method == QUANTISATION_NONE || !str_ends_with(source->name, str_from(ending))) return false;
    if (method == QUANTISATION_FP8 && source->type != SAFETENSORS_F8_E4M3) return false;
    if (method == QUANTISATION_INT8 && source->type != SAFETENSORS_I8) return false;
    *ret_module = (struct str){source->name.at, source->name.bytes - strlen(ending)};
    return true;
}

/* gpt-oss stores its experts by inputs where they are no blocks. So does Qwen3-VL, unless
 * transformers 5.12 or later stored it; the shape of the first down_proj tells which. */
static bool turns_experts(const struct checkpoint *checkpoint) {
    const struct model_config *config = &checkpoint->config;
    if (!config->architecture->may_turn_experts) return config->architecture->has_expert_bias;
    for (size_t i = 0; i < checkpoint->shards.tensor_count; i++) {
        const struct safetensors_tensor *source = checkpoint->shards.tensors[i].tensor;
        if (source->axis_count == 3 && str_ends_with(source->name, STR("mlp.experts.down_proj")))
            return source->axes[1] == config->expert_ffn;
    }
    return false;
}

static bool is_turned(const struct checkpoint *checkpoint,
                      const struct safetensors_tensor *source) {
    return checkpoint->turns_experts && source->axis_count == 3 &&
           (str_ends_with(source->name, STR("mlp.experts.gate_up_proj")) ||
            str_ends_with(source->name, STR("mlp.experts.down_proj")));
}

/* BERT's pooler is needed by a head for labels, and by nothing else. */
static bool is_needless(const struct json_config *json, struct str name) {
    const bool is_pooler =
        str_starts_with(name, STR("pooler.")) || str_starts_with(name, STR("bert.pooler."));
    const bool needs_pooler =
        json->config.labels > 0 && json->config.architecture->pair_form == PAIR_ONE_MARK;
    /* ModernBERT's head is of its classes; without labels it guesses tokens. */
    const bool is_head = str_starts_with(name, STR("head.")) && json->config.labels == 0;
    if (json->config.architecture->embedding_is_normed &&
        (is_head || str_starts_with(name, STR("decoder."))))
        return true;
    return !(is_pooler && needs_pooler) &&
           folder_name_is_needless(json->config.architecture, name, json->is_part_of_another);
}

/* A tensor of the layers behind the last one, which no pass needs. */
static bool is_of_skipped(const struct checkpoint *checkpoint, struct str name) {
    const struct model_config *config = &checkpoint->config;
    char begin[64];
    if (config->layers_skipped == 0) return false;
    snprintf(begin, sizeof begin, "%slayers.", checkpoint->prefix);
    if (!str_starts_with(name, str_from(begin))) return false;
    const struct str rest = str_skip(name, strlen(begin));
    const size_t dot = str_find_byte(rest, '.', 0);
    uint64_t layer;
    return dot != SIZE_MAX && str_to_u64((struct str){rest.at, dot}, &layer) &&
           layer >= config->layers && layer - config->layers < config->layers_skipped;
}

static struct str copy(struct checkpoint *checkpoint, struct str text) {
    struct str kept = arena_copy(&checkpoint->arena, text);
    if (!kept.at) abort();
    return kept;
}

static enum err take_tensor(struct checkpoint *checkpoint, const struct shard_tensor *from,
                            struct error *error) {
    const struct json_config *json = checkpoint->json;
    struct str name = from->tensor->name, module;
    if (is_companion(checkpoint, name) || is_needless(json, name) ||
        is_of_skipped(checkpoint, name))
        return OK;
    struct checkpoint_tensor tensor = {.name = name, .spelled = name};
    bool packed = is_packed(checkpoint, from->tensor, &module);
    char whole[SAFETENSORS_NAME_BYTES_MAX + 8];
    if (packed) {
        const bool has_ending = json->quantisation.method != QUANTISATION_MXFP4;
        int bytes =
            snprintf(whole, sizeof whole, "%.*s%s", STR_ARGS(module), has_ending ? ".weight" : "");
        name = (struct str){whole, (size_t)bytes};
    }
    struct tensor_name known;
    if (folder_name_read(json->config.architecture, checkpoint->prefix, name, &known))
        tensor.name = copy(checkpoint, str_from(known.text));
    /* A tied head may be stored nonetheless; the embedding counts. */
    if (json->head_is_tied && str_is(tensor.name, "output.weight")) return OK;
    enum err err =
        packed ? folder_pack(checkpoint, module, &tensor, error) : take_plain(from, &tensor, error);
    if (err == OK && !packed && is_turned(checkpoint, from->tensor))
        err = folder_turn(checkpoint, from, &tensor, error);
    return err == OK ? checkpoint_add(checkpoint, &tensor, error) : err;
}

static enum err take_tensors(struct checkpoint *checkpoint, struct error *error) {
    enum err err = OK;
    checkpoint->turns_experts = turns_experts(checkpoint);
    checkpoint->prefix =
        find_prefix(&checkpoint->shards, checkpoint->config.architecture->is_encoder);
    for (size_t i = 0; i < checkpoint->shards.tensor_count && err == OK; i++)
        err = take_tensor(checkpoint, &checkpoint->shards.tensors[i], error);
    return err;
}

/* Takes the size of the vocabulary from the embedding. Ids that only the tokenizer or only the
 * embedding has are never sampled. */
static enum err size_vocabulary(struct checkpoint *checkpoint, uint32_t token_count,
                                struct error *error) {
    struct model_config *config = &checkpoint->config;
    const struct checkpoint_tensor *embedding =
        checkpoint_find(checkpoint, STR("token_embd.weight"));
    struct tensor_name name = checkpoint_spell(checkpoint, "token_embd.weight");
    if (!embedding) return err_set(error, ERR_INVALID, "tensor %s is missing", name.text);
    if (embedding->axis_count != 2 || embedding->axes[0] != config->width ||
        embedding->axes[1] < 1 || embedding->axes[1] > CONFIG_VOCAB_MAX)
        return err_set(error, ERR_INVALID, "tensor %s is %llu x %llu, not (up to %u tokens) x %u",
                       name.text, (unsigned long long)embedding->axes[1],
                       (unsigned long long)embedding->axes[0], CONFIG_VOCAB_MAX, config->width);
    config->vocab_rows = (uint32_t)embedding->axes[1];
    config->token_count = config->vocab_rows;
    if (token_count > 0 && token_count < config->vocab_rows) config->token_count = token_count;
    if (config->architecture->is_encoder || checkpoint->json->head_is_tied ||
        checkpoint_find(checkpoint, STR("output.weight")))
        return OK;
    name = checkpoint_spell(checkpoint, "output.weight");
    return err_set(error, ERR_INVALID,
                   "tensor %s is missing, and tie_word_embeddings is not true in config.json",
                   name.text);
}

/* The products behind the pooling lie in folders of their own. */
static enum err take_dense(struct checkpoint *checkpoint, const struct folder_modules *modules,
                           struct error *error) {
    static const enum tensor_role roles[CONFIG_DENSE_MAX] = {ROLE_DENSE_FIRST, ROLE_DENSE_SECOND};
    for (uint32_t i = 0; i < CONFIG_DENSE_MAX && modules->dense[i][0]; i++) {
        char path[PATH_MAX];
        struct shard_tensor found = {NULL, NULL};
        struct checkpoint_tensor tensor = {0};
        if (snprintf(path, sizeof path, "%s/%s/model.safetensors", checkpoint->path,
                     modules->dense[i]) >= (int)sizeof path)
            return err_set(error, ERR_INVALID, "the path of the folder is too long");
        enum err err = safetensors_open(&checkpoint->dense[i], path, error);
        if (err == ERR_NOT_FOUND)
            return err_set(error, ERR_INVALID, "%s/model.safetensors is missing",
                           modules->dense[i]);
        if (err != OK) return err_prefix(error, "%s/model.safetensors", modules->dense[i]);
        for (size_t j = 0; j < safetensors_tensor_count(checkpoint->dense[i]); j++) {
            const struct safetensors_tensor *at = safetensors_tensor_at(checkpoint->dense[i], j);
            if (str_is(at->name, "linear.weight"))
                found = (struct shard_tensor){checkpoint->dense[i], at};
        }
        if (!found.tensor)
            return err_set(error, ERR_INVALID, "%s/model.safetensors has no tensor linear.weight",
                           modules->dense[i]);
        tensor.spelled = found.tensor->name;
        tensor.name = copy(checkpoint, str_from(tensor_name_of(roles[i], 0).text));
        err = take_plain(&found, &tensor, error);
        if (err == OK) err = checkpoint_add(checkpoint, &tensor, error);
        if (err != OK) return err;
    }
    return OK;
}

enum err folder_open(struct checkpoint *checkpoint, const char *path,
                     const struct checkpoint_options *options, struct error *error) {
    checkpoint->path = mem_text(path);
    checkpoint->prefix = "model.";
    enum err err = read_config(checkpoint, error);
    if (err != OK) return err;
    name_model(checkpoint);
    struct folder_modules modules;
    err = folder_read_pooling(checkpoint->path, &checkpoint->config, &modules, error);
    if (err == OK && options->dummy_weights) {
        err = folder_make_dummy(checkpoint, error);
    } else if (err == OK) {
        err = shards_open(&checkpoint->shards, checkpoint->path, error);
        if (err == OK) err = take_tensors(checkpoint, error);
        if (err == OK) err = take_dense(checkpoint, &modules, error);
    }
    return err == OK ? size_vocabulary(checkpoint, options->token_count, error) : err;
}

enum err folder_open_bytes(struct checkpoint *checkpoint, struct str config, const void *bytes,
                           size_t count, struct error *error) {
    checkpoint->prefix = "model.";
    enum err err = parse_config(checkpoint, config, error);
    if (err == OK) err = shards_open_bytes(&checkpoint->shards, bytes, count, error);
    if (err == OK) err = take_tensors(checkpoint, error);
    return err == OK ? size_vocabulary(checkpoint, 0, error) : err;
}

enum err folder_open_shape(struct checkpoint *checkpoint, struct str config, enum shape_types types,
                           struct error *error) {
    checkpoint->prefix = "model.";
    enum err err = parse_config(checkpoint, config, error);
    if (err == OK) err = folder_make_dummy(checkpoint, error);
    if (err != OK) return err;
    for (size_t i = 0; i < checkpoint->tensor_count; i++) {
        struct checkpoint_tensor *tensor = &checkpoint->tensors[i];
        const enum tensor_type type =
            shape_type_of(types, tensor, checkpoint->config.layers, checkpoint->json->head_is_tied);
        const uint64_t rows = tensor->bytes / tensor->row_bytes;
        tensor->type = (uint32_t)type;
        tensor->packed = NULL;
        tensor->row_bytes = tensor_type_row_bytes(type, tensor->axes[0]);
        tensor->bytes = rows * tensor->row_bytes;
    }
    return size_vocabulary(checkpoint, 0, error);
}
