/* SPDX-License-Identifier: Apache-2.0 */

/* Ended batches are deleted with all that they have, by a call or by their age, and a kill at any
 * call to the disk leaves a directory that fsck finds sound and that the next start finishes. */

#include "pipeline.h"

#include "base/clock.h"
#include "base/log.h"
#include "store/answers_forget.h"
#include "store/batches_remove.h"
#include "store/judgements.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#define LINES 20
#define DAY_S 86400
#define CACHE_BYTES ((uint64_t)32 << 20)
#define GONE_NS INT64_C(10000000000) /* by which a file is gone whose row is */

static const struct worker_echo_options echo = {.fail_every = 7};

static void judge(struct pipeline *p, const char *id, uint64_t line, uint32_t version) {
    struct store_judgement row, judgement = {.line = line,
                                             .custom_id = (char[]){"c"},
                                             .created_unix_s = test_now(),
                                             .version = version,
                                             .verdict = VERDICT_ACCEPTED};
    enum judgement_added added;
    struct error error;
    snprintf(judgement.id, sizeof judgement.id, "j-%u-%u", (unsigned)line, version);
    snprintf(judgement.batch_id, sizeof judgement.batch_id, "%s", id);
    snprintf(judgement.curator, sizeof judgement.curator, "ann");
    must(store_judgement_add(p->store, &judgement, NULL, &added, &row, &error));
    store_judgement_release(&row);
}

/* Submits LINES lines whose answers are kept for equal requests. */
static void submit(struct pipeline *p, const char *salt, char ret_id[STORE_ID_BYTES]) {
    struct buf text;
    char file_id[STORE_ID_BYTES];
    buf_init(&text, BUF_UNLIMITED);
    for (int i = 0; i < LINES; i++)
        buf_printf(&text,
                   "{\"custom_id\":\"%s-%d\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\","
                   "\"body\":{\"model\":\"m\",\"temperature\":0,\"messages\":[{\"role\":\"user\","
                   "\"content\":\"%s %d\"}]}}\n",
                   salt, i, salt, i);
    pipeline_upload(p, buf_str(&text), "batch", file_id);
    pipeline_create(p, file_id, 0, ret_id);
    buf_release(&text);
}

/* How often a text is in the bytes of the result cache. */
static int count_cached(const struct pipeline *p, const char *text) {
    char path[512], *bytes;
    size_t size;
    struct error error;
    int count = 0;
    for (int segment = 1; segment < 4; segment++) {
        snprintf(path, sizeof path, "%s/cache/%08d.seg", p->dir, segment);
        if (access(path, R_OK) != 0) continue;
        must(os_read_file(path, (size_t)32 << 20, &bytes, &size, &error));
        for (char *at = bytes; (at = memmem(at, size - (size_t)(at - bytes), text, strlen(text)));
             at++)
            count++;
        free(bytes);
    }
    return count;
}

/* A directory with one ended batch, which has failed lines, judgements and cached answers. */
static struct store_batch make_ended(struct pipeline *p, const struct runner_options *options) {
    char id[STORE_ID_BYTES];
    struct runner_options own = *options;
    own.result_cache_bytes = CACHE_BYTES;
    pipeline_dir(p);
    pipeline_open(p, &own, &echo, 1);
    submit(p, "delete", id);
    struct store_batch batch = pipeline_wait(p, id, is_over);
    for (uint32_t version = 1; version <= 3; version++) judge(p, id, 2, version);
    return batch;
}

static bool has(const struct pipeline *p, const char *folder, const char *name) {
    char path[512];
    struct stat status;
    snprintf(path, sizeof path, "%s/%s/%s", p->dir, folder, name);
    return stat(path, &status) == 0;
}

static bool has_file(const struct pipeline *p, const char *id) {
    char folder[64];
    snprintf(folder, sizeof folder, "files/%s", id + strlen(id) - 2);
    return has(p, folder, id);
}

/* A sweep of the runner's may have taken the file's row just before the one of a deletion, and then
 * removes the file (store_file_sweep). */
static void wait_for_no_file(const struct pipeline *p, const char *id) {
    const int64_t until_ns = clock_monotonic_ns() + GONE_NS;
    const struct timespec pause = {.tv_nsec = 1000000};
    while (has_file(p, id) && clock_monotonic_ns() < until_ns) (void)nanosleep(&pause, NULL);
    assert_false(has_file(p, id));
}

static void assert_gone(struct pipeline *p, const struct store_batch *batch) {
    assert_false(has(p, "batches", batch->id));
    assert_int_equal(count_cached(p, "delete "), 0);
    assert_int_equal(count_cached(p, batch->id), 0);
    wait_for_no_file(p, batch->input_file_id);
    wait_for_no_file(p, batch->output_file_id);
    wait_for_no_file(p, batch->error_file_id);
    assert_false(store_batch_exists(p->store, batch->id));
}

static void a_deleted_batch_leaves_nothing(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct store_freed freed;
    struct error error;
    struct store_batch batch = make_ended(&p, &(struct runner_options){0});
    assert_true(has(&p, "batches", batch.id));
    must(runner_batch_delete(p.runner, str_from(batch.id), &freed, &error));
    assert_int_equal(freed.files, 3);
    assert_int_equal(freed.judgements, 3);
    assert_true(freed.bytes > 1000);
    assert_gone(&p, &batch);
    assert_int_equal(runner_batch_delete(p.runner, str_from(batch.id), &freed, &error),
                     ERR_NOT_FOUND);
    uint64_t bytes = 1;
    must(store_owner_bytes(p.store, batch.owner, test_now(), &bytes, &error));
    assert_int_equal(bytes, 0);
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

static void an_input_that_another_batch_has_stays(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct store_freed freed;
    struct error error;
    char other[STORE_ID_BYTES];
    struct store_batch batch = make_ended(&p, &(struct runner_options){0});
    pipeline_create(&p, batch.input_file_id, 0, other);
    struct store_batch second = pipeline_wait(&p, other, is_over);
    must(runner_batch_delete(p.runner, str_from(batch.id), &freed, &error));
    assert_int_equal(freed.files, 2);
    assert_true(has_file(&p, batch.input_file_id));
    must(runner_batch_delete(p.runner, str_from(other), &freed, &error));
    assert_int_equal(freed.files, 3);
    assert_gone(&p, &second);
    store_batch_release(&batch);
    store_batch_release(&second);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

static void batches_older_than_keep_days_are_deleted_and_younger_ones_stay(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct error error;
    const struct runner_options options = {.keep_days = 30};
    struct store_batch batch = make_ended(&p, &options);
    struct store_batch row;
    must(runner_batch_get(p.runner, str_from(batch.id), &row, &error));
    assert_int_equal(row.delete_unix_s, store_batch_end_unix_s(&row) + 30 * DAY_S);
    store_batch_release(&row);
    pipeline_close(&p);
    test_unix_s += 29 * DAY_S;
    pipeline_open(&p, &options, &echo, 1);
    char fresh[STORE_ID_BYTES];
    pipeline_submit(&p, "fresh", LINES, fresh);
    struct store_batch young = pipeline_wait(&p, fresh, is_over);
    assert_true(store_batch_exists(p.store, batch.id));
    pipeline_close(&p);
    test_unix_s += 2 * DAY_S;
    pipeline_open(&p, &options, &echo, 1); /* a start looks at once */
    for (int i = 0; i < 6000 && store_batch_exists(p.store, batch.id); i++) clock_sleep_ms(10);
    for (int i = 0; i < 6000 && has(&p, "batches", batch.id); i++) clock_sleep_ms(10);
    assert_true(store_batch_exists(p.store, fresh));
    pipeline_close(&p);
    pipeline_open_store(&p);
    assert_gone(&p, &batch);
    assert_true(has_file(&p, young.output_file_id));
    store_close(p.store);
    store_batch_release(&batch);
    store_batch_release(&young);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

/* Another batch's answers stay, also those that it got from the cache alone. */
static void only_the_answers_of_the_batch_are_forgotten(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct store_freed freed;
    struct error error;
    char kept[STORE_ID_BYTES], again[STORE_ID_BYTES];
    struct store_batch batch = make_ended(&p, &(struct runner_options){0});
    submit(&p, "stays", kept);
    struct store_batch other = pipeline_wait(&p, kept, is_over);
    int stays = count_cached(&p, "stays ");
    assert_true(stays > 0 && count_cached(&p, "delete ") > 0);
    must(runner_batch_delete(p.runner, str_from(batch.id), &freed, &error));
    assert_int_equal(count_cached(&p, "delete "), 0);
    assert_int_equal(count_cached(&p, "stays "), stays);
    uint64_t answered = answered_by(p.workers[0]);
    submit(&p, "delete", again);
    struct store_batch third = pipeline_wait(&p, again, is_over);
    assert_true(answered_by(p.workers[0]) - answered >= LINES); /* none came out of the cache */
    pipeline_close(&p);
    pipeline_open(&p, &(struct runner_options){0}, &echo, 1); /* a server without a cache */
    assert_int_equal(count_cached(&p, "stays "), 0);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    store_batch_release(&batch);
    store_batch_release(&other);
    store_batch_release(&third);
    pipeline_remove(&p);
}

/* The cache of a directory with the batch, in one that has deleted it. */
static void fsck_names_cached_answers_of_no_batch(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct store_freed freed;
    struct error error;
    char from[512], to[512];
    struct store_batch batch = make_ended(&p, &(struct runner_options){0});
    snprintf(from, sizeof from, "%s/cache", p.dir);
    snprintf(to, sizeof to, "%s/kept", p.dir);
    tree_copy(from, to);
    must(runner_batch_delete(p.runner, str_from(batch.id), &freed, &error));
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    tree_remove(from);
    tree_copy(to, from);
    assert_int_equal(pipeline_fsck(&p), 1);
    store_batch_release(&batch);
    pipeline_remove(&p);
}

static void the_order_of_results_goes_with_the_last_result_file(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct error error;
    struct store_batch batch = make_ended(&p, &(struct runner_options){0});
    must(store_file_delete(p.store, str_from(batch.output_file_id), test_now(), &error));
    assert_true(has(&p, "batches", batch.id));
    must(store_file_delete(p.store, str_from(batch.error_file_id), test_now(), &error));
    assert_false(has(&p, "batches", batch.id));
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

/* What a child does with the batch. */
typedef enum err (*ending_fn)(struct store *store, const struct store_batch *batch,
                              struct error *error);

static enum err delete_batch(struct store *store, const struct store_batch *batch,
                             struct error *error) {
    struct store_freed freed;
    enum err err = store_batch_delete(store, str_from(batch->id), test_now(), &freed, error);
    return err == ERR_NOT_FOUND ? OK : err;
}

static enum err delete_output(struct store *store, const struct store_batch *batch,
                              struct error *error) {
    enum err err = store_file_delete(store, str_from(batch->output_file_id), test_now(), error);
    return err == ERR_NOT_FOUND ? OK : err;
}

/* Ends something under a fault plan in a child. Returns its wait status. */
static int end_in_child(struct pipeline *p, const struct store_batch *batch, ending_fn ends,
                        const char *plan) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct error error;
        struct result_cache *cache;
        bool has_more;
        alarm(60); /* a hang is a failure */
        must(os_fault_plan(plan, &error));
        pipeline_open_store(p);
        must(result_cache_open(&cache, p->dir, CACHE_BYTES, &error));
        store_use_cache(p->store, cache);
        must(ends(p->store, batch, &error));
        must(store_batch_sweep(p->store, test_now(), 100, &has_more, &error));
        store_use_cache(p->store, NULL);
        result_cache_close(cache);
        store_close(p->store);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void a_kill_at_any_call_to_the_disk_leaves_a_sound_directory(void **state) {
    (void)state;
    struct pipeline template = {0}, p = {0};
    struct store_batch batch = make_ended(&template, &(struct runner_options){0});
    pipeline_close(&template);
    assert_int_equal(count_cached(&template, batch.id), LINES - LINES / echo.fail_every);
    snprintf(p.dir, sizeof p.dir, "%.48s-run", template.dir);
    int killed = 0, unfinished = 0;
    for (int at = 1;; at++) {
        char plan[64];
        tree_remove(p.dir);
        tree_copy(template.dir, p.dir);
        snprintf(plan, sizeof plan, "any:%d:KILL", at);
        int status = end_in_child(&p, &batch, delete_batch, plan);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            break;
        }
        assert_int_equal(WTERMSIG(status), SIGKILL);
        killed++;
        assert_int_equal(pipeline_fsck(&p), 0);
        /* Now and then what goes on after the restart dies as well. */
        if (at % 3 == 0) {
            snprintf(plan, sizeof plan, "any:%d:KILL", at / 2 + 1);
            end_in_child(&p, &batch, delete_batch, plan);
            assert_int_equal(pipeline_fsck(&p), 0);
        }
        struct error error;
        bool has_more;
        pipeline_open_store(&p);
        if (!store_batch_exists(p.store, batch.id)) {
            struct result_cache *cache;
            unfinished++;
            must(result_cache_open(&cache, p.dir, CACHE_BYTES, &error));
            store_use_cache(p.store, cache);
            must(store_batch_sweep(p.store, test_now(), 100, &has_more, &error));
            store_use_cache(p.store, NULL);
            result_cache_close(cache);
            assert_gone(&p, &batch);
        }
        store_close(p.store);
        assert_int_equal(pipeline_fsck(&p), 0);
        assert_false(has(&p, "lost", batch.id));
    }
    print_message("# killed at %d calls, %d of them after the mark\n", killed, unfinished);
    assert_true(killed > 10 && unfinished > 3);
    store_batch_release(&batch);
    pipeline_remove(&p);
    pipeline_remove(&template);
}

static void the_answers_of_a_batch_go_with_its_output_file(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct error error;
    char kept[STORE_ID_BYTES];
    struct store_batch batch = make_ended(&p, &(struct runner_options){0});
    submit(&p, "stays", kept);
    struct store_batch other = pipeline_wait(&p, kept, is_over);
    int stays = count_cached(&p, "stays "), answers = count_cached(&p, "delete ");
    assert_true(stays > 0 && answers > 0);
    must(store_file_delete(p.store, str_from(batch.error_file_id), test_now(), &error));
    must(store_file_delete(p.store, str_from(batch.input_file_id), test_now(), &error));
    assert_int_equal(count_cached(&p, "delete "), answers); /* its results can still be read */
    must(store_file_delete(p.store, str_from(batch.output_file_id), test_now(), &error));
    assert_int_equal(count_cached(&p, "delete "), 0);
    assert_int_equal(count_cached(&p, batch.id), 0);
    assert_int_equal(count_cached(&p, "stays "), stays);
    assert_true(store_batch_exists(p.store, batch.id));
    store_batch_release(&batch);
    store_batch_release(&other);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

/* An older version left the answers of a batch whose output file is gone. */
static void a_start_forgets_the_answers_whose_output_file_is_gone(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct error error;
    char from[512], to[512];
    struct store_batch batch = make_ended(&p, &(struct runner_options){0});
    snprintf(from, sizeof from, "%s/cache", p.dir);
    snprintf(to, sizeof to, "%s/kept", p.dir);
    tree_copy(from, to);
    must(store_file_delete(p.store, str_from(batch.output_file_id), test_now(), &error));
    pipeline_close(&p);
    tree_remove(from);
    tree_copy(to, from);
    tree_remove(to);
    assert_true(count_cached(&p, "delete ") > 0);
    assert_int_equal(pipeline_fsck(&p), 1);
    pipeline_open(&p, &(struct runner_options){.result_cache_bytes = CACHE_BYTES}, &echo, 1);
    assert_int_equal(count_cached(&p, "delete "), 0);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    store_batch_release(&batch);
    pipeline_remove(&p);
}

static void a_kill_while_an_output_file_is_deleted_leaves_no_answers_behind_it(void **state) {
    (void)state;
    struct pipeline template = {0}, p = {0};
    struct store_batch batch = make_ended(&template, &(struct runner_options){0});
    pipeline_close(&template);
    snprintf(p.dir, sizeof p.dir, "%.48s-run", template.dir);
    int killed = 0;
    for (int at = 1;; at++) {
        char plan[64];
        tree_remove(p.dir);
        tree_copy(template.dir, p.dir);
        snprintf(plan, sizeof plan, "any:%d:KILL", at);
        int status = end_in_child(&p, &batch, delete_output, plan);
        assert_int_equal(pipeline_fsck(&p), 0);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            break;
        }
        assert_int_equal(WTERMSIG(status), SIGKILL);
        killed++;
        assert_int_equal(end_in_child(&p, &batch, delete_output, ""), 0);
        assert_int_equal(count_cached(&p, batch.id), 0);
        assert_false(has_file(&p, batch.output_file_id));
        assert_int_equal(pipeline_fsck(&p), 0);
    }
    print_message("# killed at %d calls\n", killed);
    assert_true(killed > 5);
    store_batch_release(&batch);
    pipeline_remove(&p);
    pipeline_remove(&template);
}

int main(void) {
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_deleted_batch_leaves_nothing),
        cmocka_unit_test(an_input_that_another_batch_has_stays),
        cmocka_unit_test(batches_older_than_keep_days_are_deleted_and_younger_ones_stay),
        cmocka_unit_test(only_the_answers_of_the_batch_are_forgotten),
        cmocka_unit_test(fsck_names_cached_answers_of_no_batch),
        cmocka_unit_test(the_order_of_results_goes_with_the_last_result_file),
        cmocka_unit_test(a_kill_at_any_call_to_the_disk_leaves_a_sound_directory),
        cmocka_unit_test(the_answers_of_a_batch_go_with_its_output_file),
        cmocka_unit_test(a_start_forgets_the_answers_whose_output_file_is_gone),
        cmocka_unit_test(a_kill_while_an_output_file_is_deleted_leaves_no_answers_behind_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
