/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* activate: the activations of a gate. */

#include "rows.h"

#include "gpu/cuda/ptx.cuh"

/* x / (1 + 2^y), without what subnormal numbers would cost: 8 instructions of 35 a number. */
__device__ static inline float over_one_plus_power(float x, float y) {
    return x * cuda_reciprocal(1.0f + cuda_exp2(y));
}

template <int KIND> __device__ static inline float activate(float x) {
    const float log2_e = 1.44269504f;
    if (KIND == CUDA_RELU2) return fmaxf(x, 0.0f) * fmaxf(x, 0.0f);
    if (KIND == CUDA_SILU) return over_one_plus_power(x, -log2_e * x);
    /* x/2 (1 + tanh(y)) = x · sigmoid(2y) */
    float y = 0.797884560802865f * (x + 0.044715f * x * x * x);
    return over_one_plus_power(x, -2.0f * log2_e * y);
}
