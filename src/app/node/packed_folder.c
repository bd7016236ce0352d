/* SPDX-License-Identifier: Apache-2.0 */
#include "node/packed_folder.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES 16      /* a model's folder: the first hex digits of its path's SHA-256 */
#define FILES_MAX 4096     /* files looked at in one sweep */
#define LEFT_BEHIND_S 3600 /* age of an unfinished file whose writer must have died */

bool packed_folder_usual(char ret_path[PATH_MAX]) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache) return snprintf(ret_path, PATH_MAX, "%s/quern/packed", cache) < PATH_MAX;
    return home && *home && snprintf(ret_path, PATH_MAX, "%s/.cache/quern/packed", home) < PATH_MAX;
}

bool packed_folder_of(const char *dir, const char *model_path, char ret_path[PATH_MAX]) {
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX_BYTES];
    struct sha256 hash;
    struct error error = {0};
    if (!dir) return false;
    sha256_init(&hash);
    sha256_add(&hash, model_path, strlen(model_path));
    sha256_end(&hash, digest);
    sha256_hex(digest, hex);
    enum err err = OK;
    if (snprintf(ret_path, PATH_MAX, "%s/%.*s", dir, NAME_BYTES, hex) >= PATH_MAX)
        err = err_set(&error, ERR_INVALID, "the path is too long");
    if (err == OK) err = os_mkdirs(ret_path, &error);
    if (err == OK) return true;
    log_warn("event=no_packed_cache dir=%s error=\"%s\"", dir, error.text);
    return false;
}

static bool ends_with(const char *name, const char *end) {
    size_t bytes = strlen(name), end_bytes = strlen(end);
    return bytes > end_bytes && strcmp(name + bytes - end_bytes, end) == 0;
}

bool packed_folder_has(const char *path) {
    DIR *folder = opendir(path);
    bool found = false;
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        found = found || ends_with(entry->d_name, ".packed");
    if (folder) closedir(folder);
    return found;
}

struct packed_file {
    char *path;
    uint64_t bytes;
    int64_t used_s; /* Unix seconds of the last write or read */
};

struct sweep {
    struct packed_file files[FILES_MAX];
    size_t count;
    uint64_t bytes;
};

static bool is_model_folder(const char *name) {
    return strlen(name) == NAME_BYTES && strspn(name, "0123456789abcdef") == NAME_BYTES;
}

static void look_at_file(struct sweep *sweep, const char *path) {
    struct stat file;
    struct error error;
    if (lstat(path, &file) != 0 || !S_ISREG(file.st_mode)) return;
    if (ends_with(path, ".tmp")) {
        if (file.st_mtim.tv_sec + LEFT_BEHIND_S < clock_unix_s() && os_unlink(path, &error) != OK)
            log_warn("event=packed_sweep error=\"%s\"", error.text);
        return;
    }
    if (!ends_with(path, ".packed") || sweep->count == FILES_MAX) return;
    struct packed_file *found = &sweep->files[sweep->count++];
    found->path = mem_text(path);
    found->bytes = (uint64_t)file.st_size;
    found->used_s =
        file.st_atim.tv_sec > file.st_mtim.tv_sec ? file.st_atim.tv_sec : file.st_mtim.tv_sec;
    sweep->bytes += found->bytes;
}

static void look_at_folder(struct sweep *sweep, const char *path) {
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        char file[PATH_MAX];
        if (snprintf(file, sizeof file, "%s/%s", path, entry->d_name) < (int)sizeof file)
            look_at_file(sweep, file);
    }
    if (folder) closedir(folder);
}

static int compare_use(const void *a, const void *b) {
    const struct packed_file *left = a, *right = b;
    return (left->used_s > right->used_s) - (left->used_s < right->used_s);
}

void packed_folder_sweep(const char *dir, uint64_t bytes_max) {
    struct sweep *sweep = mem_new(1, sizeof *sweep);
    DIR *folder = opendir(dir);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[PATH_MAX];
        if (is_model_folder(entry->d_name) &&
            snprintf(path, sizeof path, "%s/%s", dir, entry->d_name) < (int)sizeof path)
            look_at_folder(sweep, path);
    }
    if (folder) closedir(folder);
    qsort(sweep->files, sweep->count, sizeof *sweep->files, compare_use);
    for (size_t i = 0; i < sweep->count; i++) {
        struct error error;
        if (sweep->bytes > bytes_max) {
            sweep->bytes -= sweep->files[i].bytes;
            if (os_unlink(sweep->files[i].path, &error) == OK)
                log_info("event=packed_weights_removed file=%s", sweep->files[i].path);
            else
                log_warn("event=packed_sweep error=\"%s\"", error.text);
        }
        free(sweep->files[i].path);
    }
    free(sweep);
}
