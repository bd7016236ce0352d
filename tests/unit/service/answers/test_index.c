/* SPDX-License-Identifier: Apache-2.0 */

/* Indexes of running and ended batches, over a store and a runner with the echo worker. */

#include "../runner/pipeline.h"
#include "answers/answers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define LINES 400

struct world {
    struct pipeline pipeline;
    struct answers *answers;
};

static const struct runner_options runner_options = {.lookahead_lines = 64};

static void open_world(struct world *world) {
    struct error error;
    const struct worker_echo_options echo = {0};
    pipeline_open(&world->pipeline, &runner_options, &echo, 1);
    must(answers_open(&world->answers, world->pipeline.store, world->pipeline.runner, &error));
}

static void close_world(struct world *world) {
    answers_close(world->answers);
    pipeline_close(&world->pipeline);
}

/* Appends the request of a line whose answer is {"number":<number>,"word":"<word>"}. */
static void add_request(struct buf *text, const char *salt, unsigned number, const char *word) {
    buf_printf(text,
               "{\"custom_id\":\"%s-%u\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\","
               "\"body\":{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":"
               "\"{\\\"number\\\":%u,\\\"word\\\":\\\"%s\\\"}\"}]}}\n",
               salt, number, number, word);
}

/* Submits `count` chat lines; the answer of line i is {"number":i,"word":"<salt>"}. */
static void submit(struct world *world, const char *salt, unsigned count,
                   char ret_id[STORE_ID_BYTES]) {
    struct buf text;
    char file_id[STORE_ID_BYTES];
    buf_init(&text, BUF_UNLIMITED);
    for (unsigned i = 0; i < count; i++) add_request(&text, salt, i, salt);
    pipeline_upload(&world->pipeline, buf_str(&text), "batch", file_id);
    pipeline_create(&world->pipeline, file_id, 0, ret_id);
    buf_release(&text);
}

/* Takes the index of a batch; the caller drops it. */
static struct answers_index *take(struct world *world, const char *id) {
    struct error error;
    struct store_batch batch;
    must(runner_batch_get(world->pipeline.runner, str_from(id), &batch, &error));
    struct answers_index *index = answers_take(world->answers, &batch);
    store_batch_release(&batch);
    return index;
}

/* Waits until the index has `rows` rows. */
static void wait_for_rows(struct world *world, const char *id, uint64_t rows) {
    int64_t until_ns = test_real_ns() + WAIT_MS_MAX * INT64_C(1000000);
    struct answers_state state;
    do {
        struct answers_index *index = take(world, id);
        answers_state(index, &state);
        answers_drop(index);
        assert_true(test_real_ns() < until_ns);
        assert_int_equal(state.err, OK);
        usleep(500);
    } while (state.indexed < rows);
    assert_int_equal(state.indexed, rows);
}

/* Finds the rows whose field equals the value, in the order of the field "number". */
static struct answers_page find(struct answers_index *index, const char *name, const char *value) {
    struct error error;
    struct answers_page page;
    const struct answers_filter filter = {str_from(name), ANSWERS_EQ, str_from(value)};
    const struct answers_query query = {
        .filters = &filter, .filter_count = 1, .sort = STR("number"), .limit = ANSWERS_LIMIT_MAX};
    must(answers_find(index, &query, &page, &error));
    assert_true(page.is_matched_known);
    assert_false(page.has_more);
    assert_int_equal(page.matched, page.count);
    return page;
}

static void check_line(struct answers_index *index, const char *name, const char *value,
                       uint32_t line) {
    struct answers_page page = find(index, name, value);
    assert_int_equal(page.count, 1);
    assert_int_equal(page.lines[0], line);
    answers_page_release(&page);
}

static bool always(void *context) {
    ++*(unsigned *)context;
    return true;
}

/* A search reads no result for a client that has gone. */
static void check_gone(struct answers_index *index) {
    struct error error;
    struct answers_page page;
    unsigned asked = 0;
    const struct answers_query query = {
        .text = STR("x"), .limit = 1, .is_gone = always, .context = &asked};
    assert_int_equal(answers_find(index, &query, &page, &error), ERR_CANCELLED);
    assert_int_equal(asked, 1);
}

static void check_rows(struct world *world, const char *id, const char *salt, unsigned count) {
    struct answers_index *index = take(world, id);
    struct answers_page page = find(index, "word", salt);
    assert_int_equal(page.count, count);
    check_gone(index);
    for (uint32_t line = 0; line < count; line++) assert_int_equal(page.lines[line], line);
    answers_page_release(&page);
    for (uint32_t line = 0; line < count; line++) {
        char custom_id[300], number[16];
        snprintf(custom_id, sizeof custom_id, "%s-%u", salt, line);
        snprintf(number, sizeof number, "%u", line);
        check_line(index, ".custom_id", custom_id, line);
        check_line(index, "number", number, line);
    }
    page = find(index, ".custom_id", "none");
    assert_int_equal(page.count, 0);
    answers_page_release(&page);
    page = find(index, "other", salt);
    assert_int_equal(page.count, 0);
    answers_page_release(&page);
    answers_drop(index);
}

static void check_texts(struct world *world, const char *id, const char *salt, uint32_t line) {
    struct error error;
    struct answers_index *index = take(world, id);
    struct answers_reader *reader;
    struct buf request, result, fields;
    char wanted[300];
    uint64_t bytes;
    buf_init(&request, BUF_UNLIMITED);
    buf_init(&result, BUF_UNLIMITED);
    buf_init(&fields, BUF_UNLIMITED);
    answers_reader_open(&reader, index);
    must(answers_read_request(index, line, 1 << 20, &request, &error));
    must(answers_read_result(reader, line, 1 << 20, &result, &bytes, &error));
    assert_int_equal(bytes, result.bytes);
    snprintf(wanted, sizeof wanted, "\"custom_id\":\"%s-%u\"", salt, line);
    assert_true(str_find(buf_str(&request), str_from(wanted), 0) != SIZE_MAX);
    assert_true(str_find(buf_str(&result), str_from(wanted), 0) != SIZE_MAX);
    answers_write_fields(&fields, buf_str(&result));
    snprintf(wanted, sizeof wanted, "\"number\":%u,\"word\":\"%s\"", line, salt);
    assert_true(str_find(buf_str(&fields), str_from(wanted), 0) != SIZE_MAX);
    buf_clear(&result);
    must(answers_read_result(reader, line, 10, &result, &bytes, &error)); /* too long: its size */
    assert_int_equal(result.bytes, 0);
    assert_true(bytes > 10);
    assert_int_equal(answers_read_request(index, line, 10, &request, &error), ERR_LIMIT);
    assert_int_equal(answers_read_request(index, 100000, 1 << 20, &request, &error), ERR_NOT_FOUND);
    assert_int_equal(answers_read_result(reader, 100000, 10, &result, &bytes, &error),
                     ERR_NOT_FOUND);
    answers_reader_close(reader);
    buf_release(&request);
    buf_release(&result);
    buf_release(&fields);
    answers_drop(index);
}

static void check_batch(struct world *world, const char *id, const char *salt) {
    wait_for_rows(world, id, LINES);
    check_rows(world, id, salt, LINES);
    for (uint32_t line = 0; line < LINES; line += 57) check_texts(world, id, salt, line);
}

static void an_index_follows_a_batch_to_its_end_and_is_made_again(void **state) {
    (void)state;
    struct world world;
    char id[STORE_ID_BYTES];
    pipeline_dir(&world.pipeline);
    open_world(&world);
    submit(&world, "first", LINES, id);
    check_batch(&world, id, "first"); /* while it runs, or just after its end */
    struct store_batch batch = pipeline_wait(&world.pipeline, id, is_over);
    assert_int_equal(batch.completed, LINES);
    store_batch_release(&batch);
    check_batch(&world, id, "first");
    close_world(&world);
    open_world(&world);
    check_batch(&world, id, "first"); /* from the published files alone */
    close_world(&world);
    assert_int_equal(pipeline_fsck(&world.pipeline), 0);
    pipeline_remove(&world.pipeline);
}

static void more_batches_than_indexes_are_all_answered(void **state) {
    (void)state;
    struct world world;
    static char ids[2 * ANSWERS_INDEXES_MAX][STORE_ID_BYTES], salts[2 * ANSWERS_INDEXES_MAX][16];
    pipeline_dir(&world.pipeline);
    open_world(&world);
    for (unsigned i = 0; i < 2 * ANSWERS_INDEXES_MAX; i++) {
        snprintf(salts[i], sizeof salts[i], "salt%u", i);
        submit(&world, salts[i], 10, ids[i]);
    }
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < 2 * ANSWERS_INDEXES_MAX; i++) {
            wait_for_rows(&world, ids[i], 10);
            check_rows(&world, ids[i], salts[i], 10);
        }
    }
    close_world(&world);
    pipeline_remove(&world.pipeline);
}

/* Submits the lines of "run-0" and so on in the opposite order, with another word on every fifth.
 */
static void submit_turned(struct world *world, char ret_id[STORE_ID_BYTES]) {
    struct buf text;
    char file_id[STORE_ID_BYTES];
    buf_init(&text, BUF_UNLIMITED);
    for (unsigned i = LINES; i-- > 0;) add_request(&text, "run", i, i % 5 ? "run" : "other");
    pipeline_upload(&world->pipeline, buf_str(&text), "batch", file_id);
    pipeline_create(&world->pipeline, file_id, 0, ret_id);
    buf_release(&text);
}

static void check_runs(struct answers_index *one, struct answers_index *two) {
    static unsigned char marks[LINES];
    memset(marks, 0, sizeof marks);
    answers_mark_different(one, two, marks, LINES);
    for (uint32_t line = 0; line < LINES; line++) {
        char id[32];
        snprintf(id, sizeof id, "run-%u", line);
        assert_int_equal(marks[line], line % 5 == 0);
        assert_int_equal(answers_match(one, line, two), LINES - 1 - line);
        assert_int_equal(answers_find_line(one, str_from(id)), line);
        assert_int_equal(answers_find_line(two, str_from(id)), LINES - 1 - line);
    }
    assert_int_equal(answers_find_line(one, STR("run-x")), ANSWERS_NO_LINE);
    assert_int_equal(answers_match(one, LINES, two), ANSWERS_NO_LINE);
    memset(marks, 0, sizeof marks);
    answers_mark_different(one, one, marks, LINES);
    for (uint32_t line = 0; line < LINES; line++) assert_int_equal(marks[line], 0);
}

static void two_runs_are_compared_by_their_custom_ids(void **state) {
    (void)state;
    struct world world;
    char first[STORE_ID_BYTES], second[STORE_ID_BYTES];
    pipeline_dir(&world.pipeline);
    open_world(&world);
    submit(&world, "run", LINES, first);
    submit_turned(&world, second);
    wait_for_rows(&world, first, LINES);
    wait_for_rows(&world, second, LINES);
    struct answers_index *one = take(&world, first), *two = take(&world, second);
    check_runs(one, two);
    answers_drop(one);
    answers_drop(two);
    close_world(&world);
    pipeline_remove(&world.pipeline);
}

/* Waits until the thread has read the requests of a batch, or cannot. */
static struct answers_requests wait_for_requests(struct answers_index *index) {
    int64_t until_ns = test_real_ns() + WAIT_MS_MAX * INT64_C(1000000);
    struct answers_requests requests;
    do {
        assert_true(test_real_ns() < until_ns);
        answers_requests(index, &requests);
        usleep(500);
    } while (!requests.is_read && requests.err == OK);
    return requests;
}

static void requests_are_read_when_they_are_asked_for(void **state) {
    (void)state;
    struct world world;
    struct error error;
    struct buf request;
    char id[STORE_ID_BYTES];
    pipeline_dir(&world.pipeline);
    open_world(&world);
    submit(&world, "asked", LINES, id);
    wait_for_rows(&world, id, LINES);
    struct answers_index *index = take(&world, id);
    struct answers_requests requests = wait_for_requests(index);
    assert_int_equal(requests.err, OK);
    assert_false(requests.has_one_shape); /* they ask for none */
    assert_true(answers_catch_up(index, WAIT_MS_MAX));
    buf_init(&request, BUF_UNLIMITED);
    must(answers_read_request(index, LINES - 1, 1 << 20, &request, &error));
    assert_true(str_find(buf_str(&request), STR("asked-399"), 0) != SIZE_MAX);
    buf_release(&request);
    answers_drop(index);
    close_world(&world);
    pipeline_remove(&world.pipeline);
}

/* A job of Label Studio asks for a line long after it took the index of a running batch. */
static void a_wait_for_rows_ends_however_old_the_last_query_is(void **state) {
    (void)state;
    struct world world;
    struct error error;
    const struct worker_echo_options echo = {.loading = true};
    char id[STORE_ID_BYTES];
    pipeline_dir(&world.pipeline);
    pipeline_open(&world.pipeline, &runner_options, &echo, 1);
    must(answers_open(&world.answers, world.pipeline.store, world.pipeline.runner, &error));
    submit(&world, "late", 3, id);
    struct answers_index *index = take(&world, id);
    assert_true(answers_catch_up(index, WAIT_MS_MAX));
    clock_move_ms(120000);
    assert_true(answers_catch_up(index, WAIT_MS_MAX));
    answers_drop(index);
    close_world(&world);
    pipeline_remove(&world.pipeline);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_index_follows_a_batch_to_its_end_and_is_made_again),
        cmocka_unit_test(two_runs_are_compared_by_their_custom_ids),
        cmocka_unit_test(requests_are_read_when_they_are_asked_for),
        cmocka_unit_test(more_batches_than_indexes_are_all_answered),
        cmocka_unit_test(a_wait_for_rows_ends_however_old_the_last_query_is),
    };
    clock_make_movable();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
