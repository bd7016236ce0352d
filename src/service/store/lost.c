/* SPDX-License-Identifier: Apache-2.0 */
#include "store/lost.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"
#include "store/wal_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMES_MAX 10000 /* things of one name in lost/ */
#define LOG_BYTES_MAX ((size_t)1 << 30)

static void set_mode(const char *path, mode_t mode) {
    struct stat status;
    if (lstat(path, &status) == 0 && S_ISREG(status.st_mode) && chmod(path, mode) != 0)
        log_warn("event=mode_kept path=%s error=\"%s\"", path, strerror(errno));
}

void lost_mark_known(const char *path) {
    set_mode(path, 0400);
}

enum err lost_mark_leaving(struct store *store, const char *path, struct error *error) {
    int fd;
    set_mode(path, 0600);
    enum err err = os_open(&fd, path, O_RDONLY | O_NOFOLLOW, 0, error);
    if (err != OK) return err == ERR_NOT_FOUND ? OK : err;
    err = store_sync_result(store, os_fsync(fd, error), error);
    os_close(fd);
    return err;
}

bool lost_was_known(const char *path) {
    struct stat status;
    return lstat(path, &status) == 0 && S_ISREG(status.st_mode) && !(status.st_mode & S_IWUSR);
}

/* A path in lost/, which is made, that no file has yet. */
static enum err find_name(struct store *store, const char *name, char ret_path[STORE_PATH_BYTES],
                          struct error *error) {
    char folder[STORE_PATH_BYTES];
    struct stat status;
    store_path(store, folder, "lost");
    enum err err = store_make_folder(store, folder, store->dir, error);
    for (unsigned number = 1; err == OK && number < NAMES_MAX; number++) {
        if (number == 1)
            store_path(store, ret_path, "lost/%s", name);
        else
            store_path(store, ret_path, "lost/%s.%u", name, number);
        if (lstat(ret_path, &status) != 0) return OK;
    }
    return err != OK ? err : err_set(error, ERR_LIMIT, "%s has too many of %s", folder, name);
}

enum err lost_move(struct store *store, const char *from, struct error *error) {
    char path[STORE_PATH_BYTES], to[STORE_PATH_BYTES];
    const char *slash = strrchr(from, '/');
    store_path(store, path, "%s", from);
    enum err err = find_name(store, slash ? slash + 1 : from, to, error);
    if (err == OK) err = os_rename(path, to, error);
    if (err == OK) err = store_sync_result(store, os_fsync_parent(to, error), error);
    if (err == OK)
        log_error("store=%s event=moved_to_lost from=%s to=%s; no row of meta.db names it",
                  store->dir, from, to);
    return err;
}

enum err lost_keep_log(struct store *store, struct error *error) {
    char path[STORE_PATH_BYTES], to[STORE_PATH_BYTES], *bytes;
    struct wal_found found;
    size_t count;
    store_path(store, path, "meta.db-wal");
    enum err err = wal_check(path, &found, error);
    if (err != OK || found.commits_after == 0) return err;
    err = find_name(store, "meta.db-wal", to, error);
    if (err == OK) err = os_read_file(path, LOG_BYTES_MAX, &bytes, &count, error);
    if (err != OK) return err;
    err = os_write_file(to, 0600, bytes, count, error);
    free(bytes);
    if (err == OK) err = store_sync_result(store, os_fsync_parent(to, error), error);
    if (err == OK)
        log_error("store=%s event=database_log_damaged frame=%llu kept=%s; %llu transactions after "
                  "it are dropped, unless meta.db has them already",
                  store->dir, (unsigned long long)found.bad_frame, to,
                  (unsigned long long)found.commits_after);
    return err;
}
