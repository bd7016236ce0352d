/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/cuda/products_load.h"

#include "gpu/cuda/products_places.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>

static void *load(const char *folder, const char *name) {
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s%s", folder, name);
    return length > 0 && length < PATH_MAX ? dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)
                                           : NULL;
}

enum err products_load(void **ret_library, const char *path, const char *const *folders,
                       size_t folder_count, struct error *error) {
    static const char *const names[] = {PRODUCTS_NAMES};
    void *library = path ? load("", path) : NULL;
    for (size_t name = 0; !path && name < sizeof names / sizeof *names; name++)
        for (size_t folder = 0; folder < folder_count && !library; folder++)
            library = load(folders[folder], names[name]);
    *ret_library = library;
    if (library) return OK;
    if (path) return err_set(error, ERR_UNAVAILABLE, "cuBLASLt: %s", dlerror());
    return err_set(error, ERR_UNAVAILABLE,
                   "libcublasLt.so cannot be loaded: install cuBLAS of CUDA 13 or 12 (NVIDIA's "
                   "packages libcublas-13-0, libcublas-12-9), put libcublasLt.so.13 next to the "
                   "plugin, or run with --device cpu");
}
