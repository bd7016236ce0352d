/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "store/files.h"

#include "base/id.h"
#include "base/os.h"
#include "base/utf8.h"
#include "store/files_internal.h"
#include "store/lost.h"
#include "store/store_internal.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct store_spool {
    struct store *store;
    int fd;
    uint64_t bytes;
    struct sha256 hash;
    char path[STORE_PATH_BYTES];
};

enum err store_spool_open(struct store_spool **ret_spool, struct store *store,
                          struct error *error) {
    if (!store_has_room(store, 0))
        return err_set(error, ERR_UNAVAILABLE, "the disk is full; try again later");
    struct store_spool *spool = mem_new(1, sizeof *spool);
    spool->store = store;
    store_path(store, spool->path, "tmp/spool-%llu", atomic_fetch_add(&store->spool_count, 1));
    sha256_init(&spool->hash);
    /* It becomes read-only with its row (lost.h). */
    enum err err = os_open(&spool->fd, spool->path, O_RDWR | O_CREAT | O_EXCL, 0600, error);
    if (err != OK) {
        free(spool);
        return err;
    }
    *ret_spool = spool;
    return OK;
}

enum err store_spool_write(struct store_spool *spool, const void *bytes, size_t count,
                           struct error *error) {
    enum err err = os_write_all(spool->fd, bytes, count, error);
    if (err == ERR_UNAVAILABLE) store_disk_filled(spool->store);
    if (err != OK) return err;
    sha256_add(&spool->hash, bytes, count);
    spool->bytes += count;
    return OK;
}

enum err store_spool_read(struct store_spool *spool, void *ret_bytes, size_t count, uint64_t offset,
                          struct error *error) {
    return os_pread_all(spool->fd, ret_bytes, count, offset, error);
}

uint64_t store_spool_bytes(const struct store_spool *spool) {
    return spool->bytes;
}

int store_spool_fd(const struct store_spool *spool) {
    return spool->fd;
}

static void close_spool(struct store_spool *spool) {
    os_close(spool->fd);
    free(spool);
}

void store_spool_abort(struct store_spool *spool) {
    if (!spool) return;
    struct error ignored;
    /* The next start removes a file that stays. */
    if (os_unlink(spool->path, &ignored) != OK) ignored.code = OK;
    close_spool(spool);
}

/* Creates the folder "files/ab" of the file's path, and syncs its parent, if it does not exist. */
static enum err make_folder(struct store *store, const char *path, struct error *error) {
    char folder[STORE_PATH_BYTES], parent[STORE_PATH_BYTES];
    size_t bytes = (size_t)(strrchr(path, '/') - path);
    memcpy(folder, path, bytes);
    folder[bytes] = '\0';
    store_path(store, parent, "files");
    return store_make_folder(store, folder, parent, error);
}

struct store *store_spool_store(const struct store_spool *spool) {
    return spool->store;
}

enum err store_spool_place_at(struct store_spool *spool, const char *path,
                              unsigned char ret_sha256[SHA256_BYTES], struct error *error) {
    struct store *store = spool->store;
    int folder = -1;
    sha256_end(&spool->hash, ret_sha256);
    enum err err = store_sync_result(store, os_fsync(spool->fd, error), error);
    if (err == OK) err = make_folder(store, path, error);
    if (err == OK) err = os_open_parent(&folder, path, error);
    if (err == OK) err = os_rename(spool->path, path, error);
    if (err == OK) err = store_sync_result(store, os_fsync(folder, error), error);
    os_close(folder);
    if (err == ERR_UNAVAILABLE) store_disk_filled(store);
    if (err == OK) {
        struct error ignored;
        err = store_mirror_placed(store, path, error);
        /* The next start removes what stays. */
        if (err != OK && os_unlink(path, &ignored) != OK) ignored.code = OK;
    }
    if (err == OK)
        close_spool(spool);
    else
        store_spool_abort(spool);
    return err;
}

enum err store_spool_place(struct store_spool *spool, struct store_file *file,
                           struct error *error) {
    char path[STORE_PATH_BYTES];
    if (!*file->id) id_alnum(file->id, sizeof file->id, "file-", 22);
    assert(store_id_is_sane(str_from(file->id)));
    file->bytes = spool->bytes;
    store_file_path(spool->store, path, file->id);
    return store_spool_place_at(spool, path, file->sha256, error);
}

void store_file_settle(struct store *store, const char *id, enum err added) {
    char path[STORE_PATH_BYTES];
    struct error ignored;
    store_file_path(store, path, id);
    if (added == OK)
        lost_mark_known(path);
    else if (os_unlink(path, &ignored) != OK)
        ignored.code = OK; /* the next start removes it */
}

void store_file_unplace(struct store *store, const char *id) {
    store_file_settle(store, id, ERR_CANCELLED);
}

static enum err add_row(struct store *store, void *context, struct error *error) {
    return store_file_add_row(store, context, error);
}

enum err store_spool_commit(struct store_spool *spool, struct store_file *file,
                            struct error *error) {
    struct store *store = spool->store;
    enum err err = store_spool_place(spool, file, error);
    if (err != OK) return err;
    err = database_transact(store, add_row, file, error);
    store_file_settle(store, file->id, err);
    return err;
}
