/* SPDX-License-Identifier: Apache-2.0 */
#include "store/judgements.h"

#include "base/mem.h"
#include "store/fsck.h"
#include "store/judgements_internal.h"

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

/* Copies the row; the bytes of its long texts. */
static size_t read_row(sqlite3_stmt *statement, struct store_judgement *ret_row) {
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
    return (size_t)sqlite3_column_bytes(statement, 4) +
           (size_t)sqlite3_column_bytes(statement, 12) +
           (size_t)sqlite3_column_bytes(statement, 13);
}

/* Steps to at most `limit` rows, or to those that reach JUDGEMENT_PIECE_BYTES, and finalizes the
 * statement; on failure no row is left. */
static enum err read_rows(struct store *store, sqlite3_stmt *statement, size_t limit,
                          struct store_judgement *ret_rows, size_t *ret_count, bool *ret_has_more,
                          struct error *error) {
    size_t count = 0, bytes = 0;
    bool row = false, has_more = false;
    enum err err;
    while ((err = database_step(store, statement, &row, error)) == OK && row) {
        has_more = count == limit || bytes >= JUDGEMENT_PIECE_BYTES;
        if (has_more) break;
        bytes += read_row(statement, &ret_rows[count++]);
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
    const struct store_judgement_limits *limits;
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

/* A batch that was deleted meanwhile gets no judgement that would outlive it. */
static enum err check_batch(struct store *store, const char *batch_id, struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    enum err err = database_prepare(
        store, &statement, "SELECT 1 FROM batches WHERE id = ?1 AND deleted IS NULL", error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(batch_id));
    err = database_step(store, statement, &row, error);
    sqlite3_finalize(statement);
    if (err == OK && !row)
        err = err_set(error, ERR_NOT_FOUND, "No batch found with id '%s'.", batch_id);
    return err;
}

/* The client has read the line's answer before it was erased. */
static enum err check_line(struct store *store, const struct store_judgement *judgement,
                           struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    enum err err = database_prepare(
        store, &statement, "SELECT 1 FROM erased_lines WHERE batch_id = ?1 AND line = ?2", error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(judgement->batch_id));
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)judgement->line);
    err = database_step(store, statement, &row, error);
    sqlite3_finalize(statement);
    if (err == OK && row)
        err = err_set(error, ERR_NOT_FOUND, "Line %" PRIu64 " of the batch was erased.",
                      judgement->line);
    return err;
}

/* Checks the batch, the id and the version, and adds the row. database_transact may run it
 * twice. */
static enum err add(struct store *store, void *context, struct error *error) {
    struct add_call *call = context;
    store_judgement_release(&call->row);
    enum err err = check_batch(store, call->judgement->batch_id, error);
    if (err == OK) err = check_line(store, call->judgement, error);
    if (err == OK) err = find_by_id(store, call->judgement, &call->row, error);
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
    err = judgement_sums_add(store, call->judgement, call->limits, error);
    if (err == OK) err = insert_row(store, call->judgement, error);
    return err == OK ? find_by_id(store, call->judgement, &call->row, error) : err;
}

enum err store_judgement_add(struct store *store, const struct store_judgement *judgement,
                             const struct store_judgement_limits *limits,
                             enum judgement_added *ret_added, struct store_judgement *ret_row,
                             struct error *error) {
    struct add_call call = {.judgement = judgement,
                            .limits = limits ? limits : &store_judgement_limits_usual};
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

/* True if the column has this text, which is compared before anything is copied. */
static bool column_is(sqlite3_stmt *statement, int at, struct str text) {
    const char *found = (const char *)sqlite3_column_text(statement, at);
    struct str whole = {found, (size_t)sqlite3_column_bytes(statement, at)};
    return !text.at || (found && str_equals(whole, text));
}

/* Reads on in the trail. Rows that the query does not choose count as looked at. */
static enum err read_chosen(struct store *store, sqlite3_stmt *statement,
                            struct store_judgement_query *query, size_t limit,
                            struct store_judgement *ret_rows, size_t *ret_count, bool *ret_has_more,
                            struct error *error) {
    size_t count = 0, bytes = 0, looked_at = 0;
    bool row = false, has_more = false;
    enum err err;
    while ((err = database_step(store, statement, &row, error)) == OK && row) {
        bool is_chosen =
            column_is(statement, 4, query->custom_id) && column_is(statement, 5, query->curator);
        has_more = (is_chosen && count == limit) || bytes >= JUDGEMENT_PIECE_BYTES ||
                   looked_at == JUDGEMENT_PIECE_ROWS;
        if (has_more) break;
        looked_at++;
        query->after = (uint64_t)sqlite3_column_int64(statement, 0);
        if (is_chosen) bytes += read_row(statement, &ret_rows[count++]);
    }
    if (err != OK) store_judgements_release(ret_rows, count);
    *ret_count = err == OK ? count : 0;
    *ret_has_more = has_more;
    return err;
}

enum err store_judgement_list(struct store *store, struct store_judgement_query *query,
                              size_t limit, struct store_judgement *ret_rows, size_t *ret_count,
                              bool *ret_has_more, struct error *error) {
    sqlite3_stmt *statement;
    pthread_mutex_lock(&store->lock);
    enum err err = database_prepare(
        store, &statement,
        "SELECT " COLUMNS " FROM judgements WHERE batch_id = ?1 AND seq > ?2 ORDER BY seq", error);
    if (err == OK) {
        uint64_t after = query->after < INT64_MAX ? query->after : INT64_MAX;
        database_bind_str(statement, 1, str_from(query->batch_id));
        sqlite3_bind_int64(statement, 2, (sqlite3_int64)after);
        err = read_chosen(store, statement, query, limit, ret_rows, ret_count, ret_has_more, error);
        sqlite3_finalize(statement);
    }
    pthread_mutex_unlock(&store->lock);
    return err;
}

/* Marks at most JUDGEMENT_PIECE_ROWS lines behind *line, and moves it. *ret_has_more is false at
 * the end. */
static enum err mark_piece(struct store *store, const char *batch_id, const char *curator,
                           uint64_t *line, unsigned char *marks, size_t count, bool *ret_has_more,
                           struct error *error) {
    sqlite3_stmt *statement;
    size_t found = 0;
    bool row = false;
    enum err err = database_prepare(store, &statement,
                                    "SELECT line FROM judgements INDEXED BY judgements_first"
                                    " WHERE batch_id = ?1 AND curator = ?2 AND version = 1"
                                    " AND line > ?3 ORDER BY line LIMIT ?4",
                                    error);
    if (err != OK) return err;
    database_bind_str(statement, 1, str_from(batch_id));
    database_bind_str(statement, 2, str_from(curator));
    sqlite3_bind_int64(statement, 3, (sqlite3_int64)*line);
    sqlite3_bind_int64(statement, 4, JUDGEMENT_PIECE_ROWS);
    while ((err = database_step(store, statement, &row, error)) == OK && row) {
        *line = (uint64_t)sqlite3_column_int64(statement, 0);
        if (*line >= 1 && *line <= count) marks[*line - 1] = 1;
        found++;
    }
    sqlite3_finalize(statement);
    *ret_has_more = found == JUDGEMENT_PIECE_ROWS;
    return err;
}

enum err store_judgement_mark(struct store *store, const char *batch_id, const char *curator,
                              unsigned char *marks, size_t count, struct error *error) {
    uint64_t line = 0;
    bool has_more = true;
    enum err err = OK;
    while (err == OK && has_more) {
        pthread_mutex_lock(&store->lock);
        err = mark_piece(store, batch_id, curator, &line, marks, count, &has_more, error);
        pthread_mutex_unlock(&store->lock);
    }
    return err;
}

enum err store_judgement_newest(struct store *store, struct store_judgement_walk *walk,
                                size_t limit, struct store_judgement *ret_rows, size_t *ret_count,
                                bool *ret_has_more, struct error *error) {
    sqlite3_stmt *statement;
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
        sqlite3_bind_int64(statement, 5, (sqlite3_int64)limit + 1);
        err = read_rows(store, statement, limit, ret_rows, ret_count, ret_has_more, error);
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
    {"SELECT one.batch_id AS batch_id, one.line AS line, one.curator AS curator FROM judgements AS"
     " one JOIN judgements AS later"
     " ON later.batch_id = one.batch_id AND later.line = one.line AND later.curator = one.curator"
     " AND later.version = one.version + 1 WHERE later.seq <= one.seq",
     "a later version has an earlier place in the trail (I14)"},
    {"SELECT batch_id, line, min(curator) AS curator FROM judgements GROUP BY batch_id, line"
     " HAVING min(custom_id) <> max(custom_id)",
     "the judgements name two custom_ids (I14)"},
    {"SELECT batch_id, line, curator FROM judgements WHERE batch_id NOT IN"
     " (SELECT id FROM batches)",
     "there is no such batch (I14)"},
    {"SELECT batch_id, line, curator FROM judgements WHERE (fields IS NOT NULL) <> (verdict = 1)",
     "fields and verdict do not belong together (I14)"},
    {JUDGEMENT_SUMS_BROKEN, "the sums of the batch's judgements are not those of its rows (I14)"},
};

/* Rows of a batch whose deletion a kill has cut off break no promise. */
#define OF_BATCHES_THAT_STAY                                                                       \
    "SELECT batch_id, line, curator FROM (%s) WHERE batch_id NOT IN"                               \
    " (SELECT id FROM batches WHERE deleted IS NOT NULL)"

static enum err check_promise(struct store *store, size_t at, fsck_report_fn report, void *context,
                              struct error *error) {
    sqlite3_stmt *statement;
    bool row = false;
    char sql[2048];
    snprintf(sql, sizeof sql, OF_BATCHES_THAT_STAY, promises[at].sql);
    enum err err = database_prepare(store, &statement, sql, error);
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
