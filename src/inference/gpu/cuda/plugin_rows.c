/* SPDX-License-Identifier: Apache-2.0 */

/* The rows that the next product reads, in its form. */

#include "gpu/cuda/plugin_walk.h"

/* What a product TO_SHARED reads does not overwrite the rows that others of its layer read. */
static bool is_shared(const struct card_op *op) {
    return op[1].op.kind == OP_MATMUL && op[1].op.to == TO_SHARED;
}

struct cuda_rows walk_rows_for(struct walk *walk, const struct card_op *op) {
    const struct gpu *gpu = walk->gpu;
    if (op->op.next == GPU_NONE)
        return walk->prepared = (struct cuda_rows){
                   .codes = gpu->codes, .type = CUDA_BF16, .stride = gpu->program.width};
    const struct card_matrix *next = matrix_of(walk, op->op.next);
    float *scale = gpu->row_scales[walk->scale_turn++ % 2];
    walk->prepared =
        (struct cuda_rows){.codes = is_shared(op) ? gpu->experts.shared_in : gpu->codes,
                           .type = code_of(next->form),
                           .stride = next->cols,
                           .scale = gpu_form_is_bf16(next->form) ? NULL : scale};
    return walk->prepared;
}

enum err walk_prepare_rows(struct walk *walk, const struct card_op *op, void *from, uint32_t width,
                           struct error *error) {
    if (gpu_form_is_bf16(matrix_of(walk, op->op.next)->form)) {
        walk->prepared = (struct cuda_rows){.codes = from, .type = CUDA_BF16, .stride = width};
        return OK;
    }
    const struct cuda_quantise call = {.from = from,
                                       .from_stride = width,
                                       .y = walk_rows_for(walk, op),
                                       .width = width,
                                       .rows = walk->rows};
    return cuda_quantise(&call, walk->gpu->compute, error);
}
