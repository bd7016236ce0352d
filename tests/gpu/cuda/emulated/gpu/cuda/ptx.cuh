/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ptx, emulated: what src/inference/gpu/cuda/ptx.cuh promises, in plain C. */

#include <cuda_runtime.h>

extern "C" {
#include "kernels/quant.h"
}

#define CUDA_ALL_LANES 0xffffffffu
#define CUDA_SHARED static thread_local /* one block of a GPU runs at a time */

static inline float emulated_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t cuda_shared_address(const void *at) {
    return (uint32_t)((const char *)at - cuda_memory);
}

/* Copies happen at once, or not before somebody waits for them: by turns of the runs. */
void emulated_copy(uint32_t to, const void *from, uint32_t bytes, bool is_wanted);
void emulated_commit(void);
void emulated_wait(int count);

static inline void cuda_copy16(uint32_t to, const void *from) {
    emulated_copy(to, from, 16, true);
}
static inline void cuda_copy4(uint32_t to, const void *from) {
    emulated_copy(to, from, 4, true);
}
static inline void cuda_copy16_if(uint32_t to, const void *from, bool is_wanted) {
    emulated_copy(to, from, 16, is_wanted);
}
static inline void cuda_copy_commit(void) {
    emulated_commit();
}
template <int COUNT> static inline void cuda_copy_wait(void) {
    emulated_wait(COUNT);
}

void emulated_load(uint32_t ret[4], uint32_t row, bool is_transposed);
static inline void cuda_load_matrices(uint32_t ret[4], uint32_t row) {
    emulated_load(ret, row, false);
}
static inline void cuda_load_transposed(uint32_t ret[4], uint32_t row) {
    emulated_load(ret, row, true);
}
uint32_t cuda_transpose(uint32_t pair);
void cuda_mma(float sum[4], const uint32_t a[4], uint32_t b0, uint32_t b1);
static inline void cuda_mma_anew(float sum[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    for (int i = 0; i < 4; i++) sum[i] = 0;
    cuda_mma(sum, a, b0, b1);
}
static inline float cuda_tf32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return emulated_float(bits & 0xffffe000u);
}
void cuda_mma_tf32(float sum[4], const float a[4], float b0, float b1);
static inline void cuda_mma_tf32_short(float sum[4], float a0, float a1, float b) {
    const float a[4] = {a0, a1, 0, 0};
    cuda_mma_tf32(sum, a, b, 0);
}
static inline uint32_t cuda_and_or(uint32_t a, uint32_t mask, uint32_t bits) {
    return (a & mask) | bits;
}
void cuda_mma_int8(int32_t sum[4], const uint32_t a[4], uint32_t b0, uint32_t b1);
static inline void cuda_mma_int8_anew(int32_t sum[4], const uint32_t a[4], uint32_t b0, uint32_t b1,
                                      int32_t begin) {
    for (int i = 0; i < 4; i++) sum[i] = begin;
    cuda_mma_int8(sum, a, b0, b1);
}

static inline float cuda_exp2(float x) {
    return exp2f(x);
}
static inline float cuda_reciprocal(float x) {
    return 1 / x;
}
static inline float cuda_max_or_nan(float a, float b) {
    return isnan(a) || isnan(b) ? NAN : fmaxf(a, b);
}
static inline float cuda_rsqrt(float x) {
    return 1 / sqrtf(x);
}
static inline uint32_t cuda_int8(float value) {
    return (uint32_t)(int32_t)fmaxf(-128.0f, fminf(rintf(value), 127.0f)) & 0xffu;
}
static inline uint32_t cuda_pack_bf16(float low, float high) {
    return (uint32_t)bf16_from_f32(low) | (uint32_t)bf16_from_f32(high) << 16;
}
static inline float cuda_low_bf16(uint32_t pair) {
    return emulated_float(pair << 16);
}
static inline float cuda_high_bf16(uint32_t pair) {
    return emulated_float(pair & 0xffff0000u);
}
static inline uint32_t cuda_times_bf16(uint32_t a, uint32_t b) {
    return cuda_pack_bf16(cuda_low_bf16(a) * cuda_low_bf16(b),
                          cuda_high_bf16(a) * cuda_high_bf16(b));
}
static inline float cuda_low_f16(uint32_t pair) {
    return half_to_f32((uint16_t)pair);
}
static inline float cuda_high_f16(uint32_t pair) {
    return half_to_f32((uint16_t)(pair >> 16));
}
static inline uint32_t cuda_even_e4m3(uint32_t word) {
    uint32_t low = (uint32_t)(uint16_t)(int8_t)word;
    uint32_t high = (uint32_t)(uint16_t)(int8_t)(word >> 16);
    return (low | high << 16) << 4 & 0x87f087f0u;
}
static inline uint32_t cuda_odd_e4m3(uint32_t word) {
    return (word >> 4 & 0x07f007f0u) | (word & 0x80008000u);
}
