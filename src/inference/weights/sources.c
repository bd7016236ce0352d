/* SPDX-License-Identifier: Apache-2.0 */

/* The tensors of a checkpoint, and the matrices that are opened from them. */

#include "base/mem.h"
#include "weights/weights_internal.h"

#include <assert.h>

const struct checkpoint_tensor *weights_find(const struct weights_loader *loader, uint32_t layer,
                                             enum tensor_role role) {
    struct tensor_name name = tensor_name_of(role, layer);
    return checkpoint_find(loader->options.checkpoint, str_from(name.text));
}

enum err weights_read_head_row(const struct checkpoint *checkpoint, struct pool *pool, uint32_t row,
                               float *ret_row, struct error *error) {
    const struct tensor_name head = tensor_name_of(ROLE_HEAD, 0);
    const struct tensor_name embedding = tensor_name_of(ROLE_EMBEDDING, 0);
    const struct checkpoint_tensor *tensor = checkpoint_find(checkpoint, str_from(head.text));
    if (!tensor) tensor = checkpoint_find(checkpoint, str_from(embedding.text));
    assert(tensor && row < tensor->axes[1]);
    struct checkpoint_bytes bytes;
    enum err err = checkpoint_read(tensor, 0, pool, &bytes, error);
    if (err != OK) return err;
    quant_row_to_f32((enum tensor_type)tensor->type, bytes.at + row * tensor->row_bytes,
                     (size_t)tensor->axes[0], ret_row);
    checkpoint_done(checkpoint, tensor, &bytes);
    return OK;
}

struct matrix_part weights_part_of(const struct checkpoint_tensor *tensor) {
    return (struct matrix_part){.type = (enum tensor_type)tensor->type,
                                .rows = (uint32_t)tensor->axes[1]};
}

static bool is_mapped(const struct weights_source *source) {
    for (uint32_t i = 0; i < source->tensor_count; i++)
        if (source->tensors[i]->packed) return false;
    return !source->is_turned;
}

struct weight_matrix weights_matrix_of(const struct weights_source *source) {
    assert(source->tensors[0]);
    return (struct weight_matrix){.name = source->name.text,
                                  .parts = source->parts,
                                  .part_count = source->part_count,
                                  .cols = source->is_turned ? source->turned_cols
                                                            : (uint32_t)source->tensors[0]->axes[0],
                                  .expert = source->experts > 0 ? source->slice : 0,
                                  .experts = source->experts,
                                  .head = source->head,
                                  .heads = source->heads,
                                  .is_mapped = is_mapped(source),
                                  .is_exact = source->is_exact,
                                  .is_head = source->is_head,
                                  .is_looked_up = source->is_looked_up,
                                  .is_only_looked_up = source->is_only_looked_up,
                                  .is_multiplied = source->is_multiplied};
}

enum err weights_open_source(struct weights_loader *loader, struct weights_source *source,
                             struct matrix **ret_matrix) {
    const struct weight_store *store = &loader->options.store;
    struct weight_matrix from = weights_matrix_of(source);
    enum err err =
        store->ops->open(store->self, &from, &source->matrix, &source->is_filled, loader->error);
    if (err != OK) return err;
    *ret_matrix = source->matrix;
    loader->weights->bytes += source->matrix->bytes;
    loader->sources = vec_grow(loader->sources, loader->source_count, &loader->source_capacity,
                               sizeof *loader->sources);
    loader->sources[loader->source_count++] = *source;
    return OK;
}
