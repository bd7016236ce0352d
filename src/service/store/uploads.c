/* SPDX-License-Identifier: Apache-2.0 */
#include "store/uploads.h"

#include "base/id.h"
#include "base/mem.h"
#include "base/os.h"
#include "store/files_internal.h"
#include "store/lost.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COPY_BYTES ((size_t)256 << 10)
#define SPARE_BYTES ((uint64_t)128 << 20) /* all parts: twice the announced bytes and this */
#define COLUMNS                                                                                    \
    "id, purpose, filename, bytes, created, expires, file_expires_after, status, file_id, owner,"  \
    " part_count, part_bytes"
#define PENDING_MAX 1000 /* uploads of an owner that can get parts at the same time */
#define ENDED_MAX 10000  /* rows of an owner's uploads that have ended */
#define FORGET_ONCE 16   /* most older uploads that a new one removes */

const char *store_upload_status_name(enum upload_status status) {
    static const char *const names[] = {"pending", "completed", "cancelled", "expired"};
    return names[status];
}

/* --- rows of uploads --- */

static enum err check_pending(struct store *store, const struct store_upload *upload,
                              struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    enum err err = database_prepare(
        store, &statement,
        "SELECT count(*) FROM uploads WHERE owner = ?1 AND status = 0 AND expires > ?2", error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(upload->owner));
    sqlite3_bind_int64(statement, 2, upload->created_unix_s);
    err = database_step(store, statement, &row, error);
    if (err == OK && row && sqlite3_column_int64(statement, 0) >= PENDING_MAX)
        err =
            err_set(error, ERR_INVALID,
                    "%d uploads are pending, which is the limit: complete or cancel some, or wait "
                    "until they expire.",
                    PENDING_MAX);
    sqlite3_finalize(statement);
    return err;
}

/* Removes the oldest rows of the owner's uploads that have ended, beyond ENDED_MAX. */
static enum err forget_ended(struct store *store, const char *owner, struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(
        store, &statement,
        "DELETE FROM uploads WHERE sequence IN (SELECT sequence FROM uploads"
        " INDEXED BY uploads_ended WHERE owner = ?1 AND status <> 0 ORDER BY sequence DESC"
        " LIMIT ?2 OFFSET ?3)",
        error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(owner));
    sqlite3_bind_int(statement, 2, FORGET_ONCE);
    sqlite3_bind_int(statement, 3, ENDED_MAX);
    return database_run(store, statement, NULL, error);
}

static enum err add_upload(struct store *store, void *context, struct error *error) {
    const struct store_upload *upload = context;
    sqlite3_stmt *statement;
    enum err err = store_owner_has_room(store, upload->owner, upload->created_unix_s, upload->bytes,
                                        upload->owner_bytes_max, error);
    if (err == OK) err = check_pending(store, upload, error);
    if (err == OK) err = forget_ended(store, upload->owner, error);
    if (err != OK) return err;
    err = database_prepare(
        store, &statement,
        "INSERT INTO uploads (" COLUMNS ") VALUES (?, ?, ?, ?, ?, ?, ?, 0, NULL, ?, 0, 0)", error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(upload->id));
    database_bind_str(statement, 2, str_from(upload->purpose));
    database_bind_str(statement, 3, str_from(upload->filename));
    sqlite3_bind_int64(statement, 4, (sqlite3_int64)upload->bytes);
    sqlite3_bind_int64(statement, 5, upload->created_unix_s);
    sqlite3_bind_int64(statement, 6, upload->expires_unix_s);
    sqlite3_bind_int64(statement, 7, upload->file_expires_after_s);
    database_bind_str(statement, 8, str_from(upload->owner));
    return database_run(store, statement, NULL, error);
}

enum err store_upload_create(struct store *store, struct store_upload *upload,
                             struct error *error) {
    id_hex(upload->id, sizeof upload->id, "upload_", 32);
    upload->status = UPLOAD_PENDING;
    upload->file_id[0] = '\0';
    return database_transact(store, add_upload, upload, error);
}

/* The lock is held. */
static enum err get_upload(struct store *store, struct str id, int64_t now_unix_s,
                           struct store_upload *ret_upload, struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    enum err err =
        database_prepare(store, &statement, "SELECT " COLUMNS " FROM uploads WHERE id = ?", error);
    if (err != OK) return err;
    database_bind_str(statement, 1, id);
    err = database_step(store, statement, &row, error);
    if (err == OK && row) {
        *ret_upload = (struct store_upload){
            .bytes = (uint64_t)sqlite3_column_int64(statement, 3),
            .created_unix_s = sqlite3_column_int64(statement, 4),
            .expires_unix_s = sqlite3_column_int64(statement, 5),
            .file_expires_after_s = sqlite3_column_int64(statement, 6),
            .status = (enum upload_status)sqlite3_column_int(statement, 7),
            .part_count = (uint64_t)sqlite3_column_int64(statement, 10),
            .part_bytes = (uint64_t)sqlite3_column_int64(statement, 11),
        };
        database_column(statement, 0, ret_upload->id, sizeof ret_upload->id);
        database_column(statement, 1, ret_upload->purpose, sizeof ret_upload->purpose);
        database_column(statement, 2, ret_upload->filename, sizeof ret_upload->filename);
        database_column(statement, 8, ret_upload->file_id, sizeof ret_upload->file_id);
        database_column(statement, 9, ret_upload->owner, sizeof ret_upload->owner);
        if (ret_upload->status == UPLOAD_PENDING && ret_upload->expires_unix_s <= now_unix_s)
            ret_upload->status = UPLOAD_EXPIRED;
    }
    sqlite3_finalize(statement);
    if (err == OK && !row)
        err = err_set(error, ERR_NOT_FOUND, "No such Upload object: %.*s",
                      (int)(id.bytes < 80 ? id.bytes : 80), id.bytes ? id.at : "");
    return err;
}

enum err store_upload_get(struct store *store, struct str id, int64_t now_unix_s,
                          struct store_upload *ret_upload, struct error *error) {
    pthread_mutex_lock(&store->lock);
    enum err err = get_upload(store, id, now_unix_s, ret_upload, error);
    pthread_mutex_unlock(&store->lock);
    return err;
}

/* get_upload that gives ERR_INVALID for an upload that is not pending. */
static enum err get_pending(struct store *store, struct str id, int64_t now_unix_s,
                            struct store_upload *ret_upload, struct error *error) {
    enum err err = get_upload(store, id, now_unix_s, ret_upload, error);
    if (err == OK && ret_upload->status != UPLOAD_PENDING)
        err = err_set(error, ERR_INVALID,
                      "The upload '%s' has the status '%s'; only a pending one can be changed.",
                      ret_upload->id, store_upload_status_name(ret_upload->status));
    return err;
}

static enum err end_upload(struct store *store, struct str id, enum upload_status status,
                           const char *file_id, struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(
        store, &statement, "UPDATE uploads SET status = ?2, file_id = ?3 WHERE id = ?1", error);
    if (err != OK) return err;
    database_bind_str(statement, 1, id);
    sqlite3_bind_int(statement, 2, (int)status);
    database_bind_text_or_null(statement, 3, file_id);
    return database_run(store, statement, NULL, error);
}

/* --- parts --- */

struct part_call {
    struct str upload_id;
    int64_t now_unix_s;
    uint64_t owner_bytes_max;
    struct store_part *part;
};

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Limits the parts of an upload: a client may send a part again, but not without end. What they
 * have beyond the announced bytes counts as the owner's. */
static enum err check_room(struct store *store, const struct store_upload *upload,
                           const struct part_call *call, struct error *error) {
    uint64_t bytes = upload->part_bytes + call->part->bytes;
    if (upload->part_count >= STORE_UPLOAD_PARTS_MAX)
        return err_set(error, ERR_INVALID, "The upload '%s' has %d parts, which is the limit.",
                       upload->id, STORE_UPLOAD_PARTS_MAX);
    if (bytes > 2 * upload->bytes + SPARE_BYTES)
        return err_set(error, ERR_INVALID,
                       "The parts of the upload '%s' have more than twice the %" PRIu64
                       " bytes that were announced.",
                       upload->id, upload->bytes);
    uint64_t more = larger(upload->bytes, bytes) - larger(upload->bytes, upload->part_bytes);
    if (more == 0) return OK;
    return store_owner_has_room(store, upload->owner, call->now_unix_s, more, call->owner_bytes_max,
                                error);
}

static enum err count_part(struct store *store, const struct part_call *call, struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(store, &statement,
                                    "UPDATE uploads SET part_count = part_count + 1,"
                                    " part_bytes = part_bytes + ?2 WHERE id = ?1",
                                    error);
    if (err != OK) return err;
    database_bind_str(statement, 1, call->upload_id);
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)call->part->bytes);
    return database_run(store, statement, NULL, error);
}

static enum err add_part(struct store *store, void *context, struct error *error) {
    const struct part_call *call = context;
    struct store_upload upload;
    sqlite3_stmt *statement;
    enum err err = get_pending(store, call->upload_id, call->now_unix_s, &upload, error);
    if (err == OK) err = check_room(store, &upload, call, error);
    if (err == OK) err = count_part(store, call, error);
    if (err == OK)
        err = database_prepare(store, &statement,
                               "INSERT INTO upload_parts (id, upload_id, bytes, sha256, created)"
                               " VALUES (?, ?, ?, ?, ?)",
                               error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(call->part->id));
    database_bind_str(statement, 2, call->upload_id);
    sqlite3_bind_int64(statement, 3, (sqlite3_int64)call->part->bytes);
    sqlite3_bind_blob(statement, 4, call->part->sha256, SHA256_BYTES, SQLITE_TRANSIENT);
    sqlite3_bind_int64(statement, 5, call->part->created_unix_s);
    return database_run(store, statement, NULL, error);
}

enum err store_part_commit(struct store_spool *spool, struct str upload_id,
                           uint64_t owner_bytes_max, int64_t now_unix_s,
                           struct store_part *ret_part, struct error *error) {
    struct store *store = store_spool_store(spool);
    struct store_upload upload;
    char path[STORE_PATH_BYTES];
    struct store_part part = {.bytes = store_spool_bytes(spool), .created_unix_s = now_unix_s};
    struct part_call call = {upload_id, now_unix_s, owner_bytes_max, &part};
    id_hex(part.id, sizeof part.id, "part_", 32);
    /* Refuses before the slow sync; add_part checks again in its transaction. */
    pthread_mutex_lock(&store->lock);
    enum err err = get_pending(store, upload_id, now_unix_s, &upload, error);
    if (err == OK) err = check_room(store, &upload, &call, error);
    pthread_mutex_unlock(&store->lock);
    if (err == OK) err = store_part_path(store, path, part.id, error);
    if (err != OK) {
        store_spool_abort(spool);
        return err;
    }
    err = store_spool_place_at(spool, path, part.sha256, error);
    if (err != OK) return err;
    err = database_transact(store, add_part, &call, error);
    if (err != OK) {
        struct error ignored;
        if (os_unlink(path, &ignored) != OK) ignored.code = OK;
        return err;
    }
    lost_mark_known(path);
    *ret_part = part;
    return OK;
}

/* --- joining --- */

static enum err get_part(struct store *store, const struct store_join *join, size_t index,
                         struct store_part *ret_part, struct error *error) {
    struct str id = join->part_ids[index];
    sqlite3_stmt *statement;
    bool row = false;
    *ret_part = (struct store_part){0};
    enum err err = database_prepare(
        store, &statement,
        "SELECT id, bytes, sha256 FROM upload_parts WHERE id = ? AND upload_id = ?", error);
    if (err != OK) return err;
    database_bind_str(statement, 1, id);
    database_bind_str(statement, 2, join->upload_id);
    err = database_step(store, statement, &row, error);
    if (err == OK && row) {
        database_column(statement, 0, ret_part->id, sizeof ret_part->id);
        ret_part->bytes = (uint64_t)sqlite3_column_int64(statement, 1);
        const void *digest = sqlite3_column_blob(statement, 2);
        if (digest && sqlite3_column_bytes(statement, 2) == SHA256_BYTES)
            memcpy(ret_part->sha256, digest, SHA256_BYTES);
    }
    sqlite3_finalize(statement);
    if (err == OK && !row)
        err = err_set(error, ERR_INVALID,
                      "Invalid value for 'part_ids': '%.*s' is not a part of the upload '%.*s'.",
                      (int)(id.bytes < 80 ? id.bytes : 80), id.bytes ? id.at : "",
                      STR_ARGS(join->upload_id));
    return err;
}

static int compare_ids(const void *a, const void *b) {
    return str_compare(*(const struct str *)a, *(const struct str *)b);
}

static enum err check_twice(const struct store_join *join, struct error *error) {
    if (join->part_count == 0) return OK;
    struct str *sorted = mem_alloc(join->part_count * sizeof *sorted);
    memcpy(sorted, join->part_ids, join->part_count * sizeof *sorted);
    qsort(sorted, join->part_count, sizeof *sorted, compare_ids);
    enum err err = OK;
    for (size_t i = 1; i < join->part_count && err == OK; i++)
        if (str_equals(sorted[i], sorted[i - 1]))
            err =
                err_set(error, ERR_INVALID, "Invalid value for 'part_ids': '%.*s' is named twice.",
                        (int)(sorted[i].bytes < 80 ? sorted[i].bytes : 80), sorted[i].at);
    free(sorted);
    return err;
}

/* Reads the rows of all parts and checks them against the announced bytes. */
static enum err find_parts(struct store *store, const struct store_join *join,
                           struct store_part *ret_parts, struct error *error) {
    struct store_upload upload;
    uint64_t bytes = 0;
    pthread_mutex_lock(&store->lock);
    enum err err = get_pending(store, join->upload_id, join->now_unix_s, &upload, error);
    for (size_t i = 0; i < join->part_count && err == OK; i++) {
        err = get_part(store, join, i, &ret_parts[i], error);
        bytes += ret_parts[i].bytes;
    }
    pthread_mutex_unlock(&store->lock);
    if (err == OK && bytes != upload.bytes)
        err = err_set(error, ERR_INVALID,
                      "The parts have %" PRIu64 " bytes together; the upload was announced with "
                      "%" PRIu64 " bytes.",
                      bytes, upload.bytes);
    return err;
}

static enum err add_bytes(struct store *store, struct store_spool *spool,
                          const struct store_part *part, struct digest *md5, char *piece,
                          struct error *error) {
    char path[STORE_PATH_BYTES];
    unsigned char digest[SHA256_BYTES];
    struct sha256 hash;
    int fd;
    enum err err = store_part_path(store, path, part->id, error);
    if (err == OK) err = os_open(&fd, path, O_RDONLY, 0, error);
    if (err != OK) return err;
    sha256_init(&hash);
    for (uint64_t at = 0; at < part->bytes && err == OK;) {
        size_t count = part->bytes - at < COPY_BYTES ? (size_t)(part->bytes - at) : COPY_BYTES;
        err = os_pread_all(fd, piece, count, at, error);
        if (err == OK) err = store_spool_write(spool, piece, count, error);
        if (err != OK) break;
        sha256_add(&hash, piece, count);
        if (md5) digest_add(md5, piece, count);
        at += count;
    }
    os_close(fd);
    sha256_end(&hash, digest);
    if (err == OK && memcmp(digest, part->sha256, SHA256_BYTES) != 0)
        err = err_set(error, ERR_CORRUPT, "the bytes of %s are not what was uploaded", part->id);
    return err;
}

static enum err join_parts(struct store *store, const struct store_join *join,
                           const struct store_part *parts, struct store_spool *spool,
                           struct error *error) {
    struct digest md5 = {0};
    char *piece = mem_alloc(COPY_BYTES);
    enum err err = OK;
    if (join->md5_hex) digest_begin(&md5, DIGEST_MD5);
    for (size_t i = 0; i < join->part_count && err == OK; i++)
        err = add_bytes(store, spool, &parts[i], join->md5_hex ? &md5 : NULL, piece, error);
    free(piece);
    if (join->md5_hex) digest_end_hex(&md5, join->md5_hex);
    return err;
}

enum err store_upload_join(struct store *store, const struct store_join *join,
                           struct store_spool **ret_spool, struct error *error) {
    struct store_spool *spool = NULL;
    enum err err = check_twice(join, error);
    if (err != OK) return err;
    struct store_part *parts = mem_new(join->part_count + 1, sizeof *parts);
    err = find_parts(store, join, parts, error);
    if (err == OK) err = store_spool_open(&spool, store, error);
    if (err == OK) err = join_parts(store, join, parts, spool, error);
    free(parts);
    if (err == OK) {
        *ret_spool = spool;
        return OK;
    }
    store_spool_abort(spool);
    /* The bytes of a part are gone: another call has ended the upload meanwhile. */
    struct store_upload upload;
    if (err == ERR_NOT_FOUND) {
        pthread_mutex_lock(&store->lock);
        err = get_pending(store, join->upload_id, join->now_unix_s, &upload, error);
        pthread_mutex_unlock(&store->lock);
        if (err == OK)
            err = err_set(error, ERR_CORRUPT, "bytes of the upload %s are gone from the disk",
                          upload.id);
    }
    return err;
}

struct finish_call {
    struct str upload_id;
    int64_t now_unix_s;
    struct store_file *file;
};

static enum err finish(struct store *store, void *context, struct error *error) {
    const struct finish_call *call = context;
    struct store_upload upload;
    enum err err = get_pending(store, call->upload_id, call->now_unix_s, &upload, error);
    if (err == OK) err = store_file_add_row(store, call->file, error);
    if (err == OK)
        err = end_upload(store, call->upload_id, UPLOAD_COMPLETED, call->file->id, error);
    return err;
}

enum err store_upload_finish(struct store_spool *spool, struct str upload_id, int64_t now_unix_s,
                             struct store_file *file, struct error *error) {
    struct store *store = store_spool_store(spool);
    struct finish_call call = {upload_id, now_unix_s, file};
    struct error ignored;
    enum err err = store_spool_place(spool, file, error);
    if (err != OK) return err;
    err = database_transact(store, finish, &call, error);
    store_file_settle(store, file->id, err);
    if (err != OK) return err;
    /* A failed sweep does not undo the file; the next sweep removes the parts. */
    if (store_upload_sweep(store, now_unix_s, &ignored) != OK) ignored.code = OK;
    return OK;
}

/* --- ending --- */

struct cancel_call {
    struct str id;
    int64_t now_unix_s;
};

static enum err cancel(struct store *store, void *context, struct error *error) {
    const struct cancel_call *call = context;
    struct store_upload upload;
    enum err err = get_pending(store, call->id, call->now_unix_s, &upload, error);
    return err == OK ? end_upload(store, call->id, UPLOAD_CANCELLED, NULL, error) : err;
}

enum err store_upload_cancel(struct store *store, struct str id, int64_t now_unix_s,
                             struct error *error) {
    struct cancel_call call = {id, now_unix_s};
    struct error ignored;
    enum err err = database_transact(store, cancel, &call, error);
    if (err == OK && store_upload_sweep(store, now_unix_s, &ignored) != OK) ignored.code = OK;
    return err;
}
