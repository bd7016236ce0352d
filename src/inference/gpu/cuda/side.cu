/* SPDX-License-Identifier: Apache-2.0 */

/* side: a product normed, alone or beside rows that were normed before: the feed-forward and the
 * experts of a layer that has both. A block has a row, which it reads twice, the second time from
 * the L1. A thread writes only where it alone has read. */

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/vec.cuh"

#define THREADS 256

template <int IN> __global__ void __launch_bounds__(THREADS) side_rows(struct cuda_side call) {
    CUDA_SHARED float2 parts[32];
    const size_t row = blockIdx.x;
    wait_for_before();
    let_next_start();
    const float row_scale = IN >= IN_BF16_SCALED ? call.in.row_scale[row] : 1.0f;
    float squares = 0;
    for (uint32_t at = threadIdx.x * EACH; at < call.width; at += THREADS * EACH) {
        const eight v = sums_of<IN>(call.in, row_scale, at, read_sums<IN>(call.in, row, at));
#pragma unroll
        for (int i = 0; i < EACH; i++) squares = fmaf(v.at[i], v.at[i], squares);
    }
    const float mean = block_sum_max(make_float2(squares, 0.0f), parts).x / (float)call.width;
    const float factor = cuda_rsqrt(mean + call.epsilon);
    for (uint32_t at = threadIdx.x * EACH; at < call.width; at += THREADS * EACH) {
        eight v = sums_of<IN>(call.in, row_scale, at, read_sums<IN>(call.in, row, at));
        const eight weight = read_f32(call.weight + at);
        eight plus = {};
        if (call.plus) plus = read_bf16<EACH>(call.plus + row * call.width + at);
#pragma unroll
        for (int i = 0; i < EACH; i++) v.at[i] = fmaf(v.at[i] * factor, weight.at[i], plus.at[i]);
        write_bf16(v, call.y + row * call.width + at);
    }
}

enum err cuda_side(const struct cuda_side *call, struct CUstream_st *stream, struct error *error) {
    if (call->width % EACH != 0 || !is_product_wide(&call->in) || !is_at_16(call->weight) ||
        !is_at_16(call->plus) || !is_at_16(call->y))
        return err_set(error, ERR_INVALID, "rows of %u numbers cannot be read in eights",
                       call->width);
    return launch_dependent("side", error, stream, call->rows, THREADS, 0,
                            call->in.type == CUDA_SUMS_INT32 ? side_rows<IN_INT32>
                            : call->in.row_scale             ? side_rows<IN_BF16_SCALED>
                                                             : side_rows<IN_BF16>,
                            *call);
}

CUDA_MODULE(side, side_rows<IN_BF16>)
