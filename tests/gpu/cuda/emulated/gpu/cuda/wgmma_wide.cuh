/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* wgmma_wide, emulated: what src/gpu/cuda/wgmma_wide.cuh promises, in plain C. */

#include "gpu/cuda/wgmma.cuh"

void emulated_e4m3(float (*sum)[4], int columns, uint64_t a, uint64_t b, int is_added);
template <int N>
static inline void cuda_wide_bf16(float (*sum)[4], uint64_t a, uint64_t b, int is_added) {
    emulated_scores(sum, N, a, b, is_added);
}
template <int N>
static inline void cuda_wide_e4m3(float (*sum)[4], uint64_t a, uint64_t b, int is_added) {
    emulated_e4m3(sum, N, a, b, is_added);
}
template <int N>
static inline void cuda_wide_int8(int32_t (*sum)[4], uint64_t a, uint64_t b, int is_added) {
    emulated_int8(sum, N, a, b, is_added);
}
