/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* vec: some numbers of a row at a time, and their conversions: eight, which are 16 bytes of bf16,
 * or four, which are 16 bytes of float32. (A warp's 16-byte accesses that are 32 bytes apart, as
 * those of eight float32, touch every sector of the L2 twice.)
 *
 * What rounds is written with explicit instructions, so that no compiler flag changes a result. */

#include "rows.h"

#include "gpu/cuda/ptx.cuh"

#include <cuda_runtime.h>

#include <stdint.h>

#define EACH 8 /* numbers a thread moves at a time */

template <int N> struct numbers { float at[N]; };
typedef struct numbers<EACH> eight;

/* ---- bf16 ---- */

__device__ static inline float bf16_float(uint32_t bits) {
    return __uint_as_float(bits << 16);
}

__device__ static inline uint16_t bf16_bits(float value) {
    return (uint16_t)cuda_pack_bf16(value, 0.0f);
}

template <int N>
__device__ static inline struct numbers<N> bf16_numbers(const uint32_t (&words)[N / 2]) {
    struct numbers<N> v;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        v.at[2 * i] = __uint_as_float(words[i] << 16);
        v.at[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
    return v;
}

/* Words from memory, 8 or 16 bytes an instruction. */
template <int N>
struct words {
    uint32_t at[N];
};

template <int N> __device__ static inline struct words<N> read_words(const void *from) {
    struct words<N> w;
    if constexpr (N == 2) {
        uint2 raw = *(const uint2 *)from;
        w.at[0] = raw.x, w.at[1] = raw.y;
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            uint4 raw = ((const uint4 *)from)[i / 4];
            w.at[i] = raw.x, w.at[i + 1] = raw.y, w.at[i + 2] = raw.z, w.at[i + 3] = raw.w;
        }
    }
    return w;
}

template <int N>
__device__ static inline void write_words(const struct words<N> &w, void *to) {
    if constexpr (N == 1) {
        *(uint32_t *)to = w.at[0];
    } else if constexpr (N == 2) {
        *(uint2 *)to = make_uint2(w.at[0], w.at[1]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 4)
            ((uint4 *)to)[i / 4] = make_uint4(w.at[i], w.at[i + 1], w.at[i + 2], w.at[i + 3]);
    }
}

template <int N = EACH> __device__ static inline struct numbers<N> read_bf16(const void *from) {
    return bf16_numbers<N>(read_words<N / 2>(from).at);
}

template <int N>
__device__ static inline void write_bf16(const struct numbers<N> &v, void *to) {
    struct words<N / 2> w;
#pragma unroll
    for (int i = 0; i < N / 2; i++) w.at[i] = cuda_pack_bf16(v.at[2 * i], v.at[2 * i + 1]);
    write_words(w, to);
}

/* ---- float32 ---- */

template <int N = EACH> __device__ static inline struct numbers<N> read_f32(const float *from) {
    struct words<N> w = read_words<N>(from);
    struct numbers<N> v;
#pragma unroll
    for (int i = 0; i < N; i++) v.at[i] = __uint_as_float(w.at[i]);
    return v;
}

template <int N>
__device__ static inline void write_f32(const struct numbers<N> &v, float *to) {
    struct words<N> w;
#pragma unroll
    for (int i = 0; i < N; i++) w.at[i] = __float_as_uint(v.at[i]);
    write_words(w, to);
}

/* ---- 8 bits ---- */

#define E4M3_MAX 448.0f
#define INT8_MAX_CODE 127.0f
#define SCALE_MIN 1e-20f

/* Nearest even, beyond 448 becomes 448, NaN 0x7f: what cvt.rn.satfinite does, for GPUs without. */
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

/* Makes four neighbours of a row their sums and differences (rows.h says why). */
__device__ static inline void mix_four(float *four) {
    const float a = __fadd_rn(four[0], four[1]), b = __fsub_rn(four[0], four[1]);
    const float c = __fadd_rn(four[2], four[3]), d = __fsub_rn(four[2], four[3]);
    four[0] = __fadd_rn(a, c), four[1] = __fadd_rn(b, d);
    four[2] = __fsub_rn(a, c), four[3] = __fsub_rn(b, d);
}

/* Mixes numbers of a row of activations that become INT8; leaves those of other codes. */
template <int CODE, int N> __device__ static inline void mix(struct numbers<N> *v) {
    if constexpr (CODE == CUDA_INT8) {
#pragma unroll
        for (int i = 0; i < N; i += 4) mix_four(v->at + i);
    }
}

/* The scale that brings `most` to the largest code. */
template <int CODE> __device__ static inline float scale_of(float most) {
    return fmaxf(most / (CODE == CUDA_E4M3 ? E4M3_MAX : INT8_MAX_CODE), SCALE_MIN);
}

/* Values, already divided by the row's scale, as codes at row `row`, column `at`. */
template <int CODE, int N>
__device__ static inline void store(const struct cuda_rows &y, size_t row, uint32_t at,
                                    const struct numbers<N> &v) {
    size_t offset = row * y.stride + at;
    if constexpr (CODE == CUDA_BF16) {
        write_bf16(v, (uint16_t *)y.codes + offset);
    } else {
        struct words<N / 4> w;
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            const float *four = v.at + 4 * i;
            if (CODE == CUDA_E4M3)
                w.at[i] = e4m3_pair(four[0], four[1]) | e4m3_pair(four[2], four[3]) << 16;
            else
                w.at[i] = cuda_int8(four[0]) | cuda_int8(four[1]) << 8 | cuda_int8(four[2]) << 16 |
                          cuda_int8(four[3]) << 24;
        }
        write_words(w, (uint8_t *)y.codes + offset);
    }
}

__device__ static inline void store_one(const struct cuda_rows &y, size_t row, uint32_t at,
                                        float value) {
    size_t offset = row * y.stride + at;
    if (y.type == CUDA_BF16) ((uint16_t *)y.codes)[offset] = bf16_bits(value);
    if (y.type == CUDA_E4M3) ((uint8_t *)y.codes)[offset] = (uint8_t)e4m3_pair(value, 0.0f);
    if (y.type == CUDA_INT8) ((uint8_t *)y.codes)[offset] = (uint8_t)cuda_int8(value);
}

/* ---- products ---- */

/* The ways a product is read, as a template argument. */
enum in_kind { IN_NONE, IN_BF16, IN_BF16_SCALED, IN_INT32 };

static inline int in_kind_of(const struct cuda_product *product) {
    if (!product->sums) return IN_NONE;
    if (product->type == CUDA_SUMS_INT32) return IN_INT32;
    return product->row_scale ? IN_BF16_SCALED : IN_BF16;
}

/* What was read of some sums, not yet converted, so that several reads can be in flight. */
template <int IN, int N = EACH> struct raw_sums { struct words<IN == IN_INT32 ? N : N / 2> words; };

template <int IN, int N = EACH>
__device__ static inline struct raw_sums<IN, N> read_sums(const struct cuda_product &product,
                                                          size_t row, uint32_t at) {
    size_t offset = row * product.stride + at;
    if constexpr (IN == IN_INT32)
        return {read_words<N>((const int32_t *)product.sums + offset)};
    else
        return {read_words<N / 2>((const uint16_t *)product.sums + offset)};
}

/* sums_of by a caller that has the scales of the columns. */
template <int IN, int N>
__device__ static inline struct numbers<N>
scaled_sums(const struct cuda_product &product, float row_scale, const struct numbers<N> &scale,
            uint32_t at, const struct raw_sums<IN, N> &raw) {
    struct numbers<N> v;
    if constexpr (IN == IN_INT32) {
#pragma unroll
        for (int i = 0; i < N; i++) v.at[i] = (float)(int32_t)raw.words.at[i];
    } else {
        v = bf16_numbers<N>(raw.words.at);
    }
    if (IN == IN_BF16_SCALED || IN == IN_INT32) {
#pragma unroll
        for (int i = 0; i < N; i++) v.at[i] = __fmul_rn(v.at[i], __fmul_rn(row_scale, scale.at[i]));
    }
    if (product.bias) {
        struct numbers<N> bias = read_f32<N>(product.bias + at);
#pragma unroll
        for (int i = 0; i < N; i++) v.at[i] += bias.at[i];
    }
    return v;
}

template <int IN, int N>
__device__ static inline struct numbers<N> sums_of(const struct cuda_product &product,
                                                   float row_scale, uint32_t at,
                                                   const struct raw_sums<IN, N> &raw) {
    struct numbers<N> scale = {};
    if (IN == IN_BF16_SCALED || IN == IN_INT32) scale = read_bf16<N>(product.column_scale + at);
    return scaled_sums<IN, N>(product, row_scale, scale, at, raw);
}

/* One value of a product, whatever its kind and alignment. */
__device__ static inline float
sum_at(const struct cuda_product &product, size_t row, uint32_t at) {
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

/* Maximum over the block of numbers that are not negative, whose bits have the same order. `parts`
 * as above. */
__device__ static inline float block_max(float most, uint32_t *parts) {
    const uint32_t bits = __reduce_max_sync(~0u, __float_as_uint(most)), lane = threadIdx.x % 32;
    if (lane == 0) parts[threadIdx.x / 32] = bits;
    __syncthreads();
    return __uint_as_float(__reduce_max_sync(~0u, lane < blockDim.x / 32 ? parts[lane] : 0u));
}
