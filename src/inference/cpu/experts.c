/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/experts.h"

#include "cpu/task_split.h"

#include <assert.h>
#include <string.h>

struct job {
    struct forward *forward;
    const struct op *op;
};

static void run(struct forward *forward, const struct op *op, task_split_fn work, uint32_t count) {
    struct job job = {.forward = forward, .op = op};
    task_split_rows(forward->options.pool, work, &job, count);
}

/* ---- ROUTE ---- */

static void route_rows(void *context, uint32_t row, uint32_t count) {
    const struct job *job = context;
    const struct forward *forward = job->forward;
    const struct experts *experts = job->op->experts;
    const struct matrix *next = job->op->next;
    const size_t width = forward->program->shape.width, used = experts->used;
    const struct kernels *kernels = forward->options.kernels;
    kernels->route(&(struct route){.logits = forward->wide + (size_t)row * experts->count,
                                   .stride = experts->count,
                                   .rows = count,
                                   .experts = experts->count,
                                   .used = experts->used,
                                   .is_sigmoid = experts->is_sigmoid,
                                   .bias = experts->choice_bias,
                                   .groups = experts->groups,
                                   .groups_used = experts->groups_used,
                                   .groups_by_best = experts->groups_by_best,
                                   .sums_to_one = experts->sums_to_one,
                                   .scale = experts->route_scale,
                                   .ret_experts = forward->routing.experts + row * used,
                                   .ret_weights = forward->routing.weights + row * used});
    const float *scales = experts->scales;
    for (size_t i = row * used; scales && i < (row + count) * used; i++)
        forward->routing.weights[i] *= scales[forward->routing.experts[i]];
    if (next) /* otherwise a NORM of its own is */
        kernels->activate(next, forward->h + row * width, width, count,
                          forward->activations + row * next->activation_bytes);
}

/* Sorts the places by expert, and within an expert by row. */
static void place_rows(struct forward *forward, const struct experts *experts) {
    const struct routing *routing = &forward->routing;
    const uint32_t used = experts->used, count = forward->row_count * used;
    uint32_t at = 0;
    memset(routing->ends, 0, experts->count * sizeof *routing->ends);
    for (uint32_t i = 0; i < count; i++) routing->ends[routing->experts[i]]++;
    for (uint32_t i = 0; i < experts->count; i++) {
        const uint32_t begin = at;
        at += routing->ends[i];
        routing->ends[i] = begin;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t place = routing->ends[routing->experts[i]]++;
        routing->places[i] = place;
        routing->rows[place] = i / used;
    }
}

void experts_route(struct forward *forward, const struct op *op) {
    assert(op->experts->count <= EXPERTS_MAX);
    run(forward, op, route_rows, forward->row_count);
    place_rows(forward, op->experts);
}

/* ---- EXPERTS ---- */

static void gather_rows(void *context, uint32_t place, uint32_t count) {
    const struct job *job = context;
    const struct forward *forward = job->forward;
    const struct routing *routing = &forward->routing;
    const size_t bytes = job->op->experts->gate_up[0]->activation_bytes;
    for (uint32_t i = place; i < place + count; i++)
        memcpy(routing->activations + i * bytes, forward->activations + routing->rows[i] * bytes,
               bytes);
}

/* y of each place = its activations · the matrix of its expert, and its line of `biases` (count,
 * rows) or NULL. */
static void multiply(struct forward *forward, struct matrix *const *matrices, const float *biases,
                     uint32_t count, float *y) {
    const struct routing *routing = &forward->routing;
    const size_t bytes = matrices[0]->activation_bytes, rows = matrices[0]->rows;
    uint32_t products = 0, begin = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t end = routing->ends[i];
        if (end > begin)
            routing->products[products++] =
                (struct matmul){.matrix = matrices[i],
                                .activations = routing->activations + begin * bytes,
                                .rows = end - begin,
                                .y = y + begin * rows,
                                .y_stride = rows,
                                .bias = biases ? biases + i * rows : NULL};
        begin = end;
    }
    for (uint32_t i = 0; i < products; i++)
        if (routing->products[i].matrix->is_left) matrix_fetch(routing->products[i].matrix);
    task_split_matmuls(forward->options.pool, forward->options.kernels, routing->products, products,
                       routing->room);
}

static void gate_rows(void *context, uint32_t place, uint32_t count) {
    const struct job *job = context;
    const struct routing *routing = &job->forward->routing;
    const struct kernels *kernels = job->forward->options.kernels;
    const struct matrix *down = job->op->experts->down[0];
    const size_t ffn = job->op->experts->ffn, stride = job->op->experts->gate_up[0]->rows;
    float *gate = routing->hidden + place * stride;
    if (job->op->gate == GATE_RELU2) { /* no gate */
        kernels->relu2(gate, stride, ffn, count);
        kernels->activate(down, gate, stride, count,
                          routing->activations + place * down->activation_bytes);
        return;
    }
    struct gate call = {.gate = gate,
                        .up = gate + ffn,
                        .in_stride = stride,
                        .y = gate,
                        .y_stride = stride,
                        .width = ffn,
                        .rows = count,
                        .limit = job->op->experts->gate_limit,
                        .alpha = job->op->experts->gate_alpha};
    const gate_fn gates[] = {[GATE_SILU] = kernels->silu_mul,
                             [GATE_GELU_TANH] = kernels->gelu_tanh_mul,
                             [GATE_CLAMPED] = kernels->clamped_mul};
    gates[job->op->gate](&call);
    kernels->activate(down, gate, stride, count,
                      routing->activations + place * down->activation_bytes);
}

static void sum_rows(void *context, uint32_t row, uint32_t count) {
    const struct job *job = context;
    const struct forward *forward = job->forward;
    const struct routing *routing = &forward->routing;
    const size_t width = forward->program->shape.width, used = job->op->experts->used;
    for (size_t i = row; i < (size_t)row + count; i++) {
        float *h = forward->h + i * width;
        memset(h, 0, width * sizeof *h);
        for (size_t k = i * used; k < (i + 1) * used; k++) {
            const float *sum = routing->sums + routing->places[k] * width;
            const float weight = routing->weights[k];
            for (size_t j = 0; j < width; j++) h[j] += weight * sum[j];
        }
        if (job->op->to == TO_X) forward->options.kernels->add(h, forward->x + i * width, width);
    }
}

void experts_run(struct forward *forward, const struct op *op) {
    const struct experts *experts = op->experts;
    const uint32_t places = forward->row_count * experts->used;
    run(forward, op, gather_rows, places);
    multiply(forward, experts->gate_up, experts->gate_up_bias, experts->count,
             forward->routing.hidden);
    run(forward, op, gate_rows, places);
    multiply(forward, experts->down, experts->down_bias, experts->count, forward->routing.sums);
    run(forward, op, sum_rows, forward->row_count);
}
