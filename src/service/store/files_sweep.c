/* SPDX-License-Identifier: Apache-2.0 */

/* Removal of bytes. Rows go first: a crash in between leaves bytes without a row, which the next
 * start removes. */

#include "base/mem.h"
#include "base/os.h"
#include "store/answers_forget.h"
#include "store/batches.h"
#include "store/files_internal.h"
#include "store/fsck.h"
#include "store/lost.h"
#include "store/proofs_internal.h"
#include "store/uploads.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SWEEP_MAX 256 /* rows per transaction */

struct file_sweep {
    int64_t now_unix_s;
    size_t count;
    char ids[SWEEP_MAX][STORE_ID_BYTES];
};

/* The condition for files that clients cannot see and that no unfinished batch needs. */
#define GONE                                                                                       \
    "(deleted IS NOT NULL OR expires <= ?1) AND id NOT IN"                                         \
    " (SELECT input_file_id FROM batches WHERE status < 4)"

static enum err find_rows(struct store *store, void *context, struct error *error) {
    struct file_sweep *sweep = context;
    sweep->count = 0;
    sqlite3_stmt *statement;
    bool row;
    enum err err =
        database_prepare(store, &statement, "SELECT id FROM files WHERE " GONE " LIMIT 256", error);
    if (err != OK) return err;
    sqlite3_bind_int64(statement, 1, sweep->now_unix_s);
    while ((err = database_step(store, statement, &row, error)) == OK && row) {
        char *id = sweep->ids[sweep->count];
        database_column(statement, 0, id, STORE_ID_BYTES);
        if (store_id_is_sane(str_from(id))) sweep->count++;
    }
    sqlite3_finalize(statement);
    return err;
}

/* Marks the files whose rows are removed next. */
static enum err mark_files(struct store *store, const struct file_sweep *sweep,
                           struct error *error) {
    enum err err = OK;
    for (size_t i = 0; i < sweep->count && err == OK; i++) {
        char path[STORE_PATH_BYTES];
        store_file_path(store, path, sweep->ids[i]);
        err = lost_mark_leaving(store, path, error);
    }
    return err;
}

static enum err remove_rows(struct store *store, void *context, struct error *error) {
    struct file_sweep *sweep = context;
    sqlite3_stmt *statement;
    enum err err = OK;
    for (size_t i = 0; i < sweep->count && err == OK; i++) {
        err = database_prepare(store, &statement, "DELETE FROM files WHERE id = ?", error);
        if (err != OK) break;
        database_bind_str(statement, 1, str_from(sweep->ids[i]));
        err = database_run(store, statement, NULL, error);
        if (err == OK) err = proofs_forget_file(store, sweep->ids[i], error);
    }
    return err;
}

/* Takes up to SWEEP_MAX files, forgets the answers that they held, and then removes their rows. A
 * file that is gone for its clients never comes back, so others may sweep it meanwhile. */
static enum err take_rows(struct store *store, struct file_sweep *sweep, struct error *error) {
    enum err err = database_transact(store, find_rows, sweep, error);
    for (size_t i = 0; i < sweep->count && err == OK; i++)
        err = store_forget_answers_of_file(store, sweep->ids[i], error);
    if (err == OK) err = mark_files(store, sweep, error);
    if (err != OK || sweep->count == 0) return err;
    return database_transact(store, remove_rows, sweep, error);
}

/* The batches whose result files are gone since `id` is: the order of their results goes, too. */
static enum err remove_order(struct store *store, const char *id, struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    char batch_id[STORE_ID_BYTES] = "";
    pthread_mutex_lock(&store->lock);
    enum err err = database_prepare(store, &statement,
                                    "SELECT id FROM batches WHERE (output_file_id = ?1 OR"
                                    " error_file_id = ?1) AND status >= 4 AND NOT EXISTS (SELECT 1"
                                    " FROM files WHERE files.id IN (output_file_id, error_file_id))"
                                    " LIMIT 1",
                                    error);
    if (err == OK) {
        database_bind_str(statement, 1, str_from(id));
        err = database_step(store, statement, &row, error);
        if (err == OK && row) database_column(statement, 0, batch_id, sizeof batch_id);
        sqlite3_finalize(statement);
    }
    pthread_mutex_unlock(&store->lock);
    if (err != OK || !store_id_is_sane(str_from(batch_id))) return err;
    return store_remove_run(store, batch_id, false, error);
}

enum err store_file_sweep(struct store *store, int64_t now_unix_s, struct error *error) {
    struct file_sweep *sweep = mem_new(1, sizeof *sweep);
    sweep->now_unix_s = now_unix_s;
    enum err err;
    do {
        err = take_rows(store, sweep, error);
        for (size_t i = 0; i < sweep->count && err == OK; i++) {
            char path[STORE_PATH_BYTES];
            store_file_path(store, path, sweep->ids[i]);
            err = os_unlink(path, error);
            if (err == OK) err = remove_order(store, sweep->ids[i], error);
        }
    } while (err == OK && sweep->count == SWEEP_MAX);
    free(sweep);
    return err == OK ? store_upload_sweep(store, now_unix_s, error) : err;
}

/* --- what no row names --- */

/* Whom to tell of it; NULL in the place of a `struct told *`: it is removed, or moved to lost/. */
struct told {
    fsck_report_fn report;
    void *context;
};

typedef enum err (*entry_fn)(struct store *store, const char *path, const char *name,
                             const struct told *told, struct error *error);

/* Calls `entry` for each entry of "<dir>/<folder>". A folder that does not exist is empty. */
static enum err each_entry(struct store *store, const char *folder, entry_fn entry,
                           const struct told *told, struct error *error) {
    char path[STORE_PATH_BYTES];
    store_path(store, path, "%s", folder);
    DIR *dir = os_opendir(path);
    if (!dir) return errno == ENOENT ? OK : err_from_errno(error, errno, "cannot read %s", path);
    enum err err = OK;
    for (struct dirent *at; err == OK && (at = readdir(dir));) {
        if (strcmp(at->d_name, ".") == 0 || strcmp(at->d_name, "..") == 0) continue;
        if (strlen(folder) + strlen(at->d_name) > 200) continue; /* quern makes no such name */
        store_path(store, path, "%s/%s", folder, at->d_name);
        err = entry(store, path, at->d_name, told, error);
    }
    closedir(dir);
    return err;
}

static enum err remove_entry(struct store *store, const char *path, const char *name,
                             const struct told *told, struct error *error) {
    (void)store, (void)name, (void)told;
    return os_unlink(path, error);
}

/* The first column of the first row, as a number; -1 without a row. */
static enum err look_up(struct store *store, const char *sql, const char *id, int64_t *ret_value,
                        struct error *error) {
    sqlite3_stmt *statement;
    bool row;
    enum err err = database_prepare(store, &statement, sql, error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(id));
    err = database_step(store, statement, &row, error);
    if (err == OK) *ret_value = row ? sqlite3_column_int64(statement, 0) : -1;
    sqlite3_finalize(statement);
    return err;
}

/* Tells of a thing that has lost its row, or moves it to lost/. */
static enum err lost_row(struct store *store, const char *path, const struct told *told,
                         struct error *error) {
    char sentence[STORE_PATH_BYTES + 80];
    const char *relative = path + strlen(store->dir) + 1;
    if (!told) return lost_move(store, relative, error);
    snprintf(sentence, sizeof sentence, "%s: no row of meta.db names it (I15)", relative);
    told->report(told->context, sentence);
    return OK;
}

/* Bytes that were never acknowledged are removed by a start, and are no fault. */
static enum err clean_bytes(struct store *store, const char *sql, const char *path,
                            const char *name, const struct told *told, struct error *error) {
    int64_t sequence;
    enum err err = look_up(store, sql, name, &sequence, error);
    if (err != OK) return err;
    if (sequence >= 0) { /* a kill may have come between its row and its mode */
        if (!told && !lost_was_known(path)) lost_mark_known(path);
        return OK;
    }
    if (lost_was_known(path)) return lost_row(store, path, told, error);
    return told ? OK : os_unlink(path, error);
}

static enum err clean_file(struct store *store, const char *path, const char *name,
                           const struct told *told, struct error *error) {
    return clean_bytes(store, "SELECT sequence FROM files WHERE id = ?", path, name, told, error);
}

static enum err clean_part(struct store *store, const char *path, const char *name,
                           const struct told *told, struct error *error) {
    return clean_bytes(store, "SELECT sequence FROM upload_parts WHERE id = ?", path, name, told,
                       error);
}

static enum err clean_folder(struct store *store, const char *path, const char *name,
                             const struct told *told, struct error *error) {
    (void)path;
    char folder[256];
    snprintf(folder, sizeof folder, "files/%.200s", name);
    return each_entry(store, folder, clean_file, told, error);
}

static enum err remove_all_but_order(struct store *store, const char *path, const char *name,
                                     const struct told *told, struct error *error) {
    (void)store, (void)told;
    return store_order_is_name(str_from(name)) ? OK : os_unlink(path, error);
}

enum err store_remove_run(struct store *store, const char *name, bool keep_order,
                          struct error *error) {
    char folder[256], path[STORE_PATH_BYTES];
    snprintf(folder, sizeof folder, "batches/%.200s", name);
    enum err err =
        each_entry(store, folder, keep_order ? remove_all_but_order : remove_entry, NULL, error);
    if (err != OK) return err;
    if (keep_order) return store_order_keep_one(store, name, error);
    store_path(store, path, "%s", folder);
    if (rmdir(path) != 0 && errno != ENOENT)
        return err_from_errno(error, errno, "cannot remove %s", path);
    return OK;
}

static enum err clean_batch(struct store *store, const char *path, const char *name,
                            const struct told *told, struct error *error) {
    int64_t status, files = 0;
    enum err err = look_up(store, "SELECT status FROM batches WHERE id = ?", name, &status, error);
    if (err == OK && status < 0) return lost_row(store, path, told, error);
    if (err == OK)
        err = look_up(store,
                      "SELECT count(*) FROM batches JOIN files"
                      " ON files.id IN (output_file_id, error_file_id) WHERE batches.id = ?",
                      name, &files, error);
    if (err != OK || told) return err;
    return status < BATCH_COMPLETED ? OK : store_remove_run(store, name, files > 0, error);
}

static enum err each_unknown(struct store *store, const struct told *told, struct error *error) {
    enum err err = each_entry(store, "files", clean_folder, told, error);
    if (err == OK) err = each_entry(store, "parts", clean_part, told, error);
    return err == OK ? each_entry(store, "batches", clean_batch, told, error) : err;
}

/* --- what other rooms keep by the name of a batch --- */

/* The names in label_studio/ begin with the id of their batch. */
static size_t id_bytes(const char *name) {
    return strcspn(name, "-.");
}

enum err store_remove_studio(struct store *store, const char *batch_id, struct error *error) {
    char path[STORE_PATH_BYTES];
    store_path(store, path, "label_studio");
    DIR *dir = os_opendir(path);
    if (!dir) return errno == ENOENT ? OK : err_from_errno(error, errno, "cannot read %s", path);
    enum err err = OK;
    for (struct dirent *at; err == OK && (at = readdir(dir));) {
        size_t bytes = id_bytes(at->d_name);
        if (bytes != strlen(batch_id) || memcmp(at->d_name, batch_id, bytes) != 0) continue;
        if (strlen(at->d_name) > 200) continue;
        store_path(store, path, "label_studio/%s", at->d_name);
        err = os_unlink(path, error);
    }
    closedir(dir);
    return err;
}

/* A job that ended after its batch was deleted may have left its state. */
static enum err clean_studio(struct store *store, const char *path, const char *name,
                             const struct told *told, struct error *error) {
    char id[STORE_ID_BYTES];
    int64_t sequence;
    size_t bytes = id_bytes(name);
    (void)told;
    if (bytes >= sizeof id || !store_id_is_sane((struct str){name, bytes})) return OK;
    memcpy(id, name, bytes);
    id[bytes] = '\0';
    enum err err = look_up(store, "SELECT sequence FROM batches WHERE id = ? AND deleted IS NULL",
                           id, &sequence, error);
    return err == OK && sequence < 0 ? os_unlink(path, error) : err;
}

enum err store_clean(struct store *store, struct error *error) {
    enum err err = each_entry(store, "tmp", remove_entry, NULL, error);
    if (err == OK) err = each_entry(store, "label_studio", clean_studio, NULL, error);
    return err == OK ? each_unknown(store, NULL, error) : err;
}

enum err store_tell_unknown(struct store *store, fsck_report_fn report, void *context,
                            struct error *error) {
    return each_unknown(store, &(struct told){report, context}, error);
}

enum err store_batch_forget_log(struct store *store, const char *batch_id, struct error *error) {
    return store_remove_run(store, batch_id, true, error);
}
