/* SPDX-License-Identifier: Apache-2.0 */

/* The places of weights, and copies of vectors: norms, biases, angles of positions. */

#include "gpu/cuda/plugin_internal.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_GAP 16u        /* before a part of blocks, at most */
#define ROPE_POSITIONS 1024u /* angles that are computed at once */

static uint32_t round_up(uint32_t value, uint32_t to) {
    return (value + to - 1) / to * to;
}

static const void *place(struct layout *layout, const void *from, size_t bytes) {
    if (!from) return NULL;
    void *at = memory_take(&layout->memory, MEMORY_WEIGHTS, bytes);
    if (at && layout->code == cudaSuccess)
        layout->code = cudaMemcpy(at, from, bytes, cudaMemcpyHostToDevice);
    return at;
}

static const float *place_vector(struct layout *layout, const float *from, size_t count) {
    return place(layout, from, count * sizeof *from);
}

/* True when every weight is plus + a bf16 number. */
static bool is_exact(const float *weight, uint32_t count, float plus) {
    for (uint32_t i = 0; i < count; i++)
        if (plus + bf16_to_f32(bf16_from_f32(weight[i] - plus)) != weight[i]) return false;
    return true;
}

/* 1 + 0 in bf16. */
static struct cuda_weights place_ones(struct layout *layout) {
    const size_t bytes = layout->program->width * sizeof(uint16_t);
    struct cuda_weights ret = {.is_bf16 = true, .plus = 1};
    void *at = memory_take(&layout->memory, MEMORY_WEIGHTS, bytes);
    if (at && layout->code == cudaSuccess) layout->code = cudaMemset(at, 0, bytes);
    ret.at = at;
    return ret;
}

/* The weights of a norm as bf16 where that loses nothing: each row of a step reads them. Without
 * any they are ones. */
static struct cuda_weights place_weights(struct layout *layout, const float *weight) {
    uint32_t width = layout->program->width;
    if (!weight) return place_ones(layout);
    bool is_plain = is_exact(weight, width, 0);
    if (!is_plain && !is_exact(weight, width, 1))
        return (struct cuda_weights){.at = place_vector(layout, weight, width)};
    struct cuda_weights ret = {.is_bf16 = true, .plus = is_plain ? 0 : 1};
    uint16_t *codes = malloc(width * sizeof *codes);
    for (uint32_t i = 0; codes && i < width; i++) codes[i] = bf16_from_f32(weight[i] - ret.plus);
    ret.at = place(layout, codes, width * sizeof *codes);
    if (!codes) layout->code = cudaErrorMemoryAllocation;
    free(codes);
    return ret;
}

/* One after another, as their matrices. */
static void place_biases(struct layout *layout, const struct gpu_experts *from,
                         struct gpu_experts *to) {
    const struct gpu_matrix *matrices = layout->program->matrices;
    to->gate_up_bias = place_vector(layout, from->gate_up_bias, matrices[from->gate_up].rows);
    to->down_bias = place_vector(layout, from->down_bias, matrices[from->down].rows);
}

/* A convolution's weights, the taps of a channel together. */
static const float *place_taps(struct layout *layout, const float *from) {
    const struct gpu_recurrent_sizes *sizes = &layout->program->recurrent;
    const size_t count = (size_t)sizes->taps * sizes->channels;
    float *taps = malloc(count * sizeof *taps);
    if (!taps) layout->code = cudaErrorMemoryAllocation;
    for (size_t i = 0; taps && i < count; i++)
        taps[i % sizes->channels * sizes->taps + i / sizes->channels] = from[i];
    const float *at = place_vector(layout, taps ? taps : from, count);
    free(taps);
    return at;
}

/* The operation that has the kernel gets the vectors. */
static void place_recurrent(struct layout *layout, const struct gpu_op *from, struct gpu_op *to) {
    const struct gpu_recurrent_sizes *sizes = &layout->program->recurrent;
    const struct gpu_recurrent *vectors = &from->recurrent;
    to->recurrent = (struct gpu_recurrent){.place = vectors->place};
    if (from->kind != OP_DELTA && from->kind != OP_MAMBA &&
        !(from->kind == OP_CONV && from->is_gated))
        return;
    to->recurrent.conv = place_taps(layout, vectors->conv);
    to->recurrent.decay = place_vector(layout, vectors->decay, sizes->value_heads);
    to->recurrent.step_bias = place_vector(layout, vectors->step_bias, sizes->value_heads);
    to->recurrent.conv_bias = place_vector(layout, vectors->conv_bias, sizes->channels);
    to->recurrent.skip = place_vector(layout, vectors->skip, sizes->value_heads);
    to->recurrent.norm =
        place_vector(layout, vectors->norm, sizes->is_mamba ? sizes->width : sizes->value_dim);
}

/* The norms in a latent layer. */
static void place_latent(struct layout *layout, const struct gpu_latent *from,
                         struct gpu_latent *to) {
    to->norm = place_vector(layout, from->norm, layout->program->latent.rank);
    to->q_norm = place_vector(layout, from->q_norm, layout->program->latent.q_rank);
}

/* The vectors of norms. */
static void place_norms(struct layout *layout, const struct gpu_op *from, struct card_op *to) {
    const struct gpu_program *program = layout->program;
    const uint32_t head_dim = gpu_head_dim(program, from);
    const bool is_prepared = from->kind == OP_EMBED && from->next != GPU_NONE;
    to->is_bare = from->kind == OP_NORM && !from->weight;
    if ((from->kind == OP_NORM && !from->is_layer_norm) || is_prepared)
        to->weight = place_weights(layout, from->weight);
    else
        to->op.weight = place_vector(
            layout, from->weight, from->kind == OP_INPUTS ? program->input_width : program->width);
    to->op.post = place_vector(layout, from->post, program->width);
    to->op.q_norm = place_vector(layout, from->q_norm, head_dim);
    to->op.k_norm = place_vector(layout, from->k_norm, head_dim);
}

static void place_ops(struct layout *layout) {
    const struct gpu_program *program = layout->program;
    for (uint32_t i = 0; i < program->op_count; i++) {
        const struct gpu_op *from = &program->ops[i];
        struct card_op *to = &layout->gpu->ops[i];
        to->op = *from;
        uint32_t outputs = !from->bias             ? 0
                           : from->kind == OP_NORM ? program->width
                                                   : program->matrices[from->matrix].rows;
        place_norms(layout, from, to);
        to->op.positions =
            place_vector(layout, from->positions, (size_t)from->position_rows * program->width);
        to->op.bias = place_vector(layout, from->bias, outputs);
        to->op.sinks = place_vector(layout, from->sinks, program->heads);
        if (from->recurrent.conv) place_recurrent(layout, from, &to->op);
        if (from->kind == OP_LATENT_ENTRY) place_latent(layout, &from->latent, &to->op.latent);
        if (from->kind == OP_EXPERTS) {
            place_biases(layout, &from->experts, &to->op.experts);
            layout->gpu->matrices[from->experts.gate_up].gate_width = from->experts.ffn;
        }
        if (from->kind == OP_ROUTE) {
            to->op.experts.choice_bias =
                place_vector(layout, from->experts.choice_bias, from->experts.count);
            to->op.experts.expert_scale =
                place_vector(layout, from->experts.expert_scale, from->experts.count);
        }
        if (from->kind == OP_LOGITS) layout->gpu->logit_matrix = from->matrix;
        if (from->kind == OP_ATTENTION) layout->gpu->has_output_gate = from->is_gated;
        if (from->kind == OP_ROUTE)
            layout->gpu->matrices[program->ops[i - 1].matrix].is_router = true;
    }
    ranks_number(layout->gpu);
}

/* Zeros, in the host's memory or the GPU's. */
static void clear(struct layout *layout, const struct card_matrix *matrix, void *at, size_t bytes) {
    if (matrix->away > 0)
        memset(at, 0, bytes);
    else if (layout->code == cudaSuccess)
        layout->code = cudaMemset(at, 0, bytes);
}

/* Lines behind the last of a part are zeros. */
static void place_blocks(struct layout *layout, struct memory *memory, struct card_matrix *to,
                         size_t bytes) {
    to->block_bytes = bytes + GPU_BLOCK_PARTS_MAX * BLOCK_GAP;
    to->codes = memory_take(memory, MEMORY_WEIGHTS, to->block_bytes);
    if (to->codes) clear(layout, to, to->codes, to->block_bytes);
}

static void place_codes(struct layout *layout, struct memory *memory, struct card_matrix *to) {
    const size_t row_bytes = to->cols * form_bytes(to->form);
    const size_t scale_bytes = to->form == GPU_BF16 ? 0 : to->rows_padded * sizeof(uint16_t);
    to->codes = memory_take(memory, MEMORY_WEIGHTS, to->rows_padded * row_bytes);
    if (scale_bytes > 0) to->scales = memory_take(memory, MEMORY_WEIGHTS, scale_bytes);
    if (!to->codes) return;
    clear(layout, to, to->codes + to->rows * row_bytes, (to->rows_padded - to->rows) * row_bytes);
    if (to->scales) clear(layout, to, to->scales, scale_bytes);
}

static void place_matrices(struct layout *layout) {
    for (uint32_t i = 0; i < layout->program->matrix_count; i++) {
        const struct gpu_matrix *from = &layout->program->matrices[i];
        struct card_matrix *to = &layout->gpu->matrices[i];
        struct memory *memory = to->away > 0 ? &layout->host : &layout->memory;
        const size_t before = memory->used;
        *to = (struct card_matrix){.rows = from->rows,
                                   .rows_padded = round_up(from->rows, PRODUCT_ALIGN),
                                   .cols = from->cols,
                                   .form = from->form,
                                   .grouping = from->grouping,
                                   .away = to->away,
                                   .is_down = to->is_down};
        if (from->form == GPU_BLOCKS)
            place_blocks(layout, memory, to, from->block_bytes);
        else
            place_codes(layout, memory, to);
        if (to->away > 0) away_note(layout->gpu, to, memory->used - before);
    }
    away_place(layout->gpu, &layout->memory);
}

/* Angles of positions begin..end-1, as the CPU has them: products and turns in double. */
static void angles_of(const struct layout *layout, uint32_t table, uint32_t begin, uint32_t end,
                      float *ret_cosines, float *ret_sines) {
    const uint32_t half = layout->program->rotary_dim[table] / 2;
    const float given = layout->program->rope_magnitude, magnitude = given > 0 ? given : 1.0f;
    for (uint32_t position = begin; position < end; position++) {
        size_t row = (size_t)(position - begin) * half;
        for (uint32_t i = 0; i < half; i++) {
            double angle = (double)position * (double)layout->program->frequencies[table][i];
            ret_cosines[row + i] = (float)cos(angle) * magnitude;
            ret_sines[row + i] = (float)sin(angle) * magnitude;
        }
    }
}

static void place_angles(struct layout *layout, uint32_t table) {
    struct gpu *gpu = layout->gpu;
    const uint32_t half = layout->program->rotary_dim[table] / 2, most = gpu->limits.context_max;
    const size_t bytes = (size_t)most * half * sizeof(float);
    gpu->cosines[table] = memory_take(&layout->memory, MEMORY_WEIGHTS, bytes);
    gpu->sines[table] = memory_take(&layout->memory, MEMORY_WEIGHTS, bytes);
    if (!gpu->cosines[table]) return;
    float *angles = malloc((size_t)2 * ROPE_POSITIONS * half * sizeof *angles);
    if (!angles) layout->code = cudaErrorMemoryAllocation;
    for (uint32_t begin = 0; begin < most && layout->code == cudaSuccess; begin += ROPE_POSITIONS) {
        uint32_t end = most - begin > ROPE_POSITIONS ? begin + ROPE_POSITIONS : most;
        size_t count = (size_t)(end - begin) * half, first = (size_t)begin * half;
        angles_of(layout, table, begin, end, angles, angles + count);
        layout->code = cudaMemcpy(gpu->cosines[table] + first, angles, count * sizeof *angles,
                                  cudaMemcpyHostToDevice);
        if (layout->code == cudaSuccess)
            layout->code = cudaMemcpy(gpu->sines[table] + first, angles + count,
                                      count * sizeof *angles, cudaMemcpyHostToDevice);
    }
    free(angles);
}

void vectors_place(struct layout *layout) {
    place_matrices(layout);
    place_ops(layout);
    for (uint32_t i = 0; i < layout->program->rope_count; i++) place_angles(layout, i);
}
