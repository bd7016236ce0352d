/* SPDX-License-Identifier: Apache-2.0 */

/* inputs: the parts of a token that layers have of their own; and the gate of a layer times its
 * part.
 *
 * A warp has a part, or a row of a gate: 256 numbers in the models that have them, eight per lane.
 */

#include "gpu/cuda/activate.cuh"
#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/vec.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)
#define WARP_NUMBERS (32 * EACH)
#define SPANS (CUDA_GATE_WITH_MAX / WARP_NUMBERS)

__device__ static inline float warp_sum(float value) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
        value += __shfl_xor_sync(CUDA_ALL_LANES, value, apart);
    return value;
}

/* A part is read twice: the second time it comes from the L1. */
template <int IN> __global__ void __launch_bounds__(THREADS) inputs_rows(struct cuda_inputs call) {
    const size_t row = blockIdx.x;
    const uint32_t part = blockIdx.y * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t first = part * call.width;
    wait_for_before();
    let_next_start();
    if (part >= call.parts) return;
    int32_t token = call.tokens[row];
    if (token < 0) token = call.last_token[~token];
    const size_t all = (size_t)call.parts * call.width;
    const float row_scale = IN >= IN_BF16_SCALED ? call.in.row_scale[row] : 1.0f;
    float squares = 0;
    for (uint32_t at = lane * EACH; at < call.width; at += WARP_NUMBERS) {
        const eight v =
            sums_of<IN>(call.in, row_scale, first + at, read_sums<IN>(call.in, row, first + at));
#pragma unroll
        for (int i = 0; i < EACH; i++) squares = fmaf(v.at[i], v.at[i], squares);
    }
    const float mean = warp_sum(squares) / (float)call.width;
    const float factor =
        call.in_scale * cuda_rsqrt(fmaf(mean * call.in_scale, call.in_scale, call.epsilon));
    for (uint32_t at = lane * EACH; at < call.width; at += WARP_NUMBERS) {
        const eight v =
            sums_of<IN>(call.in, row_scale, first + at, read_sums<IN>(call.in, row, first + at));
        const eight weight = read_f32(call.weight + at);
        eight y = read_bf16<EACH>(call.table + (size_t)token * all + first + at);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            y.at[i] =
                fmaf(y.at[i], call.table_scale, v.at[i] * factor * weight.at[i]) * 0.707106781f;
        write_bf16(y, call.y + row * all + first + at);
    }
}

enum err cuda_inputs(const struct cuda_inputs *call, struct CUstream_st *stream,
                     struct error *error) {
    if (call->width % EACH != 0 || !is_product_wide(&call->in) || !is_at_16(call->table) ||
        !is_at_16(call->weight) || !is_at_16(call->y))
        return err_set(error, ERR_INVALID, "parts of %u numbers cannot be read in eights",
                       call->width);
    const dim3 blocks(call->rows, (call->parts + WARPS - 1) / WARPS);
    return launch_dependent("inputs", error, stream, call->rows > 0 ? blocks : dim3(0), THREADS, 0,
                            call->in.type == CUDA_SUMS_INT32 ? inputs_rows<IN_INT32>
                            : call->in.row_scale             ? inputs_rows<IN_BF16_SCALED>
                                                             : inputs_rows<IN_BF16>,
                            *call);
}

/* A row of the gate stays in registers while its largest magnitude is found. */
template <int IN, int CODE>
__global__ void __launch_bounds__(THREADS) gate_with_rows(struct cuda_gate_with call) {
    const size_t row = (size_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const uint32_t lane = threadIdx.x % 32;
    eight y[SPANS];
    float most = 0, factor = 1.0f;
    wait_for_before();
    let_next_start();
    if (row >= call.rows) return;
    const size_t with = call.with_rows ? call.with_rows[row] : row;
    const float row_scale = IN >= IN_BF16_SCALED ? call.in.row_scale[row] : 1.0f;
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        const uint32_t at = s * WARP_NUMBERS + lane * EACH;
        if (at >= call.width) continue;
        const eight gate = sums_of<IN>(call.in, row_scale, at, read_sums<IN>(call.in, row, at));
        y[s] = read_bf16<EACH>(call.with + with * call.with_stride + at);
#pragma unroll
        for (int i = 0; i < EACH; i++)
            y[s].at[i] *= call.kind == CUDA_SILU ? activate<CUDA_SILU>(gate.at[i])
                                                 : activate<CUDA_GELU_TANH>(gate.at[i]);
        mix<CODE>(&y[s]);
#pragma unroll
        for (int i = 0; i < EACH; i++) most = fmaxf(most, fabsf(y[s].at[i]));
    }
    if (CODE != CUDA_BF16) {
        const float scale = scale_of<CODE>(warp_sum_max(make_float2(0.0f, most)).y);
        if (lane == 0) call.y.scale[row] = scale;
        factor = 1.0f / scale;
    }
#pragma unroll
    for (int s = 0; s < SPANS; s++) {
        const uint32_t at = s * WARP_NUMBERS + lane * EACH;
        if (at >= call.width) continue;
#pragma unroll
        for (int i = 0; i < EACH; i++) y[s].at[i] *= factor;
        store<CODE>(call.y, row, at, y[s]);
    }
}

typedef void (*gate_with_kernel)(struct cuda_gate_with call);

template <int IN> static gate_with_kernel kernel_of(enum cuda_code code) {
    if (code == CUDA_E4M3) return gate_with_rows<IN, CUDA_E4M3>;
    if (code == CUDA_INT8) return gate_with_rows<IN, CUDA_INT8>;
    return gate_with_rows<IN, CUDA_BF16>;
}

static gate_with_kernel kernel_for(const struct cuda_gate_with *call) {
    switch (in_kind_of(&call->in)) {
    case IN_BF16_SCALED: return kernel_of<IN_BF16_SCALED>(call->y.type);
    case IN_INT32: return kernel_of<IN_INT32>(call->y.type);
    default: return kernel_of<IN_BF16>(call->y.type);
    }
}

enum err cuda_gate_with(const struct cuda_gate_with *call, struct CUstream_st *stream,
                        struct error *error) {
    if (call->width % EACH != 0 || call->width > CUDA_GATE_WITH_MAX ||
        call->with_stride % EACH != 0 || !is_product_wide(&call->in) || !is_at_16(call->with) ||
        !is_rows_wide(&call->y))
        return err_set(error, ERR_INVALID, "a gate of %u numbers cannot be read in eights",
                       call->width);
    return launch_dependent("gate of parts", error, stream, (call->rows + WARPS - 1) / WARPS,
                            THREADS, 0, kernel_for(call), *call);
}

CUDA_MODULE(inputs, inputs_rows<IN_BF16>)
