/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store_internal.h"

#include "base/log.h"
#include "base/os.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#define BALLAST_SHARE 8 /* the ballast is at most 1/BALLAST_SHARE of the disk */
#define BALLAST_STEPS 8 /* a log takes 1/BALLAST_STEPS of that size at once */
#define STEP_BYTES_MIN ((uint64_t)4 << 10)

/* Sizes the ballast by the whole disk, not by its free bytes, so that every start gets one size. */
void ballast_size(struct store *store) {
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
enum err ballast_make(struct store *store, struct error *error) {
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
    if (ballast_make(store, &error) != OK) return false;
    atomic_store(&store->wanted_bytes, 0);
    if (atomic_exchange(&store->disk_full, false))
        log_info("store=%s event=disk_has_room free_bytes=%llu", store->dir,
                 (unsigned long long)free_bytes);
    return true;
}
