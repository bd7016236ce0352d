/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the lines of a batch's files: as they are made from pieces, as they come back from the
 * store, and after lines were erased. */
#include "batch/proofs.h"

#include "../store/scratch.h"
#include "base/mem.h"
#include "store/proofs_internal.h"

#include <fcntl.h>

#define TEXT "alpha\n\nbravo\r\ncharlie\ndelta\n"
#define LINES 5

/* A file that is open and has no name. */
static int opened(const char *text) {
    char path[] = "/tmp/quern-proofs-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    return fd;
}

static bool is_stopped(void *context) {
    const bool *stops = context;
    return *stops;
}

/* Ends a batch whose input is TEXT, with the row of it. */
static void end(struct scratch *s, struct store_batch *ret_batch) {
    struct store_file file = scratch_put(s, TEXT, "batch", 100, 0);
    struct store_published published = {.proof_count = 1};
    struct store_batch batch = {.created_unix_s = 100,
                                .expires_unix_s = 200,
                                .status = BATCH_FINALIZING,
                                .final_status = BATCH_COMPLETED};
    int fd;
    snprintf(batch.id, sizeof batch.id, "batch_%032d", 1);
    memcpy(batch.input_file_id, file.id, sizeof batch.input_file_id);
    assert_int_equal(store_batch_insert(s->store, &batch, &s->error), OK);
    assert_int_equal(store_file_open(s->store, str_from(file.id), 100, &fd, NULL, &s->error), OK);
    assert_int_equal(proof_of_input(fd, &file, NULL, NULL, &published.proofs[0], &s->error), OK);
    os_close(fd);
    batch.status = BATCH_COMPLETED;
    batch.completed_unix_s = 150;
    assert_int_equal(store_batch_update(s->store, &batch, BATCH_FINALIZING, &published, &s->error),
                     OK);
    free(published.proofs[0].salts);
    *ret_batch = batch;
}

static bool is_sum_of(struct batch_proofs *proofs, const char *text) {
    struct run_salts_file *file = run_salts_find(&proofs->salts, "input");
    const struct store_proof *row = batch_proofs_row(proofs, "input");
    struct line_sum sum;
    struct error error;
    char hex[SHA256_HEX_BYTES];
    int fd = opened(text);
    sha256_hex(row->lines_sha256, hex);
    enum err err =
        line_sum_file(fd, &file->salts, file->erased, file->erased_count, NULL, &sum, &error);
    os_close(fd);
    return err == OK && sum.lines == row->lines && strcmp(sum.hex, hex) == 0;
}

static void report(void *context, const char *sentence) {
    snprintf(context, 256, "%s", sentence);
}

static void a_row_comes_back_with_the_sum_of_every_line(void **state) {
    (void)state;
    struct scratch s;
    struct store_batch batch;
    struct batch_proofs proofs;
    char said[256] = "";
    scratch_open(&s);
    assert_int_equal(batch_proofs_read(s.store, "batch_none", &proofs, &s.error), ERR_NOT_FOUND);
    end(&s, &batch);
    assert_int_equal(batch_proofs_read(s.store, batch.id, &proofs, &s.error), OK);
    struct store_proof *row = batch_proofs_row(&proofs, "input");
    assert_int_equal(row->lines, LINES);
    assert_string_equal(row->name, "x.jsonl");
    assert_string_equal(row->file_id, batch.input_file_id);
    assert_null(batch_proofs_row(&proofs, "output"));
    assert_true(is_sum_of(&proofs, TEXT));
    for (size_t i = 0; i < strlen(TEXT); i++) {
        char other[] = TEXT;
        other[i] ^= 1;
        assert_false(is_sum_of(&proofs, other));
    }
    batch_proofs_check(s.store, &batch, report, said);
    assert_string_equal(said, "");
    snprintf(batch.output_file_id, sizeof batch.output_file_id, "file-output");
    batch_proofs_check(s.store, &batch, report, said);
    assert_non_null(strstr(said, "its output is the file 'file-output'"));
    batch_proofs_release(&proofs);
    scratch_remove(&s);
}

static void pieces_of_any_size_make_the_same_sum(void **state) {
    (void)state;
    struct line_salts salts;
    struct line_sum whole, pieces;
    struct error error;
    line_salts_make(&salts);
    int fd = opened(TEXT);
    assert_int_equal(line_sum_file(fd, &salts, NULL, 0, NULL, &whole, &error), OK);
    os_close(fd);
    for (size_t size = 1; size <= strlen(TEXT); size++) {
        struct line_summer summer;
        line_summer_begin(&summer, &salts, NULL, 0);
        for (struct str rest = STR(TEXT); rest.bytes > 0;) {
            size_t count = rest.bytes < size ? rest.bytes : size;
            assert_int_equal(line_summer_add(&summer, (struct str){rest.at, count}, &error), OK);
            rest = str_skip(rest, count);
        }
        assert_int_equal(line_summer_end(&summer, &pieces, &error), OK);
        assert_int_equal(pieces.lines, LINES);
        assert_string_equal(pieces.hex, whole.hex);
    }
    line_salts_release(&salts);
}

static void an_input_of_other_bytes_is_not_proven(void **state) {
    (void)state;
    struct scratch s;
    struct store_proof row;
    bool stops = false;
    scratch_open(&s);
    struct store_file file = scratch_put(&s, TEXT, "batch", 100, 0);
    int fd = opened(TEXT);
    assert_int_equal(pwrite(fd, "A", 1, 0), 1);
    assert_int_equal(proof_of_input(fd, &file, is_stopped, &stops, &row, &s.error), ERR_CORRUPT);
    assert_int_equal(ftruncate(fd, 3), 0);
    assert_int_not_equal(proof_of_input(fd, &file, is_stopped, &stops, &row, &s.error), OK);
    stops = true;
    assert_int_equal(proof_of_input(fd, &file, is_stopped, &stops, &row, &s.error), ERR_CANCELLED);
    os_close(fd);
    scratch_remove(&s);
}

struct put {
    const char *batch_id;
    const struct store_proof *row;
    const char *record;
};

static enum err put(struct store *store, void *context, struct error *error) {
    const struct put *call = context;
    enum err err = proofs_put_row(store, call->batch_id, call->row, error);
    return err == OK ? erasures_add_row(store, call->batch_id, 160, call->record, error) : err;
}

/* Erases a line as an erasure does, without a new file. */
static void erase(struct scratch *s, const char *batch_id, uint64_t number, struct str line) {
    struct batch_proofs proofs;
    struct line_erased erased = {.line = number};
    unsigned char salt[SHA256_BYTES];
    assert_int_equal(batch_proofs_read(s->store, batch_id, &proofs, &s->error), OK);
    struct run_salts_file *file = run_salts_find(&proofs.salts, "input");
    assert_true(line_salts_get(&file->salts, number - 1, salt));
    line_sum_leaf(salt, line, erased.leaf);
    batch_proofs_erase(&proofs, "input", &erased, 1);
    assert_true(batch_proofs_fit(&proofs));
    json_t *record =
        json_pack("{s:i,s:s,s:i,s:{s:o},s:[]}", "erased_at", 160, "reason", "", "requests", 1,
                  "files", "input", run_salts_lines_json(&erased, 1), "others");
    char *text = json_dumps(record, JSON_COMPACT);
    struct put call = {batch_id, batch_proofs_row(&proofs, "input"), text};
    assert_int_equal(database_transact(s->store, put, &call, &s->error), OK);
    free(text);
    json_decref(record);
    batch_proofs_release(&proofs);
}

static void an_erased_line_keeps_the_sum_and_loses_its_salt(void **state) {
    (void)state;
    struct scratch s;
    struct store_batch batch;
    struct batch_proofs before, after;
    unsigned char salt[SHA256_BYTES];
    char said[256] = "";
    scratch_open(&s);
    end(&s, &batch);
    assert_int_equal(batch_proofs_read(s.store, batch.id, &before, &s.error), OK);
    erase(&s, batch.id, 3, STR("bravo\r\n"));
    erase(&s, batch.id, 1, STR("alpha\n"));
    assert_int_equal(batch_proofs_read(s.store, batch.id, &after, &s.error), OK);
    struct store_proof *old = batch_proofs_row(&before, "input"),
                       *row = batch_proofs_row(&after, "input");
    assert_int_equal(row->lines, LINES);
    assert_memory_equal(row->lines_sha256, old->lines_sha256, SHA256_BYTES);
    assert_null(strstr(row->salts, "\"0 0 "));
    assert_true(is_sum_of(&after, "\n\n\ncharlie\ndelta\n"));
    assert_false(is_sum_of(&after, "\n\nbravo\r\ncharlie\ndelta\n"));
    assert_false(is_sum_of(&after, "\n\n\ncharlie\ndelto\n"));
    struct run_salts_file *file = run_salts_find(&after.salts, "input");
    assert_int_equal(file->erased_count, 2);
    assert_int_equal(file->erased[0].line, 1);
    for (uint64_t line = 0; line < LINES; line++)
        assert_int_equal(line_salts_get(&file->salts, line, salt), line != 0 && line != 2);
    assert_int_equal(json_array_size(after.salts.erasures), 2);
    batch_proofs_check(s.store, &batch, report, said); /* the file still has both lines */
    assert_non_null(strstr(said, "line 1 was erased, and is not empty"));
    batch_proofs_release(&before);
    batch_proofs_release(&after);
    scratch_remove(&s);
}

static void damaged_texts_are_no_proofs(void **state) {
    (void)state;
    static const char *const texts[][2] = {
        {"x", "{}"},
        {"{}", "{}"},
        {"[1]", "{}"},
        {"[\"0 1 00\"]", "{}"},
        {"[]", "x"},
        {"[]", "{\"erased_at\":1,\"reason\":\"\",\"requests\":1,\"files\":{\"output\":[]}}"},
        {"[]", "{\"erased_at\":1,\"reason\":\"\",\"requests\":1,\"files\":{\"input\":[\"7\"]}}"},
    };
    struct scratch s;
    struct store_batch batch;
    struct batch_proofs proofs;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        scratch_open(&s);
        end(&s, &batch);
        assert_int_equal(batch_proofs_read(s.store, batch.id, &proofs, &s.error), OK);
        struct store_proof row = *batch_proofs_row(&proofs, "input");
        row.salts = mem_text(texts[i][0]);
        struct put call = {batch.id, &row, texts[i][1]};
        assert_int_equal(database_transact(s.store, put, &call, &s.error), OK);
        free(row.salts);
        batch_proofs_release(&proofs);
        assert_int_equal(batch_proofs_read(s.store, batch.id, &proofs, &s.error), ERR_CORRUPT);
        scratch_remove(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_comes_back_with_the_sum_of_every_line),
        cmocka_unit_test(pieces_of_any_size_make_the_same_sum),
        cmocka_unit_test(an_input_of_other_bytes_is_not_proven),
        cmocka_unit_test(an_erased_line_keeps_the_sum_and_loses_its_salt),
        cmocka_unit_test(damaged_texts_are_no_proofs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
