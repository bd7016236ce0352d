/* SPDX-License-Identifier: Apache-2.0 */
#include "store/fsck.h"

#include "base/os.h"
#include "store/answers_forget.h"
#include "store/files_internal.h"
#include "store/proofs.h"
#include "store/wal_check.h"

#include <stdio.h>
#include <string.h>

/* The next file after `after_sequence`, also a deleted or expired one. ERR_NOT_FOUND at the end. */
static enum err next_file(struct store *store, uint64_t after_sequence, struct store_file *ret_file,
                          struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    pthread_mutex_lock(&store->lock);
    enum err err = database_prepare(store, &statement,
                                    "SELECT " STORE_FILE_COLUMNS
                                    " FROM files WHERE sequence > ? ORDER BY sequence LIMIT 1",
                                    error);
    if (err == OK) {
        sqlite3_bind_int64(statement, 1, (sqlite3_int64)after_sequence);
        err = database_step(store, statement, &row, error);
        if (err == OK && row) store_file_read_row(statement, ret_file);
        sqlite3_finalize(statement);
    }
    pthread_mutex_unlock(&store->lock);
    return err == OK && !row ? err_set(error, ERR_NOT_FOUND, "there are no more files") : err;
}

static void check_file(struct store *store, const struct store_file *file, fsck_report_fn report,
                       void *context) {
    char path[STORE_PATH_BYTES], sentence[512];
    unsigned char digest[SHA256_BYTES];
    struct error error;
    if (!store_id_is_sane(str_from(file->id))) {
        snprintf(sentence, sizeof sentence,
                 "file row %llu has the id '%s', which quern does not make",
                 (unsigned long long)file->sequence, file->id);
        report(context, sentence);
        return;
    }
    store_file_path(store, path, file->id);
    if (sha256_file(path, digest, &error) != OK)
        snprintf(sentence, sizeof sentence, "%s: its bytes cannot be read (I1)", file->id);
    else if (memcmp(digest, file->sha256, SHA256_BYTES) != 0)
        snprintf(sentence, sizeof sentence, "%s: its bytes are not what was stored (I1, I7)",
                 file->id);
    else
        return;
    report(context, sentence);
}

/* --- parts of uploads --- */

struct part_row {
    int64_t sequence;
    char id[STORE_ID_BYTES];
    unsigned char sha256[SHA256_BYTES];
};

static enum err next_part(struct store *store, int64_t after, struct part_row *ret_part,
                          bool *ret_row, struct error *error) {
    sqlite3_stmt *statement;
    pthread_mutex_lock(&store->lock);
    enum err err = database_prepare(store, &statement,
                                    "SELECT sequence, id, sha256 FROM upload_parts"
                                    " WHERE sequence > ? ORDER BY sequence LIMIT 1",
                                    error);
    if (err == OK) {
        sqlite3_bind_int64(statement, 1, after);
        err = database_step(store, statement, ret_row, error);
        if (err == OK && *ret_row) {
            ret_part->sequence = sqlite3_column_int64(statement, 0);
            database_column(statement, 1, ret_part->id, sizeof ret_part->id);
            const void *digest = sqlite3_column_blob(statement, 2);
            memset(ret_part->sha256, 0, SHA256_BYTES);
            if (digest && sqlite3_column_bytes(statement, 2) == SHA256_BYTES)
                memcpy(ret_part->sha256, digest, SHA256_BYTES);
        }
        sqlite3_finalize(statement);
    }
    pthread_mutex_unlock(&store->lock);
    return err;
}

static enum err check_parts(struct store *store, fsck_report_fn report, void *context,
                            struct error *error) {
    struct part_row part = {0};
    bool row = false;
    enum err err;
    while ((err = next_part(store, part.sequence, &part, &row, error)) == OK && row) {
        char path[STORE_PATH_BYTES], sentence[512];
        unsigned char digest[SHA256_BYTES];
        struct error reason;
        if (store_part_path(store, path, part.id, &reason) != OK ||
            sha256_file(path, digest, &reason) != OK)
            snprintf(sentence, sizeof sentence, "%s: its bytes cannot be read (I1)", part.id);
        else if (memcmp(digest, part.sha256, SHA256_BYTES) != 0)
            snprintf(sentence, sizeof sentence, "%s: its bytes are not what was stored (I1)",
                     part.id);
        else
            continue;
        report(context, sentence);
    }
    return err;
}

/* A log of the database that SQLite reads to its first bad frame only. */
static enum err check_log(struct store *store, fsck_report_fn report, void *context,
                          struct error *error) {
    char path[STORE_PATH_BYTES], sentence[256];
    struct wal_found found;
    store_path(store, path, "meta.db-wal");
    enum err err = wal_check(path, &found, error);
    if (err != OK || found.commits_after == 0) return err;
    snprintf(sentence, sizeof sentence,
             "meta.db-wal: frame %llu is damaged, and %llu whole transactions come after it, which "
             "are lost unless meta.db has them (I15)",
             (unsigned long long)found.bad_frame, (unsigned long long)found.commits_after);
    report(context, sentence);
    return OK;
}

/* --- cached answers --- */

struct cache_check {
    struct store *store;
    fsck_report_fn report;
    void *context;
};

static enum err check_cached(void *context, const char *file, const char *batch_id,
                             struct error *error) {
    const struct cache_check *check = context;
    struct store *store = check->store;
    char sentence[512];
    bool is_kept = true;
    if (!store_id_is_sane(str_from(batch_id))) return OK; /* damage: a miss for every reader */
    enum err err = store_keeps_answers(store, batch_id, &is_kept, error);
    if (err != OK || is_kept) return err;
    snprintf(sentence, sizeof sentence,
             "%s: it has answers of %s, which is deleted, or its output file is (I16)", file,
             batch_id);
    check->report(check->context, sentence);
    return OK;
}

/* --- proofs --- */

/* Rows whose batch or file has gone. */
static enum err check_proofs(struct store *store, fsck_report_fn report, void *context,
                             struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    char batch_id[STORE_ID_BYTES], what[STORE_PROOF_WHAT_BYTES], sentence[256];
    pthread_mutex_lock(&store->lock);
    enum err err = database_prepare(
        store, &statement,
        "SELECT batch_id, what, NOT EXISTS (SELECT 1 FROM batches WHERE id = batch_id) AS is_alone"
        " FROM proofs WHERE is_alone OR (salts IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM files WHERE id = file_id))",
        error);
    while (err == OK && (err = database_step(store, statement, &row, error)) == OK && row) {
        database_column(statement, 0, batch_id, sizeof batch_id);
        database_column(statement, 1, what, sizeof what);
        snprintf(sentence, sizeof sentence,
                 sqlite3_column_int(statement, 2)
                     ? "%s: it is deleted, and the sum of its %s is still there (I17)"
                     : "%s: its %s is deleted, and the salts of it are still there (I17)",
                 batch_id, what);
        report(context, sentence);
    }
    sqlite3_finalize(statement);
    pthread_mutex_unlock(&store->lock);
    return err;
}

enum err store_fsck(struct store *store, fsck_report_fn report, void *context,
                    struct error *error) {
    struct store_file file = {0};
    enum err err;
    while ((err = next_file(store, file.sequence, &file, error)) == OK)
        check_file(store, &file, report, context);
    if (err == ERR_NOT_FOUND) err = check_parts(store, report, context, error);
    if (err == OK) err = check_log(store, report, context, error);
    if (err == OK) err = check_proofs(store, report, context, error);
    struct cache_check check = {store, report, context};
    if (err == OK) err = result_cache_tell(store->dir, true, check_cached, &check, error);
    return err == OK ? store_tell_unknown(store, report, context, error) : err;
}
