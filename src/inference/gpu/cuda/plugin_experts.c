/* SPDX-License-Identifier: Apache-2.0 */

/* The operations ROUTE and EXPERTS (experts.h), and the room that they need. */

#include "gpu/cuda/plugin_walk.h"

#include <assert.h>

/* The largest of each number over the operations. */
static struct gpu_experts most_of(const struct gpu_program *program) {
    struct gpu_experts most = {0};
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct gpu_experts *experts = &program->ops[i].experts;
        if (program->ops[i].kind != OP_EXPERTS) continue;
        if (experts->count > most.count) most.count = experts->count;
        if (experts->used > most.used) most.used = experts->used;
        if (experts->ffn > most.ffn) most.ffn = experts->ffn;
    }
    return most;
}

/* Whether some expert's rows are codes of 8 bits. */
static bool has_codes(const struct gpu_program *program) {
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct gpu_experts *experts = &program->ops[i].experts;
        if (program->ops[i].kind == OP_EXPERTS &&
            (!gpu_form_is_bf16(program->matrices[experts->gate_up].form) ||
             !gpu_form_is_bf16(program->matrices[experts->down].form)))
            return true;
    }
    return false;
}

/* A row of what the gate of a shared expert leaves. */
static size_t shared_in_bytes(const struct gpu_program *program) {
    size_t most = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        if (program->ops[i].kind != OP_MATMUL || program->ops[i].to != TO_SHARED) continue;
        const struct gpu_matrix *matrix = &program->matrices[program->ops[i].matrix];
        const size_t bytes = matrix->cols * form_bytes(matrix->form);
        if (bytes > most) most = bytes;
    }
    return most;
}

void experts_place(struct gpu *gpu, const struct gpu_program *program, struct memory *memory) {
    const struct gpu_experts most = most_of(program);
    const size_t pairs = (size_t)gpu->row_bucket * most.used;
    struct experts_room *room = &gpu->experts;
    *room = (struct experts_room){
        .order = {.experts = most.count, .each = most.used, .rows = gpu->row_bucket}};
    const enum memory_part part = MEMORY_ACTIVATIONS;
    room->shared_bytes = gpu->row_bucket * product_bytes(program, TO_SHARED);
    if (room->shared_bytes > 0) {
        room->shared = memory_take(memory, part, room->shared_bytes);
        room->shared_in = memory_take(memory, part, gpu->row_bucket * shared_in_bytes(program));
    }
    if (most.count == 0) return;
    struct cuda_expert_order *order = &room->order;
    const size_t tiles = (size_t)cuda_expert_tiles_most(order) + 1;
    order->chosen = memory_take(memory, part, pairs * sizeof *order->chosen);
    order->weights = memory_take(memory, part, pairs * sizeof *order->weights);
    order->order = memory_take(memory, part, pairs * sizeof *order->order);
    order->tiles = memory_take(memory, part, tiles * sizeof *order->tiles);
    room->gated_count = pairs * most.ffn;
    room->sum_count = pairs * program->width;
    room->gated = memory_take(memory, part, room->gated_count * sizeof *room->gated);
    room->sums = memory_take(memory, part, room->sum_count * sizeof *room->sums);
    if (!has_codes(program)) return;
    room->in = memory_take(memory, part, (size_t)gpu->row_bucket * program->width);
    room->codes = memory_take(memory, part, pairs * most.ffn);
    room->scales = memory_take(memory, part, pairs * sizeof *room->scales);
}

/* Rows of bf16 in the form of a matrix: as they are, or as codes at `codes` with `scales`. */
static enum err in_form(const struct gpu *gpu, enum gpu_form form, const struct cuda_rows *from,
                        uint32_t width, uint32_t rows, void *codes, float *scales,
                        struct cuda_rows *ret_rows, struct error *error) {
    *ret_rows = *from;
    if (gpu_form_is_bf16(form)) return OK;
    *ret_rows = (struct cuda_rows){codes, code_of(form), width, scales};
    const struct cuda_quantise call = {.from = from->codes,
                                       .from_stride = from->stride,
                                       .y = *ret_rows,
                                       .width = width,
                                       .rows = rows};
    return cuda_quantise(&call, gpu->compute, error);
}

/* The router's product stands in wide, and what NORM prepared for it is bf16. */
enum err walk_route(struct walk *walk, const struct card_op *op, struct error *error) {
    struct gpu *gpu = walk->gpu;
    const struct gpu_experts *experts = &op->op.experts;
    const struct cuda_product *logits = &walk->product[TO_WIDE];
    const struct cuda_rows normed = walk->prepared;
    struct cuda_expert_order *order = &gpu->experts.order;
    assert(normed.type == CUDA_BF16);
    order->experts = experts->count, order->each = experts->used, order->rows = walk->rows;
    const struct cuda_route call = {.logits = logits->sums,
                                    .stride = logits->stride,
                                    .is_f32 = true,
                                    .scores = experts->is_sigmoid ? CUDA_SCORES_SIGMOID
                                                                  : CUDA_SCORES_SOFTMAX,
                                    .bias = logits->bias,
                                    .choice_bias = experts->choice_bias,
                                    .expert_scale = experts->expert_scale,
                                    .groups = experts->groups,
                                    .groups_kept = experts->groups_used,
                                    .groups_by_best = experts->groups_by_best,
                                    .is_renormalised = experts->sums_to_one,
                                    .scale = experts->scale > 0 ? experts->scale : 1,
                                    .to = *order};
    enum err err = cuda_route(&call, gpu->compute, error);
    if (err != OK || op->op.next == GPU_NONE) return err; /* a norm of their own prepares */
    return in_form(gpu, gpu->matrices[op->op.next].form, &normed, gpu->program.width, walk->rows,
                   gpu->experts.in, gpu->row_scales[walk->scale_turn++ % 2], &walk->prepared,
                   error);
}

static enum cuda_expert_ending ending_of(enum op_gate gate) {
    switch (gate) {
    case GATE_SILU: return CUDA_EXPERTS_SILU;
    case GATE_GELU_TANH: return CUDA_EXPERTS_GELU_TANH;
    case GATE_RELU2:
    case GATE_GELU: /* no experts have it, nor the next two */
    case GATE_GELU_ALONE:
    case GATE_XIELU:
    case GATE_CLAMPED: break;
    }
    return CUDA_EXPERTS_CLAMPED;
}

static enum err multiply(const struct gpu *gpu, const struct gpu_experts *experts,
                         enum cuda_expert_ending ending, const struct cuda_rows *in, uint16_t *y,
                         struct error *error) {
    const bool is_down = ending == CUDA_EXPERTS_DOWN;
    const uint32_t index = is_down ? experts->down : experts->gate_up;
    const struct card_matrix *matrix = &gpu->matrices[index];
    const struct away_weights weights = away_weights_of(gpu, index);
    const struct cuda_expert_order *order = &gpu->experts.order;
    const struct cuda_experts call = {.ending = ending,
                                      .code = code_of(matrix->form),
                                      .outputs = matrix->rows / order->experts,
                                      .inputs = matrix->cols,
                                      .weights = weights.codes,
                                      .column_scale = weights.scales,
                                      .bias = is_down ? experts->down_bias : experts->gate_up_bias,
                                      .in = in->codes,
                                      .row_scale = in->scale,
                                      .limit = experts->gate_limit,
                                      .alpha = experts->gate_alpha,
                                      .by = *order,
                                      .y = y,
                                      .grouping = matrix->grouping};
    return cuda_experts(&call, gpu->compute, error);
}

enum err walk_experts(struct walk *walk, const struct card_op *op, struct error *error) {
    struct gpu *gpu = walk->gpu;
    const struct experts_room *room = &gpu->experts;
    const struct gpu_experts *experts = &op->op.experts;
    const uint32_t pairs = walk->rows * experts->used, width = gpu->program.width;
    const struct cuda_rows gated = {
        .codes = room->gated, .type = CUDA_BF16, .stride = experts->ffn};
    struct cuda_rows in;
    enum err err = away_bring(gpu, experts->gate_up, error);
    if (err == OK)
        err = multiply(gpu, experts, ending_of(op->op.gate), &walk->prepared, room->gated, error);
    if (err == OK)
        err = in_form(gpu, gpu->matrices[experts->down].form, &gated, experts->ffn, pairs,
                      room->codes, room->scales, &in, error);
    if (err == OK) err = multiply(gpu, experts, CUDA_EXPERTS_DOWN, &in, room->sums, error);
    if (err == OK) err = away_leave(gpu, experts->gate_up, error);
    if (err != OK) return err;
    struct cuda_experts_sum call = {
        .by = room->order, .h = room->sums, .y = product_place(gpu, op), .width = width};
    const struct cuda_product *factor = &walk->product[TO_NARROW];
    if (experts->has_shared) call.shared = walk->product[TO_SHARED];
    if (experts->shared_is_scaled) call.shared_gate = factor->sums;
    if (experts->shared_is_scaled) call.gate_stride = factor->stride;
    walk->product[TO_H] =
        (struct cuda_product){.sums = call.y, .type = CUDA_SUMS_BF16, .stride = width};
    return cuda_experts_sum(&call, gpu->compute, error);
}
