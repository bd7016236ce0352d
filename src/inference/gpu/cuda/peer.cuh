/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* peer: what kernels of several GPUs say to each other through memory that all of them reach: words
 * that count up, and reads of what another GPU's kernel wrote.
 *
 * A word is written by one GPU and lies in the memory of the GPU that waits for it, so that waiting
 * costs the links nothing. Who sees a word sees all that the writer's GPU had written before it.
 *
 * tests/gpu/cuda/emulated/ has the same functions for a machine without a GPU. */

#include <cuda_runtime.h>

#include <stdint.h>

/* A GPU that is gone never says anything. The host tells it through a word of its own memory; if it
 * does not either, the kernel ends with an error after so long. */
#define CUDA_PEER_PATIENCE_NS 20000000000ull
#define CUDA_PEER_LOOKS 4096u /* between two looks at that word, across PCIe, and at the clock */

__device__ static inline void cuda_peer_say(uint32_t *word, uint32_t value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

__device__ static inline uint32_t cuda_peer_word(const uint32_t *word) {
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ static inline uint64_t cuda_clock_ns(void) {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* Waits until the word is `value` or later. Words may wrap around. False: *given_up, the host's
 * word, is no longer 0; NULL: nobody gives up. */
__device__ static inline bool cuda_peer_await(const uint32_t *word, uint32_t value,
                                              const uint32_t *given_up) {
    uint64_t begin = 0;
    for (uint32_t i = 1; (int32_t)(cuda_peer_word(word) - value) < 0; i++) {
        if (i % CUDA_PEER_LOOKS != 0) continue;
        if (given_up && cuda_peer_word(given_up) != 0) return false;
        const uint64_t now = cuda_clock_ns();
        if (begin == 0) begin = now;
        if (now - begin > CUDA_PEER_PATIENCE_NS) __trap();
    }
    return true;
}

/* 16 bytes of another GPU's memory, past the L1. */
__device__ static inline uint4 cuda_peer_read(const void *from) {
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}
