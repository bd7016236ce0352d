/* SPDX-License-Identifier: Apache-2.0 */
#include "store/judgements.h"

#include "base/mem.h"
#include "store/fsck.h"
#include "store/store_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS                                                                                    \
    "seq, id, batch_id, line, custom_id, curator, key_id, created, version, verdict, flagged,"     \
    " rating, fields, comment"

void store_judgement_release(struct store_judgement *judgement) {
    free(judgement->custom_id);
    free(judgement->fields);
    free(judgement->comment);
    judgement->custom_id = judgement->fields = judgement->comment = NULL;
}

void store_judgements_release(struct store_judgement *judgements, size_t count) {
    for (size_t i = 0; i < count; i++) store_judgement_release(&judgements[i]);
}

static void read_row(sqlite3_stmt *statement, struct store_judgement *ret_row) {
    *ret_row = (struct store_judgement){
        .seq = (uint64_t)sqlite3_column_int64(statement, 0),
        .line = (uint64_t)sqlite3_column_int64(statement, 3),
        .custom_id = mem_text((const char *)sqlite3_column_text(statement, 4)),
        .created_unix_s = sqlite3_column_int64(statement, 7),
        .version = (uint32_t)sqlite3_column_int64(statement, 8),
        /* The table's CHECK keeps it in range. */
        .verdict = (enum verdict)sqlite3_column_int(statement, 9),
        .flagged = sqlite3_column_int(statement, 10) != 0,
        .rating = sqlite3_column_int(statement, 11),
        .fields = mem_text((const char *)sqlite3_column_text(statement, 12)),
        .comment = mem_text((const char *)sqlite3_column_text(statement, 13)),
    };
    database_column(statement, 1, ret_row->id, sizeof ret_row->id);
    database_column(statement, 2, ret_row->batch_id, sizeof ret_row->batch_id);
    database_column(statement, 5, ret_row->curator, sizeof ret_row->curator);
    database_column(statement, 6, ret_row->key_id, sizeof ret_row->key_id);
}

/* Steps to at most `limit` rows and finalizes the statement; on failure no row is left. */
static enum err read_rows(struct store *store, sqlite3_stmt *statement, size_t limit,
                          struct store_judgement *ret_rows, size_t *ret_count, bool *ret_has_more,
                          struct error *error) {
    size_t count = 0;
    bool row = false, has_more = false;
    enum err err;
    while ((err = database_step(store, statement, &row, error)) == OK && row) {
        has_more = count == limit;
        if (has_more) break;
        read_row(statement, &ret_rows[count++]);
    }
    sqlite3_finalize(statement);
    if (err != OK) {
        store_judgements_release(ret_rows, count);
        return err;
    }
    *ret_count = count;
    *ret_has_more = has_more;
    return OK;
}

/* --- adding --- */

struct add_call {
    const struct store_judgement *judgement;
    enum judgement_added added;
    struct store_judgement row; /* as *ret_row of store_judgement_add */
};

static bool same_text(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* True if all members set by the client are equal; the time and the key do not count. */
static bool is_same(const struct store_judgement *a, const struct store_judgement *b) {
    return a->line == b->line && strcmp(a->curator, b->curator) == 0 && a->version == b->version &&
           a->verdict == b->verdict && a->flagged == b->flagged && a->rating == b->rating &&
           same_text(a->fields, b->fields) && same_text(a->comment, b->comment);
}

/* Reads the only row of the statement; all zero if it has none. */
static enum err read_one(struct store *store, sqlite3_stmt *statement,
                         struct store_judgement *ret_row, struct error *error) {
    size_t count = 0;
    bool has_more;
    struct store_judgement row = {0};
    enum err err = read_rows(store, statement, 1, &row, &count, &has_more, error);
    if (err == OK) *ret_row = row;
    return err;
}

static enum err find_by_id(struct store *store, const struct store_judgement *judgement,
                           struct store_judgement *ret_row, struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(
        store, &statement, "SELECT " COLUMNS " FROM judgements WHERE batch_id = ?1 AND id = ?2",
        error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(judgement->batch_id));
    database_bind_str(statement, 2, str_from(judgement->id));
    return read_one(store, statement, ret_row, error);
}

static enum err find_newest(struct store *store, const struct store_judgement *judgement,
                            struct store_judgement *ret_row, struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(store, &statement,
                                    "SELECT " COLUMNS " FROM judgements WHERE batch_id = ?1"
                                    " AND line = ?2 AND curator = ?3 ORDER BY version DESC LIMIT 1",
                                    error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(judgement->batch_id));
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)judgement->line);
    database_bind_str(statement, 3, str_from(judgement->curator));
    return read_one(store, statement, ret_row, error);
}

static enum err insert_row(struct store *store, const struct store_judgement *judgement,
                           struct error *error) {
    sqlite3_stmt *statement;
    enum err err = database_prepare(
        store, &statement,
        "INSERT INTO judgements (id, batch_id, line, custom_id, curator, key_id, created, version,"
        " verdict, flagged, rating, fields, comment)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(judgement->id));
    database_bind_str(statement, 2, str_from(judgement->batch_id));
    sqlite3_bind_int64(statement, 3, (sqlite3_int64)judgement->line);
    database_bind_str(statement, 4, str_from(judgement->custom_id));
    database_bind_str(statement, 5, str_from(judgement->curator));
    database_bind_str(statement, 6, str_from(judgement->key_id));
    sqlite3_bind_int64(statement, 7, judgement->created_unix_s);
    sqlite3_bind_int64(statement, 8, judgement->version);
    sqlite3_bind_int(statement, 9, (int)judgement->verdict);
    sqlite3_bind_int(statement, 10, judgement->flagged);
    database_bind_i64_or_null(statement, 11, judgement->rating);
    database_bind_text_or_null(statement, 12, judgement->fields);
    database_bind_text_or_null(statement, 13, judgement->comment);
    return database_run(store, statement, NULL, error);
}

/* Checks the id and the version, and adds the row. database_transact may run it twice. */
static enum err add(struct store *store, void *context, struct error *error) {
    struct add_call *call = context;
    store_judgement_release(&call->row);
    enum err err = find_by_id(store, call->judgement, &call->row, error);
    if (err != OK) return err;
    if (call->row.seq != 0) {
        call->added = is_same(&call->row, call->judgement) ? JUDGEMENT_KNOWN : JUDGEMENT_ID_TAKEN;
        return OK;
    }
    err = find_newest(store, call->judgement, &call->row, error);
    if (err != OK) return err;
    if (call->row.version + 1 != call->judgement->version) {
        call->added = JUDGEMENT_OUTDATED;
        return OK;
    }
    store_judgement_release(&call->row);
    call->added = JUDGEMENT_ADDED;
    err = insert_row(store, call->judgement, error);
    return err == OK ? find_by_id(store, call->judgement, &call->row, error) : err;
}

enum err store_judgement_add(struct store *store, const struct store_judgement *judgement,
                             enum judgement_added *ret_added, struct store_judgement *ret_row,
                             struct error *error) {
    struct add_call call = {.judgement = judgement};
    enum err err = database_transact(store, add, &call, error);
    if (err != OK) {
        store_judgement_release(&call.row);
        return err;
    }
    *ret_added = call.added;
    *ret_row = call.row;
    return OK;
}

/* --- reading --- */

enum err store_judgement_list(struct store *store, const struct store_judgement_query *query,
                              size_t limit, struct store_judgement *ret_rows, size_t *ret_count,
                              bool *ret_has_more, struct error *error) {
    sqlite3_stmt *statement;
    pthread_mutex_lock(&store->lock);
    enum err err =
        database_prepare(store, &statement,
                         "SELECT " COLUMNS " FROM judgements WHERE batch_id = ?1 AND seq > ?2"
                         " AND (?3 IS NULL OR custom_id = ?3) AND (?4 IS NULL OR curator = ?4)"
                         " ORDER BY seq LIMIT ?5",
                         error);
    if (err == OK) {
        uint64_t after = query->after < INT64_MAX ? query->after : INT64_MAX;
        database_bind_str(statement, 1, str_from(query->batch_id));
        sqlite3_bind_int64(statement, 2, (sqlite3_int64)after);
        if (query->custom_id.at) database_bind_str(statement, 3, query->custom_id);
        if (query->curator.at) database_bind_str(statement, 4, query->curator);
        sqlite3_bind_int64(statement, 5, (sqlite3_int64)limit + 1);
        err = read_rows(store, statement, limit, ret_rows, ret_count, ret_has_more, error);
    }
    pthread_mutex_unlock(&store->lock);
    return err;
}

enum err store_judgement_mark(struct store *store, const char *batch_id, const char *curator,
                              unsigned char *marks, size_t count, struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    pthread_mutex_lock(&store->lock);
    enum err err = database_prepare(store, &statement,
                                    "SELECT line FROM judgements WHERE batch_id = ?1"
                                    " AND curator = ?2 AND version = 1",
                                    error);
    if (err == OK) {
        database_bind_str(statement, 1, str_from(batch_id));
        database_bind_str(statement, 2, str_from(curator));
        while ((err = database_step(store, statement, &row, error)) == OK && row) {
            uint64_t line = (uint64_t)sqlite3_column_int64(statement, 0);
            if (line >= 1 && line <= count) marks[line - 1] = 1;
        }
        sqlite3_finalize(statement);
    }
    pthread_mutex_unlock(&store->lock);
    return err;
}

enum err store_judgement_newest(struct store *store, struct store_judgement_walk *walk,
                                size_t limit, struct store_judgement *ret_rows, size_t *ret_count,
                                struct error *error) {
    sqlite3_stmt *statement;
    bool has_more;
    pthread_mutex_lock(&store->lock);
    enum err err = database_prepare(
        store, &statement,
        "SELECT " COLUMNS " FROM judgements AS one WHERE batch_id = ?1"
        " AND (line, curator) > (?2, ?3) AND line <= ?4 AND NOT EXISTS (SELECT 1 FROM judgements"
        " AS later WHERE later.batch_id = ?1 AND later.line = one.line"
        " AND later.curator = one.curator AND later.version = one.version + 1)"
        " ORDER BY line, curator LIMIT ?5",
        error);
    if (err == OK) {
        uint64_t last = walk->line_last < INT64_MAX ? walk->line_last : INT64_MAX;
        database_bind_str(statement, 1, str_from(walk->batch_id));
        sqlite3_bind_int64(statement, 2, (sqlite3_int64)walk->line);
        database_bind_str(statement, 3, str_from(walk->curator));
        sqlite3_bind_int64(statement, 4, (sqlite3_int64)last);
        sqlite3_bind_int64(statement, 5, (sqlite3_int64)limit);
        err = read_rows(store, statement, limit, ret_rows, ret_count, &has_more, error);
    }
    pthread_mutex_unlock(&store->lock);
    if (err == OK && *ret_count > 0) {
        const struct store_judgement *latest = &ret_rows[*ret_count - 1];
        walk->line = latest->line;
        memcpy(walk->curator, latest->curator, sizeof walk->curator);
    }
    return err;
}

/* --- checking --- */

/* The rows that break a rule: one statement per rule, with the end of its sentence. */
static const struct {
    const char *sql; /* gives batch_id, line and curator */
    const char *broken;
} promises[] = {
    {"SELECT batch_id, line, curator FROM judgements GROUP BY batch_id, line, curator"
     " HAVING min(version) <> 1 OR max(version) <> count(*)",
     "the versions of the judgements are not 1 to their number (I14)"},
    {"SELECT one.batch_id, one.line, one.curator FROM judgements AS one JOIN judgements AS later"
     " ON later.batch_id = one.batch_id AND later.line = one.line AND later.curator = one.curator"
     " AND later.version = one.version + 1 WHERE later.seq <= one.seq",
     "a later version has an earlier place in the trail (I14)"},
    {"SELECT batch_id, line, min(curator) FROM judgements GROUP BY batch_id, line"
     " HAVING min(custom_id) <> max(custom_id)",
     "the judgements name two custom_ids (I14)"},
    {"SELECT batch_id, line, curator FROM judgements WHERE batch_id NOT IN"
     " (SELECT id FROM batches)",
     "there is no such batch (I14)"},
    {"SELECT batch_id, line, curator FROM judgements WHERE (fields IS NOT NULL) <> (verdict = 1)",
     "fields and verdict do not belong together (I14)"},
};

static enum err check_promise(struct store *store, size_t at, fsck_report_fn report, void *context,
                              struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    enum err err = database_prepare(store, &statement, promises[at].sql, error);
    if (err != OK) return err;
    while ((err = database_step(store, statement, &row, error)) == OK && row) {
        char batch_id[STORE_ID_BYTES], curator[JUDGEMENT_CURATOR_BYTES], sentence[512];
        database_column(statement, 0, batch_id, sizeof batch_id);
        database_column(statement, 2, curator, sizeof curator);
        snprintf(sentence, sizeof sentence, "%s: line %" PRId64 ", curator '%s': %s", batch_id,
                 (int64_t)sqlite3_column_int64(statement, 1), curator, promises[at].broken);
        report(context, sentence);
    }
    sqlite3_finalize(statement);
    return err;
}

static enum err count_rows(struct store *store, uint64_t *ret_count, struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    enum err err = database_prepare(store, &statement, "SELECT count(*) FROM judgements", error);
    if (err != OK) return err;
    err = database_step(store, statement, &row, error);
    if (err == OK) *ret_count = row ? (uint64_t)sqlite3_column_int64(statement, 0) : 0;
    sqlite3_finalize(statement);
    return err;
}

enum err store_fsck_judgements(struct store *store, fsck_report_fn report, void *context,
                               uint64_t *ret_count, struct error *error) {
    pthread_mutex_lock(&store->lock);
    enum err err = count_rows(store, ret_count, error);
    for (size_t i = 0; err == OK && i < sizeof promises / sizeof *promises; i++)
        err = check_promise(store, i, report, context, error);
    pthread_mutex_unlock(&store->lock);
    return err;
}
