/* SPDX-License-Identifier: Apache-2.0 */
#include "store/proofs_internal.h"

#include "base/mem.h"
#include "scratch.h"
#include "store/batches_remove.h"
#include "store/fsck.h"
#include "store/snapshot.h"

#define ROOT "[\"0 0 00000000000000000000000000000000000000000000000000000000000000aa\"]"

static struct store_batch make(struct scratch *s, int number) {
    struct store_batch batch = {.created_unix_s = 100,
                                .expires_unix_s = 200,
                                .status = BATCH_FINALIZING,
                                .final_status = BATCH_COMPLETED};
    snprintf(batch.id, sizeof batch.id, "batch_%032d", number);
    snprintf(batch.endpoint, sizeof batch.endpoint, "/v1/chat/completions");
    snprintf(batch.completion_window, sizeof batch.completion_window, "24h");
    assert_int_equal(store_batch_insert(s->store, &batch, &s->error), OK);
    return batch;
}

static struct store_proof row_of(const char *what, const char *file_id, uint64_t lines) {
    static char root[] = ROOT;
    struct store_proof row = {.lines = lines, .salts = root};
    snprintf(row.what, sizeof row.what, "%s", what);
    snprintf(row.name, sizeof row.name, "%s.jsonl", what);
    snprintf(row.file_id, sizeof row.file_id, "%s", file_id);
    memset(row.lines_sha256, (int)lines, SHA256_BYTES);
    return row;
}

/* Ends the batch with rows for an input and an output. */
static void end(struct scratch *s, struct store_batch *batch, const char *input_id,
                const char *output_id) {
    struct store_published published = {
        .proofs = {row_of("output", output_id, 2), row_of("input", input_id, 3)}, .proof_count = 2};
    snprintf(batch->input_file_id, sizeof batch->input_file_id, "%s", input_id);
    snprintf(batch->output_file_id, sizeof batch->output_file_id, "%s", output_id);
    batch->status = BATCH_COMPLETED;
    batch->completed_unix_s = 150;
    assert_int_equal(store_batch_update(s->store, batch, BATCH_FINALIZING, &published, &s->error),
                     OK);
}

static struct store_proofs get(struct scratch *s, const struct store_batch *batch) {
    struct store_proofs proofs;
    assert_int_equal(store_proofs_get(s->store, batch->id, &proofs, &s->error), OK);
    return proofs;
}

static void count_report(void *context, const char *sentence) {
    assert_non_null(strstr(sentence, "(I17)"));
    ++*(size_t *)context;
}

static size_t faults(struct scratch *s) {
    size_t count = 0;
    assert_int_equal(store_fsck(s->store, count_report, &count, &s->error), OK);
    return count;
}

static void rows_come_with_the_end_of_their_batch_or_not_at_all(void **state) {
    (void)state;
    struct scratch s;
    scratch_open(&s);
    struct store_batch batch = make(&s, 1), other = make(&s, 2);
    struct store_published published = {.proofs = {row_of("input", "file-1", 3)}, .proof_count = 1};
    assert_int_equal(store_batch_update(s.store, &batch, BATCH_CANCELLING, &published, &s.error),
                     ERR_CONFLICT);
    struct store_proofs proofs = get(&s, &batch);
    assert_int_equal(proofs.count, 0);
    end(&s, &batch, "file-input-1", "file-output-1");
    store_close(s.store);
    assert_int_equal(scratch_reopen(&s), OK);
    proofs = get(&s, &batch);
    assert_int_equal(proofs.count, 2);
    assert_null(proofs.erasures);
    assert_string_equal(proofs.files[0].what, "input");
    assert_string_equal(proofs.files[1].what, "output");
    assert_string_equal(proofs.files[1].name, "output.jsonl");
    assert_string_equal(proofs.files[1].file_id, "file-output-1");
    assert_int_equal(proofs.files[0].lines, 3);
    assert_int_equal(proofs.files[0].lines_sha256[SHA256_BYTES - 1], 3);
    assert_string_equal(proofs.files[0].salts, ROOT);
    store_proofs_release(&proofs);
    assert_int_equal(get(&s, &other).count, 0);
    scratch_remove(&s);
}

struct erasing {
    const char *batch_id, *file_id, *salts, *record;
};

static enum err erase(struct store *store, void *context, struct error *error) {
    const struct erasing *erasing = context;
    struct store_proof row = row_of("output", erasing->file_id, 99);
    row.salts = mem_text(erasing->salts);
    enum err err = proofs_put_row(store, erasing->batch_id, &row, error);
    free(row.salts);
    return err == OK ? erasures_add_row(store, erasing->batch_id, 160, erasing->record, error)
                     : err;
}

static void an_erasure_changes_file_and_salts_and_never_the_sum(void **state) {
    (void)state;
    struct scratch s;
    scratch_open(&s);
    struct store_batch batch = make(&s, 1), other = make(&s, 2);
    end(&s, &batch, "file-input-1", "file-output-1");
    end(&s, &other, "file-input-1", "file-output-2");
    struct erasing erasing = {batch.id, "file-output-3", "[]", "{\"n\":1}"};
    assert_int_equal(database_transact(s.store, erase, &erasing, &s.error), OK);
    erasing.record = "{\"n\":2}";
    assert_int_equal(database_transact(s.store, erase, &erasing, &s.error), OK);
    struct store_proofs proofs = get(&s, &batch);
    assert_int_equal(proofs.count, 2);
    assert_string_equal(proofs.erasures, "[{\"n\":1},{\"n\":2}]");
    assert_string_equal(proofs.files[1].file_id, "file-output-3");
    assert_string_equal(proofs.files[1].salts, "[]");
    assert_int_equal(proofs.files[1].lines, 2);
    assert_int_equal(proofs.files[1].lines_sha256[0], 2);
    assert_string_equal(proofs.files[0].salts, ROOT);
    store_proofs_release(&proofs);
    proofs = get(&s, &other);
    assert_null(proofs.erasures);
    assert_string_equal(proofs.files[1].file_id, "file-output-2");
    store_proofs_release(&proofs);
    scratch_remove(&s);
}

static void the_salts_of_a_file_go_with_its_row(void **state) {
    (void)state;
    struct scratch s;
    struct snapshot *live;
    char path[96];
    scratch_open(&s);
    struct store_file input = scratch_put(&s, "a\n", "batch", 100, 0),
                      output = scratch_put(&s, "b\n", "batch_output", 100, 0);
    struct store_batch batch = make(&s, 1), other = make(&s, 2);
    end(&s, &batch, input.id, output.id);
    end(&s, &other, output.id, input.id);
    assert_int_equal(faults(&s), 0);
    snprintf(path, sizeof path, "%s/copy.db", s.dir);
    assert_int_equal(snapshot_open_live(&live, s.dir, &s.error), OK);
    assert_int_equal(snapshot_take(live, path, &s.error), OK);
    snapshot_close(live);
    assert_int_equal(store_file_delete(s.store, str_from(output.id), 200, &s.error), OK);
    assert_int_equal(store_file_sweep(s.store, 200, &s.error), OK);
    for (int i = 0; i < 2; i++) {
        struct store_proofs proofs = get(&s, i ? &other : &batch);
        assert_int_equal(proofs.count, 2);
        assert_null(proofs.files[i ? 0 : 1].salts);
        assert_string_equal(proofs.files[i ? 1 : 0].salts, ROOT);
        assert_int_equal(proofs.files[1].lines, 2);
        store_proofs_release(&proofs);
    }
    assert_int_equal(faults(&s), 0);
    store_close(s.store);
    /* A backup that finds the file gone forgets it likewise. */
    char ids[STORE_ID_BYTES], db[96];
    memcpy(ids, output.id, sizeof ids);
    assert_int_equal(snapshot_forget_files(path, ids, 1, &s.error), OK);
    snprintf(db, sizeof db, "%s/meta.db", s.dir);
    assert_int_equal(rename(path, db), 0);
    assert_int_equal(scratch_reopen(&s), OK);
    struct store_proofs proofs = get(&s, &batch);
    assert_null(proofs.files[1].salts);
    assert_string_equal(proofs.files[0].salts, ROOT);
    store_proofs_release(&proofs);
    scratch_remove(&s);
}

static void rows_go_with_their_batch(void **state) {
    (void)state;
    struct scratch s;
    struct store_freed freed;
    bool has_more;
    scratch_open(&s);
    struct store_batch batch = make(&s, 1), other = make(&s, 2);
    end(&s, &batch, "", "");
    end(&s, &other, "", "");
    struct erasing erasing = {batch.id, "", "[]", "{}"};
    assert_int_equal(database_transact(s.store, erase, &erasing, &s.error), OK);
    assert_int_equal(store_batch_delete(s.store, str_from(batch.id), 200, &freed, &s.error), OK);
    assert_int_equal(store_batch_sweep(s.store, 200, 10, &has_more, &s.error), OK);
    struct store_proofs proofs = get(&s, &batch);
    assert_int_equal(proofs.count, 0);
    assert_null(proofs.erasures);
    proofs = get(&s, &other);
    assert_int_equal(proofs.count, 2);
    store_proofs_release(&proofs);
    scratch_remove(&s);
}

static enum err put_alone(struct store *store, void *context, struct error *error) {
    struct store_proof row = row_of("input", "file-nowhere", 1);
    return proofs_put_row(store, context, &row, error);
}

static void fsck_names_rows_that_were_left_behind(void **state) {
    (void)state;
    struct scratch s;
    scratch_open(&s);
    assert_int_equal(faults(&s), 0);
    assert_int_equal(database_transact(s.store, put_alone, "batch_none", &s.error), OK);
    assert_int_equal(faults(&s), 1);
    struct store_batch batch = make(&s, 1);
    end(&s, &batch, "file-nowhere", "file-nowhere");
    assert_int_equal(faults(&s), 3);
    scratch_remove(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_with_the_end_of_their_batch_or_not_at_all),
        cmocka_unit_test(an_erasure_changes_file_and_salts_and_never_the_sum),
        cmocka_unit_test(the_salts_of_a_file_go_with_its_row),
        cmocka_unit_test(rows_go_with_their_batch),
        cmocka_unit_test(fsck_names_rows_that_were_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
