/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* launch: a dependent launch (dependent.cuh) of a kernel that may want much shared memory, and how
 * many blocks of a kernel stay on the GPU. */

#include "gpu/cuda/dependent.cuh"

#include <stddef.h>
#include <stdint.h>

#define CUDA_SHARED_BYTES_FREE 49152 /* more must be asked for */

/* Whether a block of this GPU can have so much shared memory: 99 KiB is what sm_86, 89 and 120
 * give, 163 sm_80, 227 sm_90. */
static inline bool cuda_has_shared(size_t bytes) {
    int card = 0, most = 0;
    return cudaGetDevice(&card) == cudaSuccess &&
           cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, card) ==
               cudaSuccess &&
           (size_t)most >= bytes;
}

/* An error of the kernel itself is found by whoever waits for it. Every
 * thread of the kernel calls wait_for_before(). A kernel is always launched with the same
 * shared_bytes, which are asked for once. */
template <auto KERNEL, class... GIVES>
static inline enum err cuda_launch(const char *name, dim3 blocks, uint32_t threads,
                                   size_t shared_bytes, cudaStream_t stream, struct error *error,
                                   const GIVES &...arguments) {
    static bool is_asked[CUDA_GPUS_MAX]; /* racing threads write the same */
    const int here = cuda_gpu_here();
    cudaError_t status = cudaSuccess;
    if (shared_bytes > CUDA_SHARED_BYTES_FREE && !is_asked[here])
        status = cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      (int)shared_bytes);
    if (status != cudaSuccess)
        return err_set(error, ERR_IO, "%s: %s", name, cudaGetErrorString(status));
    is_asked[here] = true;
    return launch_dependent(name, error, stream, blocks, threads, shared_bytes, KERNEL,
                            arguments...);
}

/* How many blocks of a kernel with bulk copies the GPU holds at once. 0, and the caller takes
 * another kernel, if a multiprocessor holds fewer than `least`, as on sm_120 with its 100 KiB, or
 * if the kernel's code is older than such copies, as PTX of compute_80 is on any GPU. A kernel
 * always comes with the same threads and shared_bytes, so its answer is kept. */
template <auto KERNEL>
static inline uint32_t cuda_blocks_held(uint32_t threads, uint32_t shared_bytes, uint32_t least) {
    static int held[CUDA_GPUS_MAX]; /* plus 1; racing threads write the same */
    int *known = &held[cuda_gpu_here()];
    if (*known > 0) return (uint32_t)*known - 1;
    cudaFuncAttributes kernel = {};
    int card = 0, most = 0, processors = 0, fits = 0;
    bool is_well =
        cudaGetDevice(&card) == cudaSuccess &&
        cudaFuncGetAttributes(&kernel, KERNEL) == cudaSuccess &&
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, card) ==
            cudaSuccess &&
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, card) == cudaSuccess;
    most -= (int)kernel.sharedSizeBytes; /* what is static counts, too */
    if (is_well && kernel.ptxVersion >= 90 && (int)shared_bytes <= most &&
        cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize, most) ==
            cudaSuccess &&
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fits, KERNEL, (int)threads, shared_bytes) ==
            cudaSuccess)
        *known = 1 + (fits >= (int)least ? fits * processors : 0);
    else
        *known = 1, (void)cudaGetLastError(); /* or the next launch would report it */
    return (uint32_t)*known - 1;
}
