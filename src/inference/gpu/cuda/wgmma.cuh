/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* wgmma: products of a warpgroup (four warps, the first of them a multiple of four), which read an
 * operand from shared memory by themselves. sm_90a alone has them; elsewhere these functions stop.
 *
 * A matrix in shared memory has rows of 128 B and begins at a multiple of 1,024; chunk (16 B) c of
 * row r is at place c ^ (r & 7). All functions are for the 128 threads at once. */

#include <cuda_runtime.h>

#include <stdint.h>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CUDA_WGMMA(code) code
#else
#define CUDA_WGMMA(code) asm volatile("trap;")
#endif

/* The operand at an address in shared memory: rows of 16 numbers, or 16 rows of 64. The address
 * is one for the warp: so said, it goes into a uniform register once. */
__device__ static inline uint64_t cuda_matrix_at(uint32_t address) {
    const uint64_t rows_in_eights = 1024 >> 4, mixed_in_128_bytes = 1ull << 62, unused = 1;
    const uint32_t uniform = __shfl_sync(0xffffffffu, address, 0);
    return (uniform >> 4 & 0x3fff) | unused << 16 | rows_in_eights << 32 | mixed_in_128_bytes;
}

/* The operand `bytes` further, a multiple of 16: one addition, for shared memory has no address
 * that would carry out of the 14 bits. */
__device__ static inline uint64_t cuda_matrix_after(uint64_t matrix, uint32_t bytes) {
    return (matrix & 0xffffffff00000000ull) | ((uint32_t)matrix + (bytes >> 4));
}

/* Lets products see what this thread wrote to shared memory, or copied there and waited for; then
 * the threads must meet. */
__device__ static inline void cuda_show_products(void) {
    CUDA_WGMMA(asm volatile("fence.proxy.async.shared::cta;" ::: "memory"));
}

/* Before the first product whose registers others have written. */
__device__ static inline void cuda_products_begin(void) {
    CUDA_WGMMA(asm volatile("wgmma.fence.sync.aligned;" ::: "memory"));
}

/* Closes a group of products. */
__device__ static inline void cuda_products_commit(void) {
    CUDA_WGMMA(asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"));
}

/* Waits for all groups but the newest COUNT. Until then nothing touches their registers. */
template <int COUNT> __device__ static inline void cuda_products_wait(void) {
    CUDA_WGMMA(asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(COUNT) : "memory"));
}

/* Keeps reads of N results, four numbers each, behind the wait. */
template <int N> __device__ static inline void cuda_products_pin(float (*x)[4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
        asm volatile("" : "+f"(x[n][0]), "+f"(x[n][1]), "+f"(x[n][2]), "+f"(x[n][3])::"memory");
}

#define CUDA_FOUR(x, n) "+f"(x[n][0]), "+f"(x[n][1]), "+f"(x[n][2]), "+f"(x[n][3])
#define CUDA_FOUR_FOURS(x) CUDA_FOUR(x, 0), CUDA_FOUR(x, 1), CUDA_FOUR(x, 2), CUDA_FOUR(x, 3)
#define CUDA_EIGHT_FOURS(x)                                                                        \
    CUDA_FOUR_FOURS(x), CUDA_FOUR(x, 4), CUDA_FOUR(x, 5), CUDA_FOUR(x, 6), CUDA_FOUR(x, 7)
#define CUDA_16_SUMS "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
#define CUDA_32_SUMS                                                                               \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "  \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "

/* sum (64, N) = a (64, 16) · b (N, 16) transposed, or += that; N is 32 or 64. Warp w has rows
 * 16w.., as cuda_mma has them for each eight columns. */
template <int N>
__device__ static inline void cuda_product(float (*sum)[4], uint64_t a, uint64_t b, int is_added) {
    static_assert(N == 32 || N == 64, "columns");
    if constexpr (N == 32)
        CUDA_WGMMA(asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0;\n"
                                "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " CUDA_16_SUMS
                                "%16, %17, p, 1, 1, 0, 0; }"
                                : CUDA_FOUR_FOURS(sum)
                                : "l"(a), "l"(b), "r"(is_added)));
    else
        CUDA_WGMMA(asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
                                "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " CUDA_32_SUMS
                                "%32, %33, p, 1, 1, 0, 0; }"
                                : CUDA_EIGHT_FOURS(sum)
                                : "l"(a), "l"(b), "r"(is_added)));
}

/* sum (64, 64) += a (64, 16) · b (16, 64), `a` in registers as that of cuda_mma. */
__device__ static inline void cuda_product_from(float (*sum)[4], const uint32_t a[4], uint64_t b) {
    CUDA_WGMMA(asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " CUDA_32_SUMS
                            "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                            : CUDA_EIGHT_FOURS(sum)
                            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)));
}

/* ---- products of codes ---- */

#define CUDA_80_SUMS                                                                               \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define CUDA_96_SUMS                                                                               \
    CUDA_80_SUMS                                                                                   \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define CUDA_128_SUMS                                                                              \
    CUDA_96_SUMS                                                                                   \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
    "%127"
#define CUDA_INT_FOUR(x, n) "+r"(x[n][0]), "+r"(x[n][1]), "+r"(x[n][2]), "+r"(x[n][3])
#define CUDA_FOUR_INT_FOURS(x)                                                                     \
    CUDA_INT_FOUR(x, 0), CUDA_INT_FOUR(x, 1), CUDA_INT_FOUR(x, 2), CUDA_INT_FOUR(x, 3)
#define CUDA_16_INT_FOURS(x)                                                                       \
    CUDA_FOUR_INT_FOURS(x), CUDA_FOUR_INT_FOURS((x + 4)), CUDA_FOUR_INT_FOURS((x + 8)),            \
        CUDA_FOUR_INT_FOURS((x + 12))
#define CUDA_20_INT_FOURS(x) CUDA_16_INT_FOURS(x), CUDA_FOUR_INT_FOURS((x + 16))
#define CUDA_24_INT_FOURS(x) CUDA_20_INT_FOURS(x), CUDA_FOUR_INT_FOURS((x + 20))
#define CUDA_32_INT_FOURS(x) CUDA_16_INT_FOURS(x), CUDA_16_INT_FOURS((x + 16))
#define CUDA_OF_INT8(columns, sums, a, b, added)                                                   \
    "{ .reg .pred p; setp.ne.b32 p, " added ", 0;\n"                                               \
    "wgmma.mma_async.sync.aligned.m64n" columns "k32.s32.s8.s8 {" sums "}, " a ", " b ", p; }"

/* sum (64, N) = a (64, 32) · b (N, 32) transposed, of codes of INT8, or += that; N is 160, 192 or
 * 256. Layout of `sum`: as cuda_product's. */
template <int N>
__device__ static inline void cuda_product_int8(int32_t (*sum)[4], uint64_t a, uint64_t b,
                                                int is_added) {
    static_assert(N == 160 || N == 192 || N == 256, "columns");
    if constexpr (N == 160)
        CUDA_WGMMA(asm volatile(CUDA_OF_INT8("160", CUDA_80_SUMS, "%80", "%81", "%82")
                                : CUDA_20_INT_FOURS(sum)
                                : "l"(a), "l"(b), "r"(is_added)));
    else if constexpr (N == 192)
        CUDA_WGMMA(asm volatile(CUDA_OF_INT8("192", CUDA_96_SUMS, "%96", "%97", "%98")
                                : CUDA_24_INT_FOURS(sum)
                                : "l"(a), "l"(b), "r"(is_added)));
    else
        CUDA_WGMMA(asm volatile(CUDA_OF_INT8("256", CUDA_128_SUMS, "%128", "%129", "%130")
                                : CUDA_32_INT_FOURS(sum)
                                : "l"(a), "l"(b), "r"(is_added)));
}

/* cuda_products_wait for the products of all four warps, each of which is one instruction. */
template <int COUNT> __device__ static inline void cuda_group_wait(void) {
    cuda_products_wait<COUNT>();
}

/* Keeps reads of N results, four numbers each, behind the wait. */
template <int N> __device__ static inline void cuda_sums_pin(int32_t (*x)[4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
        asm volatile("" : "+r"(x[n][0]), "+r"(x[n][1]), "+r"(x[n][2]), "+r"(x[n][3])::"memory");
}
