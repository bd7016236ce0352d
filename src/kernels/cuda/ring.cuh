/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ring: rows that bulk copies bring into shared memory while their block works on the row before.
 *
 * A row per block leaves the memory idle while the block computes, and few blocks fit next to each
 * other. A block that stays has its next rows under way all the time, and what it keeps in
 * registers (weights, scales) it reads once. Each place of the ring has an mbarrier, which
 * completes a phase when all bytes of its row have come.
 *
 * Bulk copies exist on sm_90 and later. Code for other cards is empty, so ring_blocks() asks the
 * kernel which card it was compiled for, and a caller keeps a kernel without a ring.
 *
 * Thread: one of a block opens, one per place expects and fetches, all of them wait.
 * Memory: shared memory of the kernel; addresses and sizes are multiples of 16 B. */

#include "launch.cuh"

#include <stdint.h>

__device__ static inline uint32_t ring_at(const void *shared) {
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* All threads call it, before the first row is fetched. */
__device__ static inline void ring_open(uint64_t *full, uint32_t places) {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < places; i++)
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(ring_at(full + i)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
#endif
    __syncthreads();
}

/* Says how many bytes the next phase of a place has, before they are fetched. */
__device__ static inline void ring_expect(uint64_t *full, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(ring_at(full)),
                 "r"(bytes)
                 : "memory");
#endif
}

/* Nothing of the block reads `to` any more: a barrier of the block stands between. */
__device__ static inline void ring_fetch(uint64_t *full, void *to, const void *from,
                                         uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(ring_at(to)),
                 "l"(from), "r"(bytes), "r"(ring_at(full))
                 : "memory");
#endif
}

/* Waits for the phase of that parity: 0 for a place's first row, 1 for its second, 0 again. */
__device__ static inline void ring_wait(uint64_t *full, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n.reg .pred p;\n"
                 "again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
                 "@!p bra again;\n}" ::"r"(ring_at(full)),
                 "r"(parity)
                 : "memory");
#endif
}

/* How many blocks of a kernel the card holds at once. 0, and the caller takes a kernel without a
 * ring, if a multiprocessor holds fewer than `least`, as on sm_120 with its 100 KiB, or if the
 * kernel's code is older than bulk copies, as PTX of compute_80 is on any card. A kernel always
 * comes with the same threads and shared_bytes, so its answer is kept. */
template <auto KERNEL>
static inline uint32_t ring_blocks(uint32_t threads, uint32_t shared_bytes, uint32_t least) {
    static int known = -1; /* on the process's one card; racing threads write the same */
    if (known >= 0) return (uint32_t)known;
    cudaFuncAttributes kernel = {};
    int card = 0, most = 0, processors = 0, fits = 0;
    bool is_well =
        cudaGetDevice(&card) == cudaSuccess &&
        cudaFuncGetAttributes(&kernel, KERNEL) == cudaSuccess &&
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, card) ==
            cudaSuccess &&
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, card) == cudaSuccess;
    most -= (int)kernel.sharedSizeBytes; /* what is static counts, too */
    if (is_well && kernel.ptxVersion >= 90 && (int)shared_bytes <= most &&
        cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize, most) ==
            cudaSuccess &&
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fits, KERNEL, (int)threads, shared_bytes) ==
            cudaSuccess)
        known = fits >= (int)least ? fits * processors : 0;
    else
        known = 0, (void)cudaGetLastError(); /* or the next launch would report it */
    return (uint32_t)known;
}
