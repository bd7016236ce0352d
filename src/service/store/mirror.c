/* SPDX-License-Identifier: Apache-2.0 */
#include "store/mirror.h"

#include "base/log.h"
#include "base/mem.h"
#include "store/store_internal.h"

#include <stdlib.h>
#include <string.h>

#define WAL_HEADER_BYTES 32
#define WAL_SALTS_AT 16
#define WAL_PAGE_BYTES_AT 8
#define FRAME_HEADER_BYTES 24
#define CHECKPOINT_FRAMES 1000 /* as SQLite's own default */

static enum err database_file(struct store *store, int which, sqlite3_file **ret_file,
                              struct error *error) {
    *ret_file = NULL;
    if (sqlite3_file_control(store->db, "main", which, ret_file) == SQLITE_OK && *ret_file &&
        (*ret_file)->pMethods)
        return OK;
    return err_set(error, ERR_IO, "%s/meta.db: SQLite shows no file to copy", store->dir);
}

static uint32_t u32_at(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Reads the frames that were not told yet, up to number `frames`. */
static enum err read_frames(struct store *store, uint32_t frames, uint32_t *ret_page_bytes,
                            char **ret_bytes, size_t *ret_count, struct error *error) {
    unsigned char header[WAL_HEADER_BYTES];
    sqlite3_file *file;
    enum err err = database_file(store, SQLITE_FCNTL_JOURNAL_POINTER, &file, error);
    if (err != OK) return err;
    if (file->pMethods->xRead(file, header, sizeof header, 0) != SQLITE_OK)
        return err_set(error, ERR_IO, "cannot read the log of %s/meta.db", store->dir);
    /* Other salts: the log was begun anew. */
    if (memcmp(store->wal.salts, header + WAL_SALTS_AT, sizeof store->wal.salts) != 0)
        store->wal.frames = 0;
    memcpy(store->wal.salts, header + WAL_SALTS_AT, sizeof store->wal.salts);
    uint32_t page_bytes = u32_at(header + WAL_PAGE_BYTES_AT);
    if (page_bytes == 1) page_bytes = 65536;
    size_t frame_bytes = FRAME_HEADER_BYTES + (size_t)page_bytes;
    size_t count = frames > store->wal.frames ? (frames - store->wal.frames) * frame_bytes : 0;
    char *bytes = mem_alloc(count + 1);
    for (size_t at = 0; at < count; at += frame_bytes) {
        sqlite3_int64 from =
            WAL_HEADER_BYTES + (sqlite3_int64)store->wal.frames * (sqlite3_int64)frame_bytes;
        if (file->pMethods->xRead(file, bytes + at, (int)frame_bytes, from + (sqlite3_int64)at) !=
            SQLITE_OK) {
            free(bytes);
            return err_set(error, ERR_IO, "cannot read the log of %s/meta.db", store->dir);
        }
    }
    store->wal.frames = frames;
    *ret_page_bytes = page_bytes;
    *ret_bytes = bytes;
    *ret_count = count;
    return OK;
}

/* SQLite calls it after each commit, with the number of valid frames in its log. */
static int committed(void *context, sqlite3 *db, const char *name, int frames) {
    struct store *store = context;
    struct error error;
    uint32_t page_bytes = 0;
    char *bytes = NULL;
    size_t count = 0;
    enum err err = read_frames(store, (uint32_t)frames, &page_bytes, &bytes, &count, &error);
    /* A transaction that the copy misses makes it worthless; the next start copies all again. */
    if (store_sync_result(store, err, &error) != OK) return SQLITE_OK;
    if (count > 0)
        store->mirror->pages(store->mirror->context, page_bytes, (struct str){bytes, count});
    free(bytes);
    if (frames < CHECKPOINT_FRAMES) return SQLITE_OK;
    /* A checkpoint that fails is made after another commit. */
    if (sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL) != SQLITE_OK)
        log_debug("store=%s event=checkpoint_waits", store->dir);
    return SQLITE_OK;
}

/* The lock is held. */
static enum err checkpoint(struct store *store, int mode, struct error *error) {
    int in_log = 0, done = 0;
    int code = sqlite3_wal_checkpoint_v2(store->db, "main", mode, &in_log, &done);
    if (code == SQLITE_OK && in_log == done) return OK;
    if (code == SQLITE_OK || code == SQLITE_BUSY)
        return err_set(error, ERR_UNAVAILABLE, "%s/meta.db is being read by another process",
                       store->dir);
    return err_set(error, ERR_IO, "%s/meta.db: %s", store->dir, sqlite3_errmsg(store->db));
}

enum err store_mirror_set(struct store *store, const struct store_mirror *mirror,
                          struct error *error) {
    pthread_mutex_lock(&store->lock);
    enum err err = checkpoint(store, SQLITE_CHECKPOINT_TRUNCATE, error);
    if (err == OK) {
        store->mirror = mirror;
        sqlite3_wal_hook(store->db, committed, store);
    }
    pthread_mutex_unlock(&store->lock);
    return err;
}

static const char *relative(const struct store *store, const char *path) {
    return path + strlen(store->dir) + 1;
}

void store_mirror_written(struct store *store, const char *path, uint64_t at, struct str bytes) {
    const struct store_mirror *mirror = store->mirror;
    if (mirror) mirror->written(mirror->context, relative(store, path), at, bytes);
}

enum err store_mirror_placed(struct store *store, const char *path, struct error *error) {
    const struct store_mirror *mirror = store->mirror;
    return mirror ? mirror->placed(mirror->context, relative(store, path), error) : OK;
}

bool store_mirror_wait(struct store *store, int64_t until_ns) {
    const struct store_mirror *mirror = store->mirror;
    return !mirror || mirror->wait(mirror->context, until_ns);
}

enum err store_database_settle(struct store *store, void (*at_rest)(void *context), void *context,
                               struct error *error) {
    pthread_mutex_lock(&store->lock);
    enum err err = checkpoint(store, SQLITE_CHECKPOINT_FULL, error);
    if (err == OK) at_rest(context);
    pthread_mutex_unlock(&store->lock);
    return err;
}

enum err store_database_read(struct store *store, uint64_t at, size_t count, struct buf *ret_bytes,
                             struct error *error) {
    sqlite3_file *file;
    sqlite3_int64 bytes = 0;
    pthread_mutex_lock(&store->lock);
    enum err err = database_file(store, SQLITE_FCNTL_FILE_POINTER, &file, error);
    if (err == OK && file->pMethods->xFileSize(file, &bytes) != SQLITE_OK)
        err = err_set(error, ERR_IO, "cannot look at %s/meta.db", store->dir);
    if (err == OK && at + count > (uint64_t)bytes)
        count = at < (uint64_t)bytes ? (size_t)((uint64_t)bytes - at) : 0;
    char *room = err == OK && count > 0 ? buf_reserve(ret_bytes, count) : NULL;
    if (room && file->pMethods->xRead(file, room, (int)count, (sqlite3_int64)at) != SQLITE_OK)
        err = err_set(error, ERR_IO, "cannot read %s/meta.db", store->dir);
    else if (room)
        buf_commit(ret_bytes, count);
    pthread_mutex_unlock(&store->lock);
    return err;
}
