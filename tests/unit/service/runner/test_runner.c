/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline.h"

#include "base/log.h"
#include "base/rng.h"
#include "runner/runner_internal.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void a_batch_completes_with_one_output_line_for_each_request(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){0}, &(struct worker_echo_options){0}, 1);
    pipeline_submit(&p, "a", 300, id);
    struct store_batch batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.status, BATCH_COMPLETED);
    assert_int_equal(batch.completed, 300);
    assert_int_equal(batch.failed, 0);
    assert_string_equal(batch.model, "m");
    assert_string_equal(batch.error_file_id, "");
    assert_true(batch.usage.input_tokens > 0 && batch.usage.output_tokens > 0);
    size_t bytes;
    char *output = pipeline_read(&p, batch.output_file_id, &bytes);
    assert_int_equal(count_lines(output, bytes), 300);
    /* In input order, and what Python's splitlines() would split on is escaped. */
    assert_memory_equal(output, "{\"id\":\"batch_req_", 17);
    assert_non_null(strstr(output, "\"custom_id\":\"a-0\""));
    assert_true(strstr(output, "\"custom_id\":\"a-0\"") < strstr(output, "\"custom_id\":\"a-1\""));
    assert_non_null(strstr(output, "a 0 \\u2028 \\ud83d\\ude00"));
    free(output);
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

static void lines_that_fail_are_results_in_the_error_file(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){0}, &(struct worker_echo_options){.fail_every = 3},
                  1);
    pipeline_submit(&p, "f", 99, id);
    struct store_batch batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.status, BATCH_COMPLETED);
    assert_int_equal(batch.completed, 66);
    assert_int_equal(batch.failed, 33);
    size_t bytes;
    char *errors = pipeline_read(&p, batch.error_file_id, &bytes);
    assert_int_equal(count_lines(errors, bytes), 33);
    assert_non_null(strstr(errors, "\"status_code\":500"));
    free(errors);
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

static void a_batch_of_which_all_lines_fail_is_completed_without_an_output_file(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){0}, &(struct worker_echo_options){.fail_every = 1},
                  1);
    pipeline_submit(&p, "f", 5, id);
    struct store_batch batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.status, BATCH_COMPLETED);
    assert_int_equal(batch.completed, 0);
    assert_int_equal(batch.failed, 5);
    assert_string_equal(batch.output_file_id, "");
    assert_string_not_equal(batch.error_file_id, "");
    store_batch_release(&batch);
    pipeline_close(&p);
    pipeline_remove(&p);
}

static void retryable_results_are_tried_again_until_they_succeed(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.retry_delay_ms = 1, .attempts_max = 50},
                  &(struct worker_echo_options){.retryable_every = 2}, 1);
    pipeline_submit(&p, "r", 200, id);
    struct store_batch batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.completed, 200);
    struct runner_status status;
    runner_status(p.runner, &status);
    assert_true(status.lines_retried >= 100);
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

static void retries_are_bounded_and_end_in_the_workers_own_answer(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.retry_delay_ms = 1, .attempts_max = 3},
                  &(struct worker_echo_options){.retryable_every = 1}, 1);
    pipeline_submit(&p, "r", 4, id);
    struct store_batch batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.failed, 4);
    assert_int_equal(answered_by(p.workers[0]), 12);
    size_t bytes;
    char *errors = pipeline_read(&p, batch.error_file_id, &bytes);
    assert_non_null(strstr(errors, "\"status_code\":503"));
    free(errors);
    store_batch_release(&batch);
    pipeline_close(&p);
    pipeline_remove(&p);
}

static void a_worker_that_goes_down_now_and_then_loses_no_line(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.lookahead_lines = 64},
                  &(struct worker_echo_options){.down_every = 97, .down_ms = 1}, 1);
    pipeline_submit(&p, "d", 500, id);
    struct store_batch batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.completed, 500);
    struct runner_status status;
    runner_status(p.runner, &status);
    assert_true(status.lines_lost > 0);
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

static void a_line_that_takes_the_worker_down_is_found_and_only_it_fails(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.lookahead_lines = 128},
                  &(struct worker_echo_options){.poison = "p 77 ", .down_ms = 1}, 1);
    pipeline_submit(&p, "p", 300, id);
    struct store_batch batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.completed, 299);
    assert_int_equal(batch.failed, 1);
    size_t bytes;
    char *errors = pipeline_read(&p, batch.error_file_id, &bytes);
    assert_non_null(strstr(errors, "\"custom_id\":\"p-77\""));
    assert_non_null(strstr(errors, "worker_lost"));
    assert_non_null(strstr(errors, "went down. The last one: "));
    free(errors);
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

/* As a broken card: nothing that it runs is at fault. */
static void a_worker_that_goes_down_with_everything_convicts_no_line(void **state) {
    (void)state;
    for (uint32_t lookahead = 1; lookahead <= 64; lookahead *= 8) {
        struct pipeline p = {0};
        char id[STORE_ID_BYTES];
        const struct worker_echo_options echo[] = {
            {.down_every = 1, .down_ms = 1}, {.latency_ms = 1}, {.latency_ms = 1}};
        pipeline_dir(&p);
        pipeline_open(&p, &(struct runner_options){.lookahead_lines = lookahead}, echo, 3);
        pipeline_submit(&p, "b", 300, id);
        struct store_batch batch = pipeline_wait(&p, id, is_over);
        assert_int_equal(batch.completed, 300);
        store_batch_release(&batch);
        struct runner_status status;
        runner_status(p.runner, &status);
        assert_true(status.lines_lost > 0);
        pipeline_close(&p);
        assert_int_equal(pipeline_fsck(&p), 0);
        pipeline_remove(&p);
    }
}

static void among_workers_and_a_broken_one_only_bad_lines_fail(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    const struct worker_echo_options echo[] = {{.down_every = 1, .down_ms = 1},
                                               {.poison = "q 17", .down_ms = 1},
                                               {.poison = "q 17", .down_ms = 1}};
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.lookahead_lines = 32}, echo, 3);
    pipeline_submit(&p, "q", 170, id); /* one of them is "q 17" */
    struct store_batch batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.completed, 169);
    assert_int_equal(batch.failed, 1);
    size_t bytes;
    char *errors = pipeline_read(&p, batch.error_file_id, &bytes);
    assert_non_null(strstr(errors, "\"custom_id\":\"q-17\""));
    free(errors);
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

/* The well worker goes down again and again, and for longer than the broken one. */
static void a_line_waits_for_a_well_worker_that_is_down_for_a_moment(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    const struct worker_echo_options echo[] = {{.down_every = 1, .down_ms = 1},
                                               {.poison = "w 1", .down_ms = 60}};
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.lookahead_lines = 8}, echo, 2);
    pipeline_submit(&p, "w", 40, id); /* "w 1" and "w 10" to "w 19" */
    struct store_batch batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.completed, 29);
    assert_int_equal(batch.failed, 11);
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

/* Workers of other models take none of their lines, and those of their own go down with each. */
static void batches_of_bad_lines_alone_end(void **state) {
    (void)state;
    struct pipeline p = {0};
    static const char *const own[] = {"m", NULL}, *const others[] = {"n", NULL};
    const struct worker_echo_options echo[] = {{.models = others},
                                               {.models = own, .down_every = 1, .down_ms = 1},
                                               {.models = own, .down_every = 1, .down_ms = 1}};
    for (size_t count = 2; count <= 3; count++) {
        pipeline_dir(&p);
        pipeline_open(&p, &(struct runner_options){.lookahead_lines = 16}, echo, count);
        for (char salt[] = "a"; *salt <= 'b'; ++*salt) {
            char id[STORE_ID_BYTES];
            pipeline_submit(&p, salt, 12, id);
            struct store_batch batch = pipeline_wait(&p, id, is_over);
            assert_int_equal(batch.failed, 12);
            store_batch_release(&batch);
        }
        pipeline_close(&p);
        assert_int_equal(pipeline_fsck(&p), 0);
        pipeline_remove(&p);
    }
}

static void eight_batches_at_once_all_end_and_no_result_crosses(void **state) {
    (void)state;
    struct pipeline p = {0};
    char ids[8][STORE_ID_BYTES], salt[8];
    pipeline_dir(&p);
    const struct worker_echo_options echo[2] = {{.latency_ms = 1}, {.fail_every = 50}};
    pipeline_open(&p, &(struct runner_options){.lookahead_lines = 50}, echo, 2);
    for (int i = 0; i < 8; i++) {
        snprintf(salt, sizeof salt, "s%d", i);
        pipeline_submit(&p, salt, 200, ids[i]);
    }
    for (int i = 0; i < 8; i++) {
        struct store_batch batch = pipeline_wait(&p, ids[i], is_over);
        assert_int_equal(batch.completed + batch.failed, 200);
        size_t bytes;
        char *output = pipeline_read(&p, batch.output_file_id, &bytes);
        snprintf(salt, sizeof salt, "s%d ", i);
        size_t own = 0;
        for (char *at = output; (at = strstr(at, salt)); at++) own++;
        assert_int_equal(own, batch.completed);
        free(output);
        store_batch_release(&batch);
    }
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

static void counters_only_grow_and_files_show_only_at_the_end(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    struct error error;
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.lookahead_lines = 10},
                  &(struct worker_echo_options){.latency_ms = 1}, 1);
    pipeline_submit(&p, "c", 400, id);
    uint64_t last = 0;
    for (bool over = false; !over;) {
        struct store_batch batch;
        assert_int_equal(runner_batch_get(p.runner, str_from(id), &batch, &error), OK);
        over = is_over(&batch);
        assert_true(batch.completed >= last && batch.completed + batch.failed <= 400);
        assert_true(over || (!*batch.output_file_id && !*batch.error_file_id));
        last = batch.completed;
        store_batch_release(&batch);
    }
    assert_int_equal(last, 400);
    pipeline_close(&p);
    pipeline_remove(&p);
}

/* Ten lines at a time, or a hundred, take so long that a batch of thousands outlasts every test on
 * the slowest machine. */
static const struct worker_echo_options slow = {.latency_ms = 50};

static bool has_some(const struct store_batch *batch) {
    return batch->completed >= 20 || batch_status_is_terminal(batch->status);
}

/* Behind the last of `lines` results there is nothing, and the reader is told so. */
static void read_behind(struct pipeline *p, const char *id, uint64_t lines) {
    struct runner_results *results;
    struct page_read read;
    struct page page = {
        .from = {.after = lines}, .lines_max = UINT64_MAX, .bytes_max = UINT64_MAX, .room = 4096};
    struct error error;
    struct buf buf;
    buf_init(&buf, 4096);
    runner_results_open(&results, p->runner, str_from(id));
    assert_int_equal(runner_results_read(results, &page, &buf, &read, &error), OK);
    assert_int_equal(buf.bytes, 0);
    assert_false(read.more);
    runner_results_close(results);
    buf_release(&buf);
}

/* The receiver of a webhook hears of an end as soon as the store has it, and asks at once. The lock
 * keeps the publish thread from telling the runner in between. */
static void a_batch_that_has_ended_in_the_store_has_ended_for_everyone(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct error error;
    struct store_batch batch;
    char id[STORE_ID_BYTES], salt[16];
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){0}, &(struct worker_echo_options){0}, 1);
    for (int i = 0; i < 20; i++) {
        snprintf(salt, sizeof salt, "s%d", i);
        pipeline_submit(&p, salt, 2, id);
        for (bool has_ended = false; !has_ended; usleep(100)) {
            pthread_mutex_lock(&p.runner->lock);
            for (int look = 0; look < 50 && !has_ended; look++) {
                assert_int_equal(store_batch_get(p.store, str_from(id), &batch, &error), OK);
                has_ended = is_over(&batch);
                store_batch_release(&batch);
            }
            pthread_mutex_unlock(&p.runner->lock);
            if (!has_ended) continue;
            if (i % 2) read_behind(&p, id, 2);
            assert_int_equal(runner_batch_get(p.runner, str_from(id), &batch, &error), OK);
            assert_int_equal(batch.status, BATCH_COMPLETED);
            store_batch_release(&batch);
            assert_int_equal(runner_batch_cancel(p.runner, str_from(id), &batch, &error),
                             ERR_CONFLICT);
        }
    }
    pipeline_close(&p);
    pipeline_remove(&p);
}

static void a_cancelled_batch_keeps_what_is_done_and_names_the_rest(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    struct error error;
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.lookahead_lines = 10}, &slow, 1);
    pipeline_submit(&p, "x", 5000, id);
    struct store_batch batch = pipeline_wait(&p, id, has_some);
    store_batch_release(&batch);
    assert_int_equal(runner_batch_cancel(p.runner, str_from(id), &batch, &error), OK);
    assert_int_equal(batch.status, BATCH_CANCELLING);
    int64_t when = batch.cancelling_unix_s;
    store_batch_release(&batch);
    assert_int_equal(runner_batch_cancel(p.runner, str_from(id), &batch, &error), OK);
    assert_int_equal(batch.cancelling_unix_s, when);
    store_batch_release(&batch);
    batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.status, BATCH_CANCELLED);
    assert_true(batch.completed >= 20 && batch.completed < 5000);
    assert_int_equal(batch.failed, 0);
    size_t output_bytes, error_bytes;
    char *output = pipeline_read(&p, batch.output_file_id, &output_bytes);
    char *errors = pipeline_read(&p, batch.error_file_id, &error_bytes);
    assert_int_equal(count_lines(output, output_bytes), batch.completed);
    assert_int_equal(count_lines(errors, error_bytes), 5000 - batch.completed);
    assert_non_null(strstr(errors, "\"response\":null,\"error\":{\"code\":\"batch_cancelled\""));
    free(output);
    free(errors);
    store_batch_release(&batch);
    assert_int_equal(runner_batch_cancel(p.runner, str_from(id), &batch, &error), OK);
    assert_int_equal(batch.status, BATCH_CANCELLED);
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

static void
a_batch_that_cannot_be_opened_yet_gives_every_line_one_record_when_cancelled(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES], dir[256], index[300], kept[300];
    struct error error;
    const struct runner_options options = {.lookahead_lines = 10};
    pipeline_dir(&p);
    pipeline_open(&p, &options, &slow, 1);
    pipeline_submit(&p, "x", 5000, id);
    struct store_batch batch = pipeline_wait(&p, id, has_some);
    store_batch_release(&batch);
    assert_int_equal(store_batch_dir(p.store, id, dir, sizeof dir, &error), OK);
    pipeline_close(&p);
    /* A link to itself cannot be opened, and not being opened is no damage: it is tried again. */
    snprintf(index, sizeof index, "%s/lines.idx", dir);
    snprintf(kept, sizeof kept, "%s/kept", dir);
    assert_int_equal(rename(index, kept), 0);
    assert_int_equal(symlink("lines.idx", index), 0);
    pipeline_open(&p, &options, &slow, 1);
    assert_int_equal(runner_batch_cancel(p.runner, str_from(id), &batch, &error), OK);
    assert_int_equal(batch.status, BATCH_CANCELLING);
    store_batch_release(&batch);
    assert_int_equal(rename(kept, index), 0);
    batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.status, BATCH_CANCELLED);
    assert_true(batch.completed >= 20 && batch.completed < 5000);
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

static void a_batch_that_has_ended_or_never_was_cannot_be_cancelled(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    struct error error;
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){0}, &(struct worker_echo_options){0}, 1);
    pipeline_submit(&p, "x", 3, id);
    struct store_batch batch = pipeline_wait(&p, id, is_over);
    store_batch_release(&batch);
    assert_int_equal(runner_batch_cancel(p.runner, str_from(id), &batch, &error), ERR_CONFLICT);
    assert_string_equal(error.text, "Cannot cancel a batch with status 'completed'.");
    assert_int_equal(runner_batch_cancel(p.runner, STR("batch_nope"), &batch, &error),
                     ERR_NOT_FOUND);
    assert_string_equal(error.text, "No batch found with id 'batch_nope'.");
    pipeline_close(&p);
    pipeline_remove(&p);
}

static void cancelling_at_any_moment_gives_every_line_one_record(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct rng rng = {7};
    struct error error;
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.lookahead_lines = 16},
                  &(struct worker_echo_options){.latency_ms = 1}, 1);
    for (int round = 0; round < 30; round++) {
        char id[STORE_ID_BYTES];
        struct store_batch batch;
        uint64_t wanted = answered_by(p.workers[0]);
        pipeline_submit(&p, "y", 120, id);
        /* In a fifth of the rounds at once: most of these are still being validated. */
        uint64_t share = rng_below(&rng, 150);
        if (share > 30) wanted += share - 30;
        while (answered_by(p.workers[0]) < wanted) usleep(100);
        enum err err = runner_batch_cancel(p.runner, str_from(id), &batch, &error);
        if (err == OK) store_batch_release(&batch);
        assert_true(err == OK || err == ERR_CONFLICT);
        batch = pipeline_wait(&p, id, is_over);
        assert_int_equal(batch.status, err == OK ? BATCH_CANCELLED : BATCH_COMPLETED);
        store_batch_release(&batch);
    }
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

static void a_window_that_closes_ends_the_batch_with_what_it_has(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.lookahead_lines = 10}, &slow, 1);
    pipeline_submit(&p, "e", 5000, id);
    struct store_batch batch = pipeline_wait(&p, id, has_some);
    store_batch_release(&batch);
    test_unix_s += 86400;
    batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.status, BATCH_EXPIRED);
    assert_true(batch.expired_unix_s >= batch.expires_unix_s);
    assert_true(batch.completed >= 20 && batch.completed < 5000);
    assert_int_equal(batch.failed, 0);
    size_t bytes;
    char *errors = pipeline_read(&p, batch.error_file_id, &bytes);
    assert_int_equal(count_lines(errors, bytes), 5000 - batch.completed);
    assert_non_null(strstr(errors, "batch_expired"));
    free(errors);
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

static void a_window_that_closed_while_the_server_was_down_expires_at_the_start(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.lookahead_lines = 10}, &slow, 1);
    pipeline_submit(&p, "e", 3000, id);
    struct store_batch batch = pipeline_wait(&p, id, has_some);
    uint64_t before = batch.completed;
    store_batch_release(&batch);
    pipeline_close(&p);
    test_unix_s += 90000;
    pipeline_open(&p, &(struct runner_options){.lookahead_lines = 10}, &slow, 1);
    batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.status, BATCH_EXPIRED);
    assert_true(batch.completed >= before);
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

static void a_stop_in_the_middle_is_resumed_and_done_lines_do_not_run_again(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    pipeline_dir(&p);
    const struct runner_options options = {.lookahead_lines = 10};
    pipeline_open(&p, &options, &slow, 1);
    pipeline_submit(&p, "s", 2000, id);
    struct store_batch batch = pipeline_wait(&p, id, has_some);
    store_batch_release(&batch);
    assert_true(runner_drain(p.runner, 30000));
    struct error error;
    assert_int_equal(runner_batch_get(p.runner, str_from(id), &batch, &error), OK);
    assert_int_equal(batch.status, BATCH_IN_PROGRESS);
    uint64_t done = batch.completed;
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_open(&p, &options, &(struct worker_echo_options){0}, 1);
    batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.completed, 2000);
    assert_int_equal(answered_by(p.workers[0]), 2000 - done);
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

static void an_input_that_is_missing_or_of_another_purpose_fails_the_batch(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES], file_id[STORE_ID_BYTES];
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){0}, &(struct worker_echo_options){0}, 1);
    pipeline_create(&p, "file-nothere", 0, id);
    struct store_batch batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.status, BATCH_FAILED);
    assert_true(batch.failed_unix_s > 0);
    assert_non_null(strstr(batch.errors, "Cannot find file"));
    assert_non_null(strstr(batch.errors, "\"code\":\"invalid_request\",\"line\":null"));
    assert_non_null(strstr(batch.errors, "\"param\":\"file_id\""));
    store_batch_release(&batch);
    pipeline_upload(&p, STR("{}\n"), "user_data", file_id);
    pipeline_create(&p, file_id, 0, id);
    batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.status, BATCH_FAILED);
    assert_non_null(strstr(batch.errors, "user_data"));
    assert_int_equal(batch.total, 0);
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

static void deleting_the_input_while_the_batch_runs_does_not_hurt_it(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    struct error error;
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.lookahead_lines = 10},
                  &(struct worker_echo_options){.latency_ms = 2}, 1);
    pipeline_submit(&p, "i", 300, id);
    struct store_batch batch = pipeline_wait(&p, id, has_some);
    struct store_file file;
    assert_int_equal(store_file_delete(p.store, str_from(batch.input_file_id), test_now(), &error),
                     OK);
    assert_int_equal(
        store_file_get(p.store, str_from(batch.input_file_id), test_now(), &file, &error),
        ERR_NOT_FOUND);
    store_batch_release(&batch);
    batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.completed, 300);
    store_batch_release(&batch);
    pipeline_close(&p);
    pipeline_remove(&p);
}

static bool waits_for_something(const struct store_batch *batch) {
    return *batch->waiting_for != '\0';
}

static void a_batch_that_comes_while_the_model_loads_waits_for_it(void **state) {
    (void)state;
    static const char *const models[] = {"other", NULL};
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    pipeline_dir(&p);
    const struct worker_echo_options echo[2] = {{.models = models, .loading = true},
                                                {.models = models}};
    pipeline_open(&p, &(struct runner_options){0}, echo, 2);
    pipeline_submit(&p, "w", 3, id);
    struct store_batch batch = pipeline_wait(&p, id, waits_for_something);
    assert_int_equal(batch.status, BATCH_VALIDATING);
    store_batch_release(&batch);
    /* Once all are ready and none has the model, it is known not to be there. */
    worker_echo_set_ready(p.workers[0]);
    batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.status, BATCH_FAILED);
    assert_non_null(strstr(batch.errors, "model_not_found"));
    store_batch_release(&batch);
    pipeline_close(&p);
    pipeline_remove(&p);
}

struct sentences {
    bool names_line;
    bool names_file;
    int count;
};

static void look_at(void *context, const char *sentence) {
    struct sentences *sentences = context;
    sentences->count++;
    if (strstr(sentence, "batch_") && strstr(sentence, "line 3 of the input has no record"))
        sentences->names_line = true;
    if (strstr(sentence, "not what was stored")) sentences->names_file = true;
}

static void fsck_names_the_batch_and_the_line_whose_record_is_gone(void **state) {
    (void)state;
    struct pipeline p = {0};
    char id[STORE_ID_BYTES], path[256];
    size_t bytes;
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){0}, &(struct worker_echo_options){0}, 1);
    pipeline_submit(&p, "k", 5, id);
    struct store_batch batch = pipeline_wait(&p, id, is_over);
    char *output = pipeline_read(&p, batch.output_file_id, &bytes);
    const char *file_id = batch.output_file_id;
    snprintf(path, sizeof path, "%s/files/%s/%s", p.dir, file_id + strlen(file_id) - 2, file_id);
    pipeline_close(&p);
    /* The third line becomes blank. */
    char *third = strchr(strchr(output, '\n') + 1, '\n') + 1;
    memset(third, ' ', (size_t)(strchr(third, '\n') - third));
    assert_int_equal(unlink(path), 0);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(output, 1, bytes, file), bytes);
    fclose(file);
    free(output);
    struct sentences sentences = {0};
    struct error error;
    struct fsck_found found;
    assert_int_equal(fsck_run(p.dir, look_at, &sentences, &found, &error), OK);
    assert_true(sentences.names_line && sentences.names_file);
    assert_int_equal(found.violations, sentences.count);
    store_batch_release(&batch);
    pipeline_remove(&p);
}

/* --- single requests --- */

struct client {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    int results;
    int deltas;
    int32_t status;
    char body[4096];
};

#define CLIENT_INITIALIZER                                                                         \
    { .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER }

static void on_delta(void *context, struct str chunk) {
    struct client *client = context;
    (void)chunk;
    pthread_mutex_lock(&client->lock);
    client->deltas++;
    pthread_mutex_unlock(&client->lock);
}

static void on_result(void *context, const struct worker_result *result) {
    struct client *client = context;
    pthread_mutex_lock(&client->lock);
    client->results++;
    client->status = result->status;
    snprintf(client->body, sizeof client->body, "%.*s", STR_ARGS(result->body));
    pthread_cond_signal(&client->ended);
    pthread_mutex_unlock(&client->lock);
}

static void wait_result(struct client *client) {
    pthread_mutex_lock(&client->lock);
    while (client->results == 0) pthread_cond_wait(&client->ended, &client->lock);
    pthread_mutex_unlock(&client->lock);
}

#define CHAT_BODY "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}"
static const struct runner_request chat_request = {.endpoint = ENDPOINT_CHAT,
                                                   .tier = TIER_DEFAULT,
                                                   .stream = true,
                                                   .model = {"m", 1},
                                                   .body = {CHAT_BODY, sizeof CHAT_BODY - 1}};

static void a_single_request_gets_its_deltas_and_one_result(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct client client = CLIENT_INITIALIZER;
    struct runner_request_events events = {&client, on_delta, on_result};
    struct error error;
    uint64_t id;
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){0}, &(struct worker_echo_options){0}, 1);
    assert_int_equal(runner_request(p.runner, &chat_request, &events, &id, &error), OK);
    wait_result(&client);
    assert_int_equal(client.status, 200);
    assert_int_equal(client.deltas, 1);
    assert_non_null(strstr(client.body, "\"content\":\"hello\""));
    pipeline_close(&p);
    assert_int_equal(client.results, 1);
    pipeline_remove(&p);
}

static void a_single_request_goes_ahead_of_a_batch(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct client client = CLIENT_INITIALIZER;
    struct runner_request_events events = {&client, on_delta, on_result};
    struct error error;
    uint64_t request_id;
    char id[STORE_ID_BYTES];
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.lookahead_lines = 100}, &slow, 1);
    pipeline_submit(&p, "b", 20000, id);
    struct store_batch batch = pipeline_wait(&p, id, is_running);
    store_batch_release(&batch);
    assert_int_equal(runner_request(p.runner, &chat_request, &events, &request_id, &error), OK);
    wait_result(&client);
    assert_int_equal(runner_batch_get(p.runner, str_from(id), &batch, &error), OK);
    assert_int_equal(batch.status, BATCH_IN_PROGRESS);
    store_batch_release(&batch);
    assert_int_equal(runner_batch_cancel(p.runner, str_from(id), &batch, &error), OK);
    store_batch_release(&batch);
    pipeline_close(&p);
    pipeline_remove(&p);
}

static void a_single_request_is_tried_once_more_when_its_worker_goes_down(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct error error;
    uint64_t id;
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){0},
                  &(struct worker_echo_options){.down_every = 2, .down_ms = 1}, 1);
    /* Job 1 is answered, job 2 goes down and comes back as job 3. */
    for (int i = 0; i < 2; i++) {
        struct client client = CLIENT_INITIALIZER;
        struct runner_request_events events = {&client, on_delta, on_result};
        assert_int_equal(runner_request(p.runner, &chat_request, &events, &id, &error), OK);
        wait_result(&client);
        assert_int_equal(client.status, 200);
    }
    pipeline_close(&p);
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){0},
                  &(struct worker_echo_options){.down_every = 1, .down_ms = 1}, 1);
    struct client client = CLIENT_INITIALIZER;
    struct runner_request_events events = {&client, on_delta, on_result};
    assert_int_equal(runner_request(p.runner, &chat_request, &events, &id, &error), OK);
    wait_result(&client);
    assert_int_equal(client.status, 500);
    assert_non_null(strstr(client.body, "worker_lost"));
    pipeline_close(&p);
    pipeline_remove(&p);
}

static void a_cancelled_request_ends_once_with_499(void **state) {
    (void)state;
    struct pipeline p = {0};
    struct client client = CLIENT_INITIALIZER;
    struct runner_request_events events = {&client, on_delta, on_result};
    struct error error;
    uint64_t id;
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){0},
                  &(struct worker_echo_options){.latency_ms = 100000}, 1);
    assert_int_equal(runner_request(p.runner, &chat_request, &events, &id, &error), OK);
    runner_request_cancel(p.runner, id);
    wait_result(&client);
    assert_int_equal(client.status, 499);
    runner_request_cancel(p.runner, id);
    pipeline_close(&p);
    assert_int_equal(client.results, 1);
    pipeline_remove(&p);
}

static void requests_are_refused_for_unknown_models_and_when_too_many_wait(void **state) {
    (void)state;
    static const char *const models[] = {"m", NULL};
    struct pipeline p = {0};
    struct client client = CLIENT_INITIALIZER;
    struct runner_request_events events = {&client, on_delta, on_result};
    struct runner_request request = chat_request;
    struct error error;
    uint64_t id;
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.requests_max = 2},
                  &(struct worker_echo_options){.models = models, .latency_ms = 100000}, 1);
    request.model = STR("unknown");
    assert_int_equal(runner_request(p.runner, &request, &events, &id, &error), ERR_NOT_FOUND);
    assert_int_equal(runner_request(p.runner, &chat_request, &events, &id, &error), OK);
    assert_int_equal(runner_request(p.runner, &chat_request, &events, &id, &error), OK);
    assert_int_equal(runner_request(p.runner, &chat_request, &events, &id, &error), ERR_LIMIT);
    /* Closing ends what still waits, once each. */
    pipeline_close(&p);
    assert_int_equal(client.results, 2);
    assert_int_equal(client.status, 503);
    pipeline_remove(&p);
}

int main(void) {
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_completes_with_one_output_line_for_each_request),
        cmocka_unit_test(lines_that_fail_are_results_in_the_error_file),
        cmocka_unit_test(a_batch_of_which_all_lines_fail_is_completed_without_an_output_file),
        cmocka_unit_test(retryable_results_are_tried_again_until_they_succeed),
        cmocka_unit_test(retries_are_bounded_and_end_in_the_workers_own_answer),
        cmocka_unit_test(a_worker_that_goes_down_now_and_then_loses_no_line),
        cmocka_unit_test(a_line_that_takes_the_worker_down_is_found_and_only_it_fails),
        cmocka_unit_test(a_worker_that_goes_down_with_everything_convicts_no_line),
        cmocka_unit_test(among_workers_and_a_broken_one_only_bad_lines_fail),
        cmocka_unit_test(a_line_waits_for_a_well_worker_that_is_down_for_a_moment),
        cmocka_unit_test(batches_of_bad_lines_alone_end),
        cmocka_unit_test(eight_batches_at_once_all_end_and_no_result_crosses),
        cmocka_unit_test(counters_only_grow_and_files_show_only_at_the_end),
        cmocka_unit_test(a_batch_that_has_ended_in_the_store_has_ended_for_everyone),
        cmocka_unit_test(a_cancelled_batch_keeps_what_is_done_and_names_the_rest),
        cmocka_unit_test(
            a_batch_that_cannot_be_opened_yet_gives_every_line_one_record_when_cancelled),
        cmocka_unit_test(a_batch_that_has_ended_or_never_was_cannot_be_cancelled),
        cmocka_unit_test(cancelling_at_any_moment_gives_every_line_one_record),
        cmocka_unit_test(a_window_that_closes_ends_the_batch_with_what_it_has),
        cmocka_unit_test(a_window_that_closed_while_the_server_was_down_expires_at_the_start),
        cmocka_unit_test(a_stop_in_the_middle_is_resumed_and_done_lines_do_not_run_again),
        cmocka_unit_test(an_input_that_is_missing_or_of_another_purpose_fails_the_batch),
        cmocka_unit_test(deleting_the_input_while_the_batch_runs_does_not_hurt_it),
        cmocka_unit_test(a_batch_that_comes_while_the_model_loads_waits_for_it),
        cmocka_unit_test(fsck_names_the_batch_and_the_line_whose_record_is_gone),
        cmocka_unit_test(a_single_request_gets_its_deltas_and_one_result),
        cmocka_unit_test(a_single_request_goes_ahead_of_a_batch),
        cmocka_unit_test(a_single_request_is_tried_once_more_when_its_worker_goes_down),
        cmocka_unit_test(a_cancelled_request_ends_once_with_499),
        cmocka_unit_test(requests_are_refused_for_unknown_models_and_when_too_many_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
