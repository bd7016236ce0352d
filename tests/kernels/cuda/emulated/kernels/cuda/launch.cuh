/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* launch, emulated. */

#include "kernels/cuda/dependent.cuh"

/* By turns, so that the shapes for small cards are checked too. */
static inline bool cuda_has_shared(size_t) {
    static unsigned turn;
    return turn++ % 2 == 0;
}

template <auto KERNEL, class... GIVES>
static inline enum err cuda_launch(const char *name, uint32_t blocks, uint32_t threads,
                                   size_t shared_bytes, cudaStream_t stream, struct error *error,
                                   const GIVES &...arguments) {
    return launch_dependent(name, error, stream, blocks, threads, shared_bytes, KERNEL,
                            arguments...);
}
