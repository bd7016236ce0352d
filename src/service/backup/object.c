/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/object.h"

#include "backup/regular.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/os.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CHUNK_BYTES ((size_t)1 << 20)
#define SETTLED_S 2 /* well above the step of a file system's times */

void backup_file_path(const char *id, bool is_part, char ret_path[BACKUP_PATH_BYTES]) {
    if (is_part)
        snprintf(ret_path, BACKUP_PATH_BYTES, "parts/%s", id);
    else
        snprintf(ret_path, BACKUP_PATH_BYTES, "files/%s/%s", id + strlen(id) - 2, id);
}

enum err backup_state_open(const char *state_dir, const char *path, int *ret_fd,
                           struct error *error) {
    char file[BACKUP_FILE_BYTES];
    int bytes = snprintf(file, sizeof file, "%s/%s", state_dir, path);
    if (bytes < 0 || (size_t)bytes >= sizeof file)
        return err_set(error, ERR_INVALID, "the state directory's name is too long");
    return os_open(ret_fd, file, O_RDONLY | O_NOFOLLOW, 0, error);
}

uint64_t backup_stamp(int fd) {
    struct stat status;
    if (fstat(fd, &status) != 0) return 0;
    int64_t now_unix_s = clock_unix_s();
    if (status.st_mtim.tv_sec > now_unix_s - SETTLED_S ||
        status.st_ctim.tv_sec > now_unix_s - SETTLED_S)
        return 0;
    const uint64_t facts[] = {
        (uint64_t)status.st_dev,          (uint64_t)status.st_ino,
        (uint64_t)status.st_size,         (uint64_t)status.st_mtim.tv_sec,
        (uint64_t)status.st_mtim.tv_nsec, (uint64_t)status.st_ctim.tv_sec,
        (uint64_t)status.st_ctim.tv_nsec,
    };
    unsigned char sum[SHA256_BYTES];
    struct sha256 hash;
    uint64_t stamp;
    sha256_init(&hash);
    sha256_add(&hash, facts, sizeof facts);
    sha256_end(&hash, sum);
    memcpy(&stamp, sum, sizeof stamp);
    return stamp ? stamp : 1;
}

/* Adds the bytes from `from` to `to` of a file to the sum, and writes them to the same place of
 * `to_fd` unless it is -1. */
static enum err pass(int fd, uint64_t from, uint64_t to, struct sha256 *hash, int to_fd,
                     struct error *error) {
    char *chunk = mem_alloc(CHUNK_BYTES);
    enum err err = OK;
    for (uint64_t at = from; at < to && err == OK;) {
        size_t count = to - at < CHUNK_BYTES ? (size_t)(to - at) : CHUNK_BYTES;
        err = os_pread_all(fd, chunk, count, at, error);
        if (err != OK) break;
        sha256_add(hash, chunk, count);
        if (to_fd >= 0) err = os_pwrite_all(to_fd, chunk, count, at, error);
        at += count;
    }
    free(chunk);
    return err;
}

static void end_sum(const struct sha256 *hash, unsigned char ret_sum[SHA256_BYTES]) {
    struct sha256 copy = *hash;
    sha256_end(&copy, ret_sum);
}

bool backup_object_is_there(const struct backup_folder *folder,
                            const struct backup_object *object) {
    char file[BACKUP_FILE_BYTES];
    struct stat status;
    backup_object_file(folder, object->path, object->generation, file);
    return lstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
           (uint64_t)status.st_size >= object->bytes;
}

/* Writes the source's bytes from `from` on to the object's file, which has the ones before. */
static enum err append(const struct backup_folder *folder, const struct backup_source *source,
                       uint64_t from, struct sha256 *hash, const struct backup_object *object,
                       struct error *error) {
    char file[BACKUP_FILE_BYTES];
    int fd;
    bool is_new = from == 0;
    backup_object_file(folder, object->path, object->generation, file);
    enum err err = is_new ? backup_make_parents(folder->dir, file, error) : OK;
    if (err == OK)
        err = is_new ? os_create(&fd, file, 0600, error)
                     : os_open(&fd, file, O_RDWR | O_NOFOLLOW, 0, error);
    if (err != OK) return err;
    err = pass(source->fd, from, source->bytes, hash, fd, error);
    if (err == OK) err = os_fsync(fd, error);
    os_close(fd);
    if (err == OK && is_new) err = os_fsync_parent(file, error);
    return err;
}

enum err backup_object_take(const struct backup_folder *folder, const struct backup_source *source,
                            const struct backup_object *known, uint64_t generation,
                            struct backup_object *ret_object, uint64_t *copied,
                            struct error *error) {
    struct backup_object object = {
        .generation = generation, .bytes = source->bytes, .stamp = source->stamp};
    struct sha256 hash;
    unsigned char sum[SHA256_BYTES];
    uint64_t from = 0;
    enum err err = OK;
    snprintf(object.path, sizeof object.path, "%s", source->path);
    if (known && !backup_object_is_there(folder, known)) known = NULL;
    if (known && known->stamp && known->stamp == source->stamp && known->bytes == source->bytes) {
        *ret_object = *known;
        return OK;
    }
    sha256_init(&hash);
    if (known && known->bytes > 0 && known->bytes <= source->bytes) {
        err = pass(source->fd, 0, known->bytes, &hash, -1, error);
        if (err != OK) return err;
        end_sum(&hash, sum);
        if (memcmp(sum, known->sha256, sizeof sum) == 0) {
            object.generation = known->generation;
            from = known->bytes;
        } else {
            sha256_init(&hash);
        }
    }
    if (from < source->bytes || from == 0)
        err = append(folder, source, from, &hash, &object, error);
    if (err != OK) return err;
    end_sum(&hash, object.sha256);
    *copied += source->bytes - from;
    *ret_object = object;
    return OK;
}

enum err backup_object_read(const struct backup_folder *folder, const struct backup_object *object,
                            int to_fd, struct error *error) {
    char file[BACKUP_FILE_BYTES];
    unsigned char sum[SHA256_BYTES];
    struct sha256 hash;
    int fd;
    backup_object_file(folder, object->path, object->generation, file);
    enum err err = regular_open(&fd, folder->dir, file + strlen(folder->dir) + 1, error);
    if (err != OK) return err;
    sha256_init(&hash);
    err = pass(fd, 0, object->bytes, &hash, to_fd, error);
    os_close(fd);
    sha256_end(&hash, sum);
    if (err == OK && memcmp(sum, object->sha256, sizeof sum) != 0)
        err = err_set(error, ERR_CORRUPT, "its bytes are not those of the manifest");
    return err == OK ? OK : err_prefix(error, "%s", file);
}
