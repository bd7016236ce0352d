/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* heads_parts: the common parts of the two kernels of heads.cu: sums and maxima over the lanes of a
 * head, and the scale of its numbers in a page of e4m3. */

#include "gpu/cuda/vec.cuh"

#include <cuda_fp16.h>

#define PAGE_TOKENS 16
#define KV_SCALE_MIN 6.103515625e-5f /* 2^-14: below it fp16 loses bits */

/* Over the LANES of a head; the lanes in `mask` come here together. */
template <int LANES> __device__ static inline float lanes_sum(uint32_t mask, float value) {
#pragma unroll
    for (int apart = LANES / 2; apart > 0; apart /= 2) value += __shfl_xor_sync(mask, value, apart);
    return value;
}

template <int LANES> __device__ static inline float lanes_max(uint32_t mask, float value) {
#pragma unroll
    for (int apart = LANES / 2; apart > 0; apart /= 2)
        value = fmaxf(value, __shfl_xor_sync(mask, value, apart));
    return value;
}

/* The scale of a head whose largest magnitude is `most`, rounded up, so that no code is beyond 448.
 */
__device__ static inline __half kv_scale_of(float most) {
    return __float2half_ru(fmaxf(most * (1.0f / E4M3_MAX), KV_SCALE_MIN));
}
