/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ring: rows that bulk copies bring into shared memory while their block works on the row before.
 *
 * A row per block leaves the memory idle while the block computes, and few blocks fit next to each
 * other. A block that stays has its next rows under way all the time, and what it keeps in
 * registers (weights, scales) it reads once. Each place of the ring has a barrier (barrier.cuh),
 * which completes a phase when all bytes of its row have come.
 *
 * Code for GPUs before sm_90 is empty, so cuda_blocks_held() (launch.cuh) asks the kernel which
 * GPU it was compiled for, and a caller keeps a kernel without a ring.
 *
 * Thread: one of a block opens, one per place expects and fetches, all of them wait.
 * Memory: shared memory of the kernel; addresses and sizes are multiples of 16 B. */

#include "gpu/cuda/barrier.cuh"

/* All threads call it, before the first row is fetched. */
__device__ static inline void ring_open(uint64_t *full, uint32_t places) {
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < places; i++) cuda_barrier_open(cuda_shared_address(full + i), 1);
        cuda_barriers_opened();
    }
    __syncthreads();
}

/* Says how many bytes the next phase of a place has, before they are fetched. */
__device__ static inline void ring_expect(uint64_t *full, uint32_t bytes) {
    cuda_barrier_expect(cuda_shared_address(full), bytes);
}

/* Nothing of the block reads `to` any more: a barrier of the block stands between. */
__device__ static inline void ring_fetch(uint64_t *full, void *to, const void *from,
                                         uint32_t bytes) {
    cuda_bulk_read(cuda_shared_address(to), from, bytes, cuda_shared_address(full));
}

/* Waits for the phase of that parity: 0 for a place's first row, 1 for its second, 0 again. */
__device__ static inline void ring_wait(uint64_t *full, uint32_t parity) {
    cuda_barrier_wait(cuda_shared_address(full), parity);
}
