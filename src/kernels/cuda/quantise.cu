/* SPDX-License-Identifier: Apache-2.0 */

/* quantise: rows of attention as codes of 8 bits, a block a row. The second read of a row finds it
 * in the L1. */

#include "dependent.cuh"
#include "vec.cuh"

#define THREADS 256

template <int CODE>
__global__ void __launch_bounds__(THREADS) quantise_rows(struct cuda_quantise call) {
    __shared__ float2 parts[32];
    const size_t row = blockIdx.x;
    const uint16_t *from = (const uint16_t *)call.from + row * call.from_stride;
    float most = 0;
    wait_for_before();
    let_next_start();
    for (uint32_t at = threadIdx.x * EACH; at < call.width; at += THREADS * EACH) {
        eight v = read_bf16(from + at);
#pragma unroll
        for (int i = 0; i < EACH; i++) most = fmaxf(most, fabsf(v.at[i]));
    }
    const float scale = scale_of<CODE>(block_sum_max(make_float2(0.0f, most), parts).y);
    const float factor = 1.0f / scale;
    if (threadIdx.x == 0) call.y.scale[row] = scale;
    for (uint32_t at = threadIdx.x * EACH; at < call.width; at += THREADS * EACH) {
        eight v = read_bf16(from + at);
#pragma unroll
        for (int i = 0; i < EACH; i++) v.at[i] *= factor;
        store<CODE>(call.y, row, at, v);
    }
}

enum err cuda_quantise(const struct cuda_quantise *call, struct CUstream_st *stream,
                       struct error *error) {
    if (call->rows == 0 || call->width == 0) return OK;
    if (call->width % EACH != 0 || call->from_stride % EACH != 0 || !is_at_16(call->from) ||
        !is_rows_wide(&call->y) || call->y.type == CUDA_BF16)
        return err_set(error, ERR_INVALID, "rows of %u numbers cannot be quantised", call->width);
    return launch_dependent(
        "quantise", error, stream, call->rows, THREADS, 0,
        call->y.type == CUDA_E4M3 ? quantise_rows<CUDA_E4M3> : quantise_rows<CUDA_INT8>, *call);
}
