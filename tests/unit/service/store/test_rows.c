/* SPDX-License-Identifier: Apache-2.0 */
#include "scratch.h"

static struct store_batch make(struct scratch *s, int number, const char *key) {
    struct store_batch batch = {.created_unix_s = 100,
                                .expires_unix_s = 200,
                                .status = BATCH_VALIDATING,
                                .final_status = BATCH_COMPLETED,
                                .metadata = strdup("{\"a\":\"b\"}")};
    snprintf(batch.id, sizeof batch.id, "batch_%032d", number);
    snprintf(batch.endpoint, sizeof batch.endpoint, "/v1/chat/completions");
    snprintf(batch.input_file_id, sizeof batch.input_file_id, "file-1");
    snprintf(batch.completion_window, sizeof batch.completion_window, "24h");
    snprintf(batch.idempotency_key, sizeof batch.idempotency_key, "%s", key);
    assert_int_equal(store_batch_insert(s->store, &batch, &s->error), OK);
    return batch;
}

static void a_row_comes_back_as_it_was_put(void **state) {
    (void)state;
    struct scratch s;
    struct store_batch batch, found;
    scratch_open(&s);
    batch = make(&s, 1, "");
    batch.status = BATCH_IN_PROGRESS;
    batch.in_progress_unix_s = 101;
    batch.total = 7;
    batch.usage.reasoning_tokens = 1ull << 40;
    batch.has_usage = true;
    batch.epoch = 3;
    snprintf(batch.model, sizeof batch.model, "m");
    assert_int_equal(store_batch_update(s.store, &batch, BATCH_VALIDATING, NULL, &s.error), OK);
    store_close(s.store);
    assert_int_equal(scratch_reopen(&s), OK);
    assert_int_equal(store_batch_get(s.store, str_from(batch.id), &found, &s.error), OK);
    assert_string_equal(found.metadata, batch.metadata);
    assert_string_equal(found.model, "m");
    assert_int_equal(found.in_progress_unix_s, 101);
    assert_int_equal(found.finalizing_unix_s, 0);
    assert_int_equal(found.total, 7);
    assert_int_equal(found.usage.reasoning_tokens, 1ull << 40);
    assert_int_equal(found.epoch, 3);
    assert_null(found.errors);
    store_batch_release(&found);
    store_batch_release(&batch);
    scratch_remove(&s);
}

static void a_move_from_a_state_the_batch_is_not_in_changes_nothing(void **state) {
    (void)state;
    struct scratch s;
    struct store_batch batch, found;
    const struct store_published published = {
        .files = {{.id = "file-output-1", .purpose = "batch_output"}}, .file_count = 1};
    scratch_open(&s);
    batch = make(&s, 1, "");
    batch.status = BATCH_COMPLETED;
    assert_int_equal(store_batch_update(s.store, &batch, BATCH_FINALIZING, &published, &s.error),
                     ERR_CONFLICT);
    assert_int_equal(store_batch_get(s.store, str_from(batch.id), &found, &s.error), OK);
    assert_int_equal(found.status, BATCH_VALIDATING);
    struct store_file row;
    assert_int_equal(store_file_get(s.store, STR("file-output-1"), 1, &row, &s.error),
                     ERR_NOT_FOUND);
    store_batch_release(&found);
    store_batch_release(&batch);
    scratch_remove(&s);
}

static void files_and_state_change_in_one_transaction(void **state) {
    (void)state;
    struct scratch s;
    struct store_batch batch, found;
    struct store_published published = {
        .files = {{.id = "file-output-1", .purpose = "batch_output"},
                  {.id = "file-output-1", .purpose = "batch_output"}},
        .file_count = 2};
    scratch_open(&s);
    batch = make(&s, 1, "");
    batch.status = BATCH_IN_PROGRESS;
    /* The second row has the id of the first: nothing of all this may stay. */
    assert_int_equal(store_batch_update(s.store, &batch, BATCH_VALIDATING, &published, &s.error),
                     ERR_CONFLICT);
    assert_int_equal(store_batch_get(s.store, str_from(batch.id), &found, &s.error), OK);
    assert_int_equal(found.status, BATCH_VALIDATING);
    store_batch_release(&found);
    published.file_count = 1;
    assert_int_equal(store_batch_update(s.store, &batch, BATCH_VALIDATING, &published, &s.error),
                     OK);
    struct store_file row;
    assert_int_equal(store_file_get(s.store, STR("file-output-1"), 1, &row, &s.error), OK);
    store_batch_release(&batch);
    scratch_remove(&s);
}

static void an_idempotency_key_is_taken_once(void **state) {
    (void)state;
    struct scratch s;
    struct store_batch batch, second, found;
    scratch_open(&s);
    batch = make(&s, 1, "key");
    second = batch;
    snprintf(second.id, sizeof second.id, "batch_%032d", 2);
    assert_int_equal(store_batch_insert(s.store, &second, &s.error), ERR_CONFLICT);
    assert_int_equal(store_batch_get_by_key(s.store, "", "key", &found, &s.error), OK);
    assert_string_equal(found.id, batch.id);
    store_batch_release(&found);
    store_batch_release(&batch);
    scratch_remove(&s);
}

static void the_list_is_newest_first_and_pages_with_a_cursor(void **state) {
    (void)state;
    struct scratch s;
    struct store_batch rows[20];
    char ids[25][STORE_ID_BYTES];
    size_t count;
    bool more;
    scratch_open(&s);
    for (int i = 0; i < 25; i++) {
        struct store_batch batch = make(&s, i, "");
        memcpy(ids[i], batch.id, sizeof batch.id);
        store_batch_release(&batch);
    }
    assert_int_equal(
        store_batch_list(s.store, NULL, (struct str){0}, 20, rows, &count, &more, &s.error), OK);
    assert_int_equal(count, 20);
    assert_true(more);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(rows[i].id, ids[24 - i]);
        store_batch_release(&rows[i]);
    }
    assert_int_equal(
        store_batch_list(s.store, NULL, str_from(ids[5]), 20, rows, &count, &more, &s.error), OK);
    assert_int_equal(count, 5);
    assert_false(more);
    for (size_t i = 0; i < count; i++) store_batch_release(&rows[i]);
    assert_int_equal(
        store_batch_list(s.store, NULL, str_from(ids[0]), 20, rows, &count, &more, &s.error), OK);
    assert_int_equal(count, 0);
    assert_int_equal(store_batch_list(s.store, NULL, STR("no"), 20, rows, &count, &more, &s.error),
                     ERR_INVALID);
    scratch_remove(&s);
}

static void states_still_change_while_the_disk_is_full(void **state) {
    (void)state;
    struct scratch s;
    uint64_t counts[BATCH_STATUS_COUNT];
    scratch_open(&s);
    struct store_batch batch = make(&s, 1, "");
    assert_int_equal(store_batch_counts(s.store, counts, &s.error), OK);
    assert_int_equal(counts[BATCH_VALIDATING], 1);
    store_disk_filled(s.store);
    batch.status = BATCH_FAILED;
    assert_int_equal(store_batch_update(s.store, &batch, BATCH_VALIDATING, NULL, &s.error), OK);
    assert_int_equal(store_batch_counts(s.store, counts, &s.error), OK);
    assert_int_equal(counts[BATCH_FAILED], 1);
    store_batch_release(&batch);
    scratch_remove(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_comes_back_as_it_was_put),
        cmocka_unit_test(a_move_from_a_state_the_batch_is_not_in_changes_nothing),
        cmocka_unit_test(files_and_state_change_in_one_transaction),
        cmocka_unit_test(an_idempotency_key_is_taken_once),
        cmocka_unit_test(the_list_is_newest_first_and_pages_with_a_cursor),
        cmocka_unit_test(states_still_change_while_the_disk_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
