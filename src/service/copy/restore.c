/* SPDX-License-Identifier: Apache-2.0 */
#include "copy/restore.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/os.h"
#include "copy/copy_internal.h"
#include "copy/folder_tree.h"
#include "store/snapshot.h"
#include "store/state_marks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK_BEGINS "copying "
#define FILE_PATH_BYTES (PATH_MAX + ENTRY_PATH_BYTES)
#define TRIES 3 /* bases that may be replaced by newer ones while they are read */

struct restoring {
    struct bucket *bucket;
    const volatile bool *stop;
    const char *state_dir;
    char parent[FILE_PATH_BYTES]; /* the folder that was made last */
    uint64_t files;
};

/* --- records --- */

static enum err open_file(struct restoring *restoring, const char *path, int *ret_fd,
                          struct error *error) {
    char file[FILE_PATH_BYTES], parent[FILE_PATH_BYTES];
    snprintf(file, sizeof file, "%s/%s", restoring->state_dir, path);
    snprintf(parent, sizeof parent, "%s", file);
    *strrchr(parent, '/') = '\0';
    if (strcmp(parent, restoring->parent) != 0) {
        enum err err = os_mkdirs(parent, error);
        if (err != OK) return err;
        memcpy(restoring->parent, parent, sizeof parent);
    }
    return os_open(ret_fd, file, O_RDWR | O_CREAT | O_NOFOLLOW, 0600, error);
}

static enum err write_bytes(struct restoring *restoring, const struct entry_record *record,
                            struct error *error) {
    int fd;
    enum err err = open_file(restoring, record->path, &fd, error);
    if (err != OK) return err;
    if (record->kind == ENTRY_REPLACE) err = os_ftruncate(fd, 0, error);
    if (err == OK)
        err = os_pwrite_all(fd, record->body.at, record->body.bytes, record->value, error);
    os_close(fd);
    return err;
}

static enum err fetch_piece(struct restoring *restoring, const char *name, struct buf *piece,
                            struct error *error) {
    for (;;) {
        buf_clear(piece);
        enum err err = bucket_read(restoring->bucket, name, piece, error);
        if (err == OK || !chain_may_pass(err)) return err;
        if (!chain_pause(restoring->stop)) return err_set(error, ERR_CANCELLED, "stopped");
    }
}

static enum err fetch(struct restoring *restoring, const struct entry_record *record, int fd,
                      struct error *error) {
    const struct entry_object object = entry_object_of(record);
    unsigned char digest[SHA256_BYTES];
    char name[ENTRY_NAME_BYTES];
    struct sha256 hash;
    struct buf piece;
    enum err err = os_ftruncate(fd, 0, error);
    buf_init(&piece, object.piece_bytes < PIECE_BYTES ? (size_t)object.piece_bytes : PIECE_BYTES);
    sha256_init(&hash);
    uint64_t at = 0;
    for (uint64_t i = 1; err == OK && at < record->value; i++) {
        entry_piece_name(&object, i, name);
        err = fetch_piece(restoring, name, &piece, error);
        if (err == OK && piece.bytes == 0)
            err = err_set(error, ERR_CORRUPT, "the copy is damaged: %s is empty", name);
        if (err == OK) err = os_pwrite_all(fd, piece.at, piece.bytes, at, error);
        if (err == OK) sha256_add(&hash, piece.at, piece.bytes);
        at += piece.bytes;
    }
    buf_release(&piece);
    sha256_end(&hash, digest);
    if (err == OK && (at != record->value || memcmp(digest, object.sha256, sizeof digest) != 0))
        err = err_set(error, ERR_CORRUPT, "the copy is damaged: the pieces of %s have another sum",
                      record->path);
    return err;
}

static enum err write_object(struct restoring *restoring, const struct entry_record *record,
                             struct error *error) {
    int fd;
    enum err err = open_file(restoring, record->path, &fd, error);
    if (err != OK) return err;
    err = fetch(restoring, record, fd, error);
    os_close(fd);
    return err;
}

static enum err write_pages(struct restoring *restoring, const struct entry_record *record,
                            struct error *error) {
    uint32_t page_bytes = entry_page_bytes(record), number;
    const char *page;
    int fd;
    enum err err = open_file(restoring, "meta.db", &fd, error);
    if (err != OK) return err;
    for (size_t i = 0; err == OK && entry_page(record, i, &number, &page); i++)
        err = os_pwrite_all(fd, page, page_bytes, (uint64_t)(number - 1) * page_bytes, error);
    if (err == OK) err = os_ftruncate(fd, record->value * page_bytes, error);
    os_close(fd);
    return err;
}

static enum err apply(void *context, const struct entry_record *record, struct error *error) {
    struct restoring *restoring = context;
    if (*restoring->stop) return err_set(error, ERR_CANCELLED, "stopped");
    switch (record->kind) {
    case ENTRY_WRITE:
    case ENTRY_REPLACE: return write_bytes(restoring, record, error);
    case ENTRY_OBJECT: return write_object(restoring, record, error);
    case ENTRY_PAGES: return write_pages(restoring, record, error);
    case ENTRY_BASE: break;
    }
    return OK;
}

/* --- what the database names --- */

static enum err mark_file(void *context, const struct snapshot_file *file, struct error *error) {
    struct restoring *restoring = context;
    char path[FILE_PATH_BYTES];
    size_t bytes = strlen(file->id);
    if (file->is_part)
        snprintf(path, sizeof path, "%s/parts/%s", restoring->state_dir, file->id);
    else
        snprintf(path, sizeof path, "%s/files/%s/%s", restoring->state_dir,
                 file->id + (bytes > 2 ? bytes - 2 : 0), file->id);
    restoring->files++;
    if (chmod(path, 0400) == 0) return OK;
    if (errno != ENOENT) return err_from_errno(error, errno, "cannot close %s", path);
    return err_set(error, ERR_CORRUPT, "the copy is damaged: %s is named and missing", file->id);
}

static enum err keep_batch(void *context, const struct snapshot_batch *batch, struct error *error) {
    struct map *kept = context;
    (void)error;
    map_put(kept, str_from(batch->id), 1);
    return OK;
}

/* Checks the database, marks the files that it names, and removes the rest. */
static enum err settle(struct restoring *restoring, struct copy_restored *restored,
                       struct error *error) {
    char path[FILE_PATH_BYTES];
    struct snapshot *snapshot;
    struct snapshot_summary summary;
    struct map kept;
    snprintf(path, sizeof path, "%s/meta.db", restoring->state_dir);
    enum err err = snapshot_open(&snapshot, path, error);
    if (err != OK) return err;
    map_init(&kept);
    err = snapshot_check(snapshot, error);
    if (err == OK) err = snapshot_summary(snapshot, &summary, error);
    if (err == OK) err = snapshot_each_file(snapshot, mark_file, restoring, error);
    if (err == OK) err = snapshot_each_batch(snapshot, keep_batch, &kept, error);
    snapshot_close(snapshot);
    if (err == OK) err = folder_tree_drop_unnamed(restoring->state_dir, &kept, error);
    map_release(&kept);
    if (err != OK) return err;
    restored->files = restoring->files;
    restored->batches = summary.batches;
    restored->unfinished = summary.unfinished;
    return OK;
}

static enum err make_durable(const char *state_dir, struct error *error) {
    int fd;
    enum err err = os_open_dir(&fd, state_dir, error);
    if (err != OK) return err;
    if (syncfs(fd) != 0) err = err_from_errno(error, errno, "cannot sync %s", state_dir);
    os_close(fd);
    return err;
}

/* --- one restore --- */

enum err copy_restore_begin(const char *state_dir, struct error *error) {
    char *line, name[256];
    struct error ignored;
    enum err err = os_mkdirs_durable(state_dir, error);
    if (err == OK && chmod(state_dir, 0700) != 0)
        err = err_from_errno(error, errno, "cannot close %s to others", state_dir);
    if (err != OK) return err;
    if (state_mark_read(state_dir, STATE_RESTORING, &line, &ignored) == OK) {
        bool is_ours = strncmp(line, MARK_BEGINS, strlen(MARK_BEGINS)) == 0;
        free(line);
        if (is_ours) return folder_tree_empty(state_dir, error);
    }
    if (folder_tree_has_any(state_dir, name, sizeof name))
        return err_set(error, ERR_CONFLICT,
                       "%s is not empty (it has '%s'): move it away, or name another --state-dir",
                       state_dir, name);
    return state_mark_set(state_dir, STATE_RESTORING, MARK_BEGINS "from object storage\n", error);
}

enum err copy_restore(struct bucket *bucket, const struct chain_end *end, const char *state_dir,
                      const volatile bool *stop, struct copy_restored *ret_restored,
                      struct error *error) {
    struct restoring restoring = {.bucket = bucket, .stop = stop, .state_dir = state_dir};
    struct copy_restored restored = {.unix_ms = end->header.unix_ms};
    struct walked walked = {0};
    int lock_fd;
    memcpy(restored.host, end->header.host, sizeof restored.host);
    enum err err = copy_restore_begin(state_dir, error);
    if (err == OK) err = state_lock(state_dir, false, &lock_fd, error);
    if (err != OK) return err;
    err = copy_walk(bucket, end, stop, apply, &restoring, &walked, error);
    if (err == OK) err = settle(&restoring, &restored, error);
    if (err == OK) err = make_durable(state_dir, error);
    if (err == OK) err = state_mark_clear(state_dir, STATE_RESTORING, error);
    os_close(lock_fd);
    free(walked.leads);
    restored.entries = end->number - walked.first + 1;
    if (err == OK) *ret_restored = restored;
    return err == OK ? OK : err_prefix(error, "%s is not restored", state_dir);
}

enum err copy_restore_from(const char *place, const char *state_dir, const volatile bool *stop,
                           struct copy_restored *ret_restored, struct error *error) {
    struct bucket *bucket;
    enum err err = bucket_open(&bucket, place, stop, error);
    if (err != OK) return err;
    for (int i = 0; i < TRIES; i++) {
        struct chain_end end;
        err = chain_find(bucket, stop, &end, error);
        if (err == OK) err = copy_restore(bucket, &end, state_dir, stop, ret_restored, error);
        if (err != ERR_NOT_FOUND || end.base == 0) break;
    }
    bucket_close(bucket);
    return err;
}
