/* SPDX-License-Identifier: Apache-2.0 */

/* The end of a batch whose workers differ: a slow one holds few lines, and gives back what it has
 * not begun; one that answers errors at once gets few. */

#include "pipeline.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define NODES 2
#define JOBS_MAX 16384
#define TICK_MS 100

enum cancels { CANCELS_OBEYED, CANCELS_UNHEARD, CANCELS_ANSWERED };

/* A worker that answers the oldest jobs when it is told to. */
struct node {
    struct worker worker;
    struct worker_events events;
    pthread_mutex_t lock;
    struct {
        uint64_t id;
        bool has_ended;
    } jobs[JOBS_MAX];
    size_t count, oldest;
    uint32_t in_flight, running, answered;
    uint64_t looks; /* calls of `status` */
    bool is_unheard;
    enum cancels cancels;
};

struct fleet {
    struct pipeline p;
    struct node nodes[NODES];
};

static void tell(struct node *node, uint64_t id, enum outcome outcome, int32_t status) {
    const struct worker_result result = {.id = id,
                                         .outcome = outcome,
                                         .status = status,
                                         .body = STR("{}"),
                                         .usage = {.input_tokens = 10}};
    node->events.result(node->events.context, &result);
}

static bool node_submit(struct worker *worker, const struct worker_job *job) {
    struct node *node = (struct node *)worker;
    pthread_mutex_lock(&node->lock);
    bool takes = node->count < JOBS_MAX;
    if (takes) node->jobs[node->count++].id = job->id;
    if (takes) node->in_flight++;
    pthread_mutex_unlock(&node->lock);
    return takes;
}

static void node_end(struct node *node, size_t most, enum outcome outcome, int32_t status) {
    for (size_t i = 0; i < most; i++) {
        uint64_t id = 0;
        pthread_mutex_lock(&node->lock);
        while (node->oldest < node->count && node->jobs[node->oldest].has_ended) node->oldest++;
        if (node->oldest < node->count) {
            node->jobs[node->oldest].has_ended = true;
            id = node->jobs[node->oldest].id;
            node->in_flight--;
            node->answered++;
        }
        pthread_mutex_unlock(&node->lock);
        if (id == 0) return;
        tell(node, id, outcome, status);
    }
}

static void node_answer(struct node *node, size_t most) {
    node_end(node, most, OUTCOME_DONE, 200);
}

static void node_cancel(struct worker *worker, uint64_t job_id) {
    struct node *node = (struct node *)worker;
    bool is_here = false;
    if (node->cancels == CANCELS_UNHEARD) return;
    pthread_mutex_lock(&node->lock);
    for (size_t i = node->oldest; i < node->count; i++) {
        if (node->jobs[i].id != job_id || node->jobs[i].has_ended) continue;
        node->jobs[i].has_ended = is_here = true;
        node->in_flight--;
        node->answered += node->cancels == CANCELS_ANSWERED;
    }
    pthread_mutex_unlock(&node->lock);
    if (!is_here) return;
    if (node->cancels == CANCELS_ANSWERED)
        tell(node, job_id, OUTCOME_DONE, 200);
    else
        tell(node, job_id, OUTCOME_CANCELLED, 499);
}

static bool node_serves(struct worker *worker, struct str model) {
    (void)worker;
    return str_is(model, "m");
}

static size_t node_models(struct worker *worker, struct worker_model *ret_models,
                          size_t models_max) {
    (void)worker;
    if (models_max > 0) ret_models[0] = (struct worker_model){.name = STR("m")};
    return models_max > 0;
}

static void node_status(struct worker *worker, struct worker_status *ret_status) {
    struct node *node = (struct node *)worker;
    pthread_mutex_lock(&node->lock);
    uint32_t running = node->in_flight < node->running ? node->in_flight : node->running;
    *ret_status = (struct worker_status){
        .ready = true, .knows_names = true, .running = running, .is_unheard = node->is_unheard};
    node->looks++;
    pthread_mutex_unlock(&node->lock);
}

static void node_close(struct worker *worker) {
    pthread_mutex_destroy(&((struct node *)worker)->lock);
}

static const struct worker_ops node_ops = {.submit = node_submit,
                                           .cancel = node_cancel,
                                           .serves = node_serves,
                                           .models = node_models,
                                           .status = node_status,
                                           .close = node_close};

/* Two workers that have at most `lines_max` lines and run 4 at a time; `cancels` is the second's
 * way. */
static struct fleet *fleet_open(uint32_t lines_max, enum cancels cancels) {
    struct error error;
    struct runner_options options = {.now_unix_s = test_now};
    struct fleet *fleet = calloc(1, sizeof *fleet);
    assert_non_null(fleet);
    pipeline_dir(&fleet->p);
    pipeline_open_store(&fleet->p);
    must(runner_open(&fleet->p.runner, fleet->p.store, &options, &error));
    for (size_t i = 0; i < NODES; i++) {
        struct node *node = &fleet->nodes[i];
        uint32_t seat;
        node->worker.ops = &node_ops;
        node->running = 4;
        node->cancels = i == 1 ? cancels : CANCELS_OBEYED;
        pthread_mutex_init(&node->lock, NULL);
        if (!runner_worker_seat(fleet->p.runner, &node->events, &seat)) abort();
        runner_worker_tune(fleet->p.runner, seat, 1, lines_max);
        runner_worker_attach(fleet->p.runner, seat, &node->worker);
    }
    must(runner_start(fleet->p.runner, &error));
    return fleet;
}

static void fleet_close(struct fleet *fleet) {
    pipeline_close(&fleet->p);
    assert_int_equal(pipeline_fsck(&fleet->p), 0);
    pipeline_remove(&fleet->p);
    free(fleet);
}

struct node_counts {
    uint32_t in_flight;
    uint64_t looks;
};

static struct node_counts counts_of(struct node *node) {
    pthread_mutex_lock(&node->lock);
    const struct node_counts counts = {node->in_flight, node->looks};
    pthread_mutex_unlock(&node->lock);
    return counts;
}

/* Waits until the worker has so many lines. The clock is not moved: a worker that has answered none
 * for seconds gets no more. */
static void node_wait(struct node *node, uint32_t lines) {
    int64_t until_ns = test_real_ns() + WAIT_MS_MAX * INT64_C(1000000);
    while (counts_of(node).in_flight < lines && test_real_ns() < until_ns) usleep(500);
    assert_int_equal(counts_of(node).in_flight, lines);
}

static struct runner_status status_of(struct fleet *fleet) {
    struct runner_status status;
    runner_status(fleet->p.runner, &status);
    return status;
}

/* Lets time pass, in which the first worker answers; false once the batch is over. */
static bool fleet_tick(struct fleet *fleet, size_t lines, const char *id, int64_t until_ns) {
    struct error error;
    struct store_batch batch;
    node_answer(&fleet->nodes[0], lines);
    clock_move_ms(TICK_MS);
    usleep(2000);
    must(runner_batch_get(fleet->p.runner, str_from(id), &batch, &error));
    bool goes_on = !is_over(&batch);
    store_batch_release(&batch);
    assert_true(test_real_ns() < until_ns);
    return goes_on;
}

static int64_t soon_ns(void) {
    return test_real_ns() + WAIT_MS_MAX * INT64_C(1000000);
}

/* Checks that each line of the ended batch is in its output once. */
static void check_output(struct fleet *fleet, const char *id, unsigned lines) {
    struct store_batch batch = pipeline_wait(&fleet->p, id, is_over);
    size_t bytes;
    char *output = pipeline_read(&fleet->p, batch.output_file_id, &bytes);
    assert_int_equal(batch.completed, lines);
    assert_int_equal(count_lines(output, bytes), lines);
    for (unsigned i = 0; i < lines; i++) {
        char name[40];
        snprintf(name, sizeof name, "\"custom_id\":\"t-%u\"", i);
        const char *at = strstr(output, name);
        assert_non_null(at);
        assert_null(strstr(at + 1, name));
    }
    free(output);
    store_batch_release(&batch);
}

/* The second worker answers nothing by itself, and the batch ends nevertheless. */
static void run_beside_a_silent_worker(enum cancels cancels, uint32_t least_answers) {
    struct fleet *fleet = fleet_open(128, cancels);
    struct node *fast = &fleet->nodes[0], *slow = &fleet->nodes[1];
    char id[STORE_ID_BYTES];
    int64_t until_ns = soon_ns();
    pipeline_submit(&fleet->p, "t", 400, id);
    node_wait(slow, 128);
    while (fleet_tick(fleet, 5, id, until_ns)) continue;
    check_output(fleet, id, 400);
    assert_int_equal(fast->answered + slow->answered, 400);
    assert_in_range(slow->answered, least_answers, 128);
    struct runner_status status = status_of(fleet);
    assert_true(status.lines_recalled >= 128);
    assert_int_equal(status.lines_retried, 0); /* to be asked back is no try */
    fleet_close(fleet);
}

static void lines_of_a_worker_that_answers_nothing_run_on_the_other(void **state) {
    (void)state;
    run_beside_a_silent_worker(CANCELS_OBEYED, 0);
}

static void an_answer_to_a_line_that_was_asked_back_counts(void **state) {
    (void)state;
    run_beside_a_silent_worker(CANCELS_ANSWERED, 1);
}

static void a_worker_that_hears_no_cancel_loses_its_lines_and_answers_in_vain(void **state) {
    (void)state;
    struct fleet *fleet = fleet_open(64, CANCELS_UNHEARD);
    char id[STORE_ID_BYTES];
    int64_t until_ns = soon_ns();
    pipeline_submit(&fleet->p, "t", 200, id);
    node_wait(&fleet->nodes[1], 64);
    while (fleet_tick(fleet, 5, id, until_ns)) continue;
    assert_int_equal(fleet->nodes[0].answered, 200);
    node_answer(&fleet->nodes[1], 64);
    check_output(fleet, id, 200);
    assert_int_equal(status_of(fleet).lines_done, 200);
    fleet_close(fleet);
}

/* --- time in which no answer could come --- */

/* Lets the time pass at once, and waits until the runner has looked at its workers. */
static void fleet_pass(struct fleet *fleet, int64_t ms) {
    int64_t until_ns = soon_ns();
    uint64_t before = counts_of(&fleet->nodes[1]).looks;
    clock_move_ms(ms);
    while (counts_of(&fleet->nodes[1]).looks == before && test_real_ns() < until_ns) usleep(500);
    assert_true(counts_of(&fleet->nodes[1]).looks > before);
}

static void set_unheard(struct fleet *fleet, bool is_unheard) {
    for (size_t i = 0; i < NODES; i++) {
        pthread_mutex_lock(&fleet->nodes[i].lock);
        fleet->nodes[i].is_unheard = is_unheard;
        pthread_mutex_unlock(&fleet->nodes[i].lock);
    }
}

/* A batch whose last lines are with the second worker, while the first one has nothing to do. */
static struct fleet *open_at_the_end(char *id) {
    struct fleet *fleet = fleet_open(128, CANCELS_UNHEARD);
    pipeline_submit(&fleet->p, "t", 40, id);
    int64_t until_ns = soon_ns();
    while (counts_of(&fleet->nodes[0]).in_flight + counts_of(&fleet->nodes[1]).in_flight < 40 &&
           test_real_ns() < until_ns)
        usleep(500);
    assert_in_range(counts_of(&fleet->nodes[1]).in_flight, 2, 39);
    node_answer(&fleet->nodes[0], 40);
    node_answer(&fleet->nodes[1], 1);
    fleet_pass(fleet, 1000);
    return fleet;
}

/* The lines still age, and end. Each has run once until then. */
static void end_batch(struct fleet *fleet, const char *id) {
    assert_int_equal(fleet->nodes[0].count + fleet->nodes[1].count, 40);
    assert_int_equal(status_of(fleet).lines_recalled, 0);
    for (unsigned looks = 0; status_of(fleet).lines_recalled == 0; looks++) {
        assert_true(looks < 60);
        fleet_pass(fleet, 1000);
    }
    int64_t until_ns = soon_ns();
    while (fleet_tick(fleet, 5, id, until_ns)) node_answer(&fleet->nodes[1], 5);
    check_output(fleet, id, 40);
    fleet_close(fleet);
}

static void a_server_that_stood_still_asks_no_line_back(void **state) {
    (void)state;
    char id[STORE_ID_BYTES];
    struct fleet *fleet = open_at_the_end(id);
    fleet_pass(fleet, 3600000);
    fleet_pass(fleet, 1000);
    end_batch(fleet, id);
}

static void lines_of_workers_that_are_not_heard_are_not_asked_back(void **state) {
    (void)state;
    char id[STORE_ID_BYTES];
    struct fleet *fleet = open_at_the_end(id);
    set_unheard(fleet, true);
    for (unsigned i = 0; i < 120; i++) fleet_pass(fleet, 1000);
    set_unheard(fleet, false);
    fleet_pass(fleet, 1000);
    end_batch(fleet, id);
}

static void a_slow_worker_holds_the_lines_of_its_next_seconds(void **state) {
    (void)state;
    struct fleet *fleet = fleet_open(64, CANCELS_OBEYED);
    struct node *slow = &fleet->nodes[1];
    char id[STORE_ID_BYTES];
    int64_t until_ns = soon_ns();
    pipeline_submit(&fleet->p, "t", 12000, id);
    node_wait(slow, 64);
    /* One line per second against a hundred: 4 that run, and 8 to come, long before the batch ends.
     * Until it has answered the others, it has what it got at first. */
    for (unsigned tick = 1; counts_of(slow).in_flight > 12; tick++) {
        assert_true(fleet_tick(fleet, 10, id, until_ns));
        if (tick % 10 == 0) node_answer(slow, 1);
    }
    while (fleet_tick(fleet, 100, id, until_ns)) continue;
    check_output(fleet, id, 12000);
    fleet_close(fleet);
}

/* --- workers that fail at once --- */

/* The failing worker gets the first line, when the other one has had none. */
static void run_with_a_failing_worker(const struct worker_echo_options *failing) {
    struct pipeline p = {0};
    char id[STORE_ID_BYTES];
    struct worker_echo_options echo[2] = {*failing, {.latency_ms = 20}};
    pipeline_dir(&p);
    pipeline_open(&p, &(struct runner_options){.lookahead_lines = 32}, echo, 2);
    pipeline_submit(&p, "f", 600, id);
    struct store_batch batch = pipeline_wait(&p, id, is_over);
    assert_int_equal(batch.completed, 600);
    assert_int_equal(batch.failed, 0);
    store_batch_release(&batch);
    pipeline_close(&p);
    assert_int_equal(pipeline_fsck(&p), 0);
    pipeline_remove(&p);
}

static void a_worker_that_fails_with_all_costs_no_line(void **state) {
    (void)state;
    run_with_a_failing_worker(&(struct worker_echo_options){.retryable_every = 1});
}

static void a_worker_that_answers_errors_alone_costs_no_line(void **state) {
    (void)state;
    run_with_a_failing_worker(&(struct worker_echo_options){.fail_every = 1});
}

/* Two workers with one line at a time: the first one answers `others` each time that it is told to,
 * the second one fails. */
static struct store_batch run_with_full_neighbour(enum outcome outcome, int32_t status) {
    struct fleet *fleet = fleet_open(1, CANCELS_OBEYED);
    char id[STORE_ID_BYTES];
    int64_t until_ns = soon_ns();
    pipeline_submit(&fleet->p, "t", 4, id);
    /* Ten seconds pass between two answers: all tries of a line would fail in less. */
    for (unsigned tick = 0; fleet_tick(fleet, tick % 100 == 99, id, until_ns); tick++)
        node_end(&fleet->nodes[1], 1, outcome, status);
    struct store_batch batch = pipeline_wait(&fleet->p, id, is_over);
    fleet_close(fleet);
    return batch;
}

static void the_last_try_of_a_line_waits_for_a_worker_that_has_not_failed(void **state) {
    (void)state;
    struct store_batch batch = run_with_full_neighbour(OUTCOME_TRY_AGAIN, 503);
    assert_int_equal(batch.completed, 4);
    store_batch_release(&batch);
    batch = run_with_full_neighbour(OUTCOME_DONE, 500);
    assert_int_equal(batch.completed, 4);
    store_batch_release(&batch);
}

/* An error that both workers have is the line's own. */
static void an_error_of_all_workers_is_a_record(void **state) {
    (void)state;
    struct fleet *fleet = fleet_open(64, CANCELS_OBEYED);
    char id[STORE_ID_BYTES];
    int64_t until_ns = soon_ns();
    pipeline_submit(&fleet->p, "t", 3, id);
    while (fleet_tick(fleet, 0, id, until_ns))
        for (size_t i = 0; i < NODES; i++) node_end(&fleet->nodes[i], 64, OUTCOME_DONE, 500);
    struct store_batch batch = pipeline_wait(&fleet->p, id, is_over);
    assert_int_equal(batch.failed, 3);
    assert_int_equal(fleet->nodes[0].answered + fleet->nodes[1].answered, 6);
    store_batch_release(&batch);
    fleet_close(fleet);
}

int main(void) {
    clock_make_movable();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_a_worker_that_answers_nothing_run_on_the_other),
        cmocka_unit_test(an_answer_to_a_line_that_was_asked_back_counts),
        cmocka_unit_test(a_worker_that_hears_no_cancel_loses_its_lines_and_answers_in_vain),
        cmocka_unit_test(a_server_that_stood_still_asks_no_line_back),
        cmocka_unit_test(lines_of_workers_that_are_not_heard_are_not_asked_back),
        cmocka_unit_test(a_slow_worker_holds_the_lines_of_its_next_seconds),
        cmocka_unit_test(a_worker_that_fails_with_all_costs_no_line),
        cmocka_unit_test(a_worker_that_answers_errors_alone_costs_no_line),
        cmocka_unit_test(the_last_try_of_a_line_waits_for_a_worker_that_has_not_failed),
        cmocka_unit_test(an_error_of_all_workers_is_a_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
