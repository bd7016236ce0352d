/* SPDX-License-Identifier: Apache-2.0 */

/* An object is a file that is written beside its place, synced, and linked there: a link fails
 * where the name exists, also over NFS, so that of two writers one is told. */

#include "copy/bucket_internal.h"

#include "base/id.h"
#include "base/mem.h"
#include "base/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct folder {
    struct bucket bucket;
    char path[PATH_MAX];
    char mark[17]; /* that unfinished files of this process have */
    atomic_ullong files;
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
    struct folder *folder = (struct folder *)bucket;
    char file[FILE_BYTES], fresh[FILE_BYTES + 60];
    struct error ignored;
    name_file(bucket, name, file);
    snprintf(fresh, sizeof fresh, "%s" BUCKET_UNFINISHED "%s-%llu", file, folder->mark,
             atomic_fetch_add(&folder->files, 1));
    enum err err = os_write_file(fresh, 0600, bytes.bytes ? bytes.at : "", bytes.bytes, error);
    if (err == ERR_NOT_FOUND) {
        err = make_parent(file, error);
        if (err == OK)
            err = os_write_file(fresh, 0600, bytes.bytes ? bytes.at : "", bytes.bytes, error);
    }
    if (err == OK) {
        err = only_new ? os_link(fresh, file, error) : os_rename(fresh, file, error);
        /* Another server took it for one that a kill left. */
        if (err == ERR_NOT_FOUND) err = err_set(error, ERR_UNAVAILABLE, "%s was removed", fresh);
    }
    if ((err != OK || only_new) && os_unlink(fresh, &ignored) != OK && err == OK) err = OK;
    return err == OK ? os_fsync_parent(file, error) : err;
}

static enum err folder_remove(struct bucket *bucket, const char *name, struct error *error) {
    char file[FILE_BYTES];
    name_file(bucket, name, file);
    return os_unlink(file, error);
}

struct listing {
    const struct folder *folder;
    bucket_name_fn each;
    void *context;
    const char *mark; /* in the names of this process's unfinished files */
};

/* Tells the names in a folder below the copy's, and with `is_deep` those in its folders. */
static enum err list_names(const struct listing *listing, const char *below, bool is_deep,
                           struct error *error) {
    char path[FILE_BYTES], name[FILE_BYTES];
    snprintf(path, sizeof path, "%s/%s", listing->folder->path, below);
    DIR *dir = os_opendir(path);
    if (!dir && errno == ENOENT) return OK;
    if (!dir) return err_from_errno(error, errno, "cannot read %s", path);
    enum err err = OK;
    for (struct dirent *entry; err == OK && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.') continue;
        int bytes = snprintf(name, sizeof name, "%s/%s", below, entry->d_name);
        if (bytes >= BUCKET_NAME_BYTES || strstr(entry->d_name, listing->mark)) continue;
        if (is_deep && entry->d_type == DT_DIR)
            err = list_names(listing, name, false, error);
        else
            listing->each(listing->context, name);
    }
    closedir(dir);
    return err;
}

/* All of it is one page. */
static enum err folder_list(struct bucket *bucket, const char *name, bucket_name_fn each,
                            void *context, char *token, struct error *error) {
    const struct folder *folder = (const struct folder *)bucket;
    char mark[sizeof BUCKET_UNFINISHED + sizeof folder->mark];
    const struct listing listing = {folder, each, context, mark};
    snprintf(mark, sizeof mark, BUCKET_UNFINISHED "%s", folder->mark);
    token[0] = '\0';
    return list_names(&listing, name, true, error);
}

static void folder_close(struct bucket *bucket) {
    free(bucket);
}

enum err bucket_folder_open(struct bucket **ret_bucket, const char *path, struct error *error) {
    struct folder *folder = mem_new(1, sizeof *folder);
    folder->bucket =
        (struct bucket){folder_read, folder_write, folder_remove, folder_list, folder_close};
    id_hex(folder->mark, sizeof folder->mark, "", sizeof folder->mark - 1);
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
