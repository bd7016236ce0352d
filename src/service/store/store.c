/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "store/erased_pages.h"
#include "store/lost.h"
#include "store/state_marks.h"
#include "store/store_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEGMENT_BYTES_MIN ((uint64_t)64 << 10)

static enum err make_layout(struct store *store, struct error *error) {
    static const char *const folders[] = {"files", "parts", "batches", "tmp"};
    /* The names in these are synced as well: one that was killed may have made them, and whoever
     * finds a name does not sync it again. */
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[STORE_PATH_BYTES];
        store_path(store, path, "%s", folders[i]);
        enum err err = os_mkdirs(path, error);
        if (err == OK) err = store_sync_result(store, os_fsync_dir(path, error), error);
        if (err != OK) return err;
    }
    return store_sync_result(store, os_fsync_dir(store->dir, error), error);
}

/* Refuses a directory in which another user could plant a link or a file, and closes one that
 * others can read. */
static enum err check_folder(const struct store *store, struct error *error) {
    struct stat status;
    if (stat(store->dir, &status) != 0)
        return err_from_errno(error, errno, "cannot look at %s", store->dir);
    unsigned mode = status.st_mode & 07777;
    if (status.st_uid != geteuid())
        return err_set(error, ERR_INVALID,
                       "the state directory %s belongs to user %u, not to user %u, who runs this: "
                       "run quern as its owner, or give it away with chown -R",
                       store->dir, (unsigned)status.st_uid, (unsigned)geteuid());
    if (mode & 022)
        return err_set(error, ERR_INVALID,
                       "others may write to the state directory %s (mode %04o): chmod 700 it",
                       store->dir, mode);
    if ((mode & 055) == 0) return OK;
    if (chmod(store->dir, 0700) != 0)
        return err_from_errno(error, errno, "cannot close %s to others", store->dir);
    log_warn("store=%s event=state_dir_closed mode=%04o now=0700", store->dir, mode);
    return OK;
}

/* Refuses names of the layout that another user has made, and a link in the place of a folder. A
 * user who could write to the directory before it was closed may have put them there, and quern
 * removes the files of its folders that it does not know. */
static enum err check_names(const struct store *store, struct error *error) {
    static const char *const names[] = {"files", "parts",   "batches",      "tmp",
                                        "cache", "dumps",   "label_studio", "lost",
                                        "LOCK",  "meta.db", "ballast",      "keys.made"};
    const size_t folder_count = 8;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[STORE_PATH_BYTES];
        struct stat status;
        store_path(store, path, "%s", names[i]);
        if (lstat(path, &status) != 0) {
            if (errno == ENOENT) continue;
            return err_from_errno(error, errno, "cannot look at %s", path);
        }
        if (i < folder_count && !S_ISDIR(status.st_mode))
            return err_set(error, ERR_INVALID, "%s is %s: move it away", path,
                           S_ISLNK(status.st_mode) ? "a link, which quern does not follow here"
                                                   : "no directory");
        if (status.st_uid != geteuid() && status.st_uid != 0)
            return err_set(error, ERR_INVALID,
                           "%s belongs to user %u, not to user %u, who runs this: who could write "
                           "to the state directory may have made it",
                           path, (unsigned)status.st_uid, (unsigned)geteuid());
    }
    return OK;
}

/* Until the lock is held, a process that ends may remove the directory at any moment. */
static enum err make_directory(const struct store *store, struct error *error) {
    enum err err = os_mkdirs_durable(store->dir, error);
    if (err != OK) return err;
    err = check_folder(store, error);
    if (err == ERR_NOT_FOUND) return state_removed(store->dir, error);
    return err == OK ? check_names(store, error) : err;
}

static enum err open_parts(struct store *store, struct error *error) {
    enum err err = store->read_only ? OK : make_directory(store, error);
    if (err == OK) err = state_lock(store->dir, store->read_only, &store->lock_fd, error);
    if (err == OK && !store->read_only) err = state_marks_check(store->dir, error);
    ballast_size(store);
    if (err == OK && !store->read_only) err = make_layout(store, error);
    if (err == OK && !store->read_only) err = lost_keep_log(store, error);
    if (err != OK) return err;
    err = database_open(store, error);
    if (err == ERR_UNAVAILABLE && !store->read_only) { /* the ballast is gone now */
        database_close(store);
        err = database_open(store, error);
    }
    if (err != OK || store->read_only) return err;
    /* The store opens on a full disk too, so that clients can fetch finished results. */
    err = ballast_make(store, error);
    if (err == ERR_UNAVAILABLE) store_disk_filled(store);
    if (err != OK && err != ERR_UNAVAILABLE) return err;
    err = store_clean(store, error);
    return err == OK ? erased_pages_open(store, error) : err;
}

enum err store_open(struct store **ret_store, const struct store_options *options,
                    struct error *error) {
    if (strlen(options->dir) == 0 || strlen(options->dir) >= STORE_DIR_BYTES_MAX)
        return err_set(error, ERR_INVALID, "the state directory's name has %zu bytes, not 1 to %d",
                       strlen(options->dir), STORE_DIR_BYTES_MAX - 1);
    uint64_t segment_bytes = options->segment_bytes ? options->segment_bytes : STORE_SEGMENT_BYTES;
    if (segment_bytes < SEGMENT_BYTES_MIN || segment_bytes > (uint64_t)1 << 31)
        return err_set(error, ERR_INVALID, "segments of %llu bytes are outside 64 KiB to 2 GiB",
                       (unsigned long long)segment_bytes);
    int64_t begun_ns = clock_monotonic_ns();
    struct store *store = mem_new(1, sizeof *store);
    memcpy(store->dir, options->dir, strlen(options->dir) + 1);
    store->ballast_bytes = options->ballast_bytes;
    store->segment_bytes = segment_bytes;
    store->read_only = options->read_only;
    store->lock_fd = -1;
    pthread_mutex_init(&store->lock, NULL);
    pthread_mutex_init(&store->histograms_lock, NULL);
    enum err err = open_parts(store, error);
    if (err != OK) {
        store_close(store);
        return err;
    }
    store->open_ns = clock_monotonic_ns() - begun_ns;
    *ret_store = store;
    return OK;
}

void store_close(struct store *store) {
    if (!store) return;
    database_close(store);
    os_close(store->lock_fd);
    pthread_mutex_destroy(&store->histograms_lock);
    pthread_mutex_destroy(&store->lock);
    free(store);
}
