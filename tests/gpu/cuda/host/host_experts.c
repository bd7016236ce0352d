/* SPDX-License-Identifier: Apache-2.0 */

/* The kernels of gpu/cuda/experts.h in plain C: right and slow, of what the plugin asks of them. */

#include "gpu/cuda/experts.h"
#include "gpu/cuda/experts_tiles.h"
#include "gpu/cuda/grouped.h"

#include "host_kernels.h"
#include "kernels/quant.h"
#include "kernels/ref/ref.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

uint32_t cuda_expert_tile_rows(void) {
    return EXPERT_MMA_ROWS;
}

uint32_t cuda_expert_tiles_most(const struct cuda_expert_order *order) {
    const uint32_t pairs = order->rows * order->each;
    const uint32_t met = pairs < order->experts ? pairs : order->experts;
    return met + pairs / EXPERT_MMA_ROWS > 0 ? met + pairs / EXPERT_MMA_ROWS : 1;
}

/* ---- the route ---- */

/* By the kernel of the CPU, which is the definition. */
static void choose_by_sigmoid(const struct cuda_route *call, size_t row) {
    const struct cuda_expert_order *to = &call->to;
    uint32_t chosen[CUDA_EXPERTS_PER_ROW_MAX];
    ref_route(&(struct route){.logits = (const float *)call->logits + row * call->stride,
                              .stride = call->stride,
                              .rows = 1,
                              .experts = to->experts,
                              .used = to->each,
                              .is_sigmoid = true,
                              .bias = call->choice_bias,
                              .groups = call->groups,
                              .groups_used = call->groups_kept,
                              .groups_by_best = call->groups_by_best,
                              .sums_to_one = call->is_renormalised,
                              .scale = call->scale,
                              .ret_experts = chosen,
                              .ret_weights = to->weights + row * to->each});
    for (uint32_t i = 0; i < to->each; i++) to->chosen[row * to->each + i] = (uint16_t)chosen[i];
}

/* The best experts of a row, the lower number first among equals, and their weights. */
static void choose(const struct cuda_route *call, size_t row) {
    const struct cuda_expert_order *to = &call->to;
    float logits[CUDA_EXPERTS_MAX];
    uint16_t *chosen = to->chosen + row * to->each;
    float *weights = to->weights + row * to->each, all = 0, kept = 0;
    bool is_taken[CUDA_EXPERTS_MAX] = {false};
    for (uint32_t e = 0; e < to->experts; e++)
        logits[e] = ((const float *)call->logits)[row * call->stride + e] +
                    (call->bias ? call->bias[e] : 0);
    for (uint32_t i = 0; i < to->each; i++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t e = 0; e < to->experts; e++)
            if (!is_taken[e] && (best == UINT32_MAX || logits[e] > logits[best])) best = e;
        is_taken[best] = true;
        chosen[i] = (uint16_t)best;
    }
    for (uint32_t e = 0; e < to->experts; e++) all += expf(logits[e] - logits[chosen[0]]);
    for (uint32_t i = 0; i < to->each; i++) {
        weights[i] = expf(logits[chosen[i]] - logits[chosen[0]]) / all;
        kept += weights[i];
    }
    for (uint32_t i = 0; i < to->each; i++)
        weights[i] *= call->scale / (call->is_renormalised ? kept : 1);
}

static void put_in_order(const struct cuda_expert_order *to) {
    const uint32_t pairs = to->rows * to->each;
    uint32_t at = 0, tile = 0;
    for (uint32_t e = 0; e < to->experts; e++) {
        const uint32_t first = at, begin = tile;
        for (uint32_t pair = 0; pair < pairs; pair++)
            if (to->chosen[pair] == e) to->order[at++] = pair;
        for (uint32_t row = first; row < at; row += EXPERT_MMA_ROWS)
            to->tiles[1 + tile++] = (struct cuda_expert_tiles){e, first, at - first, begin};
    }
    assert(tile <= cuda_expert_tiles_most(to));
    to->tiles[0] = (struct cuda_expert_tiles){.count = tile};
}

HOST_AGAIN(cuda_route)
enum err cuda_route(const struct cuda_route *call, struct CUstream_st *stream,
                    struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_route, call, sizeof *call, NULL, 0)) return OK;
    const bool is_sigmoid = call->scores == CUDA_SCORES_SIGMOID;
    assert(call->is_f32 && !(is_sigmoid && call->bias));
    assert(is_sigmoid || (call->groups == 0 && !call->choice_bias));
    for (size_t row = 0; row < call->to.rows; row++)
        (is_sigmoid ? choose_by_sigmoid : choose)(call, row);
    for (size_t pair = 0; call->expert_scale && pair < call->to.rows * (size_t)call->to.each;
         pair++)
        call->to.weights[pair] *= call->expert_scale[call->to.chosen[pair]];
    put_in_order(&call->to);
    return OK;
}

/* ---- products ---- */

/* `count` numbers of a code from place `at` on. */
static void numbers_at(enum cuda_code code, const void *from, size_t at, uint32_t count,
                       float *ret_values) {
    if (code == CUDA_BF16)
        for (uint32_t i = 0; i < count; i++)
            ret_values[i] = host_from_bf16(((const uint16_t *)from)[at + i]);
    else if (code == CUDA_E4M3)
        for (uint32_t i = 0; i < count; i++)
            ret_values[i] = host_from_e4m3(((const uint8_t *)from)[at + i]);
    else
        for (uint32_t i = 0; i < count; i++) ret_values[i] = (float)((const int8_t *)from)[at + i];
}

/* An expert's sum of a row of `in` and one of its lines, scaled. `room` (call->inputs). */
static float sum_of(const struct cuda_experts *call, uint32_t expert, uint32_t line, size_t row,
                    const float *in, float *room) {
    const size_t at = (size_t)expert * call->outputs + line;
    const struct cuda_grouped weights = {call->grouping, call->by.experts * call->outputs,
                                         call->inputs, (void *)(uintptr_t)call->weights};
    const uint32_t gate_width = call->ending == CUDA_EXPERTS_DOWN ? 0 : call->outputs / 2;
    if (call->grouping == GROUPED_NOT)
        numbers_at(call->code, call->weights, at * call->inputs, call->inputs, room);
    else
        host_grouped_numbers(&weights, host_grouped_line(gate_width, (uint32_t)at), room);
    double sum = 0;
    for (uint32_t i = 0; i < call->inputs; i++) sum += (double)room[i] * (double)in[i];
    if (call->code != CUDA_BF16)
        sum *= (double)call->row_scale[row] * (double)host_from_bf16(call->column_scale[at]);
    return (float)sum + (call->bias ? call->bias[at] : 0);
}

static float gated(const struct cuda_experts *call, float gate, float up) {
    const float inner = 0.79788456f * (gate + 0.044715f * gate * gate * gate);
    if (call->ending == CUDA_EXPERTS_CLAMPED) {
        gate = fminf(gate, call->limit);
        up = fminf(fmaxf(up, -call->limit), call->limit);
        return (up + 1) * gate / (1 + expf(-call->alpha * gate));
    }
    return up * (call->ending == CUDA_EXPERTS_SILU ? gate / (1 + expf(-gate))
                                                   : 0.5f * gate * (1 + tanhf(inner)));
}

HOST_AGAIN(cuda_experts)
enum err cuda_experts(const struct cuda_experts *call, struct CUstream_st *stream,
                      struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_experts, call, sizeof *call, NULL, 0)) return OK;
    const struct cuda_expert_order *by = &call->by;
    const bool is_down = call->ending == CUDA_EXPERTS_DOWN;
    const uint32_t width = is_down ? call->outputs : call->outputs / 2;
    float *in = malloc(2 * call->inputs * sizeof *in), *room = in + call->inputs;
    for (size_t place = 0; place < (size_t)by->rows * by->each; place++) {
        const uint32_t pair = by->order[place], expert = by->chosen[pair];
        const size_t row = is_down ? place : pair / by->each;
        uint16_t *y = call->y + (is_down ? pair : place) * width;
        numbers_at(call->code, call->in, row * call->inputs, call->inputs, in);
        for (uint32_t i = 0; i < width; i++) {
            float sum = sum_of(call, expert, i, row, in, room);
            if (!is_down) sum = gated(call, sum, sum_of(call, expert, width + i, row, in, room));
            y[i] = host_to_bf16(sum);
        }
    }
    free(in);
    return OK;
}

/* ---- the sum ---- */

static float shared_at(const struct cuda_experts_sum *call, size_t row, uint32_t column) {
    const struct cuda_product *shared = &call->shared;
    const size_t at = row * shared->stride + column;
    float value = shared->type == CUDA_SUMS_INT32
                      ? (float)((const int32_t *)shared->sums)[at]
                      : host_from_bf16(((const uint16_t *)shared->sums)[at]);
    if (shared->row_scale)
        value *= shared->row_scale[row] * host_from_bf16(shared->column_scale[column]);
    if (!call->shared_gate) return value;
    return value / (1 + expf(-host_from_bf16(call->shared_gate[row * call->gate_stride])));
}

HOST_AGAIN(cuda_experts_sum)
enum err cuda_experts_sum(const struct cuda_experts_sum *call, struct CUstream_st *stream,
                          struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_experts_sum, call, sizeof *call, NULL, 0)) return OK;
    assert(!call->shared.bias && (call->shared.sums || !call->shared_gate));
    for (size_t row = 0; row < call->by.rows; row++)
        for (uint32_t i = 0; i < call->width; i++) {
            float sum = 0;
            for (size_t pair = row * call->by.each; pair < (row + 1) * call->by.each; pair++)
                sum += call->by.weights[pair] * host_from_bf16(call->h[pair * call->width + i]);
            if (call->shared.sums) sum += shared_at(call, row, i);
            call->y[row * call->width + i] = host_to_bf16(sum);
        }
    return OK;
}
