/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store_internal.h"

#include "base/log.h"
#include "base/os.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

enum err store_part_path(const struct store *store, char ret_path[STORE_PATH_BYTES], const char *id,
                         struct error *error) {
    if (!store_id_is_sane(str_from(id)))
        return err_set(error, ERR_CORRUPT, "a row of meta.db names a part '%s'", id);
    store_path(store, ret_path, "parts/%s", id);
    return OK;
}

/* --- folders --- */

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
