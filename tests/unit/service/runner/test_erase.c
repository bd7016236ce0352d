/* SPDX-License-Identifier: Apache-2.0 */

/* Lines of an ended batch are erased from all that the state directory has of them, and a kill at
 * any call to the disk leaves the batch as it was before or as it is afterwards. */

#include "pipeline.h"

#include "base/clock.h"
#include "base/log.h"
#include "batch/completion_order.h"
#include "batch/erase.h"
#include "batch/proofs.h"
#include "store/answers_forget.h"
#include "store/batches_remove.h"
#include "store/judgements.h"

#include <dirent.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#define LINES 20
#define CACHE_BYTES ((uint64_t)32 << 20)
#define PERSON "erika mustermann" /* in the requests, answers and judgements of two lines */

static const struct worker_echo_options echo = {.fail_every = 7};

/* Line 3 ends in the output file and line 6, which fails, in the error file. */
static bool is_persons(int line) {
    return line == 3 || line == 6;
}

static void judge(struct pipeline *p, const char *id, uint64_t line, const char *curator) {
    struct store_judgement row, judgement = {.line = line,
                                             .custom_id = (char[]){"c"},
                                             .created_unix_s = test_now(),
                                             .version = 1,
                                             .verdict = VERDICT_ACCEPTED,
                                             .comment = (char[]){PERSON}};
    enum judgement_added added;
    struct error error;
    if (!is_persons((int)line - 1)) judgement.comment = NULL;
    snprintf(judgement.id, sizeof judgement.id, "j-%u-%s", (unsigned)line, curator);
    snprintf(judgement.batch_id, sizeof judgement.batch_id, "%s", id);
    snprintf(judgement.curator, sizeof judgement.curator, "%s", curator);
    must(store_judgement_add(p->store, &judgement, NULL, &added, &row, &error));
    store_judgement_release(&row);
}

static void submit(struct pipeline *p, char ret_file_id[STORE_ID_BYTES],
                   char ret_id[STORE_ID_BYTES]) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    for (int i = 0; i < LINES; i++) {
        if (i % 5 == 4) buf_add_byte(&text, '\n'); /* blank lines count as lines of the file */
        buf_printf(
            &text,
            "{\"custom_id\":\"line-%d\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\","
            "\"body\":{\"model\":\"m\",\"temperature\":0,\"messages\":[{\"role\":\"user\","
            "\"content\":\"%s %d\"}]}}\n",
            i, is_persons(i) ? PERSON : "somebody", i);
    }
    pipeline_upload(p, buf_str(&text), "batch", ret_file_id);
    pipeline_create(p, ret_file_id, 0, ret_id);
    buf_release(&text);
}

/* A directory with one ended batch, which has failed lines, judgements and cached answers. */
static struct store_batch make_ended(struct pipeline *p) {
    char id[STORE_ID_BYTES], file_id[STORE_ID_BYTES];
    pipeline_dir(p);
    pipeline_open(p, &(struct runner_options){.result_cache_bytes = CACHE_BYTES}, &echo, 1);
    submit(p, file_id, id);
    struct store_batch batch = pipeline_wait(p, id, is_over);
    assert_int_equal(batch.completed, LINES - LINES / echo.fail_every);
    judge(p, id, 4, "ann");
    judge(p, id, 4, "bob");
    judge(p, id, 5, "ann");
    return batch;
}

/* --- what the files have --- */

static int files_with_text;

static int look_for_text(const char *path, const struct stat *status, int kind, struct FTW *walk) {
    char *bytes;
    size_t size;
    struct error error;
    (void)status, (void)walk;
    if (kind != FTW_F) return 0;
    must(os_read_file(path, (size_t)64 << 20, &bytes, &size, &error));
    if (memmem(bytes, size, PERSON, strlen(PERSON))) {
        print_message("# %s has the text\n", path);
        files_with_text++;
    }
    free(bytes);
    return 0;
}

/* How many files of the directory have the person's text. */
static int count_text(const struct pipeline *p) {
    files_with_text = 0;
    assert_int_equal(nftw(p->dir, look_for_text, 16, FTW_PHYS), 0);
    return files_with_text;
}

/* The custom_ids of the results in the order in which they came, with their numbers. */
static void read_order(struct pipeline *p, const struct store_batch *batch, struct buf *buf) {
    struct order_reader reader;
    struct error error;
    struct page page = {.lines_max = 1, .bytes_max = UINT64_MAX, .room = 1 << 20, .counts = true};
    struct page_read read;
    struct buf line;
    buf_init(&line, BUF_UNLIMITED);
    must(completion_order_open(&reader, p->store, batch, &error));
    for (bool more = true; more;) {
        buf_clear(&line);
        must(completion_order_read(&reader, &page, test_now(), &line, &read, &error));
        page.from = read.next;
        more = read.lines > 0;
        if (!more) break;
        char *id = strstr(line.at, "\"custom_id\":\"");
        assert_non_null(id);
        buf_printf(buf, "%llu %.7s\n", (unsigned long long)read.last,
                   id + strlen("\"custom_id\":\""));
    }
    completion_order_close(&reader);
    buf_release(&line);
}

static void assert_proven(struct store *store, const char *id) {
    struct batch_proofs proofs;
    struct error error;
    struct store_batch batch;
    must(batch_proofs_read(store, id, &proofs, &error));
    must(store_batch_get(store, str_from(id), &batch, &error));
    const char *ids[] = {batch.input_file_id, batch.output_file_id, batch.error_file_id};
    assert_int_equal(proofs.rows.count, 3);
    for (size_t i = 0; i < proofs.rows.count; i++) {
        struct line_sum sum;
        struct run_salts_file *file = &proofs.salts.files[i];
        char wanted[SHA256_HEX_BYTES];
        int fd;
        assert_string_equal(proofs.rows.files[i].file_id, ids[i]);
        must(store_file_open(store, str_from(ids[i]), test_now(), &fd, NULL, &error));
        must(line_sum_file(fd, &file->salts, file->erased, file->erased_count, NULL, &sum, &error));
        os_close(fd);
        sha256_hex(proofs.rows.files[i].lines_sha256, wanted);
        assert_string_equal(sum.hex, wanted);
    }
    batch_proofs_release(&proofs);
    store_batch_release(&batch);
}

static enum err erase_with(struct store *store, const char *const *ids, size_t count,
                           const struct str *custom_ids, size_t id_count,
                           struct batch_erasure *ret_erasure, struct error *error) {
    bool is_custom_id;
    struct batch_erase wish = {.store = store,
                               .batch_ids = ids,
                               .batch_count = count,
                               .custom_ids = custom_ids,
                               .id_count = id_count,
                               .reason = "asked",
                               .now_unix_s = test_now()};
    enum err err = batch_erase(&wish, ret_erasure, &is_custom_id, error);
    return err == OK ? batch_erase_sweep(store, ret_erasure, test_now(), error) : err;
}

static enum err erase_person(struct store *store, const char *id, struct batch_erasure *ret_erasure,
                             struct error *error) {
    const struct str ids[] = {STR("line-3"), STR("line-6"), STR("line-3")};
    return erase_with(store, &id, 1, ids, 3, ret_erasure, error);
}

/* --- tests --- */

static void nothing_of_an_erased_line_is_left_and_all_else_stays(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct error error;
    struct batch_erasure erasure;
    struct buf before, after;
    struct store_batch now, batch = make_ended(&p);
    struct result_cache *cache;
    buf_init(&before, BUF_UNLIMITED);
    buf_init(&after, BUF_UNLIMITED);
    read_order(&p, &batch, &before);
    pipeline_close(&p);
    assert_true(count_text(&p) >= 4); /* input, both results, the database, the cache */
    pipeline_open_store(&p);
    must(result_cache_open(&cache, p.dir, CACHE_BYTES, &error));
    store_use_cache(p.store, cache);
    must(erase_person(p.store, batch.id, &erasure, &error));
    assert_int_equal(count_text(&p), 0); /* while it is open, with its log */
    assert_int_equal(erasure.requests, 2);
    assert_int_equal(erasure.batches[0].lines, 4);
    assert_int_equal(erasure.batches[0].judgements, 2);
    must(store_batch_get(p.store, str_from(batch.id), &now, &error));
    assert_string_not_equal(now.input_file_id, batch.input_file_id);
    assert_string_not_equal(now.output_file_id, batch.output_file_id);
    assert_string_not_equal(now.error_file_id, batch.error_file_id);
    assert_int_equal(now.completed, batch.completed);
    assert_proven(p.store, batch.id);
    read_order(&p, &now, &after);
    /* The rest has the numbers that it had. */
    for (char *line = before.at, *end; line < before.at + before.bytes; line = end + 1) {
        end = strchr(line, '\n');
        bool is_gone = strstr(line, "line-3\"") == NULL ? false : strstr(line, "line-3\"") < end;
        is_gone = is_gone || (strstr(line, "line-6\"") && strstr(line, "line-6\"") < end);
        assert_int_equal(!memmem(after.at, after.bytes, line, (size_t)(end - line) + 1), is_gone);
    }
    store_use_cache(p.store, NULL);
    result_cache_close(cache);
    store_close(p.store);
    assert_int_equal(count_text(&p), 0);
    assert_int_equal(pipeline_fsck(&p), 0);
    buf_release(&before);
    buf_release(&after);
    store_batch_release(&batch);
    store_batch_release(&now);
    pipeline_remove(&p);
}

static void an_erasure_of_what_is_erased_or_never_was_changes_nothing(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct error error;
    struct batch_erasure erasure;
    struct store_batch now, batch = make_ended(&p);
    const char *id = batch.id;
    const struct str unknown[] = {STR("line-5"), STR("line-99")}, later[] = {STR("line-5")};
    assert_int_equal(erase_with(p.store, &id, 1, unknown, 2, &erasure, &error), ERR_NOT_FOUND);
    assert_non_null(strstr(error.text, "custom_ids[1]"));
    must(store_batch_get(p.store, str_from(id), &now, &error));
    assert_string_equal(now.output_file_id, batch.output_file_id);
    store_batch_release(&now);
    must(erase_person(p.store, id, &erasure, &error));
    assert_int_equal(erase_person(p.store, id, &erasure, &error), ERR_NOT_FOUND);
    must(erase_with(p.store, &id, 1, later, 1, &erasure, &error)); /* the new files lose it */
    assert_int_equal(erasure.batches[0].lines, 2);
    assert_int_equal(erasure.batches[0].judgements, 0);
    assert_proven(p.store, id);
    struct store_judgement row, judgement = {.line = 4, .custom_id = (char[]){"c"}, .version = 1};
    enum judgement_added added;
    memcpy(judgement.batch_id, id, sizeof judgement.batch_id);
    memcpy(judgement.id, "j-later-1", 10);
    memcpy(judgement.curator, "ann", 4);
    assert_int_equal(store_judgement_add(p.store, &judgement, NULL, &added, &row, &error),
                     ERR_NOT_FOUND);
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

static void batches_of_one_input_are_erased_together(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct error error;
    struct batch_erasure erasure;
    char second[STORE_ID_BYTES];
    struct store_batch batch = make_ended(&p);
    pipeline_create(&p, batch.input_file_id, 0, second);
    struct store_batch other = pipeline_wait(&p, second, is_over);
    assert_int_equal(erase_person(p.store, batch.id, &erasure, &error), ERR_CONFLICT);
    assert_non_null(strstr(error.text, second));
    const char *both[] = {batch.id, second};
    const struct str ids[] = {STR("line-3"), STR("line-6")};
    must(erase_with(p.store, both, 2, ids, 2, &erasure, &error));
    assert_int_equal(erasure.batch_count, 2);
    assert_string_equal(erasure.batches[0].input_file_id, erasure.batches[1].input_file_id);
    assert_proven(p.store, batch.id);
    assert_proven(p.store, second);
    pipeline_close(&p);
    assert_int_equal(count_text(&p), 0);
    assert_int_equal(pipeline_fsck(&p), 0);
    store_batch_release(&batch);
    store_batch_release(&other);
    pipeline_remove(&p);
}

/* The client has deleted some files: their salts are gone, and the lines of the others go. */
static void files_that_are_gone_stay_gone(void **state) {
    (void)state;
    static const char *const names[] = {"input", "output", "errors"};
    for (int gone = 0; gone < 3; gone++) {
        struct pipeline p = {0};
        struct error error;
        struct batch_erasure erasure;
        struct store_batch now, batch = make_ended(&p);
        const char *const old[] = {batch.input_file_id, batch.output_file_id, batch.error_file_id};
        const struct str ids[] = {STR("line-3"), STR("line-6")};
        const char *id = batch.id;
        must(store_file_delete(p.store, str_from(old[gone]), test_now(), &error));
        must(erase_with(p.store, &id, 1, ids, 2, &erasure, &error));
        must(store_batch_get(p.store, str_from(id), &now, &error));
        const char *const fresh[] = {now.input_file_id, now.output_file_id, now.error_file_id};
        for (int i = 0; i < 3; i++) assert_int_equal(strcmp(old[i], fresh[i]) == 0, i == gone);
        assert_int_equal(erasure.batches[0].lines, gone == 0 ? 2 : 3);
        assert_int_equal(erasure.batches[0].judgements, 2);
        struct batch_proofs proofs;
        must(batch_proofs_read(p.store, id, &proofs, &error));
        assert_null(batch_proofs_row(&proofs, names[gone])->salts);
        batch_proofs_release(&proofs);
        store_batch_release(&now);
        store_batch_release(&batch);
        pipeline_close(&p);
        assert_int_equal(count_text(&p), 0);
        assert_int_equal(pipeline_fsck(&p), 0);
        pipeline_remove(&p);
    }
}

/* The results of one batch are the input of another. */
static void a_file_that_another_batch_reads_is_not_taken_from_it(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct error error;
    struct batch_erasure erasure;
    char second[STORE_ID_BYTES];
    struct store_batch batch = make_ended(&p);
    pipeline_create(&p, batch.output_file_id, 0, second);
    struct store_batch other = pipeline_wait(&p, second, is_over);
    assert_int_equal(other.status, BATCH_FAILED); /* results are no requests */
    assert_int_equal(erase_person(p.store, batch.id, &erasure, &error), ERR_CONFLICT);
    assert_non_null(strstr(error.text, second));
    struct store_freed freed;
    must(runner_batch_delete(p.runner, str_from(second), &freed, &error));
    store_batch_release(&batch);
    store_batch_release(&other);
    pipeline_close(&p);
    pipeline_remove(&p);
}

/* A sum of damaged bytes must not take the place of the right one. */
static void a_damaged_file_is_not_written_anew(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct error error;
    struct batch_erasure erasure;
    char path[512];
    int fd;
    struct store_batch now, batch = make_ended(&p);
    const char *id = batch.output_file_id;
    snprintf(path, sizeof path, "%s/files/%s/%s", p.dir, id + strlen(id) - 2, id);
    assert_int_equal(chmod(path, 0600), 0);
    must(os_open(&fd, path, O_RDWR, 0, &error));
    assert_int_equal(pwrite(fd, "X", 1, 40), 1);
    os_close(fd);
    assert_int_equal(chmod(path, 0400), 0);
    assert_int_equal(erase_person(p.store, batch.id, &erasure, &error), ERR_CORRUPT);
    must(store_batch_get(p.store, str_from(batch.id), &now, &error));
    assert_string_equal(now.input_file_id, batch.input_file_id);
    store_batch_release(&now);
    store_batch_release(&batch);
    pipeline_close(&p);
    pipeline_remove(&p);
}

/* Erases under a fault plan in a child. Returns its wait status. */
static int erase_in_child(struct pipeline *p, const char *id, const char *plan) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct error error;
        struct result_cache *cache;
        struct batch_erasure erasure;
        alarm(60); /* a hang is a failure */
        must(os_fault_plan(plan, &error));
        pipeline_open_store(p);
        must(result_cache_open(&cache, p->dir, CACHE_BYTES, &error));
        store_use_cache(p->store, cache);
        enum err err = erase_person(p->store, id, &erasure, &error);
        if (err != ERR_NOT_FOUND) must(err); /* the run before this one has erased them */
        store_use_cache(p->store, NULL);
        result_cache_close(cache);
        store_close(p->store);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* How many orders of results the batch has; an old one would have sums of erased lines. */
static int count_orders(const struct pipeline *p, const char *id) {
    char path[512];
    int count = 0;
    snprintf(path, sizeof path, "%s/batches/%s", p->dir, id);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *at; (at = readdir(dir));) count += at->d_name[0] != '.';
    closedir(dir);
    return count;
}

/* After a start: the batch is whole, with or without the lines. */
static bool assert_old_or_new(struct pipeline *p, const struct store_batch *batch) {
    struct store_batch now;
    struct error error;
    struct buf order;
    buf_init(&order, BUF_UNLIMITED);
    pipeline_open_store(p);
    must(store_file_sweep(p->store, test_now(), &error));
    must(store_batch_get(p->store, str_from(batch->id), &now, &error));
    bool is_new = strcmp(now.input_file_id, batch->input_file_id) != 0;
    read_order(p, &now, &order);
    buf_add_byte(&order, '\0');
    assert_true(!strstr(order.at, "line-3\"") == is_new);
    assert_proven(p->store, batch->id);
    assert_int_equal(count_orders(p, batch->id), 1);
    if (is_new) assert_int_equal(count_text(p), 0);
    store_close(p->store);
    assert_int_equal(pipeline_fsck(p), 0);
    store_batch_release(&now);
    buf_release(&order);
    return is_new;
}

static void a_kill_at_any_call_to_the_disk_leaves_the_old_batch_or_the_new_one(void **state) {
    (void)state;
    struct pipeline template = {0}, p = {0};
    struct store_batch batch = make_ended(&template);
    pipeline_close(&template);
    snprintf(p.dir, sizeof p.dir, "%.48s-run", template.dir);
    int killed = 0, after = 0;
    for (int at = 1;; at++) {
        char plan[64];
        tree_remove(p.dir);
        tree_copy(template.dir, p.dir);
        snprintf(plan, sizeof plan, "any:%d:KILL", at);
        int status = erase_in_child(&p, batch.id, plan);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            break;
        }
        assert_int_equal(WTERMSIG(status), SIGKILL);
        killed++;
        assert_int_equal(pipeline_fsck(&p), 0);
        after += assert_old_or_new(&p, &batch);
        assert_int_equal(WEXITSTATUS(erase_in_child(&p, batch.id, "")), 0); /* the call again */
        assert_true(assert_old_or_new(&p, &batch));
    }
    print_message("# killed at %d calls, %d of them after the transaction\n", killed, after);
    assert_true(killed > 20 && after > 3);
    assert_true(assert_old_or_new(&p, &batch));
    store_batch_release(&batch);
    pipeline_remove(&p);
    pipeline_remove(&template);
}

int main(void) {
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_of_an_erased_line_is_left_and_all_else_stays),
        cmocka_unit_test(an_erasure_of_what_is_erased_or_never_was_changes_nothing),
        cmocka_unit_test(batches_of_one_input_are_erased_together),
        cmocka_unit_test(files_that_are_gone_stay_gone),
        cmocka_unit_test(a_file_that_another_batch_reads_is_not_taken_from_it),
        cmocka_unit_test(a_damaged_file_is_not_written_anew),
        cmocka_unit_test(a_kill_at_any_call_to_the_disk_leaves_the_old_batch_or_the_new_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
