/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* vec: eight numbers of a row at a time, 16 bytes of bf16, and their conversions.
 *
 * What rounds is written with explicit instructions, so that no compiler flag changes a result. */

#include "rows.h"

#include <cuda_runtime.h>

#include <stdint.h>

#define EACH 8 /* numbers a thread moves at a time */

struct eight {
    float at[EACH];
};

/* ---- bf16 ---- */

__device__ static inline float bf16_float(uint32_t bits) {
    return __uint_as_float(bits << 16);
}

/* Nearest even, the first into the low half. */
__device__ static inline uint32_t bf16_pair(float first, float second) {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

__device__ static inline uint16_t bf16_bits(float value) {
    return (uint16_t)bf16_pair(value, 0.0f);
}

__device__ static inline struct eight bf16_eight(uint4 raw) {
    struct eight v;
    uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v.at[2 * i] = __uint_as_float(words[i] << 16);
        v.at[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
    return v;
}

__device__ static inline uint4 eight_bf16(const struct eight &v) {
    return make_uint4(bf16_pair(v.at[0], v.at[1]), bf16_pair(v.at[2], v.at[3]),
                      bf16_pair(v.at[4], v.at[5]), bf16_pair(v.at[6], v.at[7]));
}

/* ---- float32 ---- */

__device__ static inline struct eight f32_eight(const float *from) {
    struct eight v;
    float4 low = *(const float4 *)from, high = *(const float4 *)(from + 4);
    v.at[0] = low.x, v.at[1] = low.y, v.at[2] = low.z, v.at[3] = low.w;
    v.at[4] = high.x, v.at[5] = high.y, v.at[6] = high.z, v.at[7] = high.w;
    return v;
}

__device__ static inline void eight_f32(const struct eight &v, float *to) {
    *(float4 *)to = make_float4(v.at[0], v.at[1], v.at[2], v.at[3]);
    *(float4 *)(to + 4) = make_float4(v.at[4], v.at[5], v.at[6], v.at[7]);
}

/* ---- 8 bits ---- */

#define E4M3_MAX 448.0f
#define INT8_MAX_CODE 127.0f
#define SCALE_MIN 1e-20f

/* Nearest even, beyond 448 becomes 448, NaN 0x7f: what cvt.rn.satfinite does, for cards without. */
__host__ __device__ static inline uint32_t e4m3_of_bits(uint32_t bits) {
    uint32_t sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0x7fu;
    if (size >= 0x43e00000u) return sign | 0x7eu; /* 448 and more */
    if (size < 0x3c800000u) {                     /* below the smallest normal, 2^-6 */
        /* Adding 2^14 leaves the value, rounded to multiples of 2^-9, in the low bits. */
        union {
            uint32_t bits;
            float value;
        } shifted = {size};
        shifted.value += 16384.0f;
        return sign | (shifted.bits - 0x46800000u);
    }
    size += 0x7ffffu + (size >> 20 & 1u);
    uint32_t code = (size >> 20) - (120u << 3);
    return sign | (code < 0x7eu ? code : 0x7eu); /* 464 and more would round to NaN's code */
}

/* Two codes, the first in the low byte. */
__device__ static inline uint32_t e4m3_pair(float first, float second) {
#if __CUDA_ARCH__ >= 890
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
    return pair;
#else
    return e4m3_of_bits(__float_as_uint(first)) | e4m3_of_bits(__float_as_uint(second)) << 8;
#endif
}

__device__ static inline uint32_t int8_code(float value) {
    int code;
    asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(code) : "f"(value));
    return (uint32_t)code & 0xffu;
}

__device__ static inline uint2 eight_e4m3(const struct eight &v) {
    return make_uint2(e4m3_pair(v.at[0], v.at[1]) | e4m3_pair(v.at[2], v.at[3]) << 16,
                      e4m3_pair(v.at[4], v.at[5]) | e4m3_pair(v.at[6], v.at[7]) << 16);
}

__device__ static inline uint2 eight_int8(const struct eight &v) {
    uint32_t words[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        words[i] = int8_code(v.at[4 * i]) | int8_code(v.at[4 * i + 1]) << 8 |
                   int8_code(v.at[4 * i + 2]) << 16 | int8_code(v.at[4 * i + 3]) << 24;
    return make_uint2(words[0], words[1]);
}

/* The scale that brings `most` to the largest code. */
template <int CODE> __device__ static inline float scale_of(float most) {
    return fmaxf(most / (CODE == CUDA_E4M3 ? E4M3_MAX : INT8_MAX_CODE), SCALE_MIN);
}

/* Eight values, already divided by the row's scale, as codes at row `row`, column `at`. */
template <int CODE>
__device__ static inline void store_eight(const struct cuda_rows &y, size_t row, uint32_t at,
                                          const struct eight &v) {
    size_t offset = row * y.stride + at;
    if (CODE == CUDA_BF16) *(uint4 *)((uint16_t *)y.codes + offset) = eight_bf16(v);
    if (CODE == CUDA_E4M3) *(uint2 *)((uint8_t *)y.codes + offset) = eight_e4m3(v);
    if (CODE == CUDA_INT8) *(uint2 *)((uint8_t *)y.codes + offset) = eight_int8(v);
}

__device__ static inline void store_one(const struct cuda_rows &y, size_t row, uint32_t at,
                                        float value) {
    size_t offset = row * y.stride + at;
    if (y.type == CUDA_BF16) ((uint16_t *)y.codes)[offset] = bf16_bits(value);
    if (y.type == CUDA_E4M3) ((uint8_t *)y.codes)[offset] = (uint8_t)e4m3_pair(value, 0.0f);
    if (y.type == CUDA_INT8) ((uint8_t *)y.codes)[offset] = (uint8_t)int8_code(value);
}

/* ---- products ---- */

/* The ways a product is read, as a template argument. */
enum in_kind { IN_NONE, IN_BF16, IN_BF16_SCALED, IN_INT32 };

static inline int in_kind_of(const struct cuda_product *product) {
    if (!product->sums) return IN_NONE;
    if (product->type == CUDA_SUMS_INT32) return IN_INT32;
    return product->row_scale ? IN_BF16_SCALED : IN_BF16;
}

/* What was read of eight sums, not yet converted, so that several can be in flight. */
template <int IN> struct raw_sums { uint4 words[IN == IN_INT32 ? 2 : 1]; };

template <int IN>
__device__ static inline struct raw_sums<IN> read_sums(const struct cuda_product &product,
                                                       size_t row, uint32_t at) {
    struct raw_sums<IN> raw;
    size_t offset = row * product.stride + at;
    if (IN == IN_INT32) {
        raw.words[0] = *(const uint4 *)((const int32_t *)product.sums + offset);
        raw.words[IN == IN_INT32] = *(const uint4 *)((const int32_t *)product.sums + offset + 4);
    } else {
        raw.words[0] = *(const uint4 *)((const uint16_t *)product.sums + offset);
    }
    return raw;
}

template <int IN>
__device__ static inline struct eight sums_eight(const struct cuda_product &product,
                                                 float row_scale, uint32_t at,
                                                 const struct raw_sums<IN> &raw) {
    struct eight v;
    if (IN == IN_INT32) {
        const uint32_t *words = (const uint32_t *)raw.words;
#pragma unroll
        for (int i = 0; i < EACH; i++) v.at[i] = (float)(int32_t)words[i];
    } else {
        v = bf16_eight(raw.words[0]);
    }
    if (IN == IN_BF16_SCALED || IN == IN_INT32) {
        struct eight scale = bf16_eight(*(const uint4 *)(product.column_scale + at));
#pragma unroll
        for (int i = 0; i < EACH; i++) v.at[i] *= row_scale * scale.at[i];
    }
    if (product.bias) {
        struct eight bias = f32_eight(product.bias + at);
#pragma unroll
        for (int i = 0; i < EACH; i++) v.at[i] += bias.at[i];
    }
    return v;
}

/* One value of a product, whatever its kind and alignment. */
__device__ static inline float sum_at(const struct cuda_product &product, size_t row, uint32_t at) {
    size_t offset = row * product.stride + at;
    float value = product.type == CUDA_SUMS_INT32
                      ? (float)((const int32_t *)product.sums)[offset]
                      : bf16_float(((const uint16_t *)product.sums)[offset]);
    if (product.row_scale) value *= product.row_scale[row] * bf16_float(product.column_scale[at]);
    return product.bias ? value + product.bias[at] : value;
}

/* ---- whether 16-byte accesses will do ---- */

static inline bool is_at_16(const void *at) {
    return ((uintptr_t)at & 15u) == 0;
}

static inline bool is_product_wide(const struct cuda_product *product) {
    return product->stride % EACH == 0 && is_at_16(product->sums) &&
           is_at_16(product->column_scale) && is_at_16(product->bias);
}

static inline bool is_rows_wide(const struct cuda_rows *rows) {
    return rows->stride % EACH == 0 && is_at_16(rows->codes);
}

/* ---- reductions, in one order whatever else runs ---- */

__device__ static inline float2 warp_sum_max(float2 v) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        v.x += __shfl_xor_sync(~0u, v.x, apart);
        v.y = fmaxf(v.y, __shfl_xor_sync(~0u, v.y, apart));
    }
    return v;
}

/* Sum of x and maximum of y over the block, known to all its threads. `parts` (32) is shared
 * memory that nothing reads or writes until the next barrier. */
__device__ static inline float2 block_sum_max(float2 v, float2 *parts) {
    v = warp_sum_max(v);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
    __syncthreads();
    uint32_t warps = (blockDim.x + 31) / 32;
    float2 all = parts[0];
    for (uint32_t i = 1; i < warps; i++) {
        all.x += parts[i].x;
        all.y = fmaxf(all.y, parts[i].y);
    }
    return all;
}
