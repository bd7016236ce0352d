/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* barrier, emulated: what src/inference/gpu/cuda/barrier.cuh promises, in plain C. A copy comes at
 * once, or not before somebody waits for it: by turns of the runs. */

#include "gpu/cuda/ptx.cuh"

void cuda_barrier_open(uint32_t barrier, uint32_t count);
static inline void cuda_barriers_opened(void) {
}
void cuda_barrier_expect(uint32_t barrier, uint32_t bytes);
void cuda_barrier_arrive(uint32_t barrier, uint32_t block);
static inline void cuda_barrier_arrive_here(uint32_t barrier) {
    cuda_barrier_arrive(barrier, 0);
}
void cuda_barrier_arrive_copied(uint32_t barrier);
void cuda_barrier_wait(uint32_t barrier, uint32_t parity);
void cuda_bulk_read(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier);
