/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/attention.h"
#include "cpu/experts.h"
#include "cpu/forward_state.h"
#include "cpu/latent.h"
#include "cpu/recurrent.h"
#include "cpu/rows.h"
#include "cpu/side.h"
#include "cpu/task_split.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- EMBED ---- */

/* A row's line in one table of rotations. */
static void set_angles(const struct forward *forward, uint32_t table, uint32_t row,
                       uint32_t position) {
    const struct program_shape *shape = &forward->program->shape;
    const struct rope_tables *rope = &forward->rope[table];
    const uint32_t pairs = shape->rope_width[table] / 2;
    float *cosines = rope->cosines + (size_t)row * pairs;
    float *sines = rope->sines + (size_t)row * pairs;
    rope_table(forward->program->frequencies[table], pairs, position, position + 1, cosines, sines);
    /* Layers with a table of their own have no scaling. */
    for (uint32_t j = 0; table == 0 && shape->rope_magnitude > 0 && j < pairs; j++) {
        cosines[j] *= shape->rope_magnitude;
        sines[j] *= shape->rope_magnitude;
    }
}

static void embed_rows(struct forward *forward, const struct op *op, uint32_t row, uint32_t count) {
    const struct program_shape *shape = &forward->program->shape;
    for (uint32_t i = row; i < row + count; i++) {
        float *x = forward->x + (size_t)i * shape->width;
        matrix_row(op->matrix, (uint32_t)forward->step->tokens[i], x);
        if (op->scale != 1.0f)
            for (uint32_t j = 0; j < shape->width; j++) x[j] *= op->scale;
        if (op->weight)
            forward->options.kernels->layer_norm(&(struct norm){.x = x,
                                                                .x_stride = shape->width,
                                                                .y = x,
                                                                .y_stride = shape->width,
                                                                .weight = op->weight,
                                                                .width = shape->width,
                                                                .rows = 1,
                                                                .epsilon = shape->eps});
        for (uint32_t table = 0; table < shape->rope_count; table++)
            set_angles(forward, table, i, forward->step->positions[i]);
    }
    rows_prepare(forward, op->next, forward->x, shape->width, row, count);
}

static void run_embed(struct forward *forward, const struct op *op) {
    rows_run(forward, op, embed_rows);
}

/* ---- NORM ---- */

/* y = norm(x), or y += norm(x), over rows of the residual's width. */
static void norm_to(const struct forward *forward, const struct op *op, const float *x, float *y,
                    bool add, uint32_t row, uint32_t count) {
    const struct kernels *kernels = forward->options.kernels;
    size_t width = forward->program->shape.width;
    (op->is_layer_norm ? kernels->layer_norm
                       : kernels->rms_norm)(&(struct norm){.x = x + row * width,
                                                           .x_stride = width,
                                                           .y = y + row * width,
                                                           .y_stride = width,
                                                           .weight = add ? op->post : op->weight,
                                                           .bias = add ? NULL : op->bias,
                                                           .width = width,
                                                           .rows = count,
                                                           .epsilon = forward->program->shape.eps,
                                                           .add = add});
}

static void norm_rows(struct forward *forward, const struct op *op, uint32_t row, uint32_t count) {
    const size_t width = forward->program->shape.width;
    assert(op->add != ADD_H); /* products add by themselves here */
    if (op->add == ADD_NORMED_H) norm_to(forward, op, forward->h, forward->x, true, row, count);
    float *x = forward->x + row * width;
    for (size_t i = 0; op->x_scale && i < count * width; i++) x[i] *= op->x_scale[0];
    if (op->weight)
        norm_to(forward, op, forward->x, forward->h, false, row, count);
    else
        memcpy(forward->h + row * width, x, count * width * sizeof *x);
    rows_prepare(forward, op->next, forward->h, forward->program->shape.width, row, count);
}

static void run_norm(struct forward *forward, const struct op *op) {
    rows_run(forward, op, norm_rows);
}

/* ---- MATMUL ---- */

static void run_matmul(struct forward *forward, const struct op *op) {
    float *const buffers[] = {[TO_WIDE] = forward->wide,
                              [TO_H] = forward->h,
                              [TO_X] = forward->x,
                              [TO_NARROW] = forward->narrow,
                              [TO_INPUTS] = forward->inputs};
    task_split_matmul(forward->options.pool, forward->options.kernels,
                      &(struct matmul){.matrix = op->matrix,
                                       .activations = forward->activations,
                                       .rows = forward->row_count,
                                       .y = buffers[op->to],
                                       .y_stride = op->matrix->rows,
                                       .bias = op->bias,
                                       .add = op->to == TO_X});
}

/* ---- PREPARE ---- */

static void h_rows(struct forward *forward, const struct op *op, uint32_t row, uint32_t count) {
    const bool is_h = op->attended == 0;
    rows_prepare(forward, op->next, is_h ? forward->h : forward->attended,
                 is_h ? forward->program->shape.width : op->attended, row, count);
}

static void run_prepare(struct forward *forward, const struct op *op) {
    rows_run(forward, op, h_rows);
}

/* ---- GATE ---- */

/* y · the sigmoid of the row's number in narrow. */
static void scale_rows(const struct forward *forward, float *y, size_t stride, size_t width,
                       uint32_t row, uint32_t count) {
    for (uint32_t i = 0; i < count; i++, y += stride) {
        const float factor = 1.0f / (1.0f + expf(-forward->narrow[row + i]));
        for (size_t j = 0; j < width; j++) y[j] *= factor;
    }
}

/* A feed-forward without a gate. */
static void bend_rows(struct forward *forward, const struct op *op, uint32_t row, uint32_t count) {
    const struct kernels *kernels = forward->options.kernels;
    const size_t width = op->width;
    float *x = forward->wide + row * width;
    if (op->gate == GATE_RELU2)
        kernels->relu2(x, width, width, count);
    else
        kernels->xielu(&(struct xielu){.x = x,
                                       .x_stride = width,
                                       .width = width,
                                       .rows = count,
                                       .alpha_p = op->xielu[0],
                                       .alpha_n = op->xielu[1],
                                       .beta = op->xielu[2],
                                       .eps = op->xielu[3]});
    rows_scale(x, width * count, op->factor);
    rows_prepare(forward, op->next, forward->wide, width, row, count);
}

/* y = gelu_erf(gate) · up, with y as gate. */
static void gelu_rows(const struct kernels *kernels, const struct gate *call) {
    kernels->gelu_erf(call->y, call->y_stride, call->width, call->rows);
    for (size_t i = 0; i < call->rows; i++) {
        float *y = call->y + i * call->y_stride;
        const float *up = call->up + i * call->in_stride;
        for (size_t j = 0; j < call->width; j++) y[j] *= up[j];
    }
}

static void gate_rows(struct forward *forward, const struct op *op, uint32_t row, uint32_t count) {
    const struct kernels *kernels = forward->options.kernels;
    const size_t width = op->width, stride = op->gates_inputs ? width : 2 * width;
    const size_t inputs = (size_t)forward->program->shape.layers * width;
    float *gate = forward->wide + row * stride;
    const float *up =
        op->gates_inputs ? forward->inputs + row * inputs + op->layer * width : gate + width;
    struct gate call = {.gate = gate,
                        .up = up,
                        .in_stride = stride,
                        .y = gate,
                        .y_stride = stride,
                        .width = width,
                        .rows = op->gates_inputs ? 1 : count};
    for (uint32_t i = 0; i < count && op->gate_factor > 0; i++)
        rows_scale(gate + i * stride, width, op->gate_factor);
    for (uint32_t i = 0; i < count; i += (uint32_t)call.rows) {
        if (op->gate == GATE_SILU)
            kernels->silu_mul(&call);
        else if (op->gate == GATE_GELU)
            gelu_rows(kernels, &call);
        else
            kernels->gelu_tanh_mul(&call);
        call.gate += stride;
        call.y += stride;
        call.up += inputs;
    }
    if (op->is_gated) scale_rows(forward, gate, stride, width, row, count);
    for (uint32_t i = 0; i < count && op->factor > 0; i++)
        rows_scale(gate + i * stride, width, op->factor);
    rows_prepare(forward, op->next, forward->wide, stride, row, count);
}

static void run_gate(struct forward *forward, const struct op *op) {
    const bool is_gated = op->gate != GATE_RELU2 && op->gate != GATE_XIELU;
    rows_run(forward, op, is_gated ? gate_rows : bend_rows);
}

/* ---- KEEP ---- */

static void move_row(float *rows, size_t width, uint32_t from, uint32_t to) {
    memcpy(rows + to * width, rows + from * width, width * sizeof *rows);
}

/* Moves the wanted rows to the front, each with an attention item of its own. A row never moves
 * past one that is still to move, for `wanted` ascends. */
static void run_keep(struct forward *forward, const struct op *op) {
    const struct program_shape *shape = &forward->program->shape;
    const size_t inputs = (size_t)shape->layers * shape->input_width;
    const size_t pairs = shape->latent.turned_dim / 2; /* q turns after this operation */
    const uint32_t count = forward->wanted_count;
    if (count == forward->row_count) return;
    plan_keep(&forward->plan, forward->step, forward->wanted, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = forward->wanted[i];
        if (row == i) continue;
        move_row(forward->x, shape->width, row, i);
        move_row(forward->h, shape->width, row, i); /* a parallel half reads it */
        move_row(forward->wide, op->width, row, i);
        if (op->attended > 0) move_row(forward->attended, op->attended, row, i);
        if (inputs > 0) move_row(forward->inputs, inputs, row, i);
        if (pairs == 0) continue;
        move_row(forward->rope[0].cosines, pairs, row, i);
        move_row(forward->rope[0].sines, pairs, row, i);
    }
    forward->row_count = count;
    attention_group_items(forward);
}

/* ---- a step ---- */

static void (*const runners[OP_KINDS])(struct forward *forward, const struct op *op) = {
    [OP_EMBED] = run_embed,
    [OP_NORM] = run_norm,
    [OP_MATMUL] = run_matmul,
    [OP_HEADS] = attention_run_heads,
    [OP_KEEP] = run_keep,
    [OP_GATE] = run_gate,
    [OP_ATTENTION] = attention_run,
    [OP_ROUTE] = experts_route,
    [OP_EXPERTS] = experts_run,
    [OP_PREPARE] = run_prepare,
    [OP_CONV] = recurrent_conv,
    [OP_DELTA] = recurrent_delta,
    [OP_GATED_NORM] = recurrent_gated_norm,
    [OP_INPUTS] = side_inputs,
    [OP_ASIDE] = side_run,
    [OP_JOIN] = side_run,
    [OP_MAMBA] = recurrent_mamba,
    [OP_LATENT_ENTRY] = latent_entry,
    [OP_LATENT_Q] = latent_q,
    [OP_LATENT] = latent_attention,
    [OP_LATENT_OUT] = latent_out,
};

/* Copies keys and values of all layers of a page. */
static void copy_page(const struct forward *forward, struct page_copy copy) {
    const struct kv_cache *caches = forward->caches;
    assert(copy.from < forward->plan.page_count && copy.to < forward->plan.page_count);
    for (uint32_t i = 0; i < forward->layout.layers_each; i++) {
        const size_t bytes = kv_block_bytes(&caches[i]);
        unsigned char *k = caches[i].k, *v = caches[i].v;
        memcpy(k + copy.to * bytes, k + copy.from * bytes, bytes);
        if (v) memcpy(v + copy.to * bytes, v + copy.from * bytes, bytes);
    }
}

void forward_begin(struct forward *forward, const struct step *step, const uint32_t *wanted,
                   uint32_t wanted_count) {
    assert(step->row_count >= 1 && step->row_count <= forward->options.rows_max);
    for (uint32_t i = 0; i < step->copy_count; i++) copy_page(forward, step->copies[i]);
    for (uint32_t i = 0; i < step->sequence_count; i++)
        assert(!forward->options.is_one_pass || step->sequences[i].kv_tokens == 0);
    forward->step = step;
    forward->wanted = wanted;
    forward->wanted_count = wanted_count;
    forward->row_count = step->row_count;
    forward->op_next = 0;
    plan_step(&forward->plan, step);
    attention_group_items(forward);
}

/* LOGITS, the last operation, runs when forward_logits asks for a part of the rows. */
static bool is_at_end(const struct forward *forward) {
    const struct program *program = forward->program;
    return forward->row_count == 0 || forward->op_next == program->op_count ||
           program->ops[forward->op_next].kind == OP_LOGITS;
}

bool forward_advance(struct forward *forward) {
    while (!is_at_end(forward)) {
        const struct op *op = &forward->program->ops[forward->op_next++];
        runners[op->kind](forward, op);
        if (op->ends_slice) break;
    }
    return is_at_end(forward);
}

void forward_run(struct forward *forward, const struct step *step, const uint32_t *wanted,
                 uint32_t wanted_count) {
    forward_begin(forward, step, wanted, wanted_count);
    while (!forward_advance(forward)) continue;
}

const float *forward_hidden(struct forward *forward, uint32_t first, uint32_t count) {
    assert(count >= 1 && first + count <= forward->row_count && is_at_end(forward));
    return forward->h + (size_t)first * forward->program->shape.width;
}

const float *forward_logits(struct forward *forward, uint32_t first, uint32_t count) {
    const struct op *op = &forward->program->ops[forward->program->op_count - 1];
    const size_t vocab_rows = forward->program->shape.vocab_rows;
    assert(op->kind == OP_LOGITS && is_at_end(forward));
    assert(count <= forward->options.logit_rows_max && first + count <= forward->row_count);
    task_split_matmul(
        forward->options.pool, forward->options.kernels,
        &(struct matmul){.matrix = op->matrix,
                         .activations = forward->activations + first * op->matrix->activation_bytes,
                         .rows = count,
                         .y = forward->logits,
                         .y_stride = vocab_rows});
    if (op->softcap > 0.0f)
        for (size_t i = 0; i < count * vocab_rows; i++)
            forward->logits[i] = op->softcap * tanhf(forward->logits[i] / op->softcap);
    return forward->logits;
}
