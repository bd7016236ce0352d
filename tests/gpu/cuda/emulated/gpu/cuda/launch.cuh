/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* launch, emulated. */

#include "gpu/cuda/dependent.cuh"

#define EMULATED_BLOCKS_HELD 4 /* fewer than the checks have rows */

/* By turns, so that the shapes for small GPUs are checked too. */
static inline bool cuda_has_shared(size_t) {
    static unsigned turn;
    return turn++ % 2 == 0;
}

template <auto KERNEL, class... GIVES>
static inline enum err cuda_launch(const char *name, dim3 blocks, uint32_t threads,
                                   size_t shared_bytes, cudaStream_t stream, struct error *error,
                                   const GIVES &...arguments) {
    if (blocks.x == 0) return OK;
    return launch_dependent(name, error, stream, blocks, threads, shared_bytes, KERNEL,
                            arguments...);
}

/* 0, as on GPUs whose kernels have no ring, below major 9. */
template <auto KERNEL> static inline uint32_t cuda_blocks_held(uint32_t, uint32_t, uint32_t) {
    return emulated_major >= 9 ? EMULATED_BLOCKS_HELD : 0;
}
