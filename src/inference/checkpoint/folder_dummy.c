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

/* Adds a tensor whose type and axes are set. */
static enum err add(struct checkpoint *checkpoint, struct tensor_name name,
                    struct checkpoint_tensor tensor, struct error *error) {
    if (tensor.axes[0] == 0 || tensor.axes[1] == 0)
        return err_set(error, ERR_INVALID, "config.json: tensor %s has no elements", name.text);
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
    else if (str_ends_with(tensor.name, STR(".ssm_norm.weight")))
        weight->centre = 1.0f;
    else if (!str_ends_with(tensor.name, STR(".bias")))
        weight->centre = 1.0f - checkpoint_norm_offset(checkpoint);
    tensor.packed = weight;
    tensor.row_bytes = tensor.axes[0] * sizeof(uint16_t);
    tensor.bytes = tensor.axes[1] * tensor.row_bytes;
    return checkpoint_add(checkpoint, &tensor, error);
}

static enum err add_role(struct checkpoint *checkpoint, enum tensor_role role, uint32_t layer,
                         struct error *error) {
    struct checkpoint_tensor tensor = {.type = TENSOR_BF16};
    if (!tensor_shape(&checkpoint->config, role, layer, tensor.axes, &tensor.axis_count)) return OK;
    if (role == ROLE_HEAD && checkpoint->json->head_is_tied) return OK;
    return add(checkpoint, tensor_name_of(role, layer), tensor, error);
}

static enum err add_experts(struct checkpoint *checkpoint, uint32_t layer, struct error *error) {
    const struct model_config *config = &checkpoint->config;
    enum err err = OK;
    if (!config_layer_has_experts(config, layer)) return OK;
    for (uint32_t i = 0; i < config->experts; i++)
        for (int part = config_has_no_gate(config) ? EXPERT_UP : 0;
             part < EXPERT_PARTS && err == OK; part++) {
            struct checkpoint_tensor tensor = {.type = TENSOR_BF16, .axis_count = 2};
            tensor_shape_of_expert(config, (enum expert_part)part, tensor.axes);
            err = add(checkpoint, tensor_name_of_expert((enum expert_part)part, layer, i), tensor,
                      error);
        }
    return err;
}

enum err folder_make_dummy(struct checkpoint *checkpoint, struct error *error) {
    struct model_config *config = &checkpoint->config;
    if (checkpoint->json->vocab_size == 0)
        return err_set(error, ERR_INVALID, "config.json: vocab_size is missing");
    config->vocab_rows = checkpoint->json->vocab_size;
    enum err err = OK;
    for (int role = 0; role < ROLE_ATTENTION_NORM && err == OK; role++)
        err = add_role(checkpoint, (enum tensor_role)role, 0, error);
    for (uint32_t layer = 0; layer < config->layers && err == OK; layer++) {
        for (int role = ROLE_ATTENTION_NORM; role < ROLE_COUNT && err == OK; role++)
            err = add_role(checkpoint, (enum tensor_role)role, layer, error);
        if (err == OK) err = add_experts(checkpoint, layer, error);
    }
    return err;
}
