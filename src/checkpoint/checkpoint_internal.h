/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* checkpoint_internal: a checkpoint while it is filled, by checkpoint.c from a GGUF, by folder.c
 * from a folder. */

#include "base/arena.h"
#include "base/map.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/config_json.h"

struct checkpoint {
    const struct gguf *gguf; /* NULL: a folder */
    struct gguf *own_gguf;
    struct checkpoint_vocab vocab;
    struct model_config config;
    struct checkpoint_tensor *tensors; /* (tensor_count) */
    size_t tensor_count;
    size_t tensor_capacity;
    struct map by_name;

    /* A folder's. */
    char *path;
    struct json_config *json;
    struct shards shards;
    const char *prefix; /* of the text model's tensors: "model.", … */
    struct arena arena; /* names and packed weights */
};

/* Adds a tensor; ERR_INVALID when its name is there already. */
enum err checkpoint_add(struct checkpoint *checkpoint, const struct checkpoint_tensor *tensor,
                        struct error *error) MUST_CHECK;

/* folder.c: fills all of it from the folder. */
enum err folder_open(struct checkpoint *checkpoint, const char *path,
                     const struct checkpoint_options *options, struct error *error) MUST_CHECK;
enum err folder_open_bytes(struct checkpoint *checkpoint, struct str config, const void *bytes,
                           size_t count, struct error *error) MUST_CHECK;

/* folder_quant.c: a weight that is stored small, from the parts that lie around `module`
 * ("model.layers.0.mlp.up_proj"). Fills the tensor's axes, type, sources and packed. */
enum err folder_pack(struct checkpoint *checkpoint, struct str module,
                     struct checkpoint_tensor *tensor, struct error *error) MUST_CHECK;
/* folder_dummy.c: every tensor that the config asks for, made up. */
enum err folder_make_dummy(struct checkpoint *checkpoint, struct error *error) MUST_CHECK;
