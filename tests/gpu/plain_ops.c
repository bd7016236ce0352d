/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ref/ref.h"
#include "plain_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void plain_prepare_rows(const struct plain_pass *pass, const struct gpu_op *op, float *values,
                        uint32_t width, uint32_t stride) {
    if (op->next == GPU_NONE) return;
    enum gpu_form form = pass->gpu->program.matrices[op->next].form;
    for (uint32_t i = 0; i < pass->row_count; i++)
        plain_round(form, values + (size_t)i * stride, width);
}

/* ---- EMBED ---- */

/* Row `row` of the matrix as float32; `room` (cols). */
static const float *row_of(const struct plain_matrix *matrix, uint32_t row, float *room) {
    size_t at = (size_t)row * matrix->shape.cols;
    if (matrix->shape.form == GPU_F32) return (const float *)matrix->values + at;
    const uint16_t *from = (const uint16_t *)matrix->values + at;
    for (uint32_t i = 0; i < matrix->shape.cols; i++) room[i] = bf16_to_f32(from[i]);
    return room;
}

static void run_embed(struct plain_pass *pass, const struct gpu_op *op) {
    struct gpu *gpu = pass->gpu;
    uint32_t width = gpu->program.width;
    for (uint32_t i = 0; i < pass->row_count; i++) {
        int32_t token = pass->step->tokens[i];
        if (token < 0) token = gpu->last_token[~token];
        const float *row = row_of(&gpu->matrices[op->matrix], (uint32_t)token, gpu->weights);
        const float *place =
            op->positions ? op->positions + (size_t)pass->step->places[i] * width : NULL;
        for (uint32_t j = 0; j < width; j++)
            pass->x[(size_t)i * width + j] = row[j] * op->scale + (place ? place[j] : 0.0f);
    }
    if (op->next == GPU_NONE) return;
    memcpy(pass->h, pass->x, (size_t)pass->row_count * width * sizeof *pass->h);
    plain_prepare_rows(pass, op, pass->h, width, width);
}

void plain_begin(const struct plain_pass *pass) {
    const struct gpu *gpu = pass->gpu;
    const struct gpu_program *program = &gpu->program;
    for (uint32_t t = 0; t < program->rope_count; t++) {
        const uint32_t pairs = program->rotary_dim[t] / 2;
        for (uint32_t i = 0; i < pass->row_count; i++) {
            uint32_t position = pass->step->positions[plain_step_row(pass, i)];
            float *cosines = gpu->cosines[t] + (size_t)i * pairs;
            float *sines = gpu->sines[t] + (size_t)i * pairs;
            rope_table(program->frequencies[t], pairs, position, position + 1, cosines, sines);
            for (uint32_t j = 0; program->rope_magnitude > 0.0f && j < pairs; j++) {
                cosines[j] *= program->rope_magnitude;
                sines[j] *= program->rope_magnitude;
            }
        }
    }
}

/* ---- NORM ---- */

static void norm_to(const struct plain_pass *pass, const float *x, float *y, const float *weight,
                    bool add) {
    const struct gpu_program *program = &pass->gpu->program;
    ref_rms_norm(&(struct norm){.x = x,
                                .x_stride = program->width,
                                .y = y,
                                .y_stride = program->width,
                                .weight = weight,
                                .width = program->width,
                                .rows = pass->row_count,
                                .epsilon = program->eps,
                                .add = add});
}

/* h = LayerNorm(x), which x may become. */
static void layer_norm(const struct plain_pass *pass, const struct gpu_op *op) {
    const struct gpu_program *program = &pass->gpu->program;
    const size_t count = (size_t)pass->row_count * program->width;
    ref_layer_norm(&(struct norm){.x = pass->x,
                                  .x_stride = program->width,
                                  .y = pass->h,
                                  .y_stride = program->width,
                                  .weight = op->weight,
                                  .bias = op->bias,
                                  .width = program->width,
                                  .rows = pass->row_count,
                                  .epsilon = program->eps});
    if (op->replaces) memcpy(pass->x, pass->h, count * sizeof *pass->x);
}

static void run_norm(struct plain_pass *pass, const struct gpu_op *op) {
    uint32_t width = pass->gpu->program.width;
    if (op->add == ADD_H) ref_add(pass->h, pass->x, (size_t)pass->row_count * width);
    if (op->add == ADD_NORMED_H) norm_to(pass, pass->h, pass->x, op->post, true);
    const size_t count = (size_t)pass->row_count * width;
    for (size_t i = 0; op->x_scale != 0.0f && i < count; i++) pass->x[i] *= op->x_scale;
    if (op->is_layer_norm)
        layer_norm(pass, op);
    else if (op->weight)
        norm_to(pass, pass->x, pass->h, op->weight, false);
    else
        memcpy(pass->h, pass->x, count * sizeof *pass->h);
    plain_prepare_rows(pass, op, pass->h, width, width);
}

/* ---- ASIDE and JOIN ---- */

static void run_side(const struct plain_pass *pass, const struct gpu_op *op) {
    const size_t count = (size_t)pass->row_count * pass->gpu->program.width;
    norm_to(pass, pass->h, pass->gpu->side, op->weight, op->kind == OP_JOIN);
    if (op->kind == OP_JOIN) memcpy(pass->h, pass->gpu->side, count * sizeof *pass->h);
}

/* ---- INPUTS ---- */

/* The products are the first halves of the sums; a layer's part is normed by itself. */
static void run_inputs(const struct plain_pass *pass, const struct gpu_op *op) {
    struct gpu *gpu = pass->gpu;
    const struct gpu_program *program = &gpu->program;
    const size_t all = (size_t)program->input_layers * op->width;
    const float per_width = 1.0f / sqrtf((float)program->width);
    for (uint32_t i = 0; i < pass->row_count; i++) {
        float *to = gpu->inputs + i * all;
        int32_t token = pass->step->tokens[i];
        if (token < 0) token = gpu->last_token[~token];
        const float *row = row_of(&gpu->matrices[op->matrix], (uint32_t)token, gpu->weights);
        for (size_t j = 0; j < all; j++) to[j] *= per_width;
        ref_rms_norm(&(struct norm){.x = to,
                                    .x_stride = op->width,
                                    .y = to,
                                    .y_stride = op->width,
                                    .weight = op->weight,
                                    .width = op->width,
                                    .rows = program->input_layers,
                                    .epsilon = program->eps});
        for (size_t j = 0; j < all; j++) to[j] = (row[j] * op->scale + to[j]) * sqrtf(0.5f);
    }
}

/* ---- MATMUL and LOGITS ---- */

/* y (rows, matrix rows) = input · matrixᵀ + bias. */
static void multiply(const struct plain_pass *pass, uint32_t index, float *y) {
    const struct gpu *gpu = pass->gpu;
    const struct gpu_op *op = &gpu->program.ops[index];
    const struct plain_matrix *matrix = &gpu->matrices[op->matrix];
    const float *input = pass->h;
    uint32_t stride = gpu->program.width;
    enum op_kind maker = gpu->program.ops[gpu->makers[index]].kind;
    const struct gpu_op *prepared = &gpu->program.ops[gpu->makers[index]];
    if (maker == OP_ATTENTION)
        input = pass->attended, stride = plain_heads_of(gpu, prepared).q_width;
    if (maker == OP_GATED_NORM) input = pass->attended, stride = gpu->program.recurrent.width;
    if (maker == OP_PREPARE && prepared->attended > 0)
        input = pass->attended, stride = prepared->attended;
    if (maker == OP_GATE) input = pass->wide, stride = plain_gate_width(prepared);
    if (maker == OP_LATENT_ENTRY || maker == OP_LATENT_OUT)
        input = maker == OP_LATENT_OUT ? pass->wide : pass->attended, stride = matrix->shape.cols;
    for (uint32_t j = 0; j < matrix->shape.rows; j++) {
        const float *weights = row_of(matrix, j, gpu->weights);
        for (uint32_t i = 0; i < pass->row_count; i++) {
            float sum = plain_dot(input + (size_t)i * stride, weights, matrix->shape.cols);
            y[(size_t)i * matrix->shape.rows + j] = sum + (op->bias ? op->bias[j] : 0.0f);
        }
    }
}

static void run_logits(struct plain_pass *pass, uint32_t index) {
    const struct gpu_op *op = &pass->gpu->program.ops[index];
    size_t count = (size_t)pass->row_count * pass->gpu->program.vocab_rows;
    multiply(pass, index, pass->logits);
    for (size_t i = 0; op->softcap > 0.0f && i < count; i++)
        pass->logits[i] = op->softcap * tanhf(pass->logits[i] / op->softcap);
}

/* ---- HEADS ---- */

static void turn(const struct plain_pass *pass, const struct gpu_op *op, float *x, uint32_t heads,
                 const float *weight, uint32_t row) {
    const struct gpu_program *program = &pass->gpu->program;
    const uint32_t dim = gpu_head_dim(program, op);
    if (weight)
        ref_rms_norm(&(struct norm){.x = x,
                                    .x_stride = dim,
                                    .y = x,
                                    .y_stride = dim,
                                    .weight = weight,
                                    .width = dim,
                                    .rows = heads,
                                    .epsilon = program->eps});
    if (program->rope_count == 0) return;
    ref_rope(&(struct rope){.x = x,
                            .x_stride = heads * dim,
                            .positions = &row,
                            .rows = 1,
                            .head_count = heads,
                            .head_dim = dim,
                            .rotary_dim = program->rotary_dim[op->rope],
                            .cosines = pass->gpu->cosines[op->rope],
                            .sines = pass->gpu->sines[op->rope]});
}

/* RMSNorm of each head without weights. */
static void norm_plainly(const struct gpu *gpu, float *x, uint32_t dim) {
    float squares = 0.0f;
    for (uint32_t i = 0; i < dim; i++) squares += x[i] * x[i];
    const float factor = 1.0f / sqrtf(squares / (float)dim + gpu->program.eps);
    for (uint32_t i = 0; i < dim; i++) x[i] *= factor;
}

static void store_heads(const struct plain_pass *pass, const struct gpu_op *op, uint32_t row,
                        float *k) {
    struct gpu *gpu = pass->gpu;
    const struct plain_heads heads = plain_heads_of(gpu, op);
    const uint32_t slot = pass->step->groups[op->kv_group].slots[row];
    for (uint32_t head = 0; head < heads.kv_heads; head++, k += heads.head_dim) {
        struct plain_kv at = {op->kv_place, slot, head, heads.head_dim, false};
        plain_kv_put(gpu, at, k);
        at.is_value = true;
        if (op->norms_v) norm_plainly(gpu, k + heads.kv_width, heads.head_dim);
        plain_kv_put(gpu, at, k + heads.kv_width);
    }
    gpu->stamps[(size_t)op->kv_place * plain_slots(gpu) + slot] =
        (struct plain_stamp){.position_1 = pass->step->positions[row] + 1, .group = op->kv_group};
}

static void run_heads(struct plain_pass *pass, const struct gpu_op *op) {
    const struct gpu *gpu = pass->gpu;
    const struct plain_heads heads = plain_heads_of(gpu, op);
    MUST(!pass->is_kept, "HEADS behind KEEP");
    for (uint32_t i = 0; i < pass->row_count; i++) {
        float *q = pass->wide + (size_t)i * heads.stride, *k = q + heads.q_width;
        turn(pass, op, q, gpu->program.heads, op->q_norm, i);
        if (op->is_query_only) continue;
        turn(pass, op, k, heads.kv_heads, op->k_norm, i);
        store_heads(pass, op, i, k);
    }
}

/* ---- ROUTE and EXPERTS ---- */

static void run_route(struct plain_pass *pass, const struct gpu_op *op) {
    const struct gpu *gpu = pass->gpu;
    const struct gpu_experts *experts = &op->experts;
    ref_route(&(struct route){.logits = pass->wide,
                              .stride = experts->count,
                              .rows = pass->row_count,
                              .experts = experts->count,
                              .used = experts->used,
                              .sums_to_one = experts->sums_to_one,
                              .is_sigmoid = experts->is_sigmoid,
                              .bias = experts->choice_bias,
                              .groups = experts->groups,
                              .groups_used = experts->groups_used,
                              .groups_by_best = experts->groups_by_best,
                              .scale = experts->scale,
                              .ret_experts = gpu->chosen,
                              .ret_weights = gpu->chosen_weights});
    for (size_t i = 0; experts->expert_scale && i < (size_t)pass->row_count * experts->used; i++)
        gpu->chosen_weights[i] *= experts->expert_scale[gpu->chosen[i]];
    plain_prepare_rows(pass, op, pass->h, gpu->program.width, gpu->program.width);
}

/* y (count) = input · rows first..first+count-1 of the matrix + bias, of all rows or NULL. */
static void multiply_rows(const struct gpu *gpu, uint32_t matrix, uint32_t first, uint32_t count,
                          const float *bias, const float *input, float *y) {
    const struct plain_matrix *from = &gpu->matrices[matrix];
    for (uint32_t i = 0; i < count; i++)
        y[i] = plain_dot(input, row_of(from, first + i, gpu->weights), from->shape.cols) +
               (bias ? bias[first + i] : 0.0f);
}

typedef void (*gate_fn)(const struct gate *call);
static const gate_fn gates[] = {[GATE_SILU] = ref_silu_mul,
                                [GATE_GELU_TANH] = ref_gelu_tanh_mul,
                                [GATE_CLAMPED] = ref_clamped_mul};

/* sums += weight · the expert of a row of h. */
static void add_expert(const struct gpu *gpu, const struct gpu_op *op, const float *h,
                       uint32_t expert, float weight, float *sums) {
    const struct gpu_experts *experts = &op->experts;
    const uint32_t ffn = experts->ffn, width = gpu->program.width;
    float *gated = gpu->gated, *y = gated + 2 * (size_t)ffn;
    multiply_rows(gpu, experts->gate_up, expert * 2 * ffn, 2 * ffn, experts->gate_up_bias, h,
                  gated);
    struct gate call = {.gate = gated,
                        .up = gated + ffn,
                        .in_stride = 2 * (size_t)ffn,
                        .y = gated,
                        .y_stride = 2 * (size_t)ffn,
                        .width = ffn,
                        .rows = 1,
                        .limit = experts->gate_limit,
                        .alpha = experts->gate_alpha};
    gates[op->gate](&call);
    plain_round(gpu->matrices[experts->down].shape.form, gated, ffn);
    multiply_rows(gpu, experts->down, expert * width, width, experts->down_bias, gated, y);
    for (uint32_t i = 0; i < width; i++) sums[i] += weight * y[i];
}

/* sums += the shared expert's row. */
static void add_shared(const struct plain_pass *pass, const struct gpu_op *op, size_t row,
                       float *sums) {
    const size_t width = pass->gpu->program.width;
    const float factor =
        op->experts.shared_is_scaled ? 1.0f / (1.0f + expf(-pass->narrow[row])) : 1.0f;
    for (size_t i = 0; i < width; i++) sums[i] += factor * pass->shared[row * width + i];
}

static void run_experts(struct plain_pass *pass, const struct gpu_op *op) {
    const struct gpu *gpu = pass->gpu;
    const size_t width = gpu->program.width, used = op->experts.used;
    float *sums = gpu->gated + 2 * (size_t)op->experts.ffn + width;
    for (size_t row = 0; row < pass->row_count; row++) {
        float *h = pass->h + row * width;
        memset(sums, 0, width * sizeof *sums);
        for (size_t i = row * used; i < (row + 1) * used; i++)
            add_expert(gpu, op, h, gpu->chosen[i], gpu->chosen_weights[i], sums);
        if (op->experts.has_shared) add_shared(pass, op, row, sums);
        memcpy(h, sums, width * sizeof *h);
    }
}

/* ---- GATE and KEEP ---- */

/* wide, the gate alone, times the layer's part of the token. */
static void gate_inputs(const struct plain_pass *pass, const struct gpu_op *op) {
    const struct gpu *gpu = pass->gpu;
    const size_t all = (size_t)gpu->program.input_layers * op->width;
    for (uint32_t i = 0; i < pass->row_count; i++) {
        float *y = pass->wide + (size_t)i * op->width;
        gates[op->gate](&(struct gate){.gate = y,
                                       .up = gpu->inputs + i * all + (size_t)op->layer * op->width,
                                       .y = y,
                                       .width = op->width,
                                       .rows = 1});
    }
    plain_prepare_rows(pass, op, pass->wide, op->width, op->width);
}

/* y = gelu_erf(gate) · up, with y as gate. */
static void gelu_mul(const struct gate *call) {
    ref_gelu_erf(call->y, call->y_stride, call->width, call->rows);
    for (size_t i = 0; i < call->rows; i++)
        for (size_t j = 0; j < call->width; j++)
            call->y[i * call->y_stride + j] *= call->up[i * call->in_stride + j];
}

static void run_gate(struct plain_pass *pass, const struct gpu_op *op) {
    const uint32_t ffn = op->width;
    if (op->gate == GATE_GELU_ALONE) {
        ref_gelu_erf(pass->wide, ffn, ffn, pass->row_count);
        plain_prepare_rows(pass, op, pass->wide, ffn, ffn);
        return;
    }
    if (op->gates_inputs) {
        gate_inputs(pass, op);
        return;
    }
    const uint32_t halves = op->gate == GATE_RELU2 ? 1 : 2, stride = halves * ffn;
    struct gate call = {.gate = pass->wide,
                        .up = halves == 2 ? pass->wide + ffn : NULL,
                        .in_stride = stride,
                        .y = pass->wide,
                        .y_stride = stride,
                        .width = ffn,
                        .rows = pass->row_count};
    for (size_t i = 0; op->gate_factor > 0 && i < (size_t)pass->row_count * ffn; i++)
        pass->wide[i / ffn * stride + i % ffn] *= op->gate_factor;
    if (halves == 2)
        (op->gate == GATE_GELU ? gelu_mul : gates[op->gate])(&call);
    else
        ref_relu2(pass->wide, stride, ffn, pass->row_count);
    plain_prepare_rows(pass, op, pass->wide, ffn, stride);
}

static void run_add(struct plain_pass *pass, const struct gpu_op *op) {
    const size_t count = (size_t)pass->row_count * pass->gpu->program.width;
    const float factor = op->factor > 0 ? op->factor : 1.0f;
    for (size_t i = 0; i < count; i++) pass->x[i] += factor * pass->shared[i];
}

static void run_keep(struct plain_pass *pass, const struct gpu_op *op) {
    const size_t width = pass->gpu->program.width, wide = op->width, attended = op->attended;
    const struct gpu_program *program = &pass->gpu->program;
    const size_t inputs = (size_t)program->input_layers * program->input_width;
    MUST(!pass->is_kept, "KEEP behind KEEP");
    for (uint32_t i = 0; i < pass->step->wanted_count; i++) {
        size_t row = pass->step->wanted[i];
        memmove(pass->x + i * width, pass->x + row * width, width * sizeof(float));
        memmove(pass->wide + i * wide, pass->wide + row * wide, wide * sizeof(float));
        memmove(pass->attended + i * attended, pass->attended + row * attended,
                attended * sizeof(float));
        memmove(pass->gpu->inputs + i * inputs, pass->gpu->inputs + row * inputs,
                inputs * sizeof(float));
    }
    pass->is_kept = true;
    pass->row_count = pass->step->wanted_count;
}

/* The gates stand behind q, k and v. */
static void gate_attended(struct plain_pass *pass, const struct gpu_op *op) {
    const struct plain_heads heads = plain_heads_of(pass->gpu, op);
    const size_t width = heads.q_width, before = width + 2 * (size_t)heads.kv_width;
    for (size_t i = 0; i < pass->row_count; i++)
        for (size_t j = 0; j < width; j++)
            pass->attended[i * width + j] /=
                1.0f + expf(-pass->wide[i * heads.stride + before + j]);
}

static void run_prepare(struct plain_pass *pass, const struct gpu_op *op) {
    const uint32_t width = pass->gpu->program.width;
    if (op->attended > 0)
        plain_prepare_rows(pass, op, pass->attended, op->attended, op->attended);
    else
        plain_prepare_rows(pass, op, pass->h, width, width);
}

/* ---- POOL ---- */

/* The vectors of texts are left where logits are. */
static void run_pool(const struct plain_pass *pass) {
    const size_t width = pass->gpu->program.width;
    memset(pass->logits, 0, pass->step->pool_count * width * sizeof *pass->logits);
    for (uint32_t i = 0; i < pass->step->pool_count; i++) {
        const struct gpu_pool *pool = &pass->step->pools[i];
        for (uint32_t row = pool->row; row < pool->row + pool->rows; row++)
            for (size_t j = 0; j < width; j++)
                pass->logits[i * width + j] += pass->h[row * width + j];
    }
}

void plain_op(struct plain_pass *pass, uint32_t index) {
    const struct gpu_op *op = &pass->gpu->program.ops[index];
    switch (op->kind) {
    case OP_EMBED: run_embed(pass, op); return;
    case OP_NORM: run_norm(pass, op); return;
    case OP_MATMUL:
        multiply(pass, index,
                 op->to == TO_H        ? pass->h
                 : op->to == TO_NARROW ? pass->narrow
                 : op->to == TO_SHARED ? pass->shared
                 : op->to == TO_INPUTS ? pass->gpu->inputs
                                       : pass->wide);
        return;
    case OP_HEADS: run_heads(pass, op); return;
    case OP_GATE: run_gate(pass, op); return;
    case OP_KEEP: run_keep(pass, op); return;
    case OP_LOGITS: run_logits(pass, index); return;
    case OP_ATTENTION:
        plain_attention(pass, op);
        if (op->is_gated) gate_attended(pass, op);
        const uint32_t q_width = plain_heads_of(pass->gpu, op).q_width;
        plain_prepare_rows(pass, op, pass->attended, q_width, q_width);
        return;
    case OP_ROUTE: run_route(pass, op); return;
    case OP_EXPERTS: run_experts(pass, op); return;
    case OP_PREPARE: run_prepare(pass, op); return;
    case OP_CONV: plain_conv(pass, op); return;
    case OP_DELTA: plain_delta(pass, op); return;
    case OP_MAMBA: plain_mamba(pass, op); return;
    case OP_ADD: run_add(pass, op); return;
    case OP_GATED_NORM:
        plain_gated_norm(pass, op);
        plain_prepare_rows(pass, op, pass->attended, pass->gpu->program.recurrent.width,
                           pass->gpu->program.recurrent.width);
        return;
    case OP_INPUTS: run_inputs(pass, op); return;
    case OP_POOL: run_pool(pass); return;
    case OP_ASIDE:
    case OP_JOIN: run_side(pass, op); return;
    case OP_LATENT_ENTRY: plain_latent_entry(pass, op); return;
    case OP_LATENT_Q: plain_latent_q(pass, op); return;
    case OP_LATENT: plain_attention(pass, op); return;
    case OP_LATENT_OUT: plain_latent_out(pass, op); return;
    }
}
