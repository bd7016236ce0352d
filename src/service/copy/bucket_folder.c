/* SPDX-License-Identifier: Apache-2.0 */

/* An object is a file that is written beside its place, synced, and linked there: a link fails
 * where the name exists, also over NFS, so that of two writers one is told. */

#include "copy/bucket_internal.h"

#include "base/id.h"
#include "base/mem.h"
#include "base/os.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct folder {
    struct bucket bucket;
    char path[PATH_MAX];
};

#define FILE_BYTES (PATH_MAX + BUCKET_NAME_BYTES + 64)

static void name_file(const struct bucket *bucket, const char *name, char ret_file[FILE_BYTES]) {
    const struct folder *folder = (const struct folder *)bucket;
    snprintf(ret_file, FILE_BYTES, "%s/%s", folder->path, name);
}

static enum err folder_read(struct bucket *bucket, const char *name, struct buf *ret_bytes,
                            struct error *error) {
    char file[FILE_BYTES], *bytes;
    size_t count;
    name_file(bucket, name, file);
    enum err err =
        os_read_file(file, ret_bytes->bytes_max - ret_bytes->bytes, &bytes, &count, error);
    if (err != OK) return err;
    buf_add(ret_bytes, bytes, count);
    free(bytes);
    return OK;
}

static enum err make_parent(const char *file, struct error *error) {
    char parent[FILE_BYTES];
    snprintf(parent, sizeof parent, "%s", file);
    *strrchr(parent, '/') = '\0';
    return os_mkdirs_durable(parent, error);
}

static enum err folder_write(struct bucket *bucket, const char *name, struct str bytes,
                             bool only_new, struct error *error) {
    char file[FILE_BYTES], fresh[FILE_BYTES + 40], mark[24];
    struct error ignored;
    name_file(bucket, name, file);
    id_hex(mark, sizeof mark, "", 16);
    snprintf(fresh, sizeof fresh, "%s.new-%s", file, mark);
    enum err err = os_write_file(fresh, 0600, bytes.bytes ? bytes.at : "", bytes.bytes, error);
    if (err == ERR_NOT_FOUND) {
        err = make_parent(file, error);
        if (err == OK)
            err = os_write_file(fresh, 0600, bytes.bytes ? bytes.at : "", bytes.bytes, error);
    }
    if (err == OK) err = only_new ? os_link(fresh, file, error) : os_rename(fresh, file, error);
    if ((err != OK || only_new) && os_unlink(fresh, &ignored) != OK && err == OK) err = OK;
    return err == OK ? os_fsync_parent(file, error) : err;
}

static enum err folder_remove(struct bucket *bucket, const char *name, struct error *error) {
    char file[FILE_BYTES];
    name_file(bucket, name, file);
    return os_unlink(file, error);
}

static void folder_close(struct bucket *bucket) {
    free(bucket);
}

enum err bucket_folder_open(struct bucket **ret_bucket, const char *path, struct error *error) {
    struct folder *folder = mem_new(1, sizeof *folder);
    folder->bucket = (struct bucket){folder_read, folder_write, folder_remove, folder_close};
    size_t bytes = strlen(path);
    while (bytes > 1 && path[bytes - 1] == '/') bytes--;
    if (bytes >= sizeof folder->path - 1) {
        free(folder);
        return err_set(error, ERR_INVALID, "the name of the folder for the copy is too long");
    }
    memcpy(folder->path, path, bytes);
    *ret_bucket = &folder->bucket;
    return OK;
}
