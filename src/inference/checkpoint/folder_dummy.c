/* SPDX-License-Identifier: Apache-2.0 */

/* Weights that are made up, for measuring a model whose weights are not there: the same on every
 * run, and of a size that keeps activations near 1 through all layers. */

#include "checkpoint/checkpoint_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* FNV-1a: each tensor has numbers of its own. */
static uint64_t seed_of(struct str name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < name.bytes; i++)
        hash = (hash ^ (unsigned char)name.at[i]) * 0x100000001b3u;
    return hash;
}

static enum err add(struct checkpoint *checkpoint, enum tensor_role role, uint32_t layer,
                    struct error *error) {
    struct tensor_name name = tensor_name_of(role, layer);
    struct checkpoint_tensor tensor = {.type = TENSOR_BF16};
    if (!tensor_shape(&checkpoint->config, role, tensor.axes, &tensor.axis_count)) return OK;
    if (role == ROLE_HEAD && checkpoint->json->head_is_tied) return OK;
    tensor.name = arena_copy(&checkpoint->arena, str_from(name.text));
    tensor.spelled = tensor.name;
    struct packed_weight *weight = arena_alloc(&checkpoint->arena, sizeof *weight);
    if (!weight || !tensor.name.at) abort();
    *weight = (struct packed_weight){.packing = PACKING_DUMMY,
                                     .type = TENSOR_BF16,
                                     .rows = (uint32_t)tensor.axes[1],
                                     .cols = (uint32_t)tensor.axes[0],
                                     .seed = seed_of(tensor.name)};
    if (tensor.axis_count > 1)
        weight->spread = sqrtf(3.0f / (float)tensor.axes[0]);
    else if (!str_ends_with(tensor.name, STR(".bias")))
        weight->centre = 1.0f - checkpoint_norm_offset(checkpoint);
    tensor.packed = weight;
    tensor.row_bytes = tensor.axes[0] * sizeof(uint16_t);
    tensor.bytes = tensor.axes[1] * tensor.row_bytes;
    return checkpoint_add(checkpoint, &tensor, error);
}

enum err folder_make_dummy(struct checkpoint *checkpoint, struct error *error) {
    struct model_config *config = &checkpoint->config;
    if (checkpoint->json->vocab_size == 0)
        return err_set(error, ERR_INVALID, "config.json: vocab_size is missing");
    config->vocab_rows = checkpoint->json->vocab_size;
    enum err err = OK;
    for (int role = 0; role < ROLE_ATTENTION_NORM && err == OK; role++)
        err = add(checkpoint, (enum tensor_role)role, 0, error);
    for (uint32_t layer = 0; layer < config->layers && err == OK; layer++)
        for (int role = ROLE_ATTENTION_NORM; role < ROLE_COUNT && err == OK; role++)
            err = add(checkpoint, (enum tensor_role)role, layer, error);
    return err;
}
