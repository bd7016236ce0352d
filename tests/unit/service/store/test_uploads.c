/* SPDX-License-Identifier: Apache-2.0 */
#include "scratch.h"

#include "store/fsck.h"
#include "store/uploads.h"

#include <dirent.h>

#define HOUR 3600

static size_t entries(const struct scratch *s, const char *folder) {
    char path[128];
    size_t count = 0;
    snprintf(path, sizeof path, "%s/%s", s->dir, folder);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.') count++;
    closedir(dir);
    return count;
}

static struct store_upload announce(struct scratch *s, uint64_t bytes) {
    struct store_upload upload = {.purpose = "user_data",
                                  .filename = "x",
                                  .bytes = bytes,
                                  .created_unix_s = 100,
                                  .expires_unix_s = 100 + HOUR};
    assert_int_equal(store_upload_create(s->store, &upload, &s->error), OK);
    return upload;
}

static enum err add(struct scratch *s, const struct store_upload *upload, const char *bytes,
                    int64_t now, struct store_part *ret_part) {
    struct store_spool *spool;
    assert_int_equal(store_spool_open(&spool, s->store, &s->error), OK);
    assert_int_equal(store_spool_write(spool, bytes, strlen(bytes), &s->error), OK);
    return store_part_commit(spool, str_from(upload->id), upload->owner_bytes_max, now, ret_part,
                             &s->error);
}

/* Joins and finishes with the parts in the order given. */
static enum err complete(struct scratch *s, const struct store_upload *upload, const char *first,
                         const char *second, int64_t now, struct store_file *ret_file) {
    struct str ids[2] = {str_from(first), str_from(second)};
    struct store_join join = {
        .upload_id = str_from(upload->id), .part_ids = ids, .part_count = 2, .now_unix_s = now};
    struct store_spool *spool;
    *ret_file = (struct store_file){.purpose = "user_data", .created_unix_s = now};
    enum err err = store_upload_join(s->store, &join, &spool, &s->error);
    if (err != OK) return err;
    return store_upload_finish(spool, join.upload_id, now, ret_file, &s->error);
}

static enum upload_status status_of(struct scratch *s, const struct store_upload *upload,
                                    int64_t now) {
    struct store_upload found;
    assert_int_equal(store_upload_get(s->store, str_from(upload->id), now, &found, &s->error), OK);
    return found.status;
}

static void parts_survive_a_restart_and_are_joined_in_the_order_named(void **state) {
    (void)state;
    struct scratch s;
    struct store_part a, b;
    struct store_file file, found;
    char bytes[6];
    int fd;
    scratch_open(&s);
    struct store_upload upload = announce(&s, 6);
    assert_int_equal(add(&s, &upload, "123", 110, &a), OK);
    assert_int_equal(add(&s, &upload, "456", 110, &b), OK);
    store_close(s.store);
    assert_int_equal(scratch_reopen(&s), OK);
    assert_int_equal(entries(&s, "parts"), 2);
    assert_int_equal(complete(&s, &upload, b.id, a.id, 120, &file), OK);
    assert_int_equal(store_file_open(s.store, str_from(file.id), 130, &fd, &found, &s.error), OK);
    assert_int_equal(os_pread_all(fd, bytes, 6, 0, &s.error), OK);
    os_close(fd);
    assert_memory_equal(bytes, "456123", 6);
    assert_int_equal(found.bytes, 6);
    assert_int_equal(entries(&s, "parts"), 0);
    assert_int_equal(entries(&s, "tmp"), 0);
    assert_int_equal(status_of(&s, &upload, 130), UPLOAD_COMPLETED);
    scratch_remove(&s);
}

static void what_does_not_fit_is_refused_and_the_upload_stays_pending(void **state) {
    (void)state;
    struct scratch s;
    struct store_part a, b, foreign;
    struct store_file file;
    scratch_open(&s);
    struct store_upload upload = announce(&s, 6), other = announce(&s, 3);
    assert_int_equal(add(&s, &upload, "123", 110, &a), OK);
    assert_int_equal(add(&s, &upload, "45", 110, &b), OK);
    assert_int_equal(add(&s, &other, "456", 110, &foreign), OK);
    assert_int_equal(complete(&s, &upload, a.id, b.id, 120, &file), ERR_INVALID);
    assert_int_equal(complete(&s, &upload, a.id, a.id, 120, &file), ERR_INVALID);
    assert_int_equal(complete(&s, &upload, a.id, foreign.id, 120, &file), ERR_INVALID);
    assert_int_equal(complete(&s, &upload, a.id, "part_none", 120, &file), ERR_INVALID);
    assert_int_equal(status_of(&s, &upload, 120), UPLOAD_PENDING);
    assert_int_equal(entries(&s, "tmp"), 0);
    scratch_remove(&s);
}

static void an_upload_ends_once(void **state) {
    (void)state;
    struct scratch s;
    struct store_part a, b;
    struct store_file file;
    struct store_spool *spool;
    scratch_open(&s);
    struct store_upload upload = announce(&s, 2);
    assert_int_equal(add(&s, &upload, "1", 110, &a), OK);
    assert_int_equal(add(&s, &upload, "2", 110, &b), OK);
    /* Joined, and cancelled by another call before it becomes a file. */
    struct str ids[2] = {str_from(a.id), str_from(b.id)};
    struct store_join join = {str_from(upload.id), ids, 2, NULL, 120};
    assert_int_equal(store_upload_join(s.store, &join, &spool, &s.error), OK);
    assert_int_equal(store_upload_cancel(s.store, str_from(upload.id), 120, &s.error), OK);
    file = (struct store_file){.purpose = "user_data"};
    assert_int_equal(store_upload_finish(spool, str_from(upload.id), 120, &file, &s.error),
                     ERR_INVALID);
    assert_int_equal(store_upload_cancel(s.store, str_from(upload.id), 120, &s.error), ERR_INVALID);
    assert_int_equal(add(&s, &upload, "3", 120, &a), ERR_INVALID);
    assert_int_equal(complete(&s, &upload, a.id, b.id, 120, &file), ERR_INVALID);
    assert_int_equal(status_of(&s, &upload, 120), UPLOAD_CANCELLED);
    assert_int_equal(entries(&s, "parts"), 0);
    assert_int_equal(entries(&s, "tmp"), 0);
    scratch_remove(&s);
}

static void after_its_time_an_upload_is_expired_and_its_parts_go(void **state) {
    (void)state;
    struct scratch s;
    struct store_part a;
    scratch_open(&s);
    struct store_upload upload = announce(&s, 2), late = announce(&s, 2);
    assert_int_equal(add(&s, &upload, "1", 110, &a), OK);
    assert_int_equal(store_file_sweep(s.store, 100 + HOUR - 1, &s.error), OK);
    assert_int_equal(entries(&s, "parts"), 1);
    assert_int_equal(status_of(&s, &upload, 100 + HOUR - 1), UPLOAD_PENDING);
    store_close(s.store);
    assert_int_equal(scratch_reopen(&s), OK);
    assert_int_equal(status_of(&s, &upload, 100 + HOUR), UPLOAD_EXPIRED);
    assert_int_equal(add(&s, &late, "1", 100 + HOUR, &a), ERR_INVALID);
    assert_int_equal(store_file_sweep(s.store, 100 + HOUR, &s.error), OK);
    assert_int_equal(entries(&s, "parts"), 0);
    assert_int_equal(status_of(&s, &upload, 100 + HOUR), UPLOAD_EXPIRED);
    /* The row itself goes a month later. */
    struct store_upload found;
    assert_int_equal(store_file_sweep(s.store, 100 + HOUR + 31 * 86400, &s.error), OK);
    assert_int_equal(store_upload_get(s.store, str_from(upload.id), 0, &found, &s.error),
                     ERR_NOT_FOUND);
    scratch_remove(&s);
}

static void bytes_of_a_part_without_a_row_go_at_the_start(void **state) {
    (void)state;
    struct scratch s;
    char path[160];
    scratch_open(&s);
    snprintf(path, sizeof path, "%s/parts/part_0123456789", s.dir);
    FILE *stray = fopen(path, "w");
    assert_non_null(stray);
    fclose(stray);
    store_close(s.store);
    assert_int_equal(scratch_reopen(&s), OK);
    assert_int_equal(entries(&s, "parts"), 0);
    scratch_remove(&s);
}

static void count_reports(void *context, const char *sentence) {
    (void)sentence;
    ++*(int *)context;
}

static void bytes_that_changed_on_the_disk_become_no_file(void **state) {
    (void)state;
    struct scratch s;
    struct store_part a, b;
    struct store_file file;
    char path[200];
    int reports = 0;
    scratch_open(&s);
    struct store_upload upload = announce(&s, 2);
    assert_int_equal(add(&s, &upload, "1", 110, &a), OK);
    assert_int_equal(add(&s, &upload, "2", 110, &b), OK);
    assert_int_equal(store_fsck(s.store, count_reports, &reports, &s.error), OK);
    assert_int_equal(reports, 0);
    snprintf(path, sizeof path, "%s/parts/%s", s.dir, b.id);
    assert_int_equal(unlink(path), 0);
    FILE *other = fopen(path, "w");
    assert_non_null(other);
    fputs("3", other);
    fclose(other);
    assert_int_equal(complete(&s, &upload, a.id, b.id, 120, &file), ERR_CORRUPT);
    assert_int_equal(store_fsck(s.store, count_reports, &reports, &s.error), OK);
    assert_int_equal(reports, 1);
    scratch_remove(&s);
}

static void parts_beyond_the_announced_bytes_are_the_owners(void **state) {
    (void)state;
    struct scratch s;
    struct store_part part;
    uint64_t bytes;
    scratch_open(&s);
    struct store_upload upload = announce(&s, 4);
    upload.owner_bytes_max = 8;
    assert_int_equal(add(&s, &upload, "1234", 110, &part), OK);
    assert_int_equal(store_owner_bytes(s.store, "", 110, &bytes, &s.error), OK);
    assert_int_equal(bytes, 4);
    assert_int_equal(add(&s, &upload, "123", 110, &part), OK);
    assert_int_equal(store_owner_bytes(s.store, "", 110, &bytes, &s.error), OK);
    assert_int_equal(bytes, 7);
    assert_int_equal(add(&s, &upload, "12", 110, &part), ERR_LIMIT);
    assert_string_equal(s.error.text, "Storage quota exceeded: 7 of 8 bytes are stored, and this "
                                      "takes 2 more. Delete files first.");
    assert_int_equal(entries(&s, "parts"), 2);
    assert_int_equal(entries(&s, "tmp"), 0);
    assert_int_equal(add(&s, &upload, "1", 110, &part), OK);
    scratch_remove(&s);
}

static void an_owner_has_a_thousand_pending_uploads(void **state) {
    (void)state;
    struct scratch s;
    scratch_open(&s);
    struct store_upload first = announce(&s, 1);
    for (int i = 1; i < 1000; i++) announce(&s, 1);
    struct store_upload upload = first;
    assert_int_equal(store_upload_create(s.store, &upload, &s.error), ERR_INVALID);
    assert_non_null(strstr(s.error.text, "1000 uploads are pending"));
    assert_int_equal(store_upload_cancel(s.store, str_from(first.id), 110, &s.error), OK);
    assert_int_equal(store_upload_create(s.store, &upload, &s.error), OK);
    scratch_remove(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_survive_a_restart_and_are_joined_in_the_order_named),
        cmocka_unit_test(what_does_not_fit_is_refused_and_the_upload_stays_pending),
        cmocka_unit_test(an_upload_ends_once),
        cmocka_unit_test(after_its_time_an_upload_is_expired_and_its_parts_go),
        cmocka_unit_test(bytes_of_a_part_without_a_row_go_at_the_start),
        cmocka_unit_test(bytes_that_changed_on_the_disk_become_no_file),
        cmocka_unit_test(parts_beyond_the_announced_bytes_are_the_owners),
        cmocka_unit_test(an_owner_has_a_thousand_pending_uploads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
