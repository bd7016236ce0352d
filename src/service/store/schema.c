/* SPDX-License-Identifier: Apache-2.0 */
#include "store/schema.h"

#include "store/store_internal.h"

#include <string.h>

/* Everything that runs or is read, by its name; SQLite makes the other names itself, the same ones
 * for the same tables. */
#define LIST                                                                                       \
    "SELECT type || ' ' || name, tbl_name || ':' || coalesce(sql, '') FROM sqlite_schema"          \
    " ORDER BY 1"

static const char *column(sqlite3_stmt *statement, int at) {
    const char *text = (const char *)sqlite3_column_text(statement, at);
    return text ? text : "";
}

/* Walks both lists at once. Both are in the order of their names. */
static enum err compare(sqlite3_stmt *found, sqlite3_stmt *made, const char *name,
                        struct error *error) {
    for (;;) {
        int has_found = sqlite3_step(found), has_made = sqlite3_step(made);
        bool is_list = (has_found == SQLITE_ROW || has_found == SQLITE_DONE) &&
                       (has_made == SQLITE_ROW || has_made == SQLITE_DONE);
        if (!is_list) return err_set(error, ERR_CORRUPT, "%s: its schema cannot be read", name);
        if (has_found == SQLITE_DONE && has_made == SQLITE_DONE) return OK;
        int order = has_found == SQLITE_DONE  ? 1
                    : has_made == SQLITE_DONE ? -1
                                              : strcmp(column(found, 0), column(made, 0));
        if (order < 0)
            return err_set(error, ERR_CORRUPT, "%s has the %.200s, which quern did not make", name,
                           column(found, 0));
        if (order > 0)
            return err_set(error, ERR_CORRUPT, "%s lacks the %.200s", name, column(made, 0));
        if (strcmp(column(found, 1), column(made, 1)) != 0)
            return err_set(error, ERR_CORRUPT, "%s has another %.200s than quern makes", name,
                           column(found, 0));
    }
}

enum err schema_check(sqlite3 *db, int version, const char *name, struct error *error) {
    sqlite3 *usual = NULL;
    sqlite3_stmt *found = NULL, *made = NULL;
    bool good = sqlite3_open_v2(":memory:", &usual,
                                SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                                NULL) == SQLITE_OK;
    for (int at = 0; at < version && good; at++)
        good = sqlite3_exec(usual, database_migration(at), NULL, NULL, NULL) == SQLITE_OK;
    good = good && sqlite3_prepare_v2(usual, LIST, -1, &made, NULL) == SQLITE_OK;
    enum err err = OK;
    if (!good)
        err = err_set(error, ERR_IO, "cannot make a database in memory");
    else if (sqlite3_prepare_v2(db, LIST, -1, &found, NULL) != SQLITE_OK)
        err = err_set(error, ERR_CORRUPT, "%s: its schema cannot be read (%s)", name,
                      sqlite3_errmsg(db));
    if (err == OK) err = compare(found, made, name, error);
    sqlite3_finalize(found);
    sqlite3_finalize(made);
    sqlite3_close(usual);
    return err;
}
