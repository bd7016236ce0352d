/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "checkpoint/checkpoint_internal.h"

#include "checkpoint/file_type.h"
#include "checkpoint/gguf_names.h"
#include "checkpoint/tensors.h"
#include "kernels/kernels.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Names of hybrids' tensors, behind "blk.N.", for which another family has a name, or that older
 * converters called otherwise. */
static const struct {
    const char *spelled, *name;
} hybrid_names[] = {{"post_attention_norm.weight", "ffn_norm.weight"}, {"ssm_dt", "ssm_dt.bias"}};

/* "blk.12.rest"; false for another name. */
static bool cut_block(struct str name, uint64_t *ret_layer, struct str *ret_rest) {
    if (!str_starts_with(name, STR("blk."))) return false;
    const size_t dot = str_find_byte(name, '.', 4);
    if (dot == SIZE_MAX) return false;
    *ret_rest = str_skip(name, dot + 1);
    return str_to_u64((struct str){name.at + 4, dot - 4}, ret_layer);
}

/* The name under which a tensor is known; empty: it is of a layer that is not run. */
static struct str known_name(struct checkpoint *checkpoint, struct str spelled) {
    const struct model_config *config = &checkpoint->config;
    uint64_t layer;
    struct str rest;
    if (!cut_block(spelled, &layer, &rest)) return spelled;
    if (layer >= config->layers && layer < config->layers + config->layers_skipped)
        return (struct str){0};
    if (config->architecture->recurrent != MIXER_DELTA) return spelled;
    for (size_t i = 0; i < sizeof hybrid_names / sizeof *hybrid_names; i++) {
        struct tensor_name known;
        if (!str_is(rest, hybrid_names[i].spelled)) continue;
        const int bytes = snprintf(known.text, sizeof known.text, "blk.%u.%s", (unsigned)layer,
                                   hybrid_names[i].name);
        struct str kept = arena_copy(&checkpoint->arena, (struct str){known.text, (size_t)bytes});
        if (!kept.at) abort();
        return kept;
    }
    return spelled;
}

/* Only the text model is served: pictures' tensors are passed over, and so are empty tensors and
 * layers that are not run. ERR_INVALID when two tensors stand for one. */
static enum err add_gguf_tensors(struct checkpoint *checkpoint, struct error *error) {
    for (size_t i = 0; i < gguf_tensor_count(checkpoint->gguf); i++) {
        const struct gguf_tensor *from = gguf_tensor_at(checkpoint->gguf, i);
        struct str name = from->name;
        if (from->bytes == 0 || tensor_is_of_other_part(name)) continue;
        if (checkpoint->config.architecture) name = known_name(checkpoint, name);
        if (name.bytes == 0) continue;
        struct checkpoint_tensor tensor = {.name = name,
                                           .spelled = from->name,
                                           .type = from->type,
                                           .axis_count = from->axis_count,
                                           .row_bytes = from->row_bytes,
                                           .bytes = from->bytes,
                                           .at = from->at,
                                           .in_gguf = from};
        struct tensor_name settled;
        if (gguf_name_settle(checkpoint->gguf, from->name, &settled)) {
            tensor.name = arena_copy(&checkpoint->arena, str_from(settled.text));
            if (!tensor.name.at) abort();
        }
        memcpy(tensor.axes, from->axes, sizeof tensor.axes);
        enum err err = checkpoint_add(checkpoint, &tensor, error);
        if (err != OK) return err; /* a gguf has no name twice, but perhaps two for one tensor */
    }
    return OK;
}

static struct checkpoint *new_checkpoint(void) {
    struct checkpoint *checkpoint = mem_new(1, sizeof *checkpoint);
    map_init(&checkpoint->by_name);
    arena_init(&checkpoint->arena, SIZE_MAX / 2); /* bounded by the tables of the files */
    return checkpoint;
}

enum err checkpoint_of_gguf(struct checkpoint **ret_checkpoint, const struct gguf *gguf,
                            struct error *error) {
    struct checkpoint *checkpoint = new_checkpoint();
    checkpoint->gguf = gguf;
    enum err err = add_gguf_tensors(checkpoint, error);
    if (err == OK)
        *ret_checkpoint = checkpoint;
    else
        checkpoint_close(checkpoint);
    return err;
}

static enum err open_gguf(struct checkpoint *checkpoint, const char *path,
                          const struct checkpoint_options *options, struct error *error) {
    if (options->dummy_weights)
        return err_set(error, ERR_INVALID,
                       "dummy weights need a folder with a config.json, not a file");
    enum err err = gguf_open(&checkpoint->own_gguf, path, error);
    if (err != OK) return err;
    checkpoint->gguf = checkpoint->own_gguf;
    err = checkpoint_vocab_init(&checkpoint->vocab, checkpoint->gguf, error);
    if (err == OK)
        err = config_init(&checkpoint->config, checkpoint->gguf, checkpoint->vocab.token_count,
                          error);
    if (err == OK) err = add_gguf_tensors(checkpoint, error);
    return err;
}

bool checkpoint_is_folder(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

enum err checkpoint_open(struct checkpoint **ret_checkpoint, const char *path,
                         const struct checkpoint_options *options, struct error *error) {
    struct checkpoint *checkpoint = new_checkpoint();
    enum err err = checkpoint_is_folder(path) ? folder_open(checkpoint, path, options, error)
                                              : open_gguf(checkpoint, path, options, error);
    if (err == OK)
        *ret_checkpoint = checkpoint;
    else
        checkpoint_close(checkpoint);
    return err;
}

enum err checkpoint_open_bytes(struct checkpoint **ret_checkpoint, struct str config,
                               const void *bytes, size_t count, struct error *error) {
    struct checkpoint *checkpoint = new_checkpoint();
    enum err err = folder_open_bytes(checkpoint, config, bytes, count, error);
    if (err == OK)
        *ret_checkpoint = checkpoint;
    else
        checkpoint_close(checkpoint);
    return err;
}

enum err checkpoint_open_shape(struct checkpoint **ret_checkpoint, struct str config,
                               enum shape_types types, struct error *error) {
    struct checkpoint *checkpoint = new_checkpoint();
    enum err err = folder_open_shape(checkpoint, config, types, error);
    if (err == OK)
        *ret_checkpoint = checkpoint;
    else
        checkpoint_close(checkpoint);
    return err;
}

void checkpoint_close(struct checkpoint *checkpoint) {
    if (!checkpoint) return;
    checkpoint_vocab_release(&checkpoint->vocab);
    gguf_close(checkpoint->own_gguf);
    shards_close(&checkpoint->shards);
    for (uint32_t i = 0; i < CONFIG_DENSE_MAX; i++) safetensors_close(checkpoint->dense[i]);
    map_release(&checkpoint->by_name);
    arena_release(&checkpoint->arena);
    free(checkpoint->tensors);
    free(checkpoint->json);
    free(checkpoint->path);
    free(checkpoint);
}

/* ---- looking at it ---- */

const struct model_config *checkpoint_config(const struct checkpoint *checkpoint) {
    return &checkpoint->config;
}

const struct checkpoint_vocab *checkpoint_vocab(const struct checkpoint *checkpoint) {
    return checkpoint->gguf ? &checkpoint->vocab : NULL;
}

uint64_t checkpoint_file_bytes(const struct checkpoint *checkpoint) {
    return checkpoint->gguf ? gguf_file_bytes(checkpoint->gguf)
                            : shards_file_bytes(&checkpoint->shards);
}

bool checkpoint_is_gguf(const struct checkpoint *checkpoint) {
    return checkpoint->gguf != NULL;
}

const char *checkpoint_file_type(const struct checkpoint *checkpoint) {
    return checkpoint->gguf ? file_type_name(checkpoint->gguf) : NULL;
}

const char *checkpoint_form(const struct checkpoint *checkpoint) {
    static const char *const forms[] = {
        [QUANTISATION_NONE] = NULL,         [QUANTISATION_FP8] = "FP8",
        [QUANTISATION_AWQ] = "AWQ",         [QUANTISATION_GPTQ] = "GPTQ",
        [QUANTISATION_ROWS] = "packed INT", [QUANTISATION_INT8] = "INT8",
        [QUANTISATION_NVFP4] = "NVFP4",     [QUANTISATION_MXFP4] = NULL};
    if (!checkpoint->json) return NULL;
    return checkpoint->shards.count == 0 ? "dummy" : forms[checkpoint->json->quantisation.method];
}

uint64_t checkpoint_numbers(const struct checkpoint_tensor *tensor) {
    uint64_t numbers = 1;
    for (uint32_t axis = 0; axis < tensor->axis_count; axis++) numbers *= tensor->axes[axis];
    return numbers;
}

enum tensor_type checkpoint_main_type(const struct checkpoint *checkpoint) {
    uint64_t by_type[TENSOR_TYPE_END] = {0};
    uint32_t most = 0;
    for (size_t i = 0; i < checkpoint_tensor_count(checkpoint); i++) {
        const struct checkpoint_tensor *tensor = checkpoint_tensor_at(checkpoint, i);
        assert(tensor->type < TENSOR_TYPE_END);
        by_type[tensor->type] += checkpoint_numbers(tensor);
        if (by_type[tensor->type] > by_type[most]) most = tensor->type;
    }
    return (enum tensor_type)most;
}

bool checkpoint_is_packed(const struct checkpoint *checkpoint) {
    return checkpoint->json && checkpoint->shards.count > 0 &&
           checkpoint->json->quantisation.method != QUANTISATION_NONE &&
           checkpoint->json->quantisation.method != QUANTISATION_MXFP4;
}

bool checkpoint_is_permuted(const struct checkpoint *checkpoint) {
    return checkpoint->gguf != NULL;
}

bool checkpoint_alternates_experts(const struct checkpoint *checkpoint) {
    const struct architecture *architecture = checkpoint->config.architecture;
    if (!architecture || !architecture->has_alternate_experts) return false;
    return checkpoint->json || str_is(str_from(architecture->name), "gptoss");
}

bool checkpoint_has_rates(const struct checkpoint *checkpoint) {
    return checkpoint->gguf != NULL;
}

/* ---- the bytes ---- */

enum err checkpoint_read(const struct checkpoint_tensor *tensor, uint32_t slice, struct pool *pool,
                         struct checkpoint_bytes *ret_bytes, struct error *error) {
    const uint64_t slice_bytes =
        tensor->axis_count == 3 ? tensor->axes[1] * tensor->row_bytes : tensor->bytes;
    assert(slice < tensor->axes[2] || slice == 0);
    *ret_bytes = (struct checkpoint_bytes){NULL, NULL};
    if (!tensor->packed) {
        ret_bytes->at = tensor->at + slice * slice_bytes;
        return OK;
    }
    ret_bytes->owned = kernels_memory((size_t)slice_bytes);
    if (!ret_bytes->owned)
        return err_set(error, ERR_LIMIT, "tensor %.*s: no memory to unpack its %llu bytes",
                       STR_ARGS(tensor->spelled), (unsigned long long)slice_bytes);
    unpack_weight(tensor->packed, slice, pool, ret_bytes->owned);
    ret_bytes->at = ret_bytes->owned;
    return OK;
}

void checkpoint_free(struct checkpoint_bytes *bytes) {
    free(bytes->owned);
    *bytes = (struct checkpoint_bytes){NULL, NULL};
}

void checkpoint_done(const struct checkpoint *checkpoint, const struct checkpoint_tensor *tensor,
                     struct checkpoint_bytes *bytes) {
    checkpoint_free(bytes);
    if (tensor->in_gguf) gguf_drop_pages(checkpoint->gguf, tensor->in_gguf);
    for (size_t i = 0; i < CHECKPOINT_SOURCES_MAX; i++)
        if (tensor->sources[i].file)
            safetensors_drop_pages(tensor->sources[i].file, tensor->sources[i].tensor);
}
