/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/tiled_cache.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FREE_TIMES 2     /* the disk must have room for this many files of that size */
#define CLOSE_MS 1000    /* how long closing waits for the writing */
#define CLOSE_LOOK_MS 10 /* how often it looks */
#define FOLDER_FILES_MAX 4096

struct tiled_cache {
    char dir[PATH_MAX];
    char path[PATH_MAX];
    char model_path[PATH_MAX];
    struct tiled_key stamp;
    struct tiled_key key;
    uint64_t bytes_max;
    struct tiled *file;             /* NULL: no usable file */
    struct tiled_section *sections; /* (count) sections that the file must have */
    size_t count, capacity;
    bool has_missed;
    pthread_t thread;
    bool is_storing;
    atomic_bool stop;
    atomic_bool is_stored; /* the writing has ended, also without a file */
};

/* ---- who the model is ---- */

static bool add_file(struct sha256 *hash, const char *path, bool *ret_is_folder) {
    struct stat file;
    if (stat(path, &file) != 0) return false;
    *ret_is_folder = S_ISDIR(file.st_mode);
    /* A folder's own times are left out: they change with files that are not the model's. */
    const int64_t facts[] = {(int64_t)file.st_dev, (int64_t)file.st_ino, file.st_size,
                             file.st_mtim.tv_sec,  file.st_mtim.tv_nsec, file.st_ctim.tv_sec,
                             file.st_ctim.tv_nsec};
    sha256_add(hash, facts, *ret_is_folder ? 2 * sizeof *facts : sizeof facts);
    return true;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names of the folder's entries, sorted; the caller frees. */
static size_t list_folder(const char *path, char **ret_names) {
    DIR *folder = opendir(path);
    size_t count = 0;
    if (!folder) return 0;
    for (const struct dirent *entry; count < FOLDER_FILES_MAX && (entry = readdir(folder));) {
        if (*entry->d_name == '.') continue;
        ret_names[count++] = mem_text(entry->d_name);
    }
    closedir(folder);
    qsort(ret_names, count, sizeof *ret_names, compare_names);
    return count;
}

static bool add_folder(struct sha256 *hash, const char *path) {
    char **names = mem_new(FOLDER_FILES_MAX, sizeof *names);
    size_t count = list_folder(path, names);
    bool is_ok = count > 0 && count < FOLDER_FILES_MAX;
    for (size_t i = 0; i < count; i++) {
        char file[PATH_MAX];
        bool is_folder = false;
        if (snprintf(file, sizeof file, "%s/%s", path, names[i]) >= (int)sizeof file) is_ok = false;
        is_ok = is_ok && add_file(hash, file, &is_folder);
        sha256_add(hash, names[i], strlen(names[i]) + 1);
        free(names[i]);
    }
    free(names);
    return is_ok;
}

enum err tiled_cache_stamp(const char *model_path, struct tiled_key *ret_stamp,
                           struct error *error) {
    _Static_assert(TILED_KEY_BYTES == SHA256_BYTES, "a key is a hash");
    struct sha256 hash;
    bool is_folder = false;
    sha256_init(&hash);
    if (!add_file(&hash, model_path, &is_folder) || (is_folder && !add_folder(&hash, model_path)))
        return err_set(error, ERR_IO, "cannot look at the files of the model");
    sha256_end(&hash, ret_stamp->bytes);
    return OK;
}

/* True when the files have not changed since the stamp. */
static bool is_current(const char *model_path, const struct tiled_key *stamp) {
    struct tiled_key now;
    struct error ignored;
    return tiled_cache_stamp(model_path, &now, &ignored) == OK &&
           memcmp(now.bytes, stamp->bytes, sizeof now.bytes) == 0;
}

/* ---- the file ---- */

struct tiled_cache *tiled_cache_open(const struct tiled_cache_options *options,
                                     const struct tiled_key *key, struct pool *pool) {
    if (!options || !options->dir || !*options->dir) return NULL;
    if (!is_current(options->model_path, &options->stamp)) return NULL;
    struct tiled_cache *cache = mem_new(1, sizeof *cache);
    char hex[SHA256_HEX_BYTES];
    cache->key = *key;
    cache->stamp = options->stamp;
    cache->bytes_max = options->bytes_max;
    sha256_hex(key->bytes, hex);
    if (snprintf(cache->dir, sizeof cache->dir, "%s", options->dir) >= (int)sizeof cache->dir ||
        snprintf(cache->model_path, sizeof cache->model_path, "%s", options->model_path) >=
            (int)sizeof cache->model_path ||
        snprintf(cache->path, sizeof cache->path, "%s/%.32s.packed", cache->dir, hex) >=
            (int)sizeof cache->path) {
        free(cache);
        return NULL;
    }
    struct error error;
    enum err err = tiled_open(&cache->file, cache->path, key, pool, &error);
    if (err != OK && err != ERR_NOT_FOUND)
        log_warn("event=packed_weights_unusable file=%s error=\"%s\"", cache->path, error.text);
    return cache;
}

const struct tiled_section *tiled_cache_find(const struct tiled_cache *cache, const char *name) {
    return cache && cache->file ? tiled_find(cache->file, name) : NULL;
}

void tiled_cache_add(struct tiled_cache *cache, const char *name, const void *at, size_t bytes) {
    if (!cache) return;
    const struct tiled_section *found = tiled_cache_find(cache, name);
    if (!found || found->at != at) cache->has_missed = true;
    cache->sections =
        vec_grow(cache->sections, cache->count, &cache->capacity, sizeof *cache->sections);
    struct tiled_section *section = &cache->sections[cache->count++];
    *section = (struct tiled_section){.at = at, .bytes = bytes};
    size_t length = strlen(name);
    assert(length < sizeof section->name);
    memcpy(section->name, name, length);
}

bool tiled_cache_has_all(const struct tiled_cache *cache) {
    return cache && cache->file && !cache->has_missed;
}

/* ---- writing it ---- */

static enum err check_room(const struct tiled_cache *cache, struct error *error) {
    uint64_t bytes = tiled_file_bytes(cache->sections, cache->count), room;
    if (bytes > cache->bytes_max)
        return err_set(error, ERR_LIMIT, "%llu bytes are over the limit of %llu",
                       (unsigned long long)bytes, (unsigned long long)cache->bytes_max);
    enum err err = os_free_bytes(cache->dir, &room, error);
    if (err == OK && room / FREE_TIMES < bytes)
        err = err_set(error, ERR_UNAVAILABLE, "%llu bytes are too many for the %llu that are free",
                      (unsigned long long)bytes, (unsigned long long)room);
    return err;
}

static void *store(void *context) {
    struct tiled_cache *cache = context;
    struct error error;
    enum err err = check_room(cache, &error);
    if (err == OK)
        err = tiled_write(cache->path, &cache->key, cache->sections, cache->count, &cache->stop,
                          &error);
    if (err == OK)
        log_info("event=packed_weights_kept file=%s", cache->path);
    else if (err != ERR_CANCELLED)
        log_warn("event=packed_weights_not_kept file=%s error=\"%s\"", cache->path, error.text);
    atomic_store(&cache->is_stored, true);
    return NULL;
}

void tiled_cache_store(struct tiled_cache *cache) {
    if (!cache || !cache->has_missed || cache->bytes_max == 0) return;
    if (cache->count > TILED_SECTIONS_MAX || !is_current(cache->model_path, &cache->stamp)) return;
    cache->is_storing = pthread_create(&cache->thread, NULL, store, cache) == 0;
}

static void end_storing(struct tiled_cache *cache) {
    for (int i = 0; i < CLOSE_MS / CLOSE_LOOK_MS && !atomic_load(&cache->is_stored); i++)
        clock_sleep_ms(CLOSE_LOOK_MS);
    atomic_store(&cache->stop, true);
    pthread_join(cache->thread, NULL);
}

void tiled_cache_close(struct tiled_cache *cache) {
    if (!cache) return;
    if (cache->is_storing) end_storing(cache);
    tiled_close(cache->file);
    free(cache->sections);
    free(cache);
}
