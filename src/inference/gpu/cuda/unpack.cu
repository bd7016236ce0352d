/* SPDX-License-Identifier: Apache-2.0 */

/* unpack: a block a row, eight values a thread at a time; several times over the row for 8-bit
 * codes, whose scale must be known first. */

#include "gpu/cuda/dependent.cuh"
#include "gpu/cuda/modules.h"
#include "gpu/cuda/unpack_types.cuh"

#define THREADS 256

template <int TYPE> __device__ static inline const uint8_t *row_of(const struct cuda_unpack &call) {
    size_t row = call.row_order ? call.row_order[blockIdx.x] : blockIdx.x;
    return (const uint8_t *)call.blocks +
           row * (call.cols / block_elements<TYPE>() * block_bytes<TYPE>());
}

__device__ static inline void store_row(const struct cuda_rows &y, uint32_t at, uint32_t cols,
                                        const eight &v) {
    if (at + EACH > cols) {
        for (uint32_t k = 0; at + k < cols; k++) store_one(y, blockIdx.x, at + k, v.at[k]);
    } else if (y.type == CUDA_BF16) {
        store<CUDA_BF16>(y, blockIdx.x, at, v);
    } else if (y.type == CUDA_E4M3) {
        store<CUDA_E4M3>(y, blockIdx.x, at, v);
    } else {
        store<CUDA_INT8>(y, blockIdx.x, at, v);
    }
}

/* Elements at..at+7 of a row, mixed where the code is INT8. */
template <int TYPE>
__device__ static inline eight coded_eight(const struct cuda_unpack &call, const uint8_t *row,
                                           uint32_t at) {
    eight v = row_eight<TYPE>(row, at, call.cols);
    if (call.code != CUDA_INT8) return v;
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (at + k / 4 * 4 + 4 <= call.cols) v.at[k] *= 0.25f;
#pragma unroll
    for (int k = 0; k < EACH; k += 4)
        if (at + k + 4 <= call.cols) mix_four(v.at + k);
    return v;
}

/* Whether E4M3 has the number, but for what two roundings to bf16 change: its own, and that of the
 * largest one, from which the scale comes. */
__device__ static inline bool is_e4m3(float value) {
    const uint32_t exponent = __float_as_uint(value) >> 23 & 255u;
    const uint32_t step = (exponent > 121u ? exponent : 121u) - 3; /* 2^-9 below 2^-6 */
    const float steps = rintf(__fmul_rn(value, __uint_as_float((254u - step) << 23)));
    return fabsf(__fmul_rn(steps, __uint_as_float(step << 23)) - value) <= fabsf(value) * 0x1p-7f;
}

/* The numbers that the largest of a row of E4M3 can become: the highest of each mantissa. */
__device__ static const float largest_codes[8] = {448, 416, 384, 352, 320, 288, 256, 240};

/* The scale with which E4M3 has all numbers of a row, as those of a file in FP8; 0: there is none.
 * Most rows are known to have none by a few numbers. */
template <int TYPE>
__device__ static inline float exact_scale(const struct cuda_unpack &call, const uint8_t *row,
                                           float most) {
#pragma unroll 1
    for (float largest : largest_codes) {
        bool is_off = false;
        for (uint32_t at = threadIdx.x * EACH; at < call.cols && !is_off; at += THREADS * EACH) {
            eight v = row_eight<TYPE>(row, at, call.cols);
#pragma unroll
            for (int k = 0; k < EACH; k++) is_off |= !is_e4m3(v.at[k] * (largest / most));
        }
        if (!__syncthreads_or(is_off)) return fmaxf(most / largest, SCALE_MIN);
    }
    return 0;
}

/* The row's scale as bf16: up, so that no code is cut off, but where codes are exact. */
template <int TYPE>
__device__ static inline uint32_t scale_bits(const struct cuda_unpack &call, const uint8_t *row,
                                             float most) {
    const float exact = call.code == CUDA_E4M3 ? exact_scale<TYPE>(call, row, most) : 0;
    if (exact > 0) return bf16_bits(exact);
    const float scale =
        call.code == CUDA_E4M3 ? scale_of<CUDA_E4M3>(most) : scale_of<CUDA_INT8>(most);
    return (__float_as_uint(scale) + 0xffffu) >> 16;
}

template <int TYPE>
__global__ void __launch_bounds__(THREADS) unpack_rows(struct cuda_unpack call) {
    CUDA_SHARED float2 parts[32];
    struct cuda_rows y = {call.codes, call.code, call.stride, NULL};
    wait_for_before();
    const uint8_t *row = row_of<TYPE>(call);
    float factor = 1.0f;
    if (call.code != CUDA_BF16) {
        float most = 0;
        for (uint32_t at = threadIdx.x * EACH; at < call.cols; at += THREADS * EACH) {
            eight v = coded_eight<TYPE>(call, row, at);
#pragma unroll
            for (int k = 0; k < EACH; k++) most = fmaxf(most, fabsf(v.at[k]));
        }
        most = block_sum_max(make_float2(0.0f, most), parts).y;
        const uint32_t bits = scale_bits<TYPE>(call, row, most);
        factor = 1.0f / bf16_float(bits);
        if (threadIdx.x == 0) call.scales[blockIdx.x] = (uint16_t)bits;
    }
    for (uint32_t at = threadIdx.x * EACH; at < call.cols; at += THREADS * EACH) {
        eight v = coded_eight<TYPE>(call, row, at);
#pragma unroll
        for (int k = 0; k < EACH; k++)
            if (call.code != CUDA_BF16) v.at[k] *= factor;
        store_row(y, at, call.cols, v);
    }
}

typedef void (*unpack_kernel)(struct cuda_unpack call);

static unpack_kernel kernel_for(enum tensor_type type) {
    switch (type) {
    case TENSOR_F32: return unpack_rows<TENSOR_F32>;
    case TENSOR_F16: return unpack_rows<TENSOR_F16>;
    case TENSOR_BF16: return unpack_rows<TENSOR_BF16>;
    case TENSOR_Q4_0: return unpack_rows<TENSOR_Q4_0>;
    case TENSOR_Q4_1: return unpack_rows<TENSOR_Q4_1>;
    case TENSOR_Q5_0: return unpack_rows<TENSOR_Q5_0>;
    case TENSOR_Q5_1: return unpack_rows<TENSOR_Q5_1>;
    case TENSOR_Q8_0: return unpack_rows<TENSOR_Q8_0>;
    case TENSOR_Q2_K: return unpack_rows<TENSOR_Q2_K>;
    case TENSOR_Q3_K: return unpack_rows<TENSOR_Q3_K>;
    case TENSOR_Q4_K: return unpack_rows<TENSOR_Q4_K>;
    case TENSOR_Q5_K: return unpack_rows<TENSOR_Q5_K>;
    case TENSOR_Q6_K: return unpack_rows<TENSOR_Q6_K>;
    case TENSOR_IQ4_NL: return unpack_rows<TENSOR_IQ4_NL>;
    case TENSOR_IQ4_XS: return unpack_rows<TENSOR_IQ4_XS>;
    case TENSOR_MXFP4: return unpack_rows<TENSOR_MXFP4>;
    case TENSOR_INT4: return unpack_rows<TENSOR_INT4>;
    }
    return NULL;
}

enum err cuda_unpack(const struct cuda_unpack *call, struct CUstream_st *stream,
                     struct error *error) {
    if (call->rows == 0 || call->cols == 0) return OK;
    unpack_kernel kernel = kernel_for(call->type);
    if (!kernel || call->stride % EACH != 0 || !is_at_16(call->codes) || !is_at_16(call->blocks))
        return err_set(error, ERR_INVALID, "rows of type %d cannot be unpacked", (int)call->type);
    return launch_dependent("unpack", error, stream, call->rows, THREADS, 0, kernel, *call);
}

CUDA_MODULE(unpack, unpack_rows<TENSOR_BF16>)
