/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ring, emulated: a copy is done at once, and a wait is a meeting of the block. */

#include "kernels/cuda/launch.cuh"

#define EMULATED_RING_BLOCKS 4

static inline void ring_open(uint64_t *, uint32_t) {
    __syncthreads();
}
static inline void ring_expect(uint64_t *, uint32_t) {
}
static inline void ring_fetch(uint64_t *, void *to, const void *from, uint32_t bytes) {
    memcpy(to, from, bytes);
}
static inline void ring_wait(uint64_t *, uint32_t) {
    __syncthreads();
}

/* 0, as on cards without bulk copies, below major 9. */
template <auto KERNEL> static inline uint32_t ring_blocks(uint32_t, uint32_t, uint32_t) {
    return emulated_major >= 9 ? EMULATED_RING_BLOCKS : 0;
}
