/* SPDX-License-Identifier: Apache-2.0 */
#include "device/device_find.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool device_find_driver(void) {
    return access("/dev/nvidiactl", F_OK) == 0 ||
           access("/proc/driver/nvidia/version", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

bool device_find_plugin(char ret_path[PATH_MAX]) {
    static const char *const places[] = {
        "../lib/quern/" DEVICE_PLUGIN_NAME, /* installed */
        "kernels/cuda/" DEVICE_PLUGIN_NAME, /* build tree */
        DEVICE_PLUGIN_NAME,                 /* a folder that was copied */
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

bool device_find_is_likely(struct str device, struct str plugin) {
    char path[PATH_MAX];
    if (str_starts_with(device, STR("cuda"))) return true;
    if (device.bytes > 0 && !str_is(device, "auto")) return false;
    return plugin.bytes > 0 || (device_find_plugin(path) && device_find_driver());
}
