/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* launch: a dependent launch (dependent.cuh) of a kernel that may want much shared memory. */

#include "kernels/cuda/dependent.cuh"

#include <stddef.h>
#include <stdint.h>

#define CUDA_SHARED_BYTES_FREE 49152 /* more must be asked for */

/* Whether a block of this card can have so much shared memory: 99 KiB is what sm_86, 89 and 120
 * give, 163 sm_80, 227 sm_90. */
static inline bool cuda_has_shared(size_t bytes) {
    int card = 0, most = 0;
    return cudaGetDevice(&card) == cudaSuccess &&
           cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, card) ==
               cudaSuccess &&
           (size_t)most >= bytes;
}

/* No blocks are no launch. An error of the kernel itself is found by whoever waits for it. Every
 * thread of the kernel calls wait_for_before(). */
template <class... TAKES, class... GIVES>
static inline enum err cuda_launch(const char *name, void (*kernel)(TAKES...), uint32_t blocks,
                                   uint32_t threads, size_t shared_bytes, cudaStream_t stream,
                                   struct error *error, const GIVES &...arguments) {
    cudaError_t status = cudaSuccess;
    if (blocks == 0) return OK;
    if (shared_bytes > CUDA_SHARED_BYTES_FREE)
        status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      (int)shared_bytes);
    if (status != cudaSuccess)
        return err_set(error, ERR_IO, "%s: %s", name, cudaGetErrorString(status));
    return launch_dependent(name, error, stream, blocks, threads, shared_bytes, kernel,
                            arguments...);
}
