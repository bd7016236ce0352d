/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* modules: the code of all kernels, made ready for the GPU.
 *
 * Each .cu with kernels is a module: code for the kinds of GPUs that the plugin was built for, and
 * PTX. For any other GPU the driver compiles the PTX at the first kernel of the module and keeps
 * the code in a cache on disk (CUDA_CACHE_PATH). A process in its sandbox can neither open the
 * compiler's library nor write to that cache. So all modules are loaded before.
 *
 * It does not know what the kernels do.
 *
 * Thread: the one that opens the GPU, which has a context.
 * Memory: the driver's.
 * Invariant: when they are loaded, no kernel needs the compiler any more. */

#ifdef __cplusplus
extern "C" {
#endif

#include <stdbool.h>

/* In each .cu: names the module and one of its kernels. */
#define CUDA_MODULE(name, ...)                                                                     \
    extern "C" const void *cuda_module_##name(void) {                                              \
        return (const void *)(__VA_ARGS__);                                                        \
    }

/* Loads the modules that have no code for the open GPU. *ret_is_compiled: there are such. Returns
 * a cudaError_t: cudaSuccess, or why there is no code and the driver can make none. */
int cuda_modules_load(bool *ret_is_compiled);

#ifdef __cplusplus
}
#endif
