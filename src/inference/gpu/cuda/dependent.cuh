/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* dependent: launches that may begin while the kernel before them still runs (programmatic
 * dependent launch). They are plain launches on GPUs before sm_90, and on later ones where the
 * program has no code for them but PTX of an older kind, which cannot wait.
 *
 * A kernel launched so loads what no kernel writes, calls wait_for_before() and only then touches
 * the rest. Each one must call it, or a later kernel could overtake one before. It takes 1.3–1.9 µs
 * off each launch (docs/internals/inference/gpu-kernels.md). launches.h decides what becomes of a
 * launch. */

extern "C" {
#include "base/err.h"
}

#include <cuda_runtime.h>

__device__ static inline void wait_for_before(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Lets the next kernel's blocks start as soon as all of this one have come here. */
__device__ static inline void let_next_start(void) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* GPUs of a machine: what is known of a kernel is known per GPU. */
#define CUDA_GPUS_MAX 16
/* The GPU that calls of this thread are for. */
static inline int cuda_gpu_here(void) {
    int gpu = 0;
    return cudaGetDevice(&gpu) == cudaSuccess && gpu < CUDA_GPUS_MAX ? gpu : 0;
}

/* Whether the code that the GPU runs has the instructions above; that of all kernels is alike. */
static inline bool code_can_wait(const void *kernel) {
    static int version = 0; /* GPUs of a process are of one kind; racing threads write the same */
    cudaFuncAttributes code = {};
    if (version == 0 && cudaFuncGetAttributes(&code, kernel) == cudaSuccess)
        version = code.ptxVersion;
    return version >= 90;
}

/* Launches the kernel, or gives it to a node of a graph (launches.h). `arguments` are the addresses
 * of its arguments. Without blocks nothing is launched. */
extern "C" cudaError_t launches_take(const cudaLaunchConfig_t *config, const void *kernel,
                                     void **arguments);

/* Deduces the parameters from the kernel alone and converts each argument to its parameter. */
template <class T> struct launch_parameter { using type = T; };
template <class... Parameters>
static enum err launch_with(const char *name, struct error *error, const cudaLaunchConfig_t *config,
                            void (*kernel)(Parameters...),
                            typename launch_parameter<Parameters>::type... arguments) {
    void *addresses[] = {(void *)&arguments...};
    cudaError_t code = launches_take(config, (const void *)kernel, addresses);
    if (code == cudaSuccess) return OK;
    return err_set(error, ERR_IO, "%s: %s", name, cudaGetErrorString(code));
}

template <class... Parameters, class... Arguments>
static enum err launch_dependent(const char *name, struct error *error, cudaStream_t stream,
                                 dim3 grid, dim3 block, size_t shared_bytes,
                                 void (*kernel)(Parameters...), Arguments... arguments) {
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = code_can_wait((const void *)kernel) ? 1 : 0;
    return launch_with(name, error, &config, kernel, arguments...);
}
