/* SPDX-License-Identifier: Apache-2.0 */
#include "backup/open_files.h"

#include "base/mem.h"
#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOKS_MAX 10

/* The file of that path from place `from` on, or NULL. */
static const struct open_file *find(const struct open_files *held, const char *path, size_t from) {
    for (size_t i = from; i < held->count; i++)
        if (strcmp(held->files[i].path, path) == 0) return &held->files[i];
    return NULL;
}

/* Holds a file of the state directory open. One that is gone already is of a batch that has ended.
 */
static enum err hold(struct open_files *held, const char *batch_id, const char *path, size_t from,
                     struct error *error) {
    struct open_file file = {.fd = -1};
    if (find(held, path, from)) return OK;
    snprintf(file.path, sizeof file.path, "%s", path);
    snprintf(file.batch_id, sizeof file.batch_id, "%s", batch_id);
    enum err err = backup_state_open(held->state_dir, path, &file.fd, error);
    if (err != OK) return err == ERR_NOT_FOUND ? OK : err;
    held->files = vec_grow(held->files, held->count, &held->capacity, sizeof *held->files);
    held->files[held->count++] = file;
    return OK;
}

static enum err hold_log_file(struct open_files *held, const char *batch_id, const char *name,
                              size_t from, struct error *error) {
    char path[BACKUP_PATH_BYTES];
    int bytes = snprintf(path, sizeof path, "batches/%s/%s", batch_id, name);
    if (bytes < 0 || (size_t)bytes >= sizeof path || !backup_path_is_sane(str_from(path)) ||
        store_order_is_name(str_from(name)))
        return OK;
    return hold(held, batch_id, path, from, error);
}

static int compare_paths(const void *a, const void *b) {
    return strcmp(((const struct open_file *)a)->path, ((const struct open_file *)b)->path);
}

/* Sorts the files of a batch, from `from` on, and marks its last segment. True if the segments have
 * no gap. */
static bool order_log(struct open_files *held, size_t from) {
    struct open_file *last = NULL;
    unsigned highest = 0, count = 0;
    if (held->count > from)
        qsort(held->files + from, held->count - from, sizeof *held->files, compare_paths);
    for (size_t i = from; i < held->count; i++) {
        struct open_file *file = &held->files[i];
        file->grows = false;
        if (sscanf(strrchr(file->path, '/'), "/seg-%6u.log", &highest) != 1) continue;
        count++;
        last = file;
    }
    if (last) last->grows = true;
    return count == highest;
}

/* Opens what a batch needs that has not ended. A folder to which segments are added may be read
 * with a gap, so one with a gap is read again. */
static enum err hold_batch(void *context, const struct snapshot_batch *batch, struct error *error) {
    struct open_files *held = context;
    char path[BACKUP_FILE_BYTES], input[BACKUP_PATH_BYTES];
    size_t from = held->count;
    if (batch->is_finished) return OK;
    int bytes = snprintf(path, sizeof path, "%s/batches/%s", held->state_dir, batch->id);
    if (bytes < 0 || (size_t)bytes >= sizeof path)
        return err_set(error, ERR_INVALID, "the state directory's name is too long");
    enum err err = OK;
    for (int look = 0; look < LOOKS_MAX && err == OK; look++) {
        DIR *dir = os_opendir(path);
        if (!dir && errno != ENOENT) return err_from_errno(error, errno, "cannot read %s", path);
        for (struct dirent *entry; dir && err == OK && (entry = readdir(dir));)
            err = hold_log_file(held, batch->id, entry->d_name, from, error);
        if (dir) closedir(dir);
        if (order_log(held, from)) break;
    }
    if (err != OK || !store_id_is_sane(str_from(batch->input_file_id))) return err;
    backup_file_path(batch->input_file_id, false, input);
    return hold(held, batch->id, input, held->count, error);
}

const struct open_file *open_files_find(const struct open_files *held, const char *path) {
    return find(held, path, 0);
}

enum err open_files_open(struct open_files *held, const char *state_dir, struct snapshot *live,
                         struct error *error) {
    held->state_dir = state_dir;
    return snapshot_each_batch(live, hold_batch, held, error);
}

void open_files_close(struct open_files *held) {
    for (size_t i = 0; i < held->count; i++) os_close(held->files[i].fd);
    free(held->files);
    *held = (struct open_files){0};
}
