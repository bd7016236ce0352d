/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/plugin_texts.h"

#include <assert.h>

#define PUT(block, from, count) block_put(block, from, count, sizeof *(from))

size_t texts_block_bytes(const struct gpu_program *program, const struct gpu_limits *limits) {
    const size_t rows = limits->rows_max, wanted = limits->logit_rows_max;
    if (!program->pools) return 0;
    return (rows + limits->group_count * (rows + wanted)) * sizeof(uint32_t) +
           limits->sequences_max * sizeof(struct gpu_pool);
}

void texts_put(struct gpu *gpu, struct flight *flight, const struct gpu_step *step) {
    struct block *block = &flight->block;
    struct card_step *to = &flight->step;
    to->places = step->places ? PUT(block, step->places, step->row_count) : NULL;
    to->pool_count = step->pool_count;
    to->pools = PUT(block, step->pools, step->pool_count);
    for (uint32_t i = 0; i < gpu->limits.group_count; i++) {
        const uint32_t *seen = step->groups[i].seen;
        struct card_group *group = &to->groups[i];
        void *host = NULL;
        group->seen = seen ? PUT(block, seen, step->row_count) : NULL;
        group->wanted_seen =
            seen ? block_take(block, step->wanted_count * sizeof *seen, &host) : NULL;
        uint32_t *wanted = host;
        for (uint32_t k = 0; wanted && k < step->wanted_count; k++)
            wanted[k] = seen[step->wanted[k]];
    }
}

enum err walk_layer_norm(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    struct cuda_layer_norm call = {
        .x = walk->x,
        .x_stride = gpu->program.width,
        .weight = op->op.weight,
        .bias = op->op.bias,
        .replaces = op->op.replaces,
        .width = gpu->program.width,
        .rows = walk->rows,
        .epsilon = gpu->program.eps,
    };
    if (op->op.add != ADD_NOTHING) call.h = walk->product[TO_H];
    call.y = walk->normed = walk_rows_for(walk, op);
    return cuda_layer_norm(&call, gpu->compute, error);
}

enum err walk_gelu(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct cuda_gelu call = {
        .in = walk->product[TO_WIDE],
        .is_gated = op->op.gate == GATE_GELU,
        .y = walk_rows_for(walk, op),
        .width = op->op.width,
        .rows = walk->rows,
    };
    return cuda_gelu(&call, walk->gpu->compute, error);
}

/* What NORM before left are rows of bf16. */
enum err walk_pool(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    const struct card_step *step = &walk->flight->step;
    const struct cuda_pool call = {
        .from = walk->normed.codes,
        .from_stride = walk->normed.stride,
        .pools = step->pools,
        .count = step->pool_count,
        .y = walk->flight->logits,
        .y_stride = gpu->logit_stride,
        .width = gpu->program.width,
    };
    (void)op;
    assert(walk->normed.type == CUDA_BF16);
    return cuda_pool(&call, gpu->compute, error);
}
