/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/catalog_path.h"

#include "checkpoint/gguf_split.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PART_BYTES_MAX 128

bool catalog_is_part(struct str name) {
    if (name.bytes == 0 || name.bytes > PART_BYTES_MAX || name.at[0] == '.') return false;
    for (size_t i = 0; i < name.bytes; i++) {
        char c = name.at[i];
        bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_word && c != '-' && c != '_' && c != '.') return false;
    }
    return true;
}

bool catalog_is_hex(struct str text, size_t digits) {
    for (size_t i = 0; i < text.bytes; i++) {
        char c = text.at[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
    }
    return text.bytes == digits;
}

bool catalog_root(const char *path, char ret_root[PATH_MAX]) {
    struct stat status;
    return realpath(path, ret_root) && stat(ret_root, &status) == 0 && S_ISDIR(status.st_mode);
}

bool catalog_inside(const char *root, const char *path, bool is_folder, char ret_path[PATH_MAX],
                    uint64_t *ret_bytes) {
    char real[PATH_MAX];
    struct stat status;
    size_t bytes = strlen(root);
    if (!realpath(path, real) || strncmp(real, root, bytes) != 0 || real[bytes] != '/')
        return false;
    if (stat(real, &status) != 0) return false;
    if (is_folder ? !S_ISDIR(status.st_mode) : !S_ISREG(status.st_mode)) return false;
    memcpy(ret_path, real, strlen(real) + 1);
    if (ret_bytes) *ret_bytes = (uint64_t)status.st_size;
    return true;
}

bool catalog_is_model_path(const char *name) {
    struct stat status;
    if (strlen(name) >= PATH_MAX || stat(name, &status) != 0) return false;
    return S_ISREG(status.st_mode) || (S_ISDIR(status.st_mode) && strchr(name, '/'));
}

static int may_be_part(const struct dirent *entry) {
    return catalog_is_part(str_from(entry->d_name));
}

void catalog_each(const char *folder, void (*entry)(void *context, const char *name),
                  void *context) {
    struct dirent **entries;
    int count = scandir(folder, &entries, may_be_part, alphasort);
    if (count < 0) return;
    for (int i = 0; i < count; i++) {
        if (i < CATALOG_ENTRIES_MAX) entry(context, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

/* The sum of the sizes of a folder's .safetensors files. */
struct weighing {
    const char *folder;
    uint64_t bytes;
};

static void weigh(void *context, const char *name) {
    struct weighing *weighing = context;
    char path[PATH_MAX];
    struct stat status;
    if (!str_ends_with(str_from(name), STR(".safetensors"))) return;
    if (snprintf(path, sizeof path, "%s/%s", weighing->folder, name) < (int)sizeof path &&
        stat(path, &status) == 0 && S_ISREG(status.st_mode))
        weighing->bytes += (uint64_t)status.st_size;
}

/* The bytes of a file with those of the other parts, for the first part of a model. */
static uint64_t bytes_of_file(const char *path, uint64_t bytes) {
    struct gguf_part_name name;
    struct stat status;
    char other[PATH_MAX];
    if (!gguf_part_name(path, &name) || name.part != 1) return bytes;
    for (unsigned i = 2; i <= name.parts && i <= GGUF_PARTS_MAX; i++)
        if (gguf_part_path(path, &name, i, other) && stat(other, &status) == 0 &&
            S_ISREG(status.st_mode))
            bytes += (uint64_t)status.st_size;
    return bytes;
}

uint64_t catalog_bytes(const char *path) {
    struct stat status;
    if (stat(path, &status) != 0) return 0;
    if (!S_ISDIR(status.st_mode)) return bytes_of_file(path, (uint64_t)status.st_size);
    struct weighing weighing = {path, 0};
    catalog_each(path, weigh, &weighing);
    return weighing.bytes;
}
