/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/gpu_find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPU_FILES_MAX 64 /* /dev/nvidia0 … */

bool gpu_find_driver(void) {
    return access("/dev/nvidiactl", F_OK) == 0 ||
           access("/proc/driver/nvidia/version", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

bool gpu_find_plugin(char ret_path[PATH_MAX]) {
    static const char *const places[] = {
        "../lib/quern/" GPU_PLUGIN_NAME, /* installed */
        "gpu/cuda/" GPU_PLUGIN_NAME,     /* build tree */
        GPU_PLUGIN_NAME,                 /* a folder that was copied */
    };
    char program[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 1);
    if (bytes <= 0) return false;
    program[bytes] = '\0';
    char *slash = strrchr(program, '/');
    if (!slash) return false;
    slash[1] = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int length = snprintf(ret_path, PATH_MAX, "%s%s", program, places[i]);
        if (length > 0 && length < PATH_MAX && access(ret_path, R_OK) == 0) return true;
    }
    return false;
}

/* The driver takes the list up to its first name that is no GPU: "-1" and "" hide all. */
static unsigned count_visible(const char *visible) {
    unsigned count = 0;
    for (const char *at = visible; *at && *at != ',' && *at != '-'; at++) {
        count++;
        at += strcspn(at, ",");
        if (!*at) break;
    }
    return count;
}

unsigned gpu_find_count(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char path[32];
    unsigned count = 0;
    if (visible) return count_visible(visible);
    for (unsigned i = 0; i < GPU_FILES_MAX; i++) {
        snprintf(path, sizeof path, "/dev/nvidia%u", i);
        if (access(path, F_OK) == 0) count++;
    }
    return count;
}

bool gpu_find_is_likely(struct str gpu, struct str plugin) {
    char path[PATH_MAX];
    if (str_starts_with(gpu, STR("cuda"))) return true;
    if (gpu.bytes > 0 && !str_is(gpu, "auto")) return false;
    return plugin.bytes > 0 || (gpu_find_plugin(path) && gpu_find_driver());
}
