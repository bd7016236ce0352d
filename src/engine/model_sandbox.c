/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model_sandbox.h"

#include "base/id.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PATHS_MAX 1024 /* the largest models come in some two hundred files */

/* What a device's driver opens after the sandbox is on: "/dev/nvidiactl", "/sys/devices", …, and
 * the folders of its libraries. The CPU needs none; seccomp (base/sandbox.c) would have to let
 * ioctl pass as well. */
static const char *const device_paths[] = {NULL};

struct paths {
    struct sandbox_path at[PATHS_MAX];
    size_t count;
};

/* Takes over `path`. */
static void add(struct paths *paths, char *path, bool is_writable) {
    if (path && paths->count < PATHS_MAX)
        paths->at[paths->count++] = (struct sandbox_path){path, is_writable};
    else
        free(path);
}

static void add_links(struct paths *paths, const char *folder) {
    DIR *directory = opendir(folder);
    if (!directory) return;
    for (const struct dirent *at; (at = readdir(directory));) {
        char *path;
        if (at->d_type != DT_LNK) continue;
        if (asprintf(&path, "%s/%s", folder, at->d_name) < 0) abort();
        add(paths, path, false);
    }
    closedir(directory);
}

/* Libraries that open a file when they are first used, or else make do with less. */
static void open_what_stays(void) {
    tzset();
    json_object_seed(0);
    (void)id_u64();
}

void model_sandbox_enter(const struct model_sandbox *wanted, struct sandbox_state *ret_state) {
    struct paths paths = {.count = 0};
    open_what_stays();
    add(&paths, strdup(wanted->model_path), false);
    add_links(&paths, wanted->model_path);
    if (wanted->cache_dir) add(&paths, strdup(wanted->cache_dir), true);
    for (size_t i = 0; device_paths[i]; i++) add(&paths, strdup(device_paths[i]), true);
    sandbox_enter(paths.at, paths.count, ret_state);
    for (size_t i = 0; i < paths.count; i++) free((char *)(uintptr_t)paths.at[i].path);
}

void model_sandbox_enter_for(const char *model_path) {
    struct sandbox_state ignored;
    model_sandbox_enter(&(struct model_sandbox){.model_path = model_path}, &ignored);
}
