/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ring, emulated: a copy is done at once, and a wait is a meeting of the block. A wait that would
 * never end on a card, for a phase that was not begun or bytes that do not come, ends the program. */

#include "kernels/cuda/launch.cuh"

#define EMULATED_RING_BLOCKS 4

/* An mbarrier: phases begun in the upper half, bytes still to come in the lower. */
static inline void ring_open(uint64_t *full, uint32_t places) {
    for (uint32_t i = 0; threadIdx.x == 0 && i < places; i++) full[i] = 0;
    __syncthreads();
}
static inline void ring_expect(uint64_t *full, uint32_t bytes) {
    *full += (1ull << 32) + bytes;
}
static inline void ring_fetch(uint64_t *full, void *to, const void *from, uint32_t bytes) {
    memcpy(to, from, bytes);
    *full -= bytes;
}
static inline void ring_wait(uint64_t *full, uint32_t parity) {
    __syncthreads();
    if ((uint32_t)*full == 0 && (*full >> 32) % 2 != parity) return;
    (void)printf("Bail out! emulated: a ring waits for %u B, phase %u, parity %u\n",
                 (uint32_t)*full, (uint32_t)(*full >> 32), parity);
    exit(1);
}

/* 0, as on cards without bulk copies, below major 9. */
template <auto KERNEL> static inline uint32_t ring_blocks(uint32_t, uint32_t, uint32_t) {
    return emulated_major >= 9 ? EMULATED_RING_BLOCKS : 0;
}
