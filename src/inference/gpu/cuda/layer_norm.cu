/* SPDX-License-Identifier: Apache-2.0 */

/* layer_norm: adds a product to the residual and leaves its LayerNorm for the next product, and
 * behind the halves of an encoder as the residual itself.
 *
 * A block per row, eight numbers per thread, which stay in registers: the variance is that of
 * numbers less their mean, as the CPU computes it. */

#include "gpu/cuda/texts.h"

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/vec.cuh"

#define THREADS_MAX 1024

/* x + h, eight numbers from column `at` on. */
template <int IN>
__device__ static inline eight summed(const struct cuda_layer_norm &call, size_t row, uint32_t at) {
    eight x = read_f32<EACH>(call.x + row * call.x_stride + at);
    if constexpr (IN != IN_NONE) {
        const float row_scale = IN >= IN_BF16_SCALED ? call.h.row_scale[row] : 1.0f;
        const eight h = sums_of<IN>(call.h, row_scale, at, read_sums<IN>(call.h, row, at));
#pragma unroll
        for (int i = 0; i < EACH; i++) x.at[i] = __fadd_rn(x.at[i], h.at[i]);
    }
    return x;
}

template <int IN, int CODE>
__global__ void __launch_bounds__(THREADS_MAX) layer_norm_rows(struct cuda_layer_norm call) {
    CUDA_SHARED float2 parts[3][32];
    const size_t row = blockIdx.x;
    const uint32_t at = threadIdx.x * EACH;
    const bool is_in = at < call.width;
    const float share = cuda_reciprocal((float)call.width);
    float *to = call.x + row * call.x_stride + at;
    eight x = {}, weight = {}, bias = {};
    if (is_in) weight = read_f32<EACH>(call.weight + at);
    if (is_in && call.bias) bias = read_f32<EACH>(call.bias + at);
    wait_for_before();
    if (is_in) x = summed<IN>(call, row, at);
    let_next_start();
    if (is_in && IN != IN_NONE && !call.replaces) write_f32(x, to);
    float sum = 0, squares = 0, most = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) sum += x.at[i];
    const float mean = block_sum_max(make_float2(sum, 0), parts[0]).x * share;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        x.at[i] = is_in ? __fsub_rn(x.at[i], mean) : 0.0f;
        squares = __fmaf_rn(x.at[i], x.at[i], squares);
    }
    squares = block_sum_max(make_float2(squares, 0), parts[1]).x;
    const float factor = cuda_rsqrt(__fmaf_rn(squares, share, call.epsilon));
#pragma unroll
    for (int i = 0; i < EACH; i++)
        x.at[i] = __fmaf_rn(__fmul_rn(x.at[i], factor), weight.at[i], bias.at[i]);
    if (is_in && call.replaces) write_f32(x, to);
    if constexpr (CODE != CUDA_BF16) {
        mix<CODE>(&x);
#pragma unroll
        for (int i = 0; i < EACH; i++) most = fmaxf(most, fabsf(x.at[i]));
        const float scale = scale_of<CODE>(block_sum_max(make_float2(0, most), parts[2]).y);
        if (threadIdx.x == 0) call.y.scale[row] = scale;
#pragma unroll
        for (int i = 0; i < EACH; i++) x.at[i] = x.at[i] / scale;
    }
    if (is_in) store<CODE>(call.y, row, at, x);
}

typedef void (*layer_norm_kernel)(struct cuda_layer_norm call);

template <int IN> static layer_norm_kernel kernel_of(enum cuda_code code) {
    return code == CUDA_BF16   ? layer_norm_rows<IN, CUDA_BF16>
           : code == CUDA_E4M3 ? layer_norm_rows<IN, CUDA_E4M3>
                               : layer_norm_rows<IN, CUDA_INT8>;
}

static layer_norm_kernel kernel_for(const struct cuda_layer_norm *call) {
    switch (in_kind_of(&call->h)) {
    case IN_NONE: return kernel_of<IN_NONE>(call->y.type);
    case IN_BF16: return kernel_of<IN_BF16>(call->y.type);
    case IN_BF16_SCALED: return kernel_of<IN_BF16_SCALED>(call->y.type);
    default: return kernel_of<IN_INT32>(call->y.type);
    }
}

enum err cuda_layer_norm(const struct cuda_layer_norm *call, struct CUstream_st *stream,
                         struct error *error) {
    if (call->rows == 0) return OK;
    if (call->width == 0 || call->width % EACH != 0 || call->width > THREADS_MAX * EACH ||
        call->x_stride % 4 != 0 || !is_at_16(call->x) || !is_at_16(call->weight) ||
        !is_at_16(call->bias) || (call->h.sums && !is_product_wide(&call->h)) ||
        !is_rows_wide(&call->y))
        return err_set(error, ERR_INVALID, "layer_norm: rows of %u numbers, or an address",
                       call->width);
    return launch_dependent("layer_norm", error, stream, call->rows,
                            (call->width / EACH + 31) / 32 * 32, 0, kernel_for(call), *call);
}

CUDA_MODULE(layer_norm, layer_norm_rows<IN_NONE, CUDA_BF16>)
