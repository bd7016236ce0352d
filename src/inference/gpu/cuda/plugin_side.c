/* SPDX-License-Identifier: Apache-2.0 */

/* What only some layers have: parts of a token of their own (INPUTS, and a GATE of them), and
 * experts beside a feed-forward (ASIDE and JOIN). */

#include "gpu/cuda/plugin_walk.h"

#include <assert.h>
#include <math.h>

void side_place(struct gpu *gpu, const struct gpu_program *program, struct memory *memory) {
    const size_t rows = gpu->row_bucket;
    const size_t parts = (size_t)program->input_layers * program->input_width;
    bool has_side = false;
    for (uint32_t i = 0; i < program->op_count; i++) has_side |= program->ops[i].kind == OP_ASIDE;
    gpu->inputs = gpu->side = NULL;
    if (parts > 0)
        gpu->inputs = memory_take(memory, MEMORY_ACTIVATIONS, rows * parts * sizeof *gpu->inputs);
    if (has_side)
        gpu->side =
            memory_take(memory, MEMORY_ACTIVATIONS, rows * program->width * sizeof *gpu->side);
}

enum err walk_inputs(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    const struct gpu_program *program = &gpu->program;
    const struct cuda_inputs call = {
        .in = walk->product[TO_INPUTS],
        .in_scale = 1.0f / sqrtf((float)program->width),
        .table = (const uint16_t *)(const void *)gpu->matrices[op->op.matrix].codes,
        .table_scale = op->op.scale,
        .tokens = walk->flight->step.tokens,
        .last_token = walk_last_token(gpu),
        .weight = op->op.weight,
        .epsilon = program->eps,
        .y = gpu->inputs,
        .width = op->op.width,
        .parts = program->input_layers,
        .rows = walk->rows,
    };
    return cuda_inputs(&call, gpu->compute, error);
}

/* The parts are those of the step's rows, behind KEEP as well. */
enum err walk_gate_inputs(struct walk *walk, const struct card_op *op, struct error *error) {
    const struct gpu *gpu = walk->gpu;
    const struct gpu_program *program = &gpu->program;
    const struct cuda_gate_with call = {
        .in = walk->product[TO_WIDE],
        .kind = op->op.gate == GATE_SILU ? CUDA_SILU : CUDA_GELU_TANH,
        .with = gpu->inputs + (size_t)op->op.layer * op->op.width,
        .with_stride = (size_t)program->input_layers * program->input_width,
        .with_rows = walk->kept_rows,
        .y = walk_rows_for(walk, op),
        .width = op->op.width,
        .rows = walk->rows,
    };
    return cuda_gate_with(&call, gpu->compute, error);
}

enum err walk_side(struct walk *walk, const struct card_op *op, struct error *error) {
    struct gpu *gpu = walk->gpu;
    const bool is_join = op->op.kind == OP_JOIN;
    struct cuda_product *h = &walk->product[TO_H];
    const struct cuda_side call = {
        .in = *h,
        .weight = op->op.weight,
        .plus = is_join ? gpu->side : NULL,
        .y = is_join ? gpu->h : gpu->side,
        .width = gpu->program.width,
        .rows = walk->rows,
        .epsilon = gpu->program.eps,
    };
    assert(!is_join ||
           (h->type == CUDA_SUMS_BF16 && h->stride == call.width)); /* EXPERTS left it */
    if (is_join)
        *h = (struct cuda_product){
            .sums = gpu->h, .type = CUDA_SUMS_BF16, .stride = gpu->program.width};
    return cuda_side(&call, gpu->compute, error);
}
