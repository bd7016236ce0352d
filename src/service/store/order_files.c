/* SPDX-License-Identifier: Apache-2.0 */

/* The files that say in which order the results of ended batches came (batch/completion_order.h).
 * Publishing writes order.idx. An erasure gives the batch files with new ids, and writes the order
 * of these beside the old one, by a name that is made of the new ids. So each state of the batch's
 * row finds the order that fits its files, whenever a kill comes. */

#include "base/os.h"
#include "store/batches.h"
#include "store/store_internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define DIGITS 16

bool store_order_is_name(struct str name) {
    if (str_is(name, STORE_ORDER_NAME)) return true;
    if (name.bytes != strlen("order.") + DIGITS + strlen(".idx")) return false;
    if (!str_starts_with(name, STR("order.")) || !str_ends_with(name, STR(".idx"))) return false;
    for (size_t i = 0; i < DIGITS; i++) {
        char c = name.at[strlen("order.") + i];
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f')) return false;
    }
    return true;
}

static void write_name(char ret_name[STORE_ORDER_NAME_BYTES], const char *input_id,
                       const char *output_id, const char *error_id) {
    const char *const ids[] = {input_id, output_id, error_id};
    unsigned char digest[SHA256_BYTES];
    char hex[SHA256_HEX_BYTES];
    struct sha256 hash;
    sha256_init(&hash);
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        sha256_add(&hash, ids[i], strlen(ids[i]) + 1);
    sha256_end(&hash, digest);
    sha256_hex(digest, hex);
    snprintf(ret_name, STORE_ORDER_NAME_BYTES, "order.%.*s.idx", DIGITS, hex);
}

void store_order_name(char ret_name[STORE_ORDER_NAME_BYTES], const struct store_batch *batch) {
    write_name(ret_name, batch->input_file_id, batch->output_file_id, batch->error_file_id);
}

static bool is_there(const struct store *store, const char *batch_id, const char *name) {
    char path[STORE_PATH_BYTES];
    struct stat status;
    store_path(store, path, "batches/%s/%s", batch_id, name);
    return stat(path, &status) == 0;
}

bool store_order_find(const struct store *store, const struct store_batch *batch,
                      char ret_name[STORE_ORDER_NAME_BYTES]) {
    store_order_name(ret_name, batch);
    if (is_there(store, batch->id, ret_name)) return true;
    snprintf(ret_name, STORE_ORDER_NAME_BYTES, STORE_ORDER_NAME);
    return is_there(store, batch->id, ret_name);
}

/* The ids of the files that the batch has now; empty texts without a row. */
static enum err read_ids(struct store *store, struct store_batch *batch, struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    pthread_mutex_lock(&store->lock);
    enum err err = database_prepare(store, &statement,
                                    "SELECT input_file_id, output_file_id, error_file_id FROM"
                                    " batches WHERE id = ?1",
                                    error);
    if (err == OK) {
        database_bind_str(statement, 1, str_from(batch->id));
        err = database_step(store, statement, &row, error);
        if (err == OK && row) {
            database_column(statement, 0, batch->input_file_id, STORE_ID_BYTES);
            database_column(statement, 1, batch->output_file_id, STORE_ID_BYTES);
            database_column(statement, 2, batch->error_file_id, STORE_ID_BYTES);
        }
        sqlite3_finalize(statement);
    }
    pthread_mutex_unlock(&store->lock);
    return err;
}

enum err store_order_keep_one(struct store *store, const char *batch_id, struct error *error) {
    struct store_batch batch = {0};
    char kept[STORE_ORDER_NAME_BYTES], path[STORE_PATH_BYTES];
    snprintf(batch.id, sizeof batch.id, "%s", batch_id);
    enum err err = read_ids(store, &batch, error);
    if (err != OK) return err;
    (void)store_order_find(store, &batch, kept);
    store_path(store, path, "batches/%s", batch_id);
    DIR *dir = os_opendir(path);
    if (!dir) return errno == ENOENT ? OK : err_from_errno(error, errno, "cannot read %s", path);
    for (struct dirent *at; err == OK && (at = readdir(dir));) {
        if (!store_order_is_name(str_from(at->d_name)) || strcmp(at->d_name, kept) == 0) continue;
        store_path(store, path, "batches/%s/%s", batch_id, at->d_name);
        err = os_unlink(path, error);
    }
    closedir(dir);
    return err;
}
