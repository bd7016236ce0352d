/* SPDX-License-Identifier: Apache-2.0 */

/* The free memory of a GPU that is not open, by NVML, which comes with the driver: the runtime
 * tells it of an open GPU only. */

#include "gpu/cuda/plugin_internal.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <string.h>

#define ID_BYTES 32
#define SPARE_BYTES (128 * MIB) /* contexts are not all of the usual size */

/* As nvml.h declares them: 0 is success. */
struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml {
    int (*start)(void);
    int (*stop)(void);
    int (*by_bus)(const char *id, void **ret_card);
    int (*memory)(void *card, struct nvml_memory *ret_memory);
};

/* ISO C has no conversion from an object's address to a function's. */
static bool find(void *library, const char *name, void *ret_function, size_t bytes) {
    void *symbol = dlsym(library, name);
    memcpy(ret_function, &symbol, bytes);
    return symbol;
}

static bool load(struct nvml *ret_nvml) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return library && find(library, "nvmlInit_v2", &ret_nvml->start, sizeof ret_nvml->start) &&
           find(library, "nvmlShutdown", &ret_nvml->stop, sizeof ret_nvml->stop) &&
           find(library, "nvmlDeviceGetHandleByPciBusId_v2", &ret_nvml->by_bus,
                sizeof ret_nvml->by_bus) &&
           find(library, "nvmlDeviceGetMemoryInfo", &ret_nvml->memory, sizeof ret_nvml->memory);
}

bool free_bytes_told(int index, uint64_t *ret_bytes) {
    char id[ID_BYTES] = "";
    struct nvml nvml;
    struct nvml_memory memory = {0};
    void *card = NULL;
    if (cudaDeviceGetPCIBusId(id, sizeof id, index) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    if (!load(&nvml) || nvml.start() != 0) return false;
    bool is_known = nvml.by_bus(id, &card) == 0 && nvml.memory(card, &memory) == 0;
    (void)nvml.stop();
    *ret_bytes = memory.free;
    return is_known;
}

uint64_t free_bytes_of(int index, uint64_t total) {
    uint64_t told;
    if (!free_bytes_told(index, &told)) return total;
    uint64_t free_bytes = told > SPARE_BYTES ? told - SPARE_BYTES : 0;
    return free_bytes < total ? free_bytes : total;
}
