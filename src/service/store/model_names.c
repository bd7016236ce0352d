/* SPDX-License-Identifier: Apache-2.0 */
#include "store/model_names.h"

#include "store/store_internal.h"

struct change {
    struct str name, model;
    int64_t now_unix_s;
};

static enum err put_row(struct store *store, void *context, struct error *error) {
    const struct change *change = context;
    sqlite3_stmt *statement;
    enum err err = database_prepare(store, &statement,
                                    "INSERT INTO model_names (name, model, created)"
                                    " VALUES (?1, ?2, ?3)"
                                    " ON CONFLICT (name) DO UPDATE SET model = ?2, created = ?3",
                                    error);
    if (err != OK) return err;
    database_bind_str(statement, 1, change->name);
    database_bind_str(statement, 2, change->model);
    sqlite3_bind_int64(statement, 3, change->now_unix_s);
    return database_run(store, statement, NULL, error);
}

enum err store_model_name_put(struct store *store, struct str name, struct str model,
                              int64_t now_unix_s, struct error *error) {
    struct change change = {name, model, now_unix_s};
    return database_transact(store, put_row, &change, error);
}

static enum err remove_row(struct store *store, void *context, struct error *error) {
    const struct change *change = context;
    sqlite3_stmt *statement;
    enum err err =
        database_prepare(store, &statement, "DELETE FROM model_names WHERE name = ?1", error);
    if (err != OK) return err;
    database_bind_str(statement, 1, change->name);
    return database_run(store, statement, NULL, error);
}

enum err store_model_name_remove(struct store *store, struct str name, struct error *error) {
    struct change change = {.name = name};
    return database_transact(store, remove_row, &change, error);
}

static struct str column(sqlite3_stmt *statement, int at) {
    const char *text = (const char *)sqlite3_column_text(statement, at);
    return (struct str){text, text ? (size_t)sqlite3_column_bytes(statement, at) : 0};
}

enum err store_model_names(struct store *store,
                           void (*add)(void *context, struct str name, struct str model),
                           void *context, struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    pthread_mutex_lock(&store->lock);
    enum err err = database_prepare(
        store, &statement, "SELECT name, model FROM model_names ORDER BY created, name", error);
    if (err == OK) {
        while ((err = database_step(store, statement, &row, error)) == OK && row)
            add(context, column(statement, 0), column(statement, 1));
        sqlite3_finalize(statement);
    }
    pthread_mutex_unlock(&store->lock);
    return err;
}
