/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* meet: meetings of some warps of a block, and counts by which warps of different blocks tell each
 * other what they left. All of it runs from sm_80 on.
 *
 * tests/gpu/cuda/emulated/ has the same functions for a machine without a GPU. */

#include <cuda_runtime.h>

#include <stdint.h>

/* Waits until `threads` threads of the block, whole warps, have come to meeting `id`, 1..15, those
 * that pass it included. What they wrote and read before is done then. */
__device__ static inline void cuda_meet_at(uint32_t id, uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Counts as one that came, and goes on. */
__device__ static inline void cuda_pass_at(uint32_t id, uint32_t threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Adds to a count, and returns what it was. What this thread wrote, and knew to be written, before
 * is seen by those that find the sum; and it sees what those before it did. */
__device__ static inline uint32_t cuda_add_in_order(uint32_t *at, uint32_t value) {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(at), "r"(value)
                 : "memory");
    return before;
}

/* Reads a count; what those that added to it did is seen. */
__device__ static inline uint32_t cuda_read_in_order(const uint32_t *at) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}
