/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* checkpoint_internal: the struct behind checkpoint.h. checkpoint.c fills it from a GGUF, folder.c
 * from a folder. Only checkpoint/ includes it.
 *
 * Thread: as checkpoint.h: immutable after opening.
 * Memory: `arena` holds names and packed weights; a checkpoint of a caller's GGUF borrows it. */

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

    /* only for a folder */
    char *path;
    struct json_config *json;
    struct shards shards;
    struct safetensors *dense[CONFIG_DENSE_MAX]; /* files of products behind the pooling, or NULL */
    const char *prefix; /* the prefix of the text model's tensors: "model.", … */
    bool turns_experts; /* matrices of all experts in one tensor are stored by inputs */
    struct arena arena; /* names and packed weights */
};

/* tensor_table.c: adds a tensor; ERR_INVALID when another one has its name. */
enum err checkpoint_add(struct checkpoint *checkpoint, const struct checkpoint_tensor *tensor,
                        struct error *error) MUST_CHECK;

/* folder.c: fills the checkpoint from the folder. */
enum err folder_open(struct checkpoint *checkpoint, const char *path,
                     const struct checkpoint_options *options, struct error *error) MUST_CHECK;
enum err folder_open_bytes(struct checkpoint *checkpoint, struct str config, const void *bytes,
                           size_t count, struct error *error) MUST_CHECK;
enum err folder_open_shape(struct checkpoint *checkpoint, struct str config, enum shape_types types,
                           struct error *error) MUST_CHECK;

/* folder_quant.c: fills axes, type, sources and packed of a quantised weight from its parts, whose
 * names begin with `module` ("model.layers.0.mlp.up_proj"). */
enum err folder_pack(struct checkpoint *checkpoint, struct str module,
                     struct checkpoint_tensor *tensor, struct error *error) MUST_CHECK;
/* folder_quant.c: makes a taken tensor of (experts, inputs, outputs) one of matrices with a row for
 * each output. */
enum err folder_turn(struct checkpoint *checkpoint, const struct shard_tensor *from,
                     struct checkpoint_tensor *tensor, struct error *error) MUST_CHECK;
/* folder_dummy.c: adds every tensor that the config needs, with made-up weights. */
enum err folder_make_dummy(struct checkpoint *checkpoint, struct error *error) MUST_CHECK;
