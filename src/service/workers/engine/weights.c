/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/engine/weights.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/os.h"
#include "base/str.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define HEAD_BYTES ((size_t)256 << 10)
#define SAMPLE_BYTES ((size_t)4 << 10)
#define SAMPLES 64
#define FILES_MAX 4096

static bool add_piece(struct sha256 *hash, int fd, char *piece, size_t bytes, uint64_t at) {
    struct error error;
    if (os_pread_all(fd, piece, bytes, at, &error) != OK) return false;
    sha256_add(hash, piece, bytes);
    return true;
}

static bool add_samples(struct sha256 *hash, int fd, uint64_t size) {
    char *piece = mem_alloc(HEAD_BYTES);
    size_t head = size < HEAD_BYTES ? (size_t)size : HEAD_BYTES;
    bool is_good = add_piece(hash, fd, piece, head, 0);
    uint64_t rest = size - head;
    for (uint64_t i = 1; i <= SAMPLES && rest > SAMPLE_BYTES && is_good; i++)
        is_good =
            add_piece(hash, fd, piece, SAMPLE_BYTES, head + (rest - SAMPLE_BYTES) / SAMPLES * i);
    if (rest > 0 && rest <= SAMPLE_BYTES && is_good)
        is_good = add_piece(hash, fd, piece, (size_t)rest, head);
    free(piece);
    return is_good;
}

static bool add_file(struct sha256 *hash, const char *path) {
    struct error error;
    struct stat is;
    int fd;
    if (os_open(&fd, path, O_RDONLY, 0, &error) != OK) return false;
    bool is_good = fstat(fd, &is) == 0 && S_ISREG(is.st_mode) && is.st_size >= 0;
    if (is_good) {
        uint64_t size = (uint64_t)is.st_size;
        sha256_add(hash, &size, sizeof size);
        is_good = add_samples(hash, fd, size);
    }
    os_close(fd);
    return is_good;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names of the folder's weights, sorted. The caller frees them. */
static char **list_files(const char *path, size_t *ret_count) {
    DIR *dir = os_opendir(path);
    char **names = NULL;
    size_t capacity = 0;
    *ret_count = 0;
    for (struct dirent *entry; dir && *ret_count < FILES_MAX && (entry = readdir(dir));) {
        if (!str_ends_with(str_from(entry->d_name), STR(".safetensors"))) continue;
        if (*ret_count == capacity) names = vec_grow(names, *ret_count, &capacity, sizeof *names);
        names[(*ret_count)++] = mem_text(entry->d_name);
    }
    if (dir) closedir(dir);
    if (*ret_count > 1) qsort(names, *ret_count, sizeof *names, by_name);
    return names;
}

static bool add_folder(struct sha256 *hash, const char *path) {
    size_t count;
    char **names = list_files(path, &count);
    bool is_good = count > 0;
    for (size_t i = 0; i < count; i++) {
        char file[PATH_MAX];
        int bytes = snprintf(file, sizeof file, "%s/%s", path, names[i]);
        is_good = is_good && bytes > 0 && (size_t)bytes < sizeof file;
        sha256_add(hash, names[i], strlen(names[i]) + 1);
        is_good = is_good && add_file(hash, file);
        free(names[i]);
    }
    free(names);
    return is_good;
}

bool weights_mark(const char *path, unsigned char ret_mark[WEIGHTS_MARK_BYTES]) {
    struct sha256 hash;
    struct stat is;
    unsigned char mark[WEIGHTS_MARK_BYTES];
    sha256_init(&hash);
    bool is_good = stat(path, &is) == 0 &&
                   (S_ISDIR(is.st_mode) ? add_folder(&hash, path) : add_file(&hash, path));
    sha256_end(&hash, mark);
    if (is_good) memcpy(ret_mark, mark, sizeof mark);
    return is_good;
}
