/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* unpack_types: eight values of each tensor type. kernels/quant.c says what the blocks mean; here
 * are the same steps with the same single roundings. Blocks stand at any byte. */

#include "vec.cuh"

#include "unpack.h"

#include <cuda_fp16.h>

/* value = steps · scale, or steps · scale + minimum. */
struct steps {
    int at[EACH];
    float scale;
    float minimum;
};

__device__ static inline uint32_t load_u16(const uint8_t *at) {
    return at[0] | (uint32_t)at[1] << 8;
}

__device__ static inline uint32_t load_u32(const uint8_t *at) {
    return load_u16(at) | load_u16(at + 2) << 16;
}

__device__ static inline float load_half(const uint8_t *at) {
    return __half2float(__ushort_as_half((uint16_t)load_u16(at)));
}

/* Element j of 32 is the low half of byte j, or from 16 on the high half of byte j - 16. */
__device__ static inline void load_nibbles(const uint8_t *bytes, uint32_t i, struct steps *s) {
    uint32_t shift = i < 16 ? 0 : 4;
#pragma unroll
    for (int k = 0; k < EACH; k++) s->at[k] = bytes[i % 16 + k] >> shift & 15;
}

__device__ static inline void add_fifth_bits(uint32_t bits, uint32_t i, struct steps *s) {
#pragma unroll
    for (int k = 0; k < EACH; k++) s->at[k] |= (int)((bits >> (i + k) & 1u) << 4);
}

__device__ static inline void subtract(int zero, struct steps *s) {
#pragma unroll
    for (int k = 0; k < EACH; k++) s->at[k] -= zero;
}

__device__ static const int8_t iq4_steps[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                1,    13,   25,  38,  53,  69,  89,  113};
__device__ static const int8_t mxfp4_steps[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                  0, -1, -2, -3, -4, -6, -8, -12};

__device__ static inline void look_up(const int8_t *steps, struct steps *s) {
#pragma unroll
    for (int k = 0; k < EACH; k++) s->at[k] = steps[s->at[k]];
}

/* Six bits of scale and of minimum of group g of Q4_K and Q5_K. */
__device__ static inline void load_k_scales(const uint8_t *block, uint32_t g, struct steps *s) {
    const uint8_t *packed = block + 4;
    uint32_t scale, minimum;
    if (g < 4) {
        scale = packed[g] & 63u;
        minimum = packed[g + 4] & 63u;
    } else {
        scale = (packed[g + 4] & 15u) | (uint32_t)(packed[g - 4] >> 6) << 4;
        minimum = (uint32_t)(packed[g + 4] >> 4) | (uint32_t)(packed[g] >> 6) << 4;
    }
    s->scale = __fmul_rn(load_half(block), (float)scale);
    s->minimum = -__fmul_rn(load_half(block + 2), (float)minimum);
}

__device__ static inline void load_k_nibbles(const uint8_t *bytes, uint32_t i, struct steps *s) {
    uint32_t shift = i / 32 % 2 ? 4 : 0;
#pragma unroll
    for (int k = 0; k < EACH; k++) s->at[k] = bytes[32 * (i / 64) + i % 32 + k] >> shift & 15;
}

__device__ static inline void load_q2_k(const uint8_t *block, uint32_t i, struct steps *s) {
    uint32_t scales = block[i / 16], shift = 2 * (i % 128 / 32);
    s->scale = __fmul_rn(load_half(block + 80), (float)(scales & 15u));
    s->minimum = -__fmul_rn(load_half(block + 82), (float)(scales >> 4));
#pragma unroll
    for (int k = 0; k < EACH; k++) s->at[k] = block[16 + 32 * (i / 128) + i % 32 + k] >> shift & 3;
}

__device__ static inline void load_q3_k(const uint8_t *block, uint32_t i, struct steps *s) {
    const uint8_t *scales = block + 96;
    uint32_t group = i / 16, half = i / 128, j = i % 128 / 32;
    uint32_t low = group < 8 ? scales[group] & 15u : scales[group - 8] >> 4;
    uint32_t six = low | (uint32_t)(scales[8 + group % 4] >> (2 * (group / 4)) & 3u) << 4;
    s->scale = __fmul_rn(load_half(block + 108), (float)((int)six - 32));
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        uint32_t two = block[32 + 32 * half + i % 32 + k] >> (2 * j) & 3u;
        s->at[k] = (int)(two | (block[i % 32 + k] >> (4 * half + j) & 1u) << 2) - 4;
    }
}

__device__ static inline void load_q6_k(const uint8_t *block, uint32_t i, struct steps *s) {
    uint32_t half = i / 128, j = i % 128 / 32;
    s->scale = __fmul_rn(load_half(block + 208), (float)(int8_t)block[192 + i / 16]);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        uint32_t byte = block[64 * half + i % 32 + k + (j & 1 ? 32 : 0)];
        uint32_t four = j < 2 ? byte & 15u : byte >> 4;
        uint32_t high = block[128 + 32 * half + i % 32 + k] >> (2 * j) & 3u;
        s->at[k] = (int)(four | high << 4) - 32;
    }
}

__device__ static inline void load_iq4_xs(const uint8_t *block, uint32_t i, struct steps *s) {
    uint32_t g = i / 32, low = block[4 + g / 2] >> (4 * (g % 2)) & 15u;
    uint32_t six = low | (load_u16(block + 2) >> (2 * g) & 3u) << 4;
    s->scale = __fmul_rn(load_half(block), (float)((int)six - 32));
    load_nibbles(block + 8 + 16 * g, i % 32, s);
    look_up(iq4_steps, s);
}

/* 2^(exponent - 128), also where that is subnormal. */
__device__ static inline float mxfp4_scale(uint32_t exponent) {
    return __uint_as_float(exponent >= 2 ? (exponent - 1) << 23 : 0x200000u << exponent);
}

template <int TYPE> __device__ static constexpr bool has_minimum(void) {
    return TYPE == TENSOR_Q4_1 || TYPE == TENSOR_Q5_1 || TYPE == TENSOR_INT4 ||
           TYPE == TENSOR_Q2_K || TYPE == TENSOR_Q4_K || TYPE == TENSOR_Q5_K;
}

/* Bytes and elements of a block, as the table of quant.c has them. */
template <int TYPE> __device__ static constexpr uint32_t block_bytes(void) {
    switch (TYPE) {
    case TENSOR_Q4_0:
    case TENSOR_IQ4_NL: return 18;
    case TENSOR_Q4_1: return 20;
    case TENSOR_Q5_0: return 22;
    case TENSOR_Q5_1:
    case TENSOR_INT4: return 24;
    case TENSOR_Q8_0: return 34;
    case TENSOR_Q2_K: return 84;
    case TENSOR_Q3_K: return 110;
    case TENSOR_Q4_K: return 144;
    case TENSOR_Q5_K: return 176;
    case TENSOR_Q6_K: return 210;
    case TENSOR_IQ4_XS: return 136;
    case TENSOR_MXFP4: return 17;
    case TENSOR_F32: return 4;
    default: return 2;
    }
}

template <int TYPE> __device__ static constexpr uint32_t block_elements(void) {
    switch (TYPE) {
    case TENSOR_F32:
    case TENSOR_F16:
    case TENSOR_BF16: return 1;
    case TENSOR_Q2_K:
    case TENSOR_Q3_K:
    case TENSOR_Q4_K:
    case TENSOR_Q5_K:
    case TENSOR_Q6_K:
    case TENSOR_IQ4_XS: return 256;
    default: return 32;
    }
}

/* Elements i..i+7 of a block. */
template <int TYPE>
__device__ static inline void load_steps(const uint8_t *block, uint32_t i, struct steps *s) {
    switch (TYPE) {
    case TENSOR_Q4_0:
        s->scale = load_half(block), load_nibbles(block + 2, i, s), subtract(8, s);
        break;
    case TENSOR_Q4_1:
        s->scale = load_half(block), s->minimum = load_half(block + 2);
        load_nibbles(block + 4, i, s);
        break;
    case TENSOR_INT4:
        s->scale = __uint_as_float(load_u32(block));
        s->minimum = __uint_as_float(load_u32(block + 4));
        load_nibbles(block + 8, i, s);
        break;
    case TENSOR_Q5_0:
        s->scale = load_half(block), load_nibbles(block + 6, i, s);
        add_fifth_bits(load_u32(block + 2), i, s), subtract(16, s);
        break;
    case TENSOR_Q5_1:
        s->scale = load_half(block), s->minimum = load_half(block + 2);
        load_nibbles(block + 8, i, s), add_fifth_bits(load_u32(block + 4), i, s);
        break;
    case TENSOR_Q8_0: s->scale = load_half(block);
#pragma unroll
        for (int k = 0; k < EACH; k++) s->at[k] = (int8_t)block[2 + i + k];
        break;
    case TENSOR_IQ4_NL:
        s->scale = load_half(block), load_nibbles(block + 2, i, s), look_up(iq4_steps, s);
        break;
    case TENSOR_MXFP4:
        s->scale = mxfp4_scale(block[0]), load_nibbles(block + 1, i, s);
        look_up(mxfp4_steps, s);
        break;
    case TENSOR_IQ4_XS: load_iq4_xs(block, i, s); break;
    case TENSOR_Q2_K: load_q2_k(block, i, s); break;
    case TENSOR_Q3_K: load_q3_k(block, i, s); break;
    case TENSOR_Q4_K: load_k_scales(block, i / 32, s), load_k_nibbles(block + 16, i, s); break;
    case TENSOR_Q5_K: load_k_scales(block, i / 32, s), load_k_nibbles(block + 48, i, s);
#pragma unroll
        for (int k = 0; k < EACH; k++) s->at[k] |= (block[16 + i % 32 + k] >> (i / 32) & 1) << 4;
        break;
    case TENSOR_Q6_K: load_q6_k(block, i, s); break;
    }
}

/* Elements at..at+7 of a row of `cols`; 0 past its end. */
template <int TYPE>
__device__ static inline eight row_eight(const uint8_t *row, uint32_t at, uint32_t cols) {
    eight v = {};
    if (block_elements<TYPE>() == 1) {
#pragma unroll
        for (uint32_t k = 0; k < EACH; k++) {
            if (at + k >= cols) continue;
            if (TYPE == TENSOR_F32)
                v.at[k] = ((const float *)row)[at + k];
            else if (TYPE == TENSOR_BF16)
                v.at[k] = bf16_float(((const uint16_t *)row)[at + k]);
            else
                v.at[k] = __half2float(((const __half *)row)[at + k]);
        }
        return v;
    }
    struct steps s;
    load_steps<TYPE>(row + (size_t)(at / block_elements<TYPE>()) * block_bytes<TYPE>(),
                     at % block_elements<TYPE>(), &s);
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        v.at[k] = __fmul_rn(s.scale, (float)s.at[k]);
        if (has_minimum<TYPE>()) v.at[k] = __fadd_rn(v.at[k], s.minimum);
    }
    return v;
}
