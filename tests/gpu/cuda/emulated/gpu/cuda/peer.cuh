/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* peer, emulated: what src/inference/gpu/cuda/peer.cuh promises, between threads of the host. */

#include <cuda_runtime.h>

static inline void cuda_peer_say(uint32_t *word, uint32_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
static inline uint32_t cuda_peer_word(const uint32_t *word) {
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
/* Lets other threads of the host go on meanwhile. */
bool cuda_peer_await(const uint32_t *word, uint32_t value, const uint32_t *given_up);
static inline uint4 cuda_peer_read(const void *from) {
    return *(const uint4 *)from;
}
