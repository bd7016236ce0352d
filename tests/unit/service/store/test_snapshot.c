/* SPDX-License-Identifier: Apache-2.0 */
#include "scratch.h"

#include "store/snapshot.h"

struct seen {
    size_t count;
    struct snapshot_file last;
};

static enum err note(void *context, const struct snapshot_file *file, struct error *error) {
    struct seen *seen = context;
    (void)error;
    seen->count++;
    seen->last = *file;
    return OK;
}

static struct seen files_of(const char *path) {
    struct snapshot *copy;
    struct seen seen = {0};
    struct error error;
    assert_int_equal(snapshot_open(&copy, path, &error), OK);
    assert_int_equal(snapshot_check(copy, &error), OK);
    assert_int_equal(snapshot_each_file(copy, note, &seen, &error), OK);
    snapshot_close(copy);
    return seen;
}

static void a_copy_is_the_database_as_of_one_moment(void **state) {
    (void)state;
    struct scratch s;
    struct snapshot *live;
    struct snapshot_summary summary;
    char path[96];
    scratch_open(&s);
    snprintf(path, sizeof path, "%s/copy.db", s.dir);
    struct store_file file = scratch_put(&s, "hello", "batch", 100, 0);
    assert_int_equal(snapshot_open_live(&live, s.dir, &s.error), OK);
    assert_int_equal(snapshot_take(live, path, &s.error), OK);
    scratch_put(&s, "there", "batch", 100, 0);
    struct seen seen = files_of(path);
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.last.id, file.id);
    assert_int_equal(seen.last.bytes, 5);
    assert_false(seen.last.is_part);
    assert_memory_equal(seen.last.sha256, file.sha256, SHA256_BYTES);
    assert_int_equal(snapshot_summary(live, &summary, &s.error), OK);
    assert_int_equal(summary.schema, snapshot_schema_known());
    assert_int_equal(summary.batches, 0);
    snapshot_close(live);
    scratch_remove(&s);
}

static void a_file_that_the_server_removed_is_forgotten_in_the_copy(void **state) {
    (void)state;
    struct scratch s;
    struct snapshot *live;
    bool exists = true, needed = true;
    char path[96], ids[STORE_ID_BYTES];
    scratch_open(&s);
    snprintf(path, sizeof path, "%s/copy.db", s.dir);
    struct store_file kept = scratch_put(&s, "kept", "batch", 100, 0);
    struct store_file file = scratch_put(&s, "hello", "batch", 100, 0);
    assert_int_equal(snapshot_open_live(&live, s.dir, &s.error), OK);
    assert_int_equal(snapshot_take(live, path, &s.error), OK);
    assert_int_equal(store_file_delete(s.store, str_from(file.id), 200, &s.error), OK);
    struct snapshot_file row = {0};
    memcpy(row.id, file.id, sizeof row.id);
    assert_int_equal(snapshot_file_exists(live, &row, &exists, &s.error), OK);
    assert_false(exists);
    assert_int_equal(snapshot_needs_input(live, file.id, &needed, &s.error), OK);
    assert_false(needed);
    assert_int_equal(files_of(path).count, 2);
    memcpy(ids, file.id, sizeof ids);
    assert_int_equal(snapshot_forget_files(path, ids, 1, &s.error), OK);
    struct seen seen = files_of(path);
    assert_int_equal(seen.count, 1);
    assert_string_equal(seen.last.id, kept.id);
    snapshot_close(live);
    scratch_remove(&s);
}

static void a_directory_without_a_database_has_no_copy(void **state) {
    (void)state;
    struct scratch s;
    struct snapshot *live;
    scratch_open(&s);
    assert_int_equal(snapshot_open_live(&live, "/dev/null", &s.error), ERR_IO);
    assert_int_equal(snapshot_open_live(&live, "/nonexistent", &s.error), ERR_NOT_FOUND);
    assert_non_null(strstr(s.error.text, "not a state directory"));
    scratch_remove(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_is_the_database_as_of_one_moment),
        cmocka_unit_test(a_file_that_the_server_removed_is_forgotten_in_the_copy),
        cmocka_unit_test(a_directory_without_a_database_has_no_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
