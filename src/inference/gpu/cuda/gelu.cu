/* SPDX-License-Identifier: Apache-2.0 */

/* gelu: x/2 (1 + erf(x/√2)) of a product, alone or as a gate, and its codes for the product that
 * reads it. To bf16 a thread does eight numbers and ends. To 8 bits a block has a row, whose
 * numbers it computes twice, for their largest magnitude is not known before. */

#include "gpu/cuda/texts.h"

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/vec.cuh"

#define THREADS 256
#define GRID_ROWS_MAX 65535u /* limit of a grid's second dimension */

/* By erfc(|z|) = p(t) · e^(-z²), t = 1 / (1 + 0.3275911 |z|), off by 1.5e-7 at most (Abramowitz
 * and Stegun, 7.1.26). Below zero the result is that share itself: small values keep their digits.
 */
__device__ static inline float gelu(float x) {
    const float z = fabsf(x) * 0.707106781f;
    const float t = cuda_reciprocal(__fmaf_rn(0.3275911f, z, 1.0f));
    float p = __fmaf_rn(1.061405429f, t, -1.453152027f);
    p = __fmaf_rn(p, t, 1.421413741f);
    p = __fmaf_rn(p, t, -0.284496736f);
    p = __fmaf_rn(p, t, 0.254829592f);
    const float beyond = 0.5f * p * t * cuda_exp2(-1.44269504f * z * z); /* erfc(|z|) / 2 */
    return x < 0 ? x * beyond : x - x * beyond;
}

template <int IN, bool GATED>
__device__ static inline eight bent(const struct cuda_gelu &call, size_t row, uint32_t at) {
    const float row_scale = IN >= IN_BF16_SCALED ? call.in.row_scale[row] : 1.0f;
    const struct raw_sums<IN> raw = read_sums<IN>(call.in, row, at);
    eight v, up = {};
    if (GATED)
        up = sums_of<IN>(call.in, row_scale, call.width + at,
                         read_sums<IN>(call.in, row, call.width + at));
    v = sums_of<IN>(call.in, row_scale, at, raw);
#pragma unroll
    for (int i = 0; i < EACH; i++) v.at[i] = gelu(v.at[i]) * (GATED ? up.at[i] : 1.0f);
    return v;
}

template <int IN, bool GATED>
__global__ void __launch_bounds__(THREADS) gelu_flat(struct cuda_gelu call) {
    const uint32_t at = (blockIdx.x * THREADS + threadIdx.x) * EACH;
    wait_for_before();
    let_next_start();
    if (at >= call.width) return;
    store<CUDA_BF16>(call.y, blockIdx.y, at, bent<IN, GATED>(call, blockIdx.y, at));
}

template <int IN, bool GATED, int CODE>
__global__ void __launch_bounds__(THREADS) gelu_rows(struct cuda_gelu call) {
    CUDA_SHARED float2 parts[32];
    const size_t row = blockIdx.x;
    float most = 0;
    wait_for_before();
    for (uint32_t at = threadIdx.x * EACH; at < call.width; at += THREADS * EACH) {
        eight v = bent<IN, GATED>(call, row, at);
        mix<CODE>(&v);
        for (int i = 0; i < EACH; i++) most = fmaxf(most, fabsf(v.at[i]));
    }
    const float scale = scale_of<CODE>(block_sum_max(make_float2(0, most), parts).y);
    if (threadIdx.x == 0) call.y.scale[row] = scale;
    for (uint32_t at = threadIdx.x * EACH; at < call.width; at += THREADS * EACH) {
        eight v = bent<IN, GATED>(call, row, at);
        mix<CODE>(&v);
        for (int i = 0; i < EACH; i++) v.at[i] = v.at[i] / scale;
        store<CODE>(call.y, row, at, v);
    }
}

typedef void (*gelu_kernel)(struct cuda_gelu call);

template <int IN, bool GATED> static gelu_kernel kernel_of(enum cuda_code code) {
    return code == CUDA_BF16   ? gelu_flat<IN, GATED>
           : code == CUDA_E4M3 ? gelu_rows<IN, GATED, CUDA_E4M3>
                               : gelu_rows<IN, GATED, CUDA_INT8>;
}

template <int IN> static gelu_kernel kernel_with(const struct cuda_gelu *call) {
    return call->is_gated ? kernel_of<IN, true>(call->y.type) : kernel_of<IN, false>(call->y.type);
}

static gelu_kernel kernel_for(const struct cuda_gelu *call) {
    switch (in_kind_of(&call->in)) {
    case IN_BF16_SCALED: return kernel_with<IN_BF16_SCALED>(call);
    case IN_INT32: return kernel_with<IN_INT32>(call);
    default: return kernel_with<IN_BF16>(call);
    }
}

enum err cuda_gelu(const struct cuda_gelu *call, struct CUstream_st *stream, struct error *error) {
    if (call->rows == 0) return OK;
    if (call->width == 0 || call->width % EACH != 0 || call->rows > GRID_ROWS_MAX ||
        !is_product_wide(&call->in) || !is_rows_wide(&call->y))
        return err_set(error, ERR_INVALID, "gelu: %u rows of %u numbers, or an address", call->rows,
                       call->width);
    const dim3 flat((call->width / EACH + THREADS - 1) / THREADS, call->rows);
    return launch_dependent("gelu", error, stream,
                            call->y.type == CUDA_BF16 ? flat : dim3(call->rows), THREADS, 0,
                            kernel_for(call), *call);
}

CUDA_MODULE(gelu, gelu_flat<IN_BF16, false>)
