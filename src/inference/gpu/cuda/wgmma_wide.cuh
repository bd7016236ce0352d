/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* wgmma_wide: products of 64 lines by any of nine widths, of bf16 and of codes of 8 bits, both
 * operands in shared memory (wgmma.cuh says how they lie). For kernels that take the width of a
 * product from what there is to multiply. */

#include "gpu/cuda/wgmma.cuh"

/* Registers of a product by their numbers, and the places of its sums. */
#define CUDA_WIDE_8_SUMS "%0, %1, %2, %3, %4, %5, %6, %7"
#define CUDA_WIDE_16_SUMS CUDA_WIDE_8_SUMS ", %8, %9, %10, %11, %12, %13, %14, %15"
#define CUDA_WIDE_32_SUMS                                                                          \
    CUDA_WIDE_16_SUMS                                                                              \
    ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define CUDA_WIDE_40_SUMS CUDA_WIDE_32_SUMS ", %32, %33, %34, %35, %36, %37, %38, %39"
#define CUDA_WIDE_48_SUMS                                                                          \
    CUDA_WIDE_32_SUMS                                                                              \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define CUDA_WIDE_56_SUMS CUDA_WIDE_48_SUMS ", %48, %49, %50, %51, %52, %53, %54, %55"
#define CUDA_WIDE_64_SUMS                                                                          \
    CUDA_WIDE_48_SUMS                                                                              \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define CUDA_WIDE_72_SUMS CUDA_WIDE_64_SUMS ", %64, %65, %66, %67, %68, %69, %70, %71"
#define CUDA_WIDE_80_SUMS CUDA_80_SUMS
#define CUDA_WIDE_4(r, x, n) r(x[n][0]), r(x[n][1]), r(x[n][2]), r(x[n][3])
#define CUDA_WIDE_8(r, x, n) CUDA_WIDE_4(r, x, n), CUDA_WIDE_4(r, x, n + 1)
#define CUDA_WIDE_16(r, x, n) CUDA_WIDE_8(r, x, n), CUDA_WIDE_8(r, x, n + 2)
#define CUDA_WIDE_32(r, x, n) CUDA_WIDE_16(r, x, n), CUDA_WIDE_16(r, x, n + 4)
#define CUDA_WIDE_40(r, x, n) CUDA_WIDE_32(r, x, n), CUDA_WIDE_8(r, x, n + 8)
#define CUDA_WIDE_48(r, x, n) CUDA_WIDE_32(r, x, n), CUDA_WIDE_16(r, x, n + 8)
#define CUDA_WIDE_56(r, x, n) CUDA_WIDE_48(r, x, n), CUDA_WIDE_8(r, x, n + 12)
#define CUDA_WIDE_64(r, x, n) CUDA_WIDE_32(r, x, n), CUDA_WIDE_32(r, x, n + 8)
#define CUDA_WIDE_72(r, x, n) CUDA_WIDE_64(r, x, n), CUDA_WIDE_8(r, x, n + 16)
#define CUDA_WIDE_80(r, x, n) CUDA_WIDE_64(r, x, n), CUDA_WIDE_16(r, x, n + 16)
#define CUDA_WIDE_FLOAT(x) "+f"(x)
#define CUDA_WIDE_INT(x) "+r"(x)

/* One product of a width: n columns, s sums, and three registers behind these. */
#define CUDA_WIDE(n, s, a0, b0, added0, kind, tail, r)                                             \
    if constexpr (N == n)                                                                          \
    CUDA_WGMMA(asm volatile("{ .reg .pred p; setp.ne.b32 p, " added0 ", 0;\n"                      \
                            "wgmma.mma_async.sync.aligned.m64n" #n kind " {" CUDA_WIDE_##s##_SUMS  \
                            "}, " a0 ", " b0 ", p" tail "; }"                                      \
                            : CUDA_WIDE_##s(r, sum, 0)                                             \
                            : "l"(a), "l"(b), "r"(is_added)))
#define CUDA_WIDE_ANY(kind, tail, r)                                                               \
    CUDA_WIDE(16, 8, "%8", "%9", "%10", kind, tail, r);                                            \
    CUDA_WIDE(32, 16, "%16", "%17", "%18", kind, tail, r);                                         \
    CUDA_WIDE(64, 32, "%32", "%33", "%34", kind, tail, r);                                         \
    CUDA_WIDE(80, 40, "%40", "%41", "%42", kind, tail, r);                                         \
    CUDA_WIDE(96, 48, "%48", "%49", "%50", kind, tail, r);                                         \
    CUDA_WIDE(112, 56, "%56", "%57", "%58", kind, tail, r);                                        \
    CUDA_WIDE(128, 64, "%64", "%65", "%66", kind, tail, r);                                        \
    CUDA_WIDE(144, 72, "%72", "%73", "%74", kind, tail, r);                                        \
    CUDA_WIDE(160, 80, "%80", "%81", "%82", kind, tail, r)

template <int N>
constexpr bool CUDA_IS_WIDE = N == 16 || N == 32 || (N >= 64 && N <= 160 && N % 16 == 0);

/* sum (64, N) = a (64, 16) · b (N, 16) transposed in bf16, or += that. */
template <int N>
__device__ static inline void cuda_wide_bf16(float (*sum)[4], uint64_t a, uint64_t b,
                                             int is_added) {
    static_assert(CUDA_IS_WIDE<N>, "columns");
    CUDA_WIDE_ANY("k16.f32.bf16.bf16", ", 1, 1, 0, 0", CUDA_WIDE_FLOAT);
}

/* The same of codes of E4M3, (64, 32) and (N, 32). */
template <int N>
__device__ static inline void cuda_wide_e4m3(float (*sum)[4], uint64_t a, uint64_t b,
                                             int is_added) {
    static_assert(CUDA_IS_WIDE<N>, "columns");
    CUDA_WIDE_ANY("k32.f32.e4m3.e4m3", ", 1, 1", CUDA_WIDE_FLOAT);
}

/* The same of codes of INT8, with whole sums. */
template <int N>
__device__ static inline void cuda_wide_int8(int32_t (*sum)[4], uint64_t a, uint64_t b,
                                             int is_added) {
    static_assert(CUDA_IS_WIDE<N>, "columns");
    CUDA_WIDE_ANY("k32.s32.s8.s8", "", CUDA_WIDE_INT);
}
