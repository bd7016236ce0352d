/* SPDX-License-Identifier: Apache-2.0 */
#include "store/proofs_internal.h"

#include "base/buf.h"
#include "base/mem.h"

#include <sodium/utils.h>
#include <stdlib.h>
#include <string.h>

/* --- inside a transaction --- */

enum err proofs_put_row(struct store *store, const char *batch_id, const struct store_proof *proof,
                        struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(
        store, &statement,
        "INSERT INTO proofs (batch_id, what, name, file_id, lines, lines_sha256, salts)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
        " ON CONFLICT (batch_id, what) DO UPDATE SET file_id = ?4, salts = ?7",
        error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(batch_id));
    database_bind_str(statement, 2, str_from(proof->what));
    database_bind_str(statement, 3, str_from(proof->name));
    database_bind_str(statement, 4, str_from(proof->file_id));
    sqlite3_bind_int64(statement, 5, (sqlite3_int64)proof->lines);
    sqlite3_bind_blob(statement, 6, proof->lines_sha256, SHA256_BYTES, SQLITE_TRANSIENT);
    database_bind_text_or_null(statement, 7, proof->salts);
    return database_run(store, statement, NULL, error);
}

enum err erasures_add_row(struct store *store, const char *batch_id, int64_t erased_unix_s,
                          const char *record, struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(
        store, &statement, "INSERT INTO erasures (batch_id, erased, record) VALUES (?1, ?2, ?3)",
        error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(batch_id));
    sqlite3_bind_int64(statement, 2, erased_unix_s);
    database_bind_str(statement, 3, str_from(record));
    return database_run(store, statement, NULL, error);
}

enum err proofs_forget_file(struct store *store, const char *file_id, struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(
        store, &statement,
        "UPDATE proofs SET salts = NULL WHERE file_id = ?1 AND salts IS NOT NULL", error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(file_id));
    return database_run(store, statement, NULL, error);
}

/* --- reading --- */

static void read_row(sqlite3_stmt *statement, struct store_proof *proof) {
    const void *sum = sqlite3_column_blob(statement, 4);
    *proof = (struct store_proof){.lines = (uint64_t)sqlite3_column_int64(statement, 3)};
    if (sum && sqlite3_column_bytes(statement, 4) == SHA256_BYTES)
        memcpy(proof->lines_sha256, sum, SHA256_BYTES);
    database_column(statement, 0, proof->what, sizeof proof->what);
    database_column(statement, 1, proof->name, sizeof proof->name);
    database_column(statement, 2, proof->file_id, sizeof proof->file_id);
    proof->salts = mem_text((const char *)sqlite3_column_text(statement, 5));
}

static enum err read_rows(struct store *store, const char *batch_id, struct store_proofs *proofs,
                          struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    enum err err = database_prepare(
        store, &statement,
        "SELECT what, name, file_id, lines, lines_sha256, salts FROM proofs WHERE batch_id = ?1"
        " ORDER BY CASE what WHEN 'input' THEN 0 WHEN 'output' THEN 1 ELSE 2 END",
        error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(batch_id));
    while (proofs->count < STORE_PROOFS_MAX &&
           (err = database_step(store, statement, &row, error)) == OK && row)
        read_row(statement, &proofs->files[proofs->count++]);
    sqlite3_finalize(statement);
    return err;
}

static enum err read_erasures(struct store *store, const char *batch_id,
                              struct store_proofs *proofs, struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    struct buf text;
    enum err err = database_prepare(
        store, &statement, "SELECT record FROM erasures WHERE batch_id = ?1 ORDER BY sequence",
        error);
    if (err != OK) return err;
    buf_init(&text, BUF_UNLIMITED);
    database_bind_str(statement, 1, str_from(batch_id));
    while ((err = database_step(store, statement, &row, error)) == OK && row) {
        const char *record = (const char *)sqlite3_column_text(statement, 0);
        buf_add_byte(&text, text.bytes ? ',' : '[');
        if (record) buf_add_text(&text, record);
    }
    sqlite3_finalize(statement);
    if (text.bytes) buf_add_byte(&text, ']');
    proofs->erasures = text.at;
    return err;
}

enum err store_proofs_get(struct store *store, const char *batch_id,
                          struct store_proofs *ret_proofs, struct error *error) {
    *ret_proofs = (struct store_proofs){.count = 0};
    pthread_mutex_lock(&store->lock);
    enum err err = read_rows(store, batch_id, ret_proofs, error);
    if (err == OK) err = read_erasures(store, batch_id, ret_proofs, error);
    pthread_mutex_unlock(&store->lock);
    if (err != OK) store_proofs_release(ret_proofs);
    return err;
}

void store_proofs_release(struct store_proofs *proofs) {
    for (size_t i = 0; i < proofs->count; i++) {
        char *salts = proofs->files[i].salts;
        if (salts) sodium_memzero(salts, strlen(salts));
        free(salts);
    }
    free(proofs->erasures);
    *proofs = (struct store_proofs){.count = 0};
}
