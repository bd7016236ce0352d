/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_products.h"

#include "gpu/cuda/products_places.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static bool can_load(const char *folder, const char *name, char ret_path[PATH_MAX]) {
    int length = snprintf(ret_path, PATH_MAX, "%s%s", folder, name);
    if (length <= 0 || length >= PATH_MAX) return false;
    void *handle = dlopen(ret_path, RTLD_LAZY | RTLD_LOCAL);
    if (handle) dlclose(handle);
    return handle != NULL;
}

bool gpu_products_find(const char *plugin, char ret_path[PATH_MAX]) {
    static const char *const names[] = {PRODUCTS_NAMES};
    char own[PATH_MAX];
    snprintf(own, sizeof own, "%s", plugin);
    char *slash = strrchr(own, '/');
    own[slash ? slash - own + 1 : 0] = '\0';
    const char *const folders[] = {"", own, PRODUCTS_FOLDERS};
    for (size_t name = 0; name < sizeof names / sizeof *names; name++)
        for (size_t folder = 0; folder < sizeof folders / sizeof *folders; folder++)
            if (can_load(folders[folder], names[name], ret_path)) return true;
    return false;
}
