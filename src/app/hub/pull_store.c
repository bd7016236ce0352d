/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/pull_store.h"

#include "base/id.h"
#include "base/os.h"
#include "hub/catalog_path.h"
#include "hub/hub_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static enum err join(char ret_path[PATH_MAX], struct error *error, const char *format, ...)
    PRINTF_LIKE(3, 4);

static enum err join(char ret_path[PATH_MAX], struct error *error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(ret_path, PATH_MAX, format, arguments);
    va_end(arguments);
    if (bytes < 0 || bytes >= PATH_MAX)
        return err_set(error, ERR_LIMIT, "a path in the cache is too long");
    return OK;
}

/* Makes the folders above a path. */
static enum err make_above(const char *path, struct error *error) {
    char above[PATH_MAX];
    snprintf(above, sizeof above, "%s", path);
    char *slash = strrchr(above, '/');
    if (!slash || slash == above) return OK;
    *slash = '\0';
    return os_mkdirs_shared(above, error);
}

enum err pull_store_open(struct pull_store *ret_store, const char *cache, const char *repository,
                         struct error *error) {
    struct pull_store store;
    char name[CATALOG_FOLDER_BYTES], path[PATH_MAX];
    catalog_hub_folder_name(repository, name);
    enum err err = os_mkdirs_shared(cache, error);
    if (err == OK && !catalog_root(cache, store.root))
        err = err_set(error, ERR_IO, "%.300s is no folder", cache);
    if (err == OK) err = join(store.folder, error, "%s/%s", store.root, name);
    if (err == OK) err = join(store.locks, error, "%s/.locks/%s", store.root, name);
    if (err == OK) err = join(path, error, "%s/blobs", store.folder);
    if (err == OK) err = os_mkdirs_shared(path, error);
    if (err == OK) err = join(path, error, "%s/snapshots", store.folder);
    if (err == OK) err = os_mkdirs_shared(path, error);
    if (err == OK) err = os_mkdirs_shared(store.locks, error);
    if (err == OK) *ret_store = store;
    return err;
}

/* Whether the lock's file still has its name: a lock on an unlinked file guards nothing. */
static bool is_linked(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 && status.st_nlink > 0;
}

enum err pull_store_lock(const struct pull_store *store, const char *digest, int *ret_fd,
                         struct error *error) {
    char path[PATH_MAX];
    enum err err = join(path, error, "%s/%s.lock", store->locks, digest);
    *ret_fd = -1;
    for (int tries = 0; err == OK && tries < 8; tries++) {
        int fd;
        err = os_open(&fd, path, O_RDWR | O_CREAT | O_NOFOLLOW, 0664, error);
        if (err != OK) break;
        int failed = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        if (failed == EWOULDBLOCK || failed == EINTR) {
            os_close(fd);
            break;
        }
        if (failed != 0 || is_linked(fd)) {
            *ret_fd = fd;
            break;
        }
        os_close(fd);
    }
    return err;
}

enum err pull_store_blob_path(const struct pull_store *store, const char *digest,
                              char ret_path[PATH_MAX], struct error *error) {
    return join(ret_path, error, "%s/blobs/%s", store->folder, digest);
}

bool pull_store_has(const struct pull_store *store, const char *digest, uint64_t bytes) {
    char path[PATH_MAX], real[PATH_MAX];
    struct error error;
    uint64_t there;
    return pull_store_blob_path(store, digest, path, &error) == OK &&
           catalog_inside(store->root, path, false, real, &there) && there == bytes;
}

/* Makes a link, by rename: where an old link stands, no moment is without one. */
static enum err replace_link(const char *target, const char *path, struct error *error) {
    char now[PATH_MAX], fresh[PATH_MAX], suffix[16];
    ssize_t bytes = readlink(path, now, sizeof now - 1);
    if (bytes >= 0) {
        now[bytes] = '\0';
        if (strcmp(now, target) == 0) return OK;
    }
    id_hex(suffix, sizeof suffix, ".", 8);
    enum err err = join(fresh, error, "%s%s.tmp", path, suffix);
    if (err != OK) return err;
    if (symlink(target, fresh) != 0)
        return err_from_errno(error, errno, "cannot make the link %.300s", path);
    err = os_rename(fresh, path, error);
    if (err != OK) unlink(fresh);
    return err;
}

enum err pull_store_link(const struct pull_store *store, const char *commit, const char *path,
                         const char *digest, struct error *error) {
    char link[PATH_MAX], target[PATH_MAX] = "../../";
    size_t bytes = strlen(target);
    for (const char *c = path; *c; c++)
        if (*c == '/') bytes += (size_t)snprintf(target + bytes, sizeof target - bytes, "../");
    snprintf(target + bytes, sizeof target - bytes, "blobs/%s", digest);
    enum err err = join(link, error, "%s/snapshots/%s/%s", store->folder, commit, path);
    if (err == OK) err = make_above(link, error);
    if (err == OK) err = replace_link(target, link, error);
    return err;
}

/* Whether a reference names this commit already: then a read-only cache is good enough. */
static bool says(const char *path, const char *commit) {
    struct error error;
    char *text;
    size_t bytes;
    if (os_read_file(path, 256, &text, &bytes, &error) != OK) return false;
    bool is_it = str_is(str_trim((struct str){text, bytes}), commit);
    free(text);
    return is_it;
}

enum err pull_store_refer(const struct pull_store *store, const char *revision, const char *commit,
                          struct error *error) {
    char path[PATH_MAX], fresh[PATH_MAX], suffix[16];
    int fd;
    id_hex(suffix, sizeof suffix, ".", 8);
    enum err err = join(path, error, "%s/refs/%s", store->folder, revision);
    if (err == OK && says(path, commit)) return OK;
    if (err == OK) err = join(fresh, error, "%s%s.tmp", path, suffix);
    if (err == OK) err = make_above(path, error);
    if (err == OK) err = os_open(&fd, fresh, O_WRONLY | O_CREAT | O_EXCL, 0666, error);
    if (err != OK) return err;
    err = os_write_all(fd, commit, strlen(commit), error);
    if (err == OK) err = os_fsync(fd, error);
    os_close(fd);
    if (err == OK) err = os_rename(fresh, path, error);
    if (err != OK) unlink(fresh);
    return err;
}

enum err pull_store_snapshot(const struct pull_store *store, const char *commit,
                             char ret_path[PATH_MAX], struct error *error) {
    return join(ret_path, error, "%s/snapshots/%s", store->folder, commit);
}
