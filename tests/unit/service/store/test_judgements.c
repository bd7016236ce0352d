/* SPDX-License-Identifier: Apache-2.0 */
#include "scratch.h"

#include "store/fsck.h"
#include "store/judgements.h"
#include "store/snapshot.h"
#include "store/uploads.h"

#include <sqlite3.h>

static void open_with_batches(struct scratch *s) {
    static const char *const ids[] = {"batch_one", "batch_two"};
    scratch_open(s);
    for (size_t i = 0; i < 2; i++) {
        struct store_batch batch = {.created_unix_s = 100, .expires_unix_s = 200};
        snprintf(batch.id, sizeof batch.id, "%s", ids[i]);
        snprintf(batch.endpoint, sizeof batch.endpoint, "/v1/chat/completions");
        snprintf(batch.input_file_id, sizeof batch.input_file_id, "file-none");
        assert_int_equal(store_batch_insert(s->store, &batch, &s->error), OK);
    }
}

static struct store_judgement judgement_of(const char *id, uint64_t line, const char *curator,
                                           uint32_t version) {
    static char custom_ids[10][4];
    struct store_judgement judgement = {.line = line,
                                        .custom_id = custom_ids[line],
                                        .created_unix_s = 150,
                                        .version = version,
                                        .verdict = VERDICT_ACCEPTED};
    snprintf(judgement.custom_id, 4, "c-%u", (unsigned)line % 10);
    snprintf(judgement.id, sizeof judgement.id, "%s", id);
    snprintf(judgement.batch_id, sizeof judgement.batch_id, "batch_one");
    snprintf(judgement.curator, sizeof judgement.curator, "%s", curator);
    snprintf(judgement.key_id, sizeof judgement.key_id, "k1");
    return judgement;
}

/* Adds a judgement. The caller releases *ret_row; `ret_row` may be NULL. */
static enum judgement_added add(struct scratch *s, const struct store_judgement *judgement,
                                struct store_judgement *ret_row) {
    struct store_judgement row;
    enum judgement_added added;
    assert_int_equal(store_judgement_add(s->store, judgement, NULL, &added, &row, &s->error), OK);
    if (ret_row)
        *ret_row = row;
    else
        store_judgement_release(&row);
    return added;
}

static enum judgement_added add_one(struct scratch *s, const char *id, uint64_t line,
                                    const char *curator, uint32_t version) {
    struct store_judgement judgement = judgement_of(id, line, curator, version);
    return add(s, &judgement, NULL);
}

static void count_sentence(void *context, const char *sentence) {
    (void)sentence;
    ++*(size_t *)context;
}

/* The number of faults in the directory; *ret_count is the number of its judgements. */
static size_t faults(struct scratch *s, uint64_t *ret_count) {
    size_t count = 0;
    assert_int_equal(store_fsck_judgements(s->store, count_sentence, &count, ret_count, &s->error),
                     OK);
    return count;
}

static void a_judgement_survives_a_restart_with_all_of_its_members(void **state) {
    (void)state;
    struct scratch s;
    struct store_judgement row, rows[4];
    size_t count;
    bool more;
    open_with_batches(&s);
    struct store_judgement judgement = judgement_of("id-1-long", 3, "Zo\xc3\xab", 1);
    judgement.verdict = VERDICT_CORRECTED;
    judgement.flagged = true;
    judgement.rating = 4;
    judgement.fields = (char[]){"{\"a\":1}"};
    judgement.comment = (char[]){"why"};
    assert_int_equal(add(&s, &judgement, &row), JUDGEMENT_ADDED);
    uint64_t seq = row.seq;
    store_judgement_release(&row);
    store_close(s.store);
    assert_int_equal(scratch_reopen(&s), OK);
    struct store_judgement_query query = {.batch_id = "batch_one"};
    assert_int_equal(store_judgement_list(s.store, &query, 4, rows, &count, &more, &s.error), OK);
    assert_int_equal(count, 1);
    assert_false(more);
    assert_int_equal(rows[0].seq, seq);
    assert_string_equal(rows[0].id, "id-1-long");
    assert_int_equal(rows[0].line, 3);
    assert_string_equal(rows[0].custom_id, "c-3");
    assert_string_equal(rows[0].curator, "Zo\xc3\xab");
    assert_string_equal(rows[0].key_id, "k1");
    assert_int_equal(rows[0].created_unix_s, 150);
    assert_int_equal(rows[0].version, 1);
    assert_int_equal(rows[0].verdict, VERDICT_CORRECTED);
    assert_true(rows[0].flagged);
    assert_int_equal(rows[0].rating, 4);
    assert_string_equal(rows[0].fields, "{\"a\":1}");
    assert_string_equal(rows[0].comment, "why");
    store_judgements_release(rows, count);
    scratch_remove(&s);
}

static void a_repeated_call_adds_no_second_row(void **state) {
    (void)state;
    struct scratch s;
    struct store_judgement first, again;
    uint64_t count;
    open_with_batches(&s);
    struct store_judgement judgement = judgement_of("same-id-1", 1, "Ana", 1);
    assert_int_equal(add(&s, &judgement, &first), JUDGEMENT_ADDED);
    assert_int_equal(add_one(&s, "other-id-1", 1, "Ana", 2), JUDGEMENT_ADDED);
    /* A repeat later, under another key and after a newer version, finds the first row. */
    judgement.created_unix_s = 999;
    judgement.key_id[0] = '\0';
    assert_int_equal(add(&s, &judgement, &again), JUDGEMENT_KNOWN);
    assert_int_equal(again.seq, first.seq);
    assert_int_equal(again.created_unix_s, 150);
    store_judgement_release(&first);
    store_judgement_release(&again);
    judgement.flagged = true;
    assert_int_equal(add(&s, &judgement, NULL), JUDGEMENT_ID_TAKEN);
    /* Another batch has ids of its own. */
    judgement.flagged = false;
    snprintf(judgement.batch_id, sizeof judgement.batch_id, "batch_two");
    assert_int_equal(add(&s, &judgement, NULL), JUDGEMENT_ADDED);
    assert_int_equal(faults(&s, &count), 0);
    assert_int_equal(count, 3);
    scratch_remove(&s);
}

static void a_version_counts_once_per_line_and_curator(void **state) {
    (void)state;
    struct scratch s;
    struct store_judgement newest;
    open_with_batches(&s);
    struct store_judgement judgement = judgement_of("id-first", 1, "Ana", 2);
    assert_int_equal(add(&s, &judgement, &newest), JUDGEMENT_OUTDATED);
    assert_int_equal(newest.seq, 0);
    assert_int_equal(newest.version, 0);
    assert_int_equal(add_one(&s, "id-ana-1", 1, "Ana", 1), JUDGEMENT_ADDED);
    assert_int_equal(add_one(&s, "id-ben-1", 1, "Ben", 1), JUDGEMENT_ADDED);
    assert_int_equal(add_one(&s, "id-ana-2", 2, "Ana", 1), JUDGEMENT_ADDED);
    assert_int_equal(add_one(&s, "id-ana-3", 1, "Ana", 2), JUDGEMENT_ADDED);
    judgement = judgement_of("id-late-1", 1, "Ana", 2);
    assert_int_equal(add(&s, &judgement, &newest), JUDGEMENT_OUTDATED);
    assert_string_equal(newest.id, "id-ana-3");
    assert_int_equal(newest.version, 2);
    store_judgement_release(&newest);
    scratch_remove(&s);
}

static void the_trail_is_read_in_pages_and_by_curator_or_line(void **state) {
    (void)state;
    struct scratch s;
    struct store_judgement rows[8];
    size_t count;
    bool more;
    open_with_batches(&s);
    for (unsigned i = 0; i < 6; i++) {
        char id[16];
        snprintf(id, sizeof id, "id-%06u", i);
        assert_int_equal(add_one(&s, id, 1 + i / 2, i % 2 ? "Ben" : "Ana", 1), JUDGEMENT_ADDED);
    }
    struct store_judgement_query query = {.batch_id = "batch_one"};
    uint64_t last = 0;
    for (size_t page = 0; page < 3; page++) {
        query.after = last;
        assert_int_equal(store_judgement_list(s.store, &query, 2, rows, &count, &more, &s.error),
                         OK);
        assert_int_equal(count, 2);
        assert_int_equal(more, page < 2);
        assert_true(rows[0].seq > last && rows[1].seq > rows[0].seq);
        last = rows[1].seq;
        store_judgements_release(rows, count);
    }
    query = (struct store_judgement_query){.batch_id = "batch_one", .curator = STR("Ben")};
    assert_int_equal(store_judgement_list(s.store, &query, 8, rows, &count, &more, &s.error), OK);
    assert_int_equal(count, 3);
    store_judgements_release(rows, count);
    query.custom_id = STR("c-2");
    query.after = 0;
    assert_int_equal(store_judgement_list(s.store, &query, 8, rows, &count, &more, &s.error), OK);
    assert_int_equal(count, 1);
    assert_string_equal(rows[0].id, "id-000003");
    store_judgements_release(rows, count);
    scratch_remove(&s);
}

static void a_walk_meets_the_newest_of_each_line_and_curator_once(void **state) {
    (void)state;
    struct scratch s;
    struct store_judgement rows[2];
    size_t count, seen = 0;
    bool more;
    open_with_batches(&s);
    assert_int_equal(add_one(&s, "id-000001", 2, "Ben", 1), JUDGEMENT_ADDED);
    assert_int_equal(add_one(&s, "id-000002", 1, "Ben", 1), JUDGEMENT_ADDED);
    assert_int_equal(add_one(&s, "id-000003", 1, "Ana", 1), JUDGEMENT_ADDED);
    assert_int_equal(add_one(&s, "id-000004", 1, "Ana", 2), JUDGEMENT_ADDED);
    assert_int_equal(add_one(&s, "id-000005", 3, "Ana", 1), JUDGEMENT_ADDED);
    static const char *const expected[] = {"id-000004", "id-000002", "id-000001", "id-000005"};
    struct store_judgement_walk walk = {.batch_id = "batch_one", .line_last = UINT64_MAX};
    do {
        assert_int_equal(store_judgement_newest(s.store, &walk, 2, rows, &count, &more, &s.error),
                         OK);
        for (size_t i = 0; i < count; i++) assert_string_equal(rows[i].id, expected[seen++]);
        store_judgements_release(rows, count);
    } while (more);
    assert_int_equal(seen, 4);
    walk = (struct store_judgement_walk){.batch_id = "batch_one", .line = 2, .line_last = 2};
    assert_int_equal(store_judgement_newest(s.store, &walk, 2, rows, &count, &more, &s.error), OK);
    assert_int_equal(count, 1);
    assert_string_equal(rows[0].id, "id-000001");
    store_judgements_release(rows, count);
    scratch_remove(&s);
}

/* Runs SQL on the database of a closed store. */
static int tamper(const struct scratch *s, const char *sql) {
    char path[96];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/meta.db", s->dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    int code = sqlite3_exec(db, sql, NULL, NULL, NULL);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    return code;
}

/* Takes back what version 9 and those after it add. */
#define NO_DELETION                                                                                \
    "DROP INDEX batches_messages; ALTER TABLE batches DROP COLUMN inline_requests;"                \
    "DROP TABLE model_names; DROP TABLE proofs; DROP TABLE erasures;"                              \
    "DROP TRIGGER judgements_kept; DROP TABLE erased_lines;"                                       \
    "DROP INDEX batches_ended; DROP INDEX batches_leaving;"                                        \
    "DROP INDEX batches_input; DROP INDEX batches_output; DROP INDEX batches_errors;"              \
    "ALTER TABLE batches DROP COLUMN deleted;"                                                     \
    "CREATE TRIGGER judgements_kept BEFORE DELETE ON judgements"                                   \
    " BEGIN SELECT RAISE(ABORT, 'a judgement is never removed'); END;"

#define UNCHANGED                                                                                  \
    "CREATE TRIGGER judgements_unchanged BEFORE UPDATE ON judgements"                              \
    " BEGIN SELECT RAISE(ABORT, 'a judgement is never changed'); END"

static void rows_cannot_be_changed_or_removed_and_fsck_sees_it_if_they_were(void **state) {
    (void)state;
    struct scratch s;
    uint64_t count;
    open_with_batches(&s);
    assert_int_equal(add_one(&s, "id-000001", 1, "Ana", 1), JUDGEMENT_ADDED);
    assert_int_equal(add_one(&s, "id-000002", 1, "Ana", 2), JUDGEMENT_ADDED);
    assert_int_equal(add_one(&s, "id-000003", 2, "Ana", 1), JUDGEMENT_ADDED);
    store_close(s.store);
    assert_int_equal(tamper(&s, "UPDATE judgements SET flagged = 1"), SQLITE_CONSTRAINT);
    assert_int_equal(tamper(&s, "DELETE FROM judgements"), SQLITE_CONSTRAINT);
    /* The triggers are made again, as they were: the schema is compared at each start. */
    static const char *const tampering[] = {
        "DROP TRIGGER judgements_kept; DELETE FROM judgements WHERE version = 1 AND line = 1;"
        "CREATE TRIGGER judgements_kept BEFORE DELETE ON judgements WHEN NOT EXISTS"
        " (SELECT 1 FROM batches WHERE id = OLD.batch_id AND deleted IS NOT NULL) AND NOT EXISTS"
        " (SELECT 1 FROM erased_lines WHERE batch_id = OLD.batch_id AND line = OLD.line)"
        " BEGIN SELECT RAISE(ABORT, 'a judgement goes with its batch or its line only'); END",
        ("DROP TRIGGER judgements_unchanged;"
         " UPDATE judgements SET version = 1, verdict = 1 WHERE version = 2;" UNCHANGED),
        "DROP TRIGGER judgements_unchanged;"
        " UPDATE judgements SET verdict = 0, batch_id = 'batch_no' WHERE line = 2;" UNCHANGED};
    for (size_t i = 0; i < sizeof tampering / sizeof *tampering; i++) {
        assert_int_equal(tamper(&s, tampering[i]), SQLITE_OK);
        assert_int_equal(scratch_reopen(&s), OK);
        /* The sums of the batch differ from then on. */
        assert_int_equal(faults(&s, &count), i == 2 ? 4 : 2);
        assert_int_equal(count, 2);
        store_close(s.store);
    }
    s.store = NULL;
    scratch_remove(&s);
}

static void lines_that_a_curator_has_judged_are_marked(void **state) {
    (void)state;
    struct scratch s;
    unsigned char marks[4] = {0};
    open_with_batches(&s);
    assert_int_equal(add_one(&s, "id-000001", 1, "Ana", 1), JUDGEMENT_ADDED);
    assert_int_equal(add_one(&s, "id-000002", 1, "Ana", 2), JUDGEMENT_ADDED);
    assert_int_equal(add_one(&s, "id-000003", 2, "Ben", 1), JUDGEMENT_ADDED);
    assert_int_equal(add_one(&s, "id-000004", 4, "Ana", 1), JUDGEMENT_ADDED);
    assert_int_equal(add_one(&s, "id-000005", 5, "Ana", 1), JUDGEMENT_ADDED);
    assert_int_equal(store_judgement_mark(s.store, "batch_one", "Ana", marks, 4, &s.error), OK);
    assert_memory_equal(marks, ((unsigned char[]){1, 0, 0, 1}), 4);
    scratch_remove(&s);
}

static void a_copy_of_the_database_has_the_judgements(void **state) {
    (void)state;
    struct scratch s;
    struct snapshot *live;
    char path[96];
    sqlite3 *db;
    open_with_batches(&s);
    assert_int_equal(add_one(&s, "id-000001", 1, "Ana", 1), JUDGEMENT_ADDED);
    snprintf(path, sizeof path, "%s/copy.db", s.dir);
    assert_int_equal(snapshot_open_live(&live, s.dir, &s.error), OK);
    assert_int_equal(snapshot_take(live, path, &s.error), OK);
    snapshot_close(live);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "INSERT INTO judgements SELECT NULL, 'id-000002', batch_id,"
                                  " line, custom_id, curator, key_id, created, 2, verdict,"
                                  " flagged, rating, fields, comment FROM judgements",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_changes(db), 1);
    assert_int_equal(sqlite3_exec(db, "DELETE FROM judgements", NULL, NULL, NULL),
                     SQLITE_CONSTRAINT);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    scratch_remove(&s);
}

static enum err add_within(struct scratch *s, const struct store_judgement *judgement,
                           const struct store_judgement_limits *limits) {
    struct store_judgement row;
    enum judgement_added added;
    enum err err = store_judgement_add(s->store, judgement, limits, &added, &row, &s->error);
    if (err == OK) store_judgement_release(&row);
    return err;
}

static void a_line_and_a_batch_take_so_many_and_no_more(void **state) {
    (void)state;
    struct scratch s;
    uint64_t count;
    char id[16], curator[16];
    char text[512];
    open_with_batches(&s);
    struct store_judgement_limits limits = {.line_rows = 3,
                                            .line_bytes = 1 << 20,
                                            .batch_rows = 5,
                                            .batch_bytes = 1 << 20,
                                            .batch_curators = 4};
    for (unsigned i = 0; i < 5; i++) { /* each curator's name is new */
        snprintf(id, sizeof id, "id-%06u", i);
        snprintf(curator, sizeof curator, "c%u", i % 4);
        struct store_judgement judgement = judgement_of(id, i < 3 ? 1 : 2, curator, 1);
        assert_int_equal(add_within(&s, &judgement, &limits), OK);
    }
    struct store_judgement judgement = judgement_of("id-000010", 1, "c3", 1);
    assert_int_equal(add_within(&s, &judgement, &limits), ERR_INVALID);
    assert_string_equal(s.error.text, "Line 1 has 3 judgements, which is the limit of a line.");
    judgement = judgement_of("id-000011", 3, "c1", 1);
    assert_int_equal(add_within(&s, &judgement, &limits), ERR_INVALID);
    assert_string_equal(s.error.text, "The batch has 5 judgements, which is the limit of a batch.");
    limits.batch_rows = 100;
    judgement = judgement_of("id-000012", 3, "one-too-many", 1);
    assert_int_equal(add_within(&s, &judgement, &limits), ERR_INVALID);
    assert_non_null(strstr(s.error.text, "4 curators"));
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    judgement = judgement_of("id-000013", 3, "c1", 1);
    judgement.comment = text;
    limits.line_bytes = 900;
    assert_int_equal(add_within(&s, &judgement, &limits), ERR_INVALID);
    assert_non_null(strstr(s.error.text, "The judgements of line 3 have 0 bytes"));
    limits.line_bytes = 1000;
    limits.batch_bytes = 2900; /* five rows of 405 bytes */
    assert_int_equal(add_within(&s, &judgement, &limits), ERR_INVALID);
    assert_non_null(strstr(s.error.text, "The judgements of the batch have 2025 bytes"));
    limits.batch_bytes = 1 << 20;
    limits.owner_bytes = 2900;
    assert_int_equal(add_within(&s, &judgement, &limits), ERR_LIMIT);
    limits.owner_bytes = 3000;
    assert_int_equal(add_within(&s, &judgement, &limits), OK);
    /* The same call again is no new row, also where no room is left. */
    assert_int_equal(add_within(&s, &judgement, &limits), OK);
    assert_int_equal(faults(&s, &count), 0);
    assert_int_equal(count, 6);
    uint64_t bytes;
    assert_int_equal(store_owner_bytes(s.store, "", 150, &bytes, &s.error), OK);
    assert_int_equal(bytes, 2025 + 405 + 511);
    scratch_remove(&s);
}

static void a_piece_ends_with_the_row_that_fills_it(void **state) {
    (void)state;
    struct scratch s;
    struct store_judgement rows[64];
    size_t count, seen = 0;
    bool more = true;
    char id[16], curator[16];
    char *text = calloc(1, 60001);
    assert_non_null(text);
    memset(text, 'x', 60000);
    open_with_batches(&s);
    for (unsigned i = 0; i < 40; i++) { /* 2.4 MB */
        snprintf(id, sizeof id, "id-%06u", i);
        snprintf(curator, sizeof curator, "c%02u", i);
        struct store_judgement judgement = judgement_of(id, 1, curator, 1);
        judgement.comment = text;
        assert_int_equal(add_within(&s, &judgement, NULL), OK);
    }
    struct store_judgement_walk walk = {.batch_id = "batch_one", .line_last = UINT64_MAX};
    for (unsigned piece = 0; more; piece++) {
        assert_int_equal(store_judgement_newest(s.store, &walk, 64, rows, &count, &more, &s.error),
                         OK);
        assert_int_equal(count, piece < 2 ? 18 : 4);
        seen += count;
        store_judgements_release(rows, count);
    }
    assert_int_equal(seen, 40);
    struct store_judgement_query query = {.batch_id = "batch_one"};
    assert_int_equal(store_judgement_list(s.store, &query, 64, rows, &count, &more, &s.error), OK);
    assert_int_equal(count, 18);
    assert_true(more);
    assert_int_equal(query.after, rows[17].seq);
    store_judgements_release(rows, count);
    free(text);
    scratch_remove(&s);
}

/* A filter that chooses few rows looks at so many and says from where to go on. */
static void a_search_in_the_trail_ends_and_goes_on(void **state) {
    (void)state;
    struct scratch s;
    struct store_judgement rows[4];
    size_t count, found = 0, calls = 0;
    bool more = true;
    open_with_batches(&s);
    assert_int_equal(add_one(&s, "id-000001", 1, "Ana", 1), JUDGEMENT_ADDED);
    store_close(s.store);
    assert_int_equal(
        tamper(&s, "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)"
                   " INSERT INTO judgements SELECT NULL, 'id-' || i, batch_id, i, custom_id, 'Ben',"
                   " key_id, created, 1, verdict, flagged, rating, fields, comment"
                   " FROM judgements, n WHERE seq = 1;"
                   "INSERT INTO judgements SELECT NULL, 'id-last', batch_id, 2, custom_id, 'Ana',"
                   " key_id, created, 1, verdict, flagged, rating, fields, comment"
                   " FROM judgements WHERE seq = 1"),
        SQLITE_OK);
    assert_int_equal(scratch_reopen(&s), OK);
    struct store_judgement_query query = {.batch_id = "batch_one", .curator = STR("Ana")};
    for (; more; calls++) {
        assert_int_equal(store_judgement_list(s.store, &query, 4, rows, &count, &more, &s.error),
                         OK);
        found += count;
        store_judgements_release(rows, count);
    }
    assert_int_equal(found, 2);
    assert_int_equal(calls, 3); /* 4,096 rows each */
    unsigned char *marks = calloc(1, 9000);
    assert_non_null(marks);
    assert_int_equal(store_judgement_mark(s.store, "batch_one", "Ben", marks, 9000, &s.error), OK);
    for (size_t i = 0; i < 9000; i++) assert_int_equal(marks[i], i > 0);
    free(marks);
    scratch_remove(&s);
}

static void a_directory_from_before_the_sums_gets_them(void **state) {
    (void)state;
    struct scratch s;
    struct store_upload upload = {.purpose = "batch",
                                  .filename = "x",
                                  .bytes = 3,
                                  .created_unix_s = 100,
                                  .expires_unix_s = 4000};
    struct store_part part;
    struct store_spool *spool;
    uint64_t count, bytes;
    open_with_batches(&s);
    assert_int_equal(store_upload_create(s.store, &upload, &s.error), OK);
    assert_int_equal(store_spool_open(&spool, s.store, &s.error), OK);
    assert_int_equal(store_spool_write(spool, "12345", 5, &s.error), OK);
    assert_int_equal(store_part_commit(spool, str_from(upload.id), 0, 110, &part, &s.error), OK);
    assert_int_equal(add_one(&s, "id-000001", 1, "Ana", 1), JUDGEMENT_ADDED);
    assert_int_equal(add_one(&s, "id-000002", 1, "Ana", 2), JUDGEMENT_ADDED);
    assert_int_equal(add_one(&s, "id-000003", 1, "Ben", 1), JUDGEMENT_ADDED);
    store_close(s.store);
    assert_int_equal(tamper(&s,
                            "DROP TABLE judgement_sums; DROP TABLE judgement_curators;"
                            "DROP INDEX judgements_first; DROP INDEX uploads_pending;"
                            "DROP INDEX uploads_ended; DROP INDEX files_sum; DROP INDEX files_list;"
                            "DROP INDEX files_purposes; DROP INDEX files_of_purpose;"
                            "DROP INDEX batches_of; ALTER TABLE uploads DROP COLUMN part_bytes;"
                            "ALTER TABLE uploads DROP COLUMN part_count;" NO_DELETION
                            "PRAGMA user_version = 7"),
                     SQLITE_OK);
    assert_int_equal(scratch_reopen(&s), OK);
    assert_int_equal(faults(&s, &count), 0);
    assert_int_equal(count, 3);
    assert_int_equal(store_upload_get(s.store, str_from(upload.id), 110, &upload, &s.error), OK);
    assert_int_equal(upload.part_count, 1);
    assert_int_equal(upload.part_bytes, 5);
    assert_int_equal(store_owner_bytes(s.store, "", 110, &bytes, &s.error), OK);
    assert_int_equal(bytes, 5 + 3 * (JUDGEMENT_ROW_BYTES + 3 + 3));
    scratch_remove(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_judgement_survives_a_restart_with_all_of_its_members),
        cmocka_unit_test(a_repeated_call_adds_no_second_row),
        cmocka_unit_test(a_version_counts_once_per_line_and_curator),
        cmocka_unit_test(the_trail_is_read_in_pages_and_by_curator_or_line),
        cmocka_unit_test(a_walk_meets_the_newest_of_each_line_and_curator_once),
        cmocka_unit_test(rows_cannot_be_changed_or_removed_and_fsck_sees_it_if_they_were),
        cmocka_unit_test(lines_that_a_curator_has_judged_are_marked),
        cmocka_unit_test(a_copy_of_the_database_has_the_judgements),
        cmocka_unit_test(a_line_and_a_batch_take_so_many_and_no_more),
        cmocka_unit_test(a_piece_ends_with_the_row_that_fills_it),
        cmocka_unit_test(a_search_in_the_trail_ends_and_goes_on),
        cmocka_unit_test(a_directory_from_before_the_sums_gets_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
