/* SPDX-License-Identifier: Apache-2.0 */
#include "scratch.h"

#include "store/fsck.h"
#include "store/state_marks.h"

#include <dirent.h>
#include <fcntl.h>

static size_t entries(const struct scratch *s, const char *folder) {
    char path[128];
    size_t count = 0;
    snprintf(path, sizeof path, "%s/%s", s->dir, folder);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir)) count++;
    closedir(dir);
    return count - 2;
}

static void what_is_committed_is_read_back_after_a_restart(void **state) {
    (void)state;
    struct scratch s;
    struct store_file file, found;
    char bytes[6];
    int fd;
    scratch_open(&s);
    file = scratch_put(&s, "hello", "batch", 100, 0);
    assert_int_equal(strlen(file.id), strlen("file-") + 22);
    store_close(s.store);
    assert_int_equal(scratch_reopen(&s), OK);
    assert_int_equal(store_file_open(s.store, str_from(file.id), 200, &fd, &found, &s.error), OK);
    assert_int_equal(found.bytes, 5);
    assert_int_equal(found.created_unix_s, 100);
    assert_string_equal(found.filename, "x.jsonl");
    assert_memory_equal(found.sha256, file.sha256, SHA256_BYTES);
    assert_int_equal(os_pread_all(fd, bytes, 5, 0, &s.error), OK);
    assert_memory_equal(bytes, "hello", 5);
    os_close(fd);
    scratch_remove(&s);
}

static void an_aborted_or_forgotten_spool_leaves_nothing(void **state) {
    (void)state;
    struct scratch s;
    struct store_spool *spool;
    scratch_open(&s);
    assert_int_equal(store_spool_open(&spool, s.store, &s.error), OK);
    assert_int_equal(store_spool_write(spool, "x", 1, &s.error), OK);
    assert_int_equal(entries(&s, "tmp"), 1);
    store_spool_abort(spool);
    assert_int_equal(entries(&s, "tmp"), 0);
    /* The next start removes the bytes that a crash leaves in tmp/. */
    assert_int_equal(store_spool_open(&spool, s.store, &s.error), OK);
    store_close(s.store);
    assert_int_equal(scratch_reopen(&s), OK);
    assert_int_equal(entries(&s, "tmp"), 0);
    store_spool_abort(spool);
    scratch_remove(&s);
}

static void bytes_that_no_row_names_go_at_the_start(void **state) {
    (void)state;
    struct scratch s;
    struct store_spool *spool;
    struct store_file file = {.purpose = "batch_output", .id = "file-0123456789ab"};
    scratch_open(&s);
    assert_int_equal(store_spool_open(&spool, s.store, &s.error), OK);
    assert_int_equal(store_spool_place(spool, &file, &s.error), OK);
    assert_int_equal(entries(&s, "files/ab"), 1);
    store_close(s.store);
    assert_int_equal(scratch_reopen(&s), OK);
    assert_int_equal(entries(&s, "files/ab"), 0);
    scratch_remove(&s);
}

static void an_expired_or_deleted_file_is_not_found_and_not_listed(void **state) {
    (void)state;
    struct scratch s;
    struct store_file found, rows[4];
    size_t count;
    bool more;
    scratch_open(&s);
    struct store_file expiring = scratch_put(&s, "a", "batch", 100, 200);
    struct store_file deleted = scratch_put(&s, "b", "batch", 100, 0);
    assert_int_equal(store_file_get(s.store, str_from(expiring.id), 199, &found, &s.error), OK);
    assert_int_equal(store_file_get(s.store, str_from(expiring.id), 200, &found, &s.error),
                     ERR_NOT_FOUND);
    assert_int_equal(store_file_delete(s.store, str_from(deleted.id), 150, &s.error), OK);
    assert_int_equal(store_file_delete(s.store, str_from(deleted.id), 150, &s.error),
                     ERR_NOT_FOUND);
    struct store_file_list list = {.limit = 4, .now_unix_s = 250};
    assert_int_equal(store_file_list(s.store, &list, rows, &count, &more, &s.error), OK);
    assert_int_equal(count, 0);
    assert_false(more);
    assert_int_equal(store_file_sweep(s.store, 250, &s.error), OK);
    store_close(s.store);
    assert_int_equal(scratch_reopen(&s), OK);
    assert_int_equal(store_file_get(s.store, str_from(expiring.id), 250, &found, &s.error),
                     ERR_NOT_FOUND);
    scratch_remove(&s);
}

static void pages_neither_skip_nor_repeat_files_of_one_second(void **state) {
    (void)state;
    struct scratch s;
    struct store_file made[5], rows[5];
    size_t count;
    bool more;
    scratch_open(&s);
    for (int i = 0; i < 5; i++) made[i] = scratch_put(&s, "x", i == 2 ? "evals" : "batch", 100, 0);
    struct store_file_list list = {.limit = 2, .now_unix_s = 100};
    for (int i = 4; i >= 0; i -= 2) {
        assert_int_equal(store_file_list(s.store, &list, rows, &count, &more, &s.error), OK);
        assert_int_equal(count, i == 0 ? 1 : 2);
        assert_int_equal(more, i != 0);
        assert_string_equal(rows[0].id, made[i].id);
        list.after = str_from(made[i ? i - 1 : 0].id);
    }
    list = (struct store_file_list){.limit = 5, .ascending = true, .now_unix_s = 100};
    assert_int_equal(store_file_list(s.store, &list, rows, &count, &more, &s.error), OK);
    for (int i = 0; i < 5; i++) assert_string_equal(rows[i].id, made[i].id);
    list.purpose = STR("evals");
    assert_int_equal(store_file_list(s.store, &list, rows, &count, &more, &s.error), OK);
    assert_int_equal(count, 1);
    list.after = STR("file-unknown");
    assert_int_equal(store_file_list(s.store, &list, rows, &count, &more, &s.error), ERR_INVALID);
    scratch_remove(&s);
}

static void two_servers_never_share_a_directory(void **state) {
    (void)state;
    struct scratch s, other;
    scratch_open(&s);
    other = s;
    assert_int_equal(scratch_reopen(&other), ERR_CONFLICT);
    assert_non_null(strstr(other.error.text, "in use by another quern process"));
    scratch_remove(&s);
}

static void a_directory_that_another_has_just_removed_is_in_use(void **state) {
    (void)state;
    struct error error;
    int fd;
    assert_int_equal(state_lock("/tmp/quern-removed/state", false, &fd, &error), ERR_CONFLICT);
    assert_non_null(strstr(error.text, "was removed by another quern process"));
    assert_int_equal(state_lock("/tmp/quern-removed/state", true, &fd, &error), ERR_NOT_FOUND);
    assert_non_null(strstr(error.text, "is not a state directory"));
}

static void a_directory_that_is_damaged_or_not_ours_is_refused_in_one_sentence(void **state) {
    (void)state;
    struct scratch s;
    char path[128];
    FILE *file;
    scratch_open(&s);
    store_close(s.store);
    snprintf(path, sizeof path, "%s/meta.db", s.dir);
    file = fopen(path, "r+e");
    assert_non_null(file);
    fseek(file, 4096, SEEK_SET);
    for (int i = 0; i < 4096; i++) fputc(0x5A, file);
    fclose(file);
    assert_int_equal(scratch_reopen(&s), ERR_CORRUPT);
    assert_non_null(strstr(s.error.text, "damaged"));
    file = fopen(path, "we");
    assert_non_null(file);
    fputs("this is not a database, but it is long enough to be looked at as one by a reader", file);
    fclose(file);
    assert_int_equal(scratch_reopen(&s), ERR_CORRUPT);
    s.store = NULL;
    scratch_remove(&s);
}

static void a_full_disk_refuses_uploads_until_there_is_room_again(void **state) {
    (void)state;
    struct scratch s;
    struct store_spool *spool;
    struct store_status status;
    scratch_open(&s);
    assert_int_equal(store_spool_open(&spool, s.store, &s.error), OK);
    assert_int_equal(os_fault_plan("write:1:ENOSPC", &s.error), OK);
    assert_int_equal(store_spool_write(spool, "x", 1, &s.error), ERR_UNAVAILABLE);
    store_spool_abort(spool);
    store_status(s.store, &status);
    assert_true(status.disk_full);
    assert_int_equal(status.reserve_bytes, 1 << 16);
    /* The ballast is gone; when it can be created again, the disk has room. */
    char path[128];
    snprintf(path, sizeof path, "%s/ballast", s.dir);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(store_spool_open(&spool, s.store, &s.error), OK);
    assert_int_equal(access(path, F_OK), 0);
    store_status(s.store, &status);
    assert_false(status.disk_full);
    store_spool_abort(spool);
    scratch_remove(&s);
}

static void count_report(void *context, const char *sentence) {
    (void)sentence;
    ++*(int *)context;
}

static void fsck_finds_a_changed_byte(void **state) {
    (void)state;
    struct scratch s;
    char path[192];
    int reports = 0;
    scratch_open(&s);
    struct store_file file = scratch_put(&s, "hello", "batch", 100, 0);
    assert_int_equal(store_fsck(s.store, count_report, &reports, &s.error), OK);
    assert_int_equal(reports, 0);
    snprintf(path, sizeof path, "%s/files/%s/%s", s.dir, file.id + strlen(file.id) - 2, file.id);
    assert_int_equal(unlink(path), 0);
    FILE *changed = fopen(path, "we");
    assert_non_null(changed);
    fputs("hallo", changed);
    fclose(changed);
    assert_int_equal(store_fsck(s.store, count_report, &reports, &s.error), OK);
    assert_int_equal(reports, 1);
    scratch_remove(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_committed_is_read_back_after_a_restart),
        cmocka_unit_test(an_aborted_or_forgotten_spool_leaves_nothing),
        cmocka_unit_test(bytes_that_no_row_names_go_at_the_start),
        cmocka_unit_test(an_expired_or_deleted_file_is_not_found_and_not_listed),
        cmocka_unit_test(pages_neither_skip_nor_repeat_files_of_one_second),
        cmocka_unit_test(two_servers_never_share_a_directory),
        cmocka_unit_test(a_directory_that_another_has_just_removed_is_in_use),
        cmocka_unit_test(a_directory_that_is_damaged_or_not_ours_is_refused_in_one_sentence),
        cmocka_unit_test(a_full_disk_refuses_uploads_until_there_is_room_again),
        cmocka_unit_test(fsck_finds_a_changed_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
