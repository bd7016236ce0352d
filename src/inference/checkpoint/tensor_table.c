/* SPDX-License-Identifier: Apache-2.0 */

/* tensor_table: the tensors of a checkpoint by their names, and how its files spell them. */

#include "base/mem.h"
#include "checkpoint/checkpoint_internal.h"
#include "checkpoint/folder_names.h"
#include "checkpoint/gguf_names.h"

#include <assert.h>
#include <stdio.h>

enum err checkpoint_add(struct checkpoint *checkpoint, const struct checkpoint_tensor *tensor,
                        struct error *error) {
    if (!map_put_new(&checkpoint->by_name, tensor->name, checkpoint->tensor_count, NULL))
        return err_set(error, ERR_INVALID, "tensor %.*s is there in two forms",
                       STR_ARGS(tensor->spelled));
    if (checkpoint->tensor_count == checkpoint->tensor_capacity) {
        checkpoint->tensor_capacity = checkpoint->tensor_capacity * 2 + 64;
        checkpoint->tensors = mem_resize(checkpoint->tensors, checkpoint->tensor_capacity,
                                         sizeof *checkpoint->tensors);
    }
    checkpoint->tensors[checkpoint->tensor_count++] = *tensor;
    return OK;
}

size_t checkpoint_tensor_count(const struct checkpoint *checkpoint) {
    return checkpoint->tensor_count;
}

const struct checkpoint_tensor *checkpoint_tensor_at(const struct checkpoint *checkpoint,
                                                     size_t index) {
    assert(index < checkpoint->tensor_count);
    return &checkpoint->tensors[index];
}

const struct checkpoint_tensor *checkpoint_find(const struct checkpoint *checkpoint,
                                                struct str name) {
    uint64_t index;
    return map_get(&checkpoint->by_name, name, &index) ? &checkpoint->tensors[index] : NULL;
}

struct tensor_name checkpoint_spell(const struct checkpoint *checkpoint, const char *name) {
    struct tensor_name same;
    snprintf(same.text, sizeof same.text, "%s", name);
    if (checkpoint->gguf) {
        gguf_name_spell(checkpoint->gguf, &same);
        return same;
    }
    return folder_name_of(checkpoint->config.architecture, checkpoint->prefix, name);
}

float checkpoint_norm_offset(const struct checkpoint *checkpoint) {
    return checkpoint->json && checkpoint->json->norms_lack_one ? 1.0f : 0.0f;
}
