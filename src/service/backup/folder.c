/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/folder.h"

#include "backup/regular.h"
#include "base/file_lock.h"
#include "base/mem.h"
#include "base/os.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MANIFEST_NAME_DIGITS 8 /* at least, so that names sort in the order of generations */
#define RESTORED_END ".restored"

PRINTF_LIKE(3, 4)
static void file_of(const struct backup_folder *folder, char ret_file[BACKUP_FILE_BYTES],
                    const char *format, ...) {
    int head = snprintf(ret_file, BACKUP_FILE_BYTES, "%s/", folder->dir);
    va_list arguments;
    va_start(arguments, format);
    int tail = vsnprintf(ret_file + head, (size_t)(BACKUP_FILE_BYTES - head), format, arguments);
    va_end(arguments);
    assert(tail >= 0 && head + tail < BACKUP_FILE_BYTES);
}

void backup_object_file(const struct backup_folder *folder, const char *path, uint64_t generation,
                        char ret_file[BACKUP_FILE_BYTES]) {
    file_of(folder, ret_file, "data/%s.%" PRIu64, path, generation);
}

void backup_manifest_file(const struct backup_folder *folder, uint64_t generation,
                          char ret_file[BACKUP_FILE_BYTES]) {
    file_of(folder, ret_file, "manifests/%0*" PRIu64, MANIFEST_NAME_DIGITS, generation);
}

void backup_move_file(const struct backup_folder *folder, uint64_t generation,
                      char ret_file[BACKUP_FILE_BYTES]) {
    file_of(folder, ret_file, "manifests/%0*" PRIu64 RESTORED_END, MANIFEST_NAME_DIGITS,
            generation);
}

enum err backup_make_parents(const char *dir, const char *file, struct error *error) {
    char path[BACKUP_FILE_BYTES];
    assert(strlen(file) < sizeof path && strncmp(file, dir, strlen(dir)) == 0);
    for (const char *at = file + strlen(dir) + 1; (at = strchr(at, '/')); at++) {
        memcpy(path, file, (size_t)(at - file));
        path[at - file] = '\0';
        enum err err = os_mkdirs(path, error);
        if (err == OK) err = os_fsync_parent(path, error);
        if (err != OK) return err;
    }
    return OK;
}

/* --- opening --- */

static bool is_empty(const char *dir) {
    DIR *at = os_opendir(dir);
    bool empty = true;
    if (!at) return errno == ENOENT;
    for (struct dirent *entry; empty && (entry = readdir(at));)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                strcmp(entry->d_name, "lost+found") == 0;
    closedir(at);
    return empty;
}

static enum err take_lock(struct backup_folder *folder, enum backup_folder_use use,
                          struct error *error) {
    char file[BACKUP_FILE_BYTES];
    file_of(folder, file, "LOCK");
    int flags = use == BACKUP_WRITE ? O_RDWR | O_CREAT | O_NOFOLLOW : O_RDONLY;
    enum err err = os_open(&folder->lock_fd, file, flags, 0600, error);
    if (err == ERR_NOT_FOUND)
        return err_set(error, err, "%s is no folder of backups of quern", folder->dir);
    if (err != OK) return err;
    err = file_lock(folder->lock_fd, file, use != BACKUP_WRITE, error);
    if (err != ERR_CONFLICT) return err;
    return err_set(error, ERR_CONFLICT, "another quern process is %s %s",
                   use == BACKUP_WRITE ? "using" : "making a backup in", folder->dir);
}

static int compare_numbers(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Counts a name in manifests/ that is a generation's, or a mark's. */
static void list_name(struct backup_folder *folder, size_t *capacity, struct str name) {
    struct str end = STR(RESTORED_END);
    bool is_mark = str_ends_with(name, end);
    uint64_t generation;
    if (is_mark) name.bytes -= end.bytes;
    if (!str_to_u64(name, &generation) || generation == 0 || generation > INT64_MAX ||
        name.bytes < MANIFEST_NAME_DIGITS)
        return;
    if (is_mark) {
        if (generation > folder->restored) folder->restored = generation;
        return;
    }
    folder->generations =
        vec_grow(folder->generations, folder->count, capacity, sizeof *folder->generations);
    folder->generations[folder->count++] = generation;
}

static enum err list_generations(struct backup_folder *folder, struct error *error) {
    char path[BACKUP_FILE_BYTES];
    size_t capacity = 0;
    file_of(folder, path, "manifests");
    DIR *dir = os_opendir(path);
    if (!dir) return errno == ENOENT ? OK : err_from_errno(error, errno, "cannot read %s", path);
    for (struct dirent *entry; (entry = readdir(dir));)
        list_name(folder, &capacity, str_from(entry->d_name));
    closedir(dir);
    if (folder->count > 0)
        qsort(folder->generations, folder->count, sizeof *folder->generations, compare_numbers);
    return OK;
}

static enum err read_unfinished(struct backup_folder *folder, struct error *error) {
    char file[BACKUP_FILE_BYTES], *text = NULL;
    size_t bytes = 0;
    file_of(folder, file, "unfinished");
    enum err err = regular_read(folder->dir, file, 64, &text, &bytes, error);
    if (err == ERR_NOT_FOUND) return OK;
    if (err != OK) return err;
    /* A mark that was cut off says as well that a generation was begun. */
    uint64_t newest = folder->count ? folder->generations[folder->count - 1] : 0;
    if (!str_to_u64(str_trim((struct str){text, bytes}), &folder->unfinished) ||
        folder->unfinished > INT64_MAX)
        folder->unfinished = newest + 1;
    /* A mark that outlived its generation's manifest by a kill. */
    if (folder->unfinished <= newest) folder->unfinished = 0;
    free(text);
    return OK;
}

enum err backup_folder_open(struct backup_folder *ret_folder, const char *dir,
                            enum backup_folder_use use, struct error *error) {
    struct backup_folder folder = {.lock_fd = -1};
    char lock[BACKUP_FILE_BYTES];
    struct stat status;
    size_t bytes = strlen(dir);
    while (bytes > 1 && dir[bytes - 1] == '/') bytes--;
    if (bytes == 0 || bytes >= sizeof folder.dir)
        return err_set(error, ERR_INVALID, "the backup folder's name has %zu bytes, not 1 to %zu",
                       bytes, sizeof folder.dir - 1);
    memcpy(folder.dir, dir, bytes);
    file_of(&folder, lock, "manifests");
    if (use == BACKUP_WRITE && stat(lock, &status) != 0 && !is_empty(folder.dir)) {
        file_of(&folder, lock, "LOCK");
        if (stat(lock, &status) != 0 || status.st_size != 0)
            return err_set(error, ERR_CONFLICT,
                           "%s is neither empty nor a folder of backups: name a folder of its own",
                           folder.dir);
    }
    enum err err = use == BACKUP_WRITE ? os_mkdirs_durable(folder.dir, error) : OK;
    if (err == OK) err = take_lock(&folder, use, error);
    if (err == OK && use == BACKUP_WRITE) {
        file_of(&folder, lock, "manifests/x");
        err = backup_make_parents(folder.dir, lock, error);
    }
    if (err == OK) err = list_generations(&folder, error);
    if (err == OK) err = read_unfinished(&folder, error);
    if (err == OK)
        *ret_folder = folder;
    else
        backup_folder_close(&folder);
    return err;
}

void backup_folder_close(struct backup_folder *folder) {
    free(folder->generations);
    os_close(folder->lock_fd);
    *folder = (struct backup_folder){.lock_fd = -1};
}

/* --- generations --- */

enum err backup_folder_load(const struct backup_folder *folder, uint64_t generation,
                            struct backup_manifest *ret_manifest, struct error *error) {
    char file[BACKUP_FILE_BYTES], *text = NULL;
    size_t bytes = 0;
    struct backup_manifest manifest = {0};
    backup_manifest_file(folder, generation, file);
    enum err err = regular_read(folder->dir, file, BACKUP_MANIFEST_BYTES_MAX, &text, &bytes, error);
    if (err != OK) return err;
    err = backup_manifest_read((struct str){text, bytes}, &manifest, error);
    if (err == OK && manifest.generation != generation)
        err = err_set(error, ERR_CORRUPT, "the manifest is of generation %" PRIu64,
                      manifest.generation);
    free(text);
    if (err == OK)
        *ret_manifest = manifest;
    else
        backup_manifest_release(&manifest);
    return err == OK ? OK : err_prefix(error, "%s", file);
}

enum err backup_folder_begin(struct backup_folder *folder, uint64_t generation,
                             struct error *error) {
    char file[BACKUP_FILE_BYTES], text[32];
    int bytes = snprintf(text, sizeof text, "%" PRIu64 "\n", generation);
    file_of(folder, file, "unfinished");
    enum err err = os_write_file(file, 0600, text, (size_t)bytes, error);
    if (err == OK) err = os_fsync_dir(folder->dir, error);
    if (err == OK) folder->unfinished = generation;
    return err;
}

enum err backup_folder_commit(struct backup_folder *folder, const struct backup_manifest *manifest,
                              struct error *error) {
    char file[BACKUP_FILE_BYTES], draft[BACKUP_FILE_BYTES];
    struct buf text;
    backup_manifest_file(folder, manifest->generation, file);
    file_of(folder, draft, "manifests/draft");
    buf_init(&text, BACKUP_MANIFEST_BYTES_MAX);
    backup_manifest_write(manifest, &text);
    enum err err = text.overflowed
                       ? err_set(error, ERR_LIMIT, "the state directory has too many files")
                       : os_write_file(draft, 0600, text.at, text.bytes, error);
    buf_release(&text);
    if (err == OK) err = os_rename(draft, file, error);
    if (err == OK) err = os_fsync_parent(file, error);
    if (err != OK) return err;
    folder->generations =
        mem_resize(folder->generations, folder->count + 1, sizeof *folder->generations);
    folder->generations[folder->count++] = manifest->generation;
    file_of(folder, file, "unfinished");
    err = os_unlink(file, error);
    if (err == OK) folder->unfinished = 0;
    return err;
}
