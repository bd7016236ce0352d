/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store_internal.h"

#include "base/os.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

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
    struct statvfs disk;
    if (statvfs(store->dir, &disk) == 0)
        ret_status->size_bytes = (uint64_t)disk.f_blocks * disk.f_frsize;
    char path[STORE_PATH_BYTES];
    store_path(store, path, "meta.db-wal");
    struct stat status;
    if (stat(path, &status) == 0) ret_status->wal_bytes = (uint64_t)status.st_size;
}
