/* SPDX-License-Identifier: Apache-2.0 */

/* The plugin's code for the GPU, and the driver's compiler, which must be mapped to be run. */

#include "host_faults.h"
#include "host_kernels.h"

#include "cuda_runtime_api.h"
#include "gpu/cuda/modules.h"

#include <sys/mman.h>

#define LIBRARY_BYTES 4096

static bool is_compiled;

int cuda_modules_load(bool *ret_is_compiled) {
    *ret_is_compiled = false;
    if (host_machine_is("no-code")) return cudaErrorNoKernelImageForDevice;
    if (!host_machine_is("ptx")) return cudaSuccess;
    void *library =
        mmap(NULL, LIBRARY_BYTES, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (library == MAP_FAILED) return cudaErrorJitCompilerNotFound;
    (void)munmap(library, LIBRARY_BYTES);
    *ret_is_compiled = is_compiled = true;
    return cudaSuccess;
}

bool host_has_code(void) {
    bool ignored;
    return is_compiled || cuda_modules_load(&ignored) == cudaSuccess;
}
