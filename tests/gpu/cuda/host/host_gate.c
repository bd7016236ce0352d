/* SPDX-License-Identifier: Apache-2.0 */

/* The gates of gpu/cuda/rows.h, and what only some layers have, in plain C. */

#include "gpu/cuda/rows.h"
#include "kernels/kernels.h"

#include "host_kernels.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

float host_gated(enum cuda_gate_kind kind, float gate, float up) {
    if (kind == CUDA_RELU2) return fmaxf(gate, 0) * fmaxf(gate, 0);
    float gelu = 0.5f * gate * (1 + tanhf(0.79788456f * (gate + 0.044715f * gate * gate * gate)));
    return up * (kind == CUDA_SILU ? gate / (1 + expf(-gate)) : gelu);
}

HOST_AGAIN(cuda_gate)
enum err cuda_gate(const struct cuda_gate *call, struct CUstream_st *stream, struct error *error) {
    (void)error;
    if (host_refuses_changes()) return err_set(error, ERR_IO, "gate: invalid argument");
    if (host_record(stream, again_cuda_gate, call, sizeof *call, NULL, 0)) return OK;
    float *y = malloc(call->width * sizeof *y);
    for (size_t row = 0; row < call->rows; row++) {
        for (uint32_t i = 0; i < call->width; i++) {
            const uint32_t up = call->kind == CUDA_RELU2 ? i : call->width + i;
            const float factor = call->factor > 0 ? call->factor : 1;
            const float gate = factor * host_sum_at(&call->in, row, i);
            y[i] = host_gated(call->kind, gate, host_sum_at(&call->in, row, up));
        }
        host_store(&call->y, row, y, call->width);
    }
    free(y);
    return OK;
}

HOST_AGAIN(cuda_gate_with)
enum err cuda_gate_with(const struct cuda_gate_with *call, struct CUstream_st *stream,
                        struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_gate_with, call, sizeof *call, NULL, 0)) return OK;
    assert(call->width <= CUDA_GATE_WITH_MAX);
    for (size_t row = 0; row < call->rows; row++) {
        const size_t with = call->with_rows ? call->with_rows[row] : row;
        float y[CUDA_GATE_WITH_MAX];
        for (uint32_t i = 0; i < call->width; i++)
            y[i] = host_gated(call->kind, host_sum_at(&call->in, row, i),
                              host_from_bf16(call->with[with * call->with_stride + i]));
        host_store(&call->y, row, y, call->width);
    }
    return OK;
}

HOST_AGAIN(cuda_inputs)
enum err cuda_inputs(const struct cuda_inputs *call, struct CUstream_st *stream,
                     struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_inputs, call, sizeof *call, NULL, 0)) return OK;
    const size_t all = (size_t)call->parts * call->width;
    float *part = malloc(call->width * sizeof *part);
    assert((const void *)call->y != call->in.sums);
    for (size_t row = 0; row < call->rows; row++) {
        int32_t token = call->tokens[row];
        if (token < 0) token = call->last_token[~token];
        for (size_t first = 0; first < all; first += call->width) {
            for (uint32_t i = 0; i < call->width; i++)
                part[i] = host_sum_at(&call->in, row, first + i) * call->in_scale;
            const float factor = host_factor_of(part, call->width, call->epsilon);
            for (uint32_t i = 0; i < call->width; i++) {
                const float own = host_from_bf16(call->table[(size_t)token * all + first + i]);
                const float sum = own * call->table_scale + part[i] * factor * call->weight[i];
                call->y[row * all + first + i] = host_to_bf16(sum * 0.70710678f);
            }
        }
    }
    free(part);
    return OK;
}

HOST_AGAIN(cuda_side)
enum err cuda_side(const struct cuda_side *call, struct CUstream_st *stream, struct error *error) {
    (void)error;
    if (host_record(stream, again_cuda_side, call, sizeof *call, NULL, 0)) return OK;
    const uint32_t width = call->width;
    float *h = malloc(width * sizeof *h);
    for (size_t row = 0; row < call->rows; row++) {
        for (uint32_t i = 0; i < width; i++) h[i] = host_sum_at(&call->in, row, i);
        const float factor = host_factor_of(h, width, call->epsilon);
        for (uint32_t i = 0; i < width; i++)
            call->y[row * width + i] =
                host_to_bf16(h[i] * factor * call->weight[i] +
                             (call->plus ? host_from_bf16(call->plus[row * width + i]) : 0));
    }
    free(h);
    return OK;
}
