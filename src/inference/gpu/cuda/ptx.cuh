/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ptx: the instructions that CUDA C++ has no words for, one function each; all of them run from
 * sm_80 on. What is .sync is for all 32 lanes of a warp at once.
 *
 * tests/gpu/cuda/emulated/ has the same functions for a machine without a GPU. */

#include <cuda_runtime.h>

#include <stdint.h>

#define CUDA_ALL_LANES 0xffffffffu
#define CUDA_SHARED __shared__ /* an array of the block, of fixed size */

__device__ static inline uint32_t cuda_shared_address(const void *at) {
    return (uint32_t)__cvta_generic_to_shared(at);
}

/* Copies 16 bytes from global to shared memory, past the L1; they are there after a wait. */
__device__ static inline void cuda_copy16(uint32_t to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/* The same of 4 bytes, through the L1. */
__device__ static inline void cuda_copy4(uint32_t to, const void *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

/* 16 bytes, or 16 zero bytes without a look at `from`. */
__device__ static inline void cuda_copy16_if(uint32_t to, const void *from, bool is_wanted) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(is_wanted ? 16 : 0)
                 : "memory");
}

/* Closes a group of this thread's copies; a group may be empty. */
__device__ static inline void cuda_copy_commit(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for all of this thread's groups but the newest COUNT. */
template <int COUNT> __device__ static inline void cuda_copy_wait(void) {
    asm volatile("cp.async.wait_group %0;" ::"n"(COUNT) : "memory");
}

/* Four 8 x 8 matrices of 16 bits from shared memory: lanes 8i..8i+7 name the rows of matrix i, and
 * lane 4g + t gets elements 2t, 2t+1 of row g of each. */
__device__ static inline void cuda_load_matrices(uint32_t ret[4], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(ret[0]), "=r"(ret[1]), "=r"(ret[2]), "=r"(ret[3])
                 : "r"(row)
                 : "memory");
}

/* The same transposed: lane 4g + t gets elements g of rows 2t, 2t+1. */
__device__ static inline void cuda_load_transposed(uint32_t ret[4], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(ret[0]), "=r"(ret[1]), "=r"(ret[2]), "=r"(ret[3])
                 : "r"(row)
                 : "memory");
}

/* Transposes an 8 x 8 matrix of 16 bits that lies in a warp as cuda_load_matrices leaves it. */
__device__ static inline uint32_t cuda_transpose(uint32_t pair) {
    uint32_t ret;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(ret) : "r"(pair));
    return ret;
}

/* sum (16, 8) += a (16, 16) · b (16, 8) in bf16 with float32 sums. Lane 4g + t holds
 * sum: (g, 2t) (g, 2t+1) (g+8, 2t) (g+8, 2t+1); a: pairs (g, 2t) (g+8, 2t) (g, 2t+8) (g+8, 2t+8);
 * b: pairs of rows (2t, g) and (2t+8, g). */
__device__ static inline void cuda_mma(float sum[4], const uint32_t a[4], uint32_t b0,
                                       uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The same from zero: sum = a · b. */
__device__ static inline void cuda_mma_anew(float sum[4], const uint32_t a[4], uint32_t b0,
                                            uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                 : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

/* sum (16, 8) += a (16, 8) · b (8, 8) in tf32, the upper 19 bits of a float32 each. Lane 4g + t
 * holds a: (g, t) (g+8, t) (g, t+4) (g+8, t+4); b: (t, g) (t+4, g). */
__device__ static inline void cuda_mma_tf32(float sum[4], const float a[4], float b0, float b1) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])),
                   "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b0)),
                   "r"(__float_as_uint(b1)));
}

/* The same of four: a: (g, t) (g+8, t); b: (t, g). */
__device__ static inline void cuda_mma_tf32_short(float sum[4], float a0, float a1, float b) {
    asm volatile("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(__float_as_uint(a0)), "r"(__float_as_uint(a1)), "r"(__float_as_uint(b)));
}

/* The same of codes of INT8 with whole sums, 32 codes deep. a: four codes (g, 4t..) (g+8, 4t..)
 * (g, 4t+16..) (g+8, 4t+16..); b: four of column g, 4t.. and 4t+16... */
__device__ static inline void cuda_mma_int8(int32_t sum[4], const uint32_t a[4], uint32_t b0,
                                            uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The same with sums that all begin at `begin`. */
__device__ static inline void cuda_mma_int8_anew(int32_t sum[4], const uint32_t a[4], uint32_t b0,
                                                 uint32_t b1, int32_t begin) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
                 : "=r"(sum[0]), "=r"(sum[1]), "=r"(sum[2]), "=r"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(begin));
}

/* (a & mask) | bits by one instruction. */
__device__ static inline uint32_t cuda_and_or(uint32_t a, uint32_t mask, uint32_t bits) {
    uint32_t ret;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(ret) : "r"(a), "r"(mask), "r"(bits));
    return ret;
}

/* What tf32 has of a number: 11 bits. */
__device__ static inline float cuda_tf32(float value) {
    return __uint_as_float(__float_as_uint(value) & 0xffffe000u);
}

/* 2^x; 0 for -inf. */
__device__ static inline float cuda_exp2(float x) {
    float ret;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(ret) : "f"(x));
    return ret;
}

/* 1 / x, to a unit or so in the last place. */
__device__ static inline float cuda_reciprocal(float x) {
    float ret;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(ret) : "f"(x));
    return ret;
}

__device__ static inline float cuda_rsqrt(float x) {
    float ret;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(ret) : "f"(x));
    return ret;
}

/* The greater number; NaN if one of them is NaN. */
__device__ static inline float cuda_max_or_nan(float a, float b) {
    float ret;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(ret) : "f"(a), "f"(b));
    return ret;
}

/* The nearest whole number, even for ties, within -128..127; in the low byte. */
__device__ static inline uint32_t cuda_int8(float value) {
    int code;
    asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(code) : "f"(value));
    return (uint32_t)code & 0xffu;
}

/* Two bf16, `low` in the lower half. */
__device__ static inline uint32_t cuda_pack_bf16(float low, float high) {
    uint32_t ret;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(ret) : "f"(high), "f"(low));
    return ret;
}

/* Products of two pairs, rounded to nearest even. mul.bf16x2 needs sm_90; an fma that adds -0 has
 * the same result. */
__device__ static inline uint32_t cuda_times_bf16(uint32_t a, uint32_t b) {
    uint32_t ret;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(ret) : "r"(a), "r"(b), "r"(0x80008000u));
    return ret;
}

__device__ static inline float cuda_low_bf16(uint32_t pair) {
    return __uint_as_float(pair << 16);
}

__device__ static inline float cuda_high_bf16(uint32_t pair) {
    return __uint_as_float(pair & 0xffff0000u);
}

__device__ static inline float cuda_low_f16(uint32_t pair) {
    float ret;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low; }"
        : "=f"(ret)
        : "r"(pair));
    return ret;
}

__device__ static inline float cuda_high_f16(uint32_t pair) {
    float ret;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high; }"
        : "=f"(ret)
        : "r"(pair));
    return ret;
}

/* Bytes 0 and 2 (or 1 and 3) of a word of e4m3, as two bf16 that are 2^-120 times as large: the
 * bits move over and the exponents stay, so e4m3's subnormal numbers become bf16's. Three
 * instructions for two numbers, no conversion unit, and exact. */
__device__ static inline uint32_t cuda_even_e4m3(uint32_t word) {
    uint32_t wide; /* digits 8 and a of the selector: the sign of byte 0 or 2 in every bit */
    asm("prmt.b32 %0, %1, 0, 0xa280;" : "=r"(wide) : "r"(word));
    return wide << 4 & 0x87f087f0u;
}

__device__ static inline uint32_t cuda_odd_e4m3(uint32_t word) {
    return (word >> 4 & 0x07f007f0u) | (word & 0x80008000u);
}
