/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model_sandbox.h"

#include "base/id.h"
#include "base/mem.h"
#include "base/no_memory.h"
#include "base/str.h"
#include "checkpoint/gguf_split.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PATHS_MAX 1024 /* the largest models have about 200 files */
_Static_assert(PATHS_MAX > GGUF_PARTS_MAX, "room for all parts of a model");

struct paths {
    struct sandbox_path at[PATHS_MAX];
    size_t count;
};

/* Takes over `path`. */
static void add(struct paths *paths, char *path, bool is_writable) {
    if (paths->count < PATHS_MAX)
        paths->at[paths->count++] = (struct sandbox_path){.path = path, .is_writable = is_writable};
    else
        free(path);
}

/* True if a link may be followed. The folder's author made its links, and one named like a template
 * may lead to a key. But a file that every user may read is no secret, weights are read as numbers,
 * and the hub's cache keeps all its files in one place. */
static bool is_followed(int folder_fd, const char *name) {
    char to[512];
    ssize_t bytes = readlinkat(folder_fd, name, to, sizeof to);
    if (bytes < 0) return false;
    struct str target = {to, (size_t)bytes};
    size_t ups = 0;
    for (; str_starts_with(target, STR("../")); ups++) target = str_skip(target, 3);
    bool is_blob = (ups == 2 || ups == 3) && str_starts_with(target, STR("blobs/")) &&
                   str_find_byte(target, '/', sizeof "blobs/" - 1) == SIZE_MAX;
    if (is_blob || str_ends_with(str_from(name), STR(".safetensors"))) return true;
    struct stat file;
    return fstatat(folder_fd, name, &file, 0) == 0 && S_ISREG(file.st_mode) &&
           (file.st_mode & S_IROTH);
}

/* Adds the targets of links in the folder and in its subfolders: encoders have a 1_Pooling. */
static void add_links(struct paths *paths, const char *folder, bool has_inner) {
    DIR *directory = opendir(folder);
    if (!directory) return;
    for (const struct dirent *at; (at = readdir(directory));) {
        char *path;
        if (asprintf(&path, "%s/%s", folder, at->d_name) < 0) no_memory();
        if (is_followed(dirfd(directory), at->d_name)) {
            add(paths, path, false);
            continue;
        }
        if (has_inner && at->d_type == DT_DIR && at->d_name[0] != '.')
            add_links(paths, path, false);
        free(path);
    }
    closedir(directory);
}

/* Adds the other parts of a model in several files, whose first part is `path`. */
static void add_parts(struct paths *paths, const char *path) {
    struct gguf_part_name name;
    char other[PATH_MAX];
    if (!gguf_part_name(path, &name)) return;
    for (unsigned i = 1; i <= name.parts && i <= GGUF_PARTS_MAX; i++)
        if (i != name.part && gguf_part_path(path, &name, i, other))
            add(paths, mem_text(other), false);
}

/* Adds the nodes under /dev that the driver has open: it maps memory by opening them again. */
static void add_nodes(struct paths *paths) {
    DIR *directory = opendir("/proc/self/fd");
    if (!directory) return;
    for (const struct dirent *at; (at = readdir(directory));) {
        char to[256];
        struct stat file;
        ssize_t bytes = readlinkat(dirfd(directory), at->d_name, to, sizeof to - 1);
        if (bytes <= 0) continue;
        to[bytes] = '\0';
        if (strncmp(to, "/dev/", 5) != 0 || stat(to, &file) != 0 || !S_ISCHR(file.st_mode))
            continue;
        bool is_known = false;
        for (size_t i = 0; i < paths->count && !is_known; i++)
            is_known = strcmp(paths->at[i].path, to) == 0;
        if (is_known) continue;
        add(paths, mem_text(to), false);
        paths->at[paths->count - 1].is_device = true;
    }
    closedir(directory);
}

/* Uses libraries once that open a file at their first use, and otherwise fall back to less. */
static void open_what_stays(void) {
    tzset();
    json_object_seed(0);
    (void)id_u64();
}

static void add_model(struct paths *paths, const char *path) {
    add(paths, mem_text(path), false);
    add_parts(paths, path);
    add_links(paths, path, true);
}

void model_sandbox_enter(const struct model_sandbox *wanted, struct sandbox_state *ret_state) {
    struct paths paths = {.count = 0};
    open_what_stays();
    if (wanted->has_device) add_nodes(&paths);
    add_model(&paths, wanted->model_path);
    if (wanted->draft_path) add_model(&paths, wanted->draft_path);
    if (wanted->input_path) add(&paths, mem_text(wanted->input_path), false);
    if (wanted->cache_dir) add(&paths, mem_text(wanted->cache_dir), true);
    sandbox_enter(wanted->has_device ? SANDBOX_DEVICE : SANDBOX_FILES, paths.at, paths.count,
                  ret_state);
    for (size_t i = 0; i < paths.count; i++) free((char *)(uintptr_t)paths.at[i].path);
}

void model_sandbox_enter_for(const char *model_path) {
    struct sandbox_state ignored;
    model_sandbox_enter(&(struct model_sandbox){.model_path = model_path}, &ignored);
}
