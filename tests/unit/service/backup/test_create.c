/* SPDX-License-Identifier: Apache-2.0 */
#include "../store/scratch.h"

#include "backup/check.h"
#include "backup/create.h"
#include "backup/folder.h"
#include "backup/move_mark.h"
#include "backup/restore.h"
#include "base/os.h"
#include "store/fsck.h"
#include "store/seglog_format.h"
#include "store/state_marks.h"

#include <sys/stat.h>
#include <unistd.h>

struct place {
    struct scratch scratch;
    char folder[96];
    char restored[96];
};

static void place_open(struct place *place) {
    scratch_open(&place->scratch);
    snprintf(place->folder, sizeof place->folder, "%s-backups", place->scratch.dir);
    snprintf(place->restored, sizeof place->restored, "%s-restored", place->scratch.dir);
}

static void place_remove(struct place *place) {
    scratch_remove(&place->scratch);
    tree_remove(place->folder);
    tree_remove(place->restored);
}

static void count(void *context, const char *sentence) {
    (void)sentence;
    ++*(int *)context;
}

static void ignore(void *context, const struct backup_checked *generation) {
    (void)context;
    (void)generation;
}

static struct backup_created take(struct place *place, uint64_t keep, int *reports) {
    struct backup_options options = {.state_dir = place->scratch.dir,
                                     .dir = place->folder,
                                     .version = "test",
                                     .keep = keep,
                                     .report = count,
                                     .context = reports};
    struct backup_created taken;
    struct error error;
    assert_int_equal(backup_create(&options, &taken, &error), OK);
    return taken;
}

static struct backup_restored restore(struct place *place, uint64_t generation) {
    struct backup_restore restore = {
        .dir = place->folder, .state_dir = place->restored, .generation = generation};
    struct backup_restored restored;
    struct error error;
    tree_remove(place->restored);
    assert_int_equal(backup_restore(&restore, &restored, &error), OK);
    return restored;
}

/* A validated batch that has not ended. */
static struct store_batch put_batch(struct scratch *s, const struct store_file *file,
                                    uint64_t total) {
    struct store_batch batch = {.created_unix_s = 100, .expires_unix_s = 1u << 30, .total = total};
    snprintf(batch.id, sizeof batch.id, "batch_0123");
    snprintf(batch.endpoint, sizeof batch.endpoint, "/v1/chat/completions");
    snprintf(batch.completion_window, sizeof batch.completion_window, "24h");
    snprintf(batch.input_file_id, sizeof batch.input_file_id, "%s", file->id);
    batch.final_status = BATCH_COMPLETED;
    assert_int_equal(store_batch_insert(s->store, &batch, &s->error), OK);
    batch.status = BATCH_IN_PROGRESS;
    batch.in_progress_unix_s = 101;
    assert_int_equal(store_batch_update(s->store, &batch, BATCH_VALIDATING, NULL, &s->error), OK);
    return batch;
}

/* Writes the batch's segment by hand: `records` records, a torn one, and zeros as room. */
static size_t write_segment(struct scratch *s, const struct store_batch *batch,
                            const struct store_file *file, uint32_t records) {
    struct segment_header header = {
        .index = 1, .first_sequence = 1, .batch_sequence = batch->sequence};
    unsigned char head[SEGLOG_HEADER_BYTES];
    char dir[128], path[192];
    struct buf bytes;
    memcpy(header.batch_id, batch->id, strlen(batch->id));
    memcpy(header.input_sha256, file->sha256, SHA256_BYTES);
    segment_header_write(head, &header);
    buf_init(&bytes, BUF_UNLIMITED);
    buf_add(&bytes, head, sizeof head);
    size_t end = bytes.bytes;
    for (uint32_t line = 0; line <= records; line++) {
        struct seglog_record record = {
            .line = line, .kind = SEGLOG_SUCCESS, .text = STR("{\"answer\":1}\n")};
        end = bytes.bytes;
        record_write(&bytes, &record, batch->sequence);
        record_seal(bytes.at + end, bytes.bytes - end, line + 1);
    }
    buf_truncate(&bytes, bytes.bytes - 20); /* into the text */
    for (int i = 0; i < 4096; i++) buf_add_byte(&bytes, '\0');
    assert_int_equal(store_batch_dir(s->store, batch->id, dir, sizeof dir, &s->error), OK);
    snprintf(path, sizeof path, "%s/seg-000001.log", dir);
    FILE *out = fopen(path, "we");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes.at, 1, bytes.bytes, out), bytes.bytes);
    fclose(out);
    buf_release(&bytes);
    return end;
}

static off_t bytes_of(const char *dir, const char *path) {
    char file[512];
    struct stat status;
    snprintf(file, sizeof file, "%s/%s", dir, path);
    return stat(file, &status) == 0 ? status.st_size : -1;
}

static void a_backup_of_an_open_store_restores_to_its_rows_and_bytes(void **state) {
    (void)state;
    struct place place;
    int reports = 0;
    place_open(&place);
    struct store_file file = scratch_put(&place.scratch, "hello", "batch", 100, 0);
    struct store_batch batch = put_batch(&place.scratch, &file, 50);
    size_t end = write_segment(&place.scratch, &batch, &file, 10);
    struct backup_created taken = take(&place, 0, &reports);
    assert_int_equal(taken.generation, 1);
    assert_int_equal(taken.batches, 1);
    assert_int_equal(taken.unfinished, 1);
    assert_int_equal(taken.files, 3);
    assert_int_equal(reports, 0);
    struct backup_restored restored = restore(&place, 0);
    assert_int_equal(restored.unfinished, 1);
    assert_false(restored.has_keys);
    assert_false(restored.migrates);
    assert_int_equal(bytes_of(place.restored, "batches/batch_0123/seg-000001.log"), end);

    struct scratch second = {0};
    struct store_batch found;
    snprintf(second.dir, sizeof second.dir, "%.60s", place.restored);
    assert_int_equal(scratch_reopen(&second), OK);
    assert_int_equal(store_fsck(second.store, count, &reports, &second.error), OK);
    assert_int_equal(reports, 0);
    assert_int_equal(store_batch_get(second.store, STR("batch_0123"), &found, &second.error), OK);
    assert_int_equal(found.status, BATCH_IN_PROGRESS);
    assert_int_equal(found.total, 50);
    store_batch_release(&found);
    store_close(second.store);
    place_remove(&place);
}

static void
a_segment_that_grew_costs_its_new_bytes_and_one_that_changed_a_new_object(void **state) {
    (void)state;
    struct place place;
    int reports = 0;
    char path[256];
    place_open(&place);
    struct store_file file = scratch_put(&place.scratch, "hello", "batch", 100, 0);
    struct store_batch batch = put_batch(&place.scratch, &file, 50);
    size_t first = write_segment(&place.scratch, &batch, &file, 10);
    take(&place, 0, &reports);
    size_t second = write_segment(&place.scratch, &batch, &file, 30);
    struct backup_created taken = take(&place, 0, &reports);
    assert_int_equal(taken.copied_bytes, second - first);
    const char *object = "data/batches/batch_0123/seg-000001.log.1";
    assert_int_equal(bytes_of(place.folder, object), second);
    /* A power cut took records that a backup had seen: the log is shorter. */
    size_t third = write_segment(&place.scratch, &batch, &file, 5);
    take(&place, 0, &reports);
    assert_int_equal(bytes_of(place.folder, object), second);
    assert_int_equal(bytes_of(place.folder, "data/batches/batch_0123/seg-000001.log.3"), third);
    size_t sizes[] = {first, second, third};
    for (uint64_t generation = 1; generation <= 3; generation++) {
        restore(&place, generation);
        assert_int_equal(bytes_of(place.restored, "batches/batch_0123/seg-000001.log"),
                         sizes[generation - 1]);
    }
    snprintf(path, sizeof path, "%s/%s", place.folder, object);
    assert_int_equal(truncate(path, (off_t)second - 1), 0);
    struct backup_check check = {
        .dir = place.folder, .report = count, .checked = ignore, .context = &reports};
    uint64_t damaged = 0, unfinished = 0;
    struct error error;
    assert_int_equal(backup_check(&check, &damaged, &unfinished, &error), OK);
    assert_int_equal(damaged, 1);
    assert_int_equal(unfinished, 0);
    place_remove(&place);
}

static void bytes_that_are_gone_or_changed_are_reported_once_each(void **state) {
    (void)state;
    struct place place;
    int reports = 0;
    char path[256];
    place_open(&place);
    struct store_file file = scratch_put(&place.scratch, "hello", "batch", 100, 0);
    struct store_file other = scratch_put(&place.scratch, "there", "batch", 100, 0);
    assert_int_equal(take(&place, 0, &reports).damaged, 0);
    snprintf(path, sizeof path, "%s/files/%s/%s", place.scratch.dir, file.id + strlen(file.id) - 2,
             file.id);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/files/%s/%s", place.scratch.dir,
             other.id + strlen(other.id) - 2, other.id);
    assert_int_equal(unlink(path), 0);
    FILE *changed = fopen(path, "we");
    assert_non_null(changed);
    fputs("their", changed);
    fclose(changed);
    struct backup_created taken = take(&place, 0, &reports);
    assert_int_equal(taken.damaged, 2);
    assert_int_equal(reports, 2);
    assert_int_equal(taken.attempts, 1);
    restore(&place, 0);
    snprintf(path, sizeof path, "files/%s/%s", other.id + strlen(other.id) - 2, other.id);
    assert_int_equal(bytes_of(place.restored, path), 5);
    place_remove(&place);
}

static void old_generations_go_and_a_marked_directory_stays_closed(void **state) {
    (void)state;
    struct place place;
    int reports = 0;
    struct backup_created taken;
    struct error error;
    place_open(&place);
    for (int i = 0; i < 4; i++) take(&place, 2, &reports);
    assert_int_equal(bytes_of(place.folder, "manifests/00000002"), -1);
    assert_true(bytes_of(place.folder, "manifests/00000003") > 0);
    assert_int_equal(bytes_of(place.folder, "data/meta.db.2"), -1);
    assert_true(bytes_of(place.folder, "data/meta.db.3") > 0);

    struct backup_options options = {
        .state_dir = place.scratch.dir, .dir = place.folder, .version = "test", .move = true};
    assert_int_equal(backup_create(&options, &taken, &error), ERR_CONFLICT);
    store_close(place.scratch.store);
    place.scratch.store = NULL;
    assert_int_equal(backup_create(&options, &taken, &error), OK);
    assert_int_equal(scratch_reopen(&place.scratch), ERR_CONFLICT);
    options.move = false;
    assert_int_equal(backup_create(&options, &taken, &error), ERR_CONFLICT);
    assert_true(restore(&place, 0).is_moved);
    place_remove(&place);
}

/* Sets the mark with which a restore of this token fills a directory. */
/* A process may be killed after it has made a folder, and before the name is durable. */
static void the_name_of_a_folder_that_exists_is_made_durable(void **state) {
    (void)state;
    struct place place;
    struct error error;
    char file[160];
    place_open(&place);
    snprintf(file, sizeof file, "%s/data/batches/x", place.folder);
    assert_int_equal(backup_make_parents(place.folder, file, &error), OK);
    assert_int_equal(os_fault_plan("fsync:2:EIO", &error), OK); /* data, then batches */
    assert_int_equal(backup_make_parents(place.folder, file, &error), ERR_IO);
    assert_int_equal(backup_make_parents(place.folder, file, &error), OK);
    place_remove(&place);
}

static void set_restoring(const char *dir, const char *token) {
    struct error error;
    char line[128];
    snprintf(line, sizeof line, "restoring x, generation 1, as %s\n", token);
    assert_int_equal(state_mark_set(dir, STATE_RESTORING, line, &error), OK);
}

static void a_move_is_restored_once_and_only_its_own_restore_ends_what_it_began(void **state) {
    (void)state;
    struct place place;
    struct backup_created taken;
    struct backup_restored restored;
    struct backup_folder folder;
    struct move_mark mark;
    struct error error;
    place_open(&place);
    store_close(place.scratch.store);
    place.scratch.store = NULL;
    struct backup_options options = {
        .state_dir = place.scratch.dir, .dir = place.folder, .version = "test", .move = true};
    assert_int_equal(backup_create(&options, &taken, &error), OK);
    assert_int_equal(backup_create(&options, &taken, &error), OK);
    assert_int_equal(taken.generation, 1);
    assert_false(restore(&place, 0).is_unmarked);

    struct backup_restore again = {.dir = place.folder, .state_dir = place.restored};
    assert_int_equal(backup_restore(&again, &restored, &error), ERR_CONFLICT);
    assert_non_null(strstr(error.text, "would run twice: generation 1 was restored 20"));
    assert_non_null(strstr(error.text, place.restored));
    set_restoring(place.restored, "00112233445566778899aabbccddeeff");
    assert_int_equal(backup_restore(&again, &restored, &error), ERR_CONFLICT);
    assert_int_equal(backup_folder_open(&folder, place.folder, BACKUP_READ, &error), OK);
    assert_int_equal(move_mark_read(&folder, &mark, &error), OK);
    backup_folder_close(&folder);
    assert_int_equal(mark.generation, 1);
    assert_int_equal(strlen(mark.token), MOVE_TOKEN_BYTES - 1);
    set_restoring(place.restored, mark.token);
    assert_int_equal(backup_restore(&again, &restored, &error), OK);
    assert_int_equal(state_marks_check(place.restored, &error), OK);
    place_remove(&place);
}

/* Two containers that share the folder may give two restores the same PID. */
static void a_mark_leaves_the_draft_of_another_restore_alone(void **state) {
    (void)state;
    static const char token[] = "00112233445566778899aabbccddeeff";
    static const char draft[] = "manifests/00000001.restored";
    struct place place;
    struct backup_folder folder;
    struct error error;
    int reports = 0, fd;
    char name[96], path[256];
    place_open(&place);
    take(&place, 2, &reports);
    snprintf(name, sizeof name, "%s.%d.tmp", draft, (int)getpid());
    snprintf(path, sizeof path, "%s/%s", place.folder, name);
    assert_int_equal(os_create(&fd, path, 0600, &error), OK);
    os_close(fd);
    assert_int_equal(backup_folder_open(&folder, place.folder, BACKUP_READ, &error), OK);
    assert_int_equal(move_mark_write(&folder, 1, token, place.restored, false, &error), OK);
    assert_int_equal(bytes_of(place.folder, name), 0);
    assert_int_equal(move_mark_write(&folder, 1, token, "elsewhere", false, &error), ERR_CONFLICT);
    assert_int_equal(move_mark_write(&folder, 1, token, "elsewhere", true, &error), OK);
    snprintf(name, sizeof name, "%s.%s.tmp", draft, token);
    assert_int_equal(bytes_of(place.folder, name), -1);
    backup_folder_close(&folder);
    place_remove(&place);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_backup_of_an_open_store_restores_to_its_rows_and_bytes),
        cmocka_unit_test(a_segment_that_grew_costs_its_new_bytes_and_one_that_changed_a_new_object),
        cmocka_unit_test(bytes_that_are_gone_or_changed_are_reported_once_each),
        cmocka_unit_test(old_generations_go_and_a_marked_directory_stays_closed),
        cmocka_unit_test(the_name_of_a_folder_that_exists_is_made_durable),
        cmocka_unit_test(a_move_is_restored_once_and_only_its_own_restore_ends_what_it_began),
        cmocka_unit_test(a_mark_leaves_the_draft_of_another_restore_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
