/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* barrier: barriers in shared memory that count arrivals and bytes (mbarrier), and copies that tell
 * them of their bytes. sm_90 and later; code for other GPUs is empty, and nothing launches it.
 *
 * A barrier has 8 B at a multiple of 8. It completes a phase when `count` arrivals and all bytes
 * that were expected have come. Its phases are waited for by parity: 0 for the first, 1 for the
 * second, 0 again.
 *
 * tests/gpu/cuda/emulated/ has the same functions for a machine without a GPU. */

#include "gpu/cuda/ptx.cuh"

#if __CUDA_ARCH__ >= 900
#define CUDA_SM90(code) code
#else
#define CUDA_SM90(code)
#endif

/* One thread; all threads that use it meet before the first use. */
__device__ static inline void cuda_barrier_open(uint32_t barrier, uint32_t count) {
    CUDA_SM90(asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count)
                           : "memory"));
}
/* Lets copies see the barriers that this thread has opened. */
__device__ static inline void cuda_barriers_opened(void) {
    CUDA_SM90(asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"));
}

/* Arrives, and says how many bytes the phase has. */
__device__ static inline void cuda_barrier_expect(uint32_t barrier, uint32_t bytes) {
    CUDA_SM90(
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                     : "memory"));
}

/* Arrives at a barrier of this block. */
__device__ static inline void cuda_barrier_arrive_here(uint32_t barrier) {
    CUDA_SM90(asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory"));
}

/* Arrives when all copies that this thread has begun (cuda_copy16) are there; no group of them is
 * waited for. Who waits for the barrier calls cuda_show_products() before products read them. */
__device__ static inline void cuda_barrier_arrive_copied(uint32_t barrier) {
    CUDA_SM90(asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier)
                           : "memory"));
}

/* Waits for the end of the phase of that parity. */
__device__ static inline void cuda_barrier_wait(uint32_t barrier, uint32_t parity) {
    CUDA_SM90(asm volatile("{ .reg .pred p;\n"
                           "again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
                           "@!p bra again; }" ::"r"(barrier),
                           "r"(parity)
                           : "memory"));
}

/* One thread; the barrier gets the bytes. Addresses and bytes are multiples of 16. */
__device__ static inline void cuda_bulk_read(uint32_t to, const void *from, uint32_t bytes,
                                             uint32_t barrier) {
    CUDA_SM90(asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                           "[%0], [%1], %2, [%3];" ::"r"(to),
                           "l"(from), "r"(bytes), "r"(barrier)
                           : "memory"));
}
