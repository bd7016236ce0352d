/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "store/lost.h"
#include "store/state_marks.h"
#include "store/store_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/os.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SEGMENT_BYTES_MIN ((uint64_t)64 << 10)
#define BALLAST_SHARE 8 /* the ballast is at most 1/BALLAST_SHARE of the disk */
#define BALLAST_STEPS 8 /* a log takes 1/BALLAST_STEPS of that size at once */
#define STEP_BYTES_MIN ((uint64_t)4 << 10)

void store_path(const struct store *store, char ret_path[STORE_PATH_BYTES], const char *format,
                ...) {
    int head = snprintf(ret_path, STORE_PATH_BYTES, "%s/", store->dir);
    va_list arguments;
    va_start(arguments, format);
    int tail = vsnprintf(ret_path + head, (size_t)(STORE_PATH_BYTES - head), format, arguments);
    va_end(arguments);
    assert(tail >= 0 && head + tail < STORE_PATH_BYTES);
}

void store_file_path(const struct store *store, char ret_path[STORE_PATH_BYTES], const char *id) {
    size_t bytes = strlen(id);
    assert(store_id_is_sane((struct str){id, bytes}));
    store_path(store, ret_path, "files/%s/%s", id + bytes - 2, id);
}

bool store_id_is_sane(struct str id) {
    if (id.bytes < 8 || id.bytes >= STORE_ID_BYTES) return false;
    for (size_t i = 0; i < id.bytes; i++) {
        char c = id.at[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && !(c >= '0' && c <= '9') && c != '-' && c != '_') return false;
    }
    return true;
}

enum err store_sync_result(struct store *store, enum err err, struct error *error) {
    if (err == OK || err == ERR_EXHAUSTED) return err;
    log_error("store=%s event=sync_failed error=\"%s\"; ending, the next start resumes from what "
              "is on the disk",
              store->dir, error ? error->text : "");
    abort();
}

const char *store_dir(const struct store *store) {
    return store->dir;
}

/* --- the ballast --- */

/* Sizes the ballast by the whole disk, not by its free bytes, so that every start gets one size. */
static void size_ballast(struct store *store) {
    struct statvfs disk;
    if (store->ballast_bytes == 0) {
        store->ballast_bytes = STORE_BALLAST_BYTES;
        if (statvfs(store->dir, &disk) == 0 && disk.f_blocks > 0) {
            uint64_t share = (uint64_t)disk.f_blocks * disk.f_frsize / BALLAST_SHARE;
            if (share < store->ballast_bytes) store->ballast_bytes = share;
        }
    }
    store->step_bytes = store->ballast_bytes / BALLAST_STEPS;
    if (store->step_bytes < STEP_BYTES_MIN) store->step_bytes = STEP_BYTES_MIN;
}

static bool ballast_is_there(struct store *store) {
    char path[STORE_PATH_BYTES];
    store_path(store, path, "ballast");
    struct stat status;
    return stat(path, &status) == 0 && (uint64_t)status.st_size == store->ballast_bytes;
}

/* Creates the ballast; ERR_UNAVAILABLE when the disk has no room for it. */
static enum err make_ballast(struct store *store, struct error *error) {
    if (ballast_is_there(store)) return OK;
    char path[STORE_PATH_BYTES];
    store_path(store, path, "ballast");
    int fd;
    enum err err = os_create(&fd, path, 0600, error);
    if (err != OK) return err;
    err = os_fallocate(fd, 0, store->ballast_bytes, error);
    os_close(fd);
    struct error ignored;
    if (err != OK && os_unlink(path, &ignored) != OK) return err;
    return err;
}

void store_disk_filled(struct store *store) {
    if (store->read_only) return;
    if (!atomic_exchange(&store->disk_full, true))
        log_error("store=%s event=disk_full; results wait and uploads are refused until there is "
                  "space",
                  store->dir);
    char path[STORE_PATH_BYTES];
    store_path(store, path, "ballast");
    struct error error;
    if (os_unlink(path, &error) != OK) log_warn("store=%s error=\"%s\"", store->dir, error.text);
}

void store_wants_room(struct store *store, uint64_t bytes) {
    if (!atomic_load(&store->disk_full)) return;
    if (bytes > atomic_load(&store->wanted_bytes)) atomic_store(&store->wanted_bytes, bytes);
}

bool store_has_room(struct store *store, uint64_t bytes) {
    if (!atomic_load(&store->disk_full)) return true;
    uint64_t free_bytes;
    struct error error;
    if (os_free_bytes(store->dir, &free_bytes, &error) != OK) return false;
    /* Two steps more: without them the next step would fill the disk at once. */
    bytes += store->ballast_bytes + 2 * store->step_bytes + atomic_load(&store->wanted_bytes);
    if (free_bytes < bytes) return false;
    if (make_ballast(store, &error) != OK) return false;
    atomic_store(&store->wanted_bytes, 0);
    if (atomic_exchange(&store->disk_full, false))
        log_info("store=%s event=disk_has_room free_bytes=%llu", store->dir,
                 (unsigned long long)free_bytes);
    return true;
}

/* --- statistics --- */

const struct histogram_bounds store_sync_bounds = {
    16, {.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}};
const struct histogram_bounds store_group_bounds = {
    13, {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000}};
/* From a batch of a few lines to the longest window, 30 days. */
const struct histogram_bounds store_batch_bounds = {17,
                                                    {1, 5, 15, 30, 60, 300, 900, 1800, 3600, 7200,
                                                     14400, 28800, 43200, 86400, 172800, 604800,
                                                     2592000}};

void store_note_sync(struct store *store, int64_t ns) {
    pthread_mutex_lock(&store->histograms_lock);
    histogram_add(&store->log_sync_seconds, &store_sync_bounds, (double)ns * 1e-9);
    pthread_mutex_unlock(&store->histograms_lock);
}

void store_note_group(struct store *store, size_t records) {
    pthread_mutex_lock(&store->histograms_lock);
    store->log_groups++;
    histogram_add(&store->log_group_records, &store_group_bounds, (double)records);
    pthread_mutex_unlock(&store->histograms_lock);
}

void store_note_end(struct store *store, const struct store_batch *batch) {
    _Static_assert(BATCH_STATUS_COUNT - BATCH_COMPLETED == STORE_ENDS, "one histogram per end");
    int64_t end_unix_s = store_batch_end_unix_s(batch);
    int64_t seconds = end_unix_s > batch->created_unix_s ? end_unix_s - batch->created_unix_s : 0;
    pthread_mutex_lock(&store->histograms_lock);
    histogram_add(&store->batch_seconds[batch->status - BATCH_COMPLETED], &store_batch_bounds,
                  (double)seconds);
    pthread_mutex_unlock(&store->histograms_lock);
}

void store_status(struct store *store, struct store_status *ret_status) {
    *ret_status = (struct store_status){
        .disk_full = atomic_load(&store->disk_full),
        .reserve_bytes = store->ballast_bytes,
        .log_append_bytes = atomic_load(&store->log_append_bytes),
        .log_corrupt_records = atomic_load(&store->log_corrupt_records),
        .duplicate_results = atomic_load(&store->duplicate_results),
        .open_ns = store->open_ns,
    };
    pthread_mutex_lock(&store->histograms_lock);
    ret_status->log_groups = store->log_groups;
    ret_status->log_sync_seconds = store->log_sync_seconds;
    ret_status->log_group_records = store->log_group_records;
    memcpy(ret_status->batch_seconds, store->batch_seconds, sizeof store->batch_seconds);
    pthread_mutex_unlock(&store->histograms_lock);
    struct error error;
    if (os_free_bytes(store->dir, &ret_status->free_bytes, &error) != OK)
        ret_status->free_bytes = 0;
    char path[STORE_PATH_BYTES];
    store_path(store, path, "meta.db-wal");
    struct stat status;
    if (stat(path, &status) == 0) ret_status->wal_bytes = (uint64_t)status.st_size;
}

/* --- opening --- */

static enum err make_layout(struct store *store, struct error *error) {
    static const char *const folders[] = {"files", "parts", "batches", "tmp"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[STORE_PATH_BYTES];
        store_path(store, path, "%s", folders[i]);
        enum err err = os_mkdirs(path, error);
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

static enum err open_parts(struct store *store, struct error *error) {
    enum err err = store->read_only ? OK : os_mkdirs(store->dir, error);
    if (err == OK && !store->read_only) err = check_folder(store, error);
    if (err == OK && !store->read_only) err = check_names(store, error);
    if (err == OK) err = state_lock(store->dir, store->read_only, &store->lock_fd, error);
    if (err == OK && !store->read_only) err = state_marks_check(store->dir, error);
    size_ballast(store);
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
    err = make_ballast(store, error);
    if (err == ERR_UNAVAILABLE) store_disk_filled(store);
    if (err != OK && err != ERR_UNAVAILABLE) return err;
    return store_clean(store, error);
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

enum err store_make_folder(struct store *store, const char *path, const char *parent,
                           struct error *error) {
    struct stat status;
    int fd;
    if (stat(path, &status) == 0) return OK;
    enum err err = os_open_dir(&fd, parent, error);
    if (err != OK) return err;
    err = os_mkdirs(path, error);
    if (err == OK) err = store_sync_result(store, os_fsync(fd, error), error);
    os_close(fd);
    return err;
}

enum err store_batch_dir(struct store *store, const char *batch_id, char *ret_path,
                         size_t path_bytes, struct error *error) {
    if (!store_id_is_sane(str_from(batch_id)))
        return err_set(error, ERR_CORRUPT, "a row of meta.db names a batch '%s'", batch_id);
    char path[STORE_PATH_BYTES], parent[STORE_PATH_BYTES];
    store_path(store, path, "batches/%s", batch_id);
    if (strlen(path) >= path_bytes)
        return err_set(error, ERR_INVALID, "the path of batch %s is too long", batch_id);
    store_path(store, parent, "batches");
    enum err err = store->read_only ? OK : store_make_folder(store, path, parent, error);
    if (err != OK) return err;
    memcpy(ret_path, path, strlen(path) + 1);
    return OK;
}
