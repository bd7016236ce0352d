/* SPDX-License-Identifier: Apache-2.0 */

/* Batches of several models: what waits for one of them holds up no line of another. */

#include "pipeline.h"

#include "runner/models.h"
#include "runner/waiting_for_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void lines_wait_by_model_in_their_order(void **state) {
    struct waiting_for_model *waiting = waiting_for_model_open();
    uint32_t a, b, again, line;
    (void)state;
    assert_true(waiting_for_model_number(waiting, STR("a"), &a));
    assert_true(waiting_for_model_number(waiting, STR("b"), &b));
    assert_true(waiting_for_model_number(waiting, STR("a"), &again));
    assert_int_equal(a, again);
    assert_int_not_equal(a, b);
    for (uint32_t i = 0; i < 1000; i++) waiting_for_model_put(waiting, i % 2 ? b : a, i, false);
    waiting_for_model_block(waiting, a, 7);
    assert_true(waiting_for_model_is_blocked(waiting, a, 7));
    for (uint32_t i = 1; i < 1000; i += 2) {
        assert_true(waiting_for_model_take(waiting, 7, &line));
        assert_int_equal(line, i);
    }
    assert_false(waiting_for_model_take(waiting, 7, &line));
    assert_true(waiting_for_model_take(waiting, 8, &line));
    assert_int_equal(line, 0);
    /* It found no room once more. */
    waiting_for_model_put(waiting, a, line, true);
    for (uint32_t i = 0; i < 1000; i += 2) {
        assert_true(waiting_for_model_take(waiting, 8, &line));
        assert_int_equal(line, i);
    }
    assert_false(waiting_for_model_take(waiting, 8, &line));
    waiting_for_model_close(waiting);
}

static void it_is_bounded_in_lines_and_models(void **state) {
    struct waiting_for_model *waiting = waiting_for_model_open();
    uint32_t model, line;
    char name[16];
    (void)state;
    assert_false(waiting_for_model_is_full(NULL));
    for (int i = 0; i < WAITING_MODELS_MAX; i++) {
        snprintf(name, sizeof name, "m%d", i);
        assert_true(waiting_for_model_number(waiting, str_from(name), &model));
    }
    assert_false(waiting_for_model_number(waiting, STR("one more"), &model));
    assert_true(waiting_for_model_number(waiting, STR("m3"), &model));
    for (uint32_t i = 0; i < WAITING_LINES_MAX; i++) {
        assert_false(waiting_for_model_is_full(waiting));
        waiting_for_model_put(waiting, model, i, false);
    }
    assert_true(waiting_for_model_is_full(waiting));
    waiting_for_model_clear(waiting);
    assert_false(waiting_for_model_is_full(waiting) || waiting_for_model_take(waiting, 0, &line));
    assert_true(waiting_for_model_number(waiting, STR("m3"), &line));
    assert_int_equal(line, model);
    waiting_for_model_close(waiting);
}

/* --- in a runner --- */

#define STUCK 2000  /* lines of the model that has no room */
#define QUICK 300   /* lines of the other */
#define AT_A_TIME 2 /* lines with a worker */

static void add_line(struct buf *buf, const char *model, unsigned number, const char *wish) {
    buf_printf(buf,
               "{\"custom_id\":\"%s-%u\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\","
               "\"body\":{\"model\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"%u\"}],"
               "\"echo\":{%s}}}\n",
               model, number, model, number, wish);
}

static void open_two(struct pipeline *p, bool is_loading) {
    static const char *const quick[] = {"quick", NULL}, *const stuck[] = {"stuck", NULL};
    const struct worker_echo_options echo[] = {{.models = stuck, .loading = is_loading},
                                               {.models = quick}};
    pipeline_dir(p);
    pipeline_open(p, &(struct runner_options){.lookahead_lines = AT_A_TIME}, echo, 2);
}

static void create(struct pipeline *p, struct buf *text, char ret_id[STORE_ID_BYTES]) {
    char file_id[STORE_ID_BYTES];
    pipeline_upload(p, buf_str(text), "batch", file_id);
    pipeline_create(p, file_id, 0, ret_id);
    buf_release(text);
}

static bool has_all_quick_ones(const struct store_batch *batch) {
    return batch->completed >= QUICK;
}

/* Runs the batch until all quick lines have ended, with all others still waiting. */
static void run_quick_ones(struct pipeline *p, struct buf *text, char ret_id[STORE_ID_BYTES]) {
    create(p, text, ret_id);
    struct store_batch batch = pipeline_wait(p, ret_id, has_all_quick_ones);
    assert_int_equal(batch.status, BATCH_IN_PROGRESS);
    assert_int_equal(batch.completed, QUICK);
    store_batch_release(&batch);
}

static void close_two(struct pipeline *p, const char *id) {
    struct error error;
    struct store_batch batch;
    assert_int_equal(runner_batch_cancel(p->runner, str_from(id), &batch, &error), OK);
    store_batch_release(&batch);
    batch = pipeline_wait(p, id, is_over);
    assert_int_equal(batch.status, BATCH_CANCELLED);
    assert_int_equal(batch.completed, QUICK);
    store_batch_release(&batch);
    pipeline_close(p);
    pipeline_remove(p);
}

/* None of the lines of one model ever ends, and all of the other's are behind them. */
static void a_model_that_is_full_holds_up_no_other(void **state) {
    struct pipeline p;
    struct buf text;
    char id[STORE_ID_BYTES];
    (void)state;
    open_two(&p, false);
    buf_init(&text, BUF_UNLIMITED);
    for (unsigned i = 0; i < STUCK; i++) add_line(&text, "stuck", i, "\"hang\":true");
    for (unsigned i = 0; i < QUICK; i++) add_line(&text, "quick", i, "");
    run_quick_ones(&p, &text, id);
    assert_int_equal(answered_by(p.workers[0]), 0);
    close_two(&p, id);
}

/* Lines that are tried again wait like the others. */
static void a_line_that_is_tried_again_at_a_full_model_holds_up_no_other(void **state) {
    struct pipeline p;
    struct buf text;
    char id[STORE_ID_BYTES];
    (void)state;
    open_two(&p, false);
    buf_init(&text, BUF_UNLIMITED);
    for (unsigned i = 0; i < 2 * AT_A_TIME; i++)
        add_line(&text, "stuck", i, i < AT_A_TIME ? "\"status\":503" : "\"hang\":true");
    for (unsigned i = 0; i < QUICK; i++) add_line(&text, "quick", i, "");
    run_quick_ones(&p, &text, id);
    close_two(&p, id);
}

/* And all of them run once there is room, each once. */
static void what_was_held_runs_when_there_is_room(void **state) {
    struct pipeline p;
    struct buf text;
    char id[STORE_ID_BYTES];
    (void)state;
    open_two(&p, true);
    buf_init(&text, BUF_UNLIMITED);
    for (unsigned i = 0; i < 2 * QUICK; i++) add_line(&text, i % 2 ? "quick" : "stuck", i, "");
    run_quick_ones(&p, &text, id);
    worker_echo_set_ready(p.workers[0]);
    struct store_batch batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.status, BATCH_COMPLETED);
    assert_int_equal(batch.completed, 2 * QUICK);
    store_batch_release(&batch);
    assert_int_equal(answered_by(p.workers[0]), QUICK);
    assert_int_equal(answered_by(p.workers[1]), QUICK);
    pipeline_close(&p);
    pipeline_remove(&p);
}

/* --- a worker that gets its names now --- */

struct joining {
    struct worker worker;
    bool has_names;
};

static bool joining_serves(struct worker *worker, struct str model) {
    return ((struct joining *)worker)->has_names && str_is(model, "m");
}

/* The names come while it is looked at. */
static void joining_status(struct worker *worker, struct worker_status *ret_status) {
    ((struct joining *)worker)->has_names = true;
    *ret_status = (struct worker_status){.knows_names = true, .text = "ready"};
}

static size_t joining_models(struct worker *worker, struct worker_model *ret_models, size_t max) {
    (void)worker, (void)ret_models, (void)max;
    return 0;
}

static void joining_close(struct worker *worker) {
    (void)worker;
}

static void a_model_that_comes_between_two_looks_is_served(void **state) {
    static const struct worker_ops ops = {.serves = joining_serves,
                                          .models = joining_models,
                                          .status = joining_status,
                                          .close = joining_close};
    struct joining joining = {.worker = {.ops = &ops}};
    struct worker_events events;
    struct pipeline p = {0};
    uint32_t seat;
    (void)state;
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.lookahead_lines = 1}, NULL, 0);
    assert_true(runner_worker_seat(p.runner, &events, &seat));
    runner_worker_attach(p.runner, seat, &joining.worker);
    assert_int_equal(runner_serving(p.runner, STR("m")), SERVED);
    assert_int_equal(runner_serving(p.runner, STR("other")), NOT_SERVED);
    pipeline_close(&p);
    pipeline_remove(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_wait_by_model_in_their_order),
        cmocka_unit_test(it_is_bounded_in_lines_and_models),
        cmocka_unit_test(a_model_that_is_full_holds_up_no_other),
        cmocka_unit_test(a_line_that_is_tried_again_at_a_full_model_holds_up_no_other),
        cmocka_unit_test(what_was_held_runs_when_there_is_room),
        cmocka_unit_test(a_model_that_comes_between_two_looks_is_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
