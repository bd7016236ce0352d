/* SPDX-License-Identifier: Apache-2.0 */

/* Which worker gets which lines: each beginning is computed by as few of them as possible, and
 * none of them is without lines while another has lines that wait. */

#include "pipeline.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define NODES 4
#define JOBS_MAX 8192
#define GROUPS_MAX 256
#define BATCHES_MAX 8
#define FED_MS_MAX 10000

/* A worker that takes so many jobs at a time, and answers the oldest when it is told to. */
struct node {
    struct worker worker;
    struct worker_events events;
    pthread_mutex_t lock;
    const char *model;
    uint64_t jobs[JOBS_MAX];
    unsigned given[GROUPS_MAX]; /* lines per group */
    size_t count, answered, in_flight_max;
};

struct fleet {
    struct pipeline p;
    struct node nodes[NODES];
    size_t node_count;
    unsigned groups; /* in all batches */
    struct {
        const char *model;
        size_t lines;
    } batches[BATCHES_MAX];
    size_t batch_count;
};

static bool node_submit(struct worker *worker, const struct worker_job *job) {
    struct node *node = (struct node *)worker;
    static const char mark[] = "\"content\":\"g";
    const char *text = memmem(job->body.at, job->body.bytes, mark, sizeof mark - 1);
    pthread_mutex_lock(&node->lock);
    bool takes = node->count < JOBS_MAX && node->count - node->answered < node->in_flight_max;
    if (takes) node->jobs[node->count++] = job->id;
    if (takes && text) node->given[strtoul(text + sizeof mark - 1, NULL, 10)]++;
    pthread_mutex_unlock(&node->lock);
    return takes;
}

static void node_answer(struct node *node, size_t most) {
    pthread_mutex_lock(&node->lock);
    size_t waiting = node->count - node->answered;
    size_t first = node->answered, count = most < waiting ? most : waiting;
    node->answered += count;
    pthread_mutex_unlock(&node->lock);
    for (size_t i = first; i < first + count; i++) {
        const struct worker_result result = {
            .id = node->jobs[i], .status = 200, .body = STR("{}"), .usage = {.input_tokens = 10}};
        node->events.result(node->events.context, &result);
    }
    if (count > 0) node->events.room(node->events.context);
}

static void node_cancel(struct worker *worker, uint64_t job_id) {
    (void)worker, (void)job_id;
}

static bool node_serves(struct worker *worker, struct str model) {
    return str_is(model, ((struct node *)worker)->model);
}

static size_t node_models(struct worker *worker, struct worker_model *ret_models,
                          size_t models_max) {
    const char *model = ((struct node *)worker)->model;
    if (models_max > 0) ret_models[0] = (struct worker_model){.name = str_from(model)};
    return models_max > 0;
}

static void node_status(struct worker *worker, struct worker_status *ret_status) {
    (void)worker;
    *ret_status = (struct worker_status){.ready = true, .knows_names = true};
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

/* Node i serves models[i] with `in_flight` jobs at a time. */
static void fleet_open(struct fleet *fleet, const char *const *models, size_t count,
                       size_t in_flight) {
    struct error error;
    struct runner_options options = {.now_unix_s = test_now};
    *fleet = (struct fleet){.node_count = count};
    pipeline_dir(&fleet->p);
    pipeline_open_store(&fleet->p);
    must(runner_open(&fleet->p.runner, fleet->p.store, &options, &error));
    for (size_t i = 0; i < count; i++) {
        struct node *node = &fleet->nodes[i];
        uint32_t seat;
        *node =
            (struct node){.worker.ops = &node_ops, .model = models[i], .in_flight_max = in_flight};
        pthread_mutex_init(&node->lock, NULL);
        if (!runner_worker_seat(fleet->p.runner, &node->events, &seat)) abort();
        runner_worker_tune(fleet->p.runner, seat, 1, (uint32_t)in_flight);
        runner_worker_attach(fleet->p.runner, seat, &node->worker);
    }
    must(runner_start(fleet->p.runner, &error));
}

static void fleet_close(struct fleet *fleet) {
    pipeline_close(&fleet->p);
    assert_int_equal(pipeline_fsck(&fleet->p), 0);
    pipeline_remove(&fleet->p);
}

/* A batch of groups[i] lines with each beginning, in an order that mixes them. */
static void fleet_submit(struct fleet *fleet, const char *model, const unsigned *sizes,
                         unsigned groups, char ret_id[STORE_ID_BYTES]) {
    struct buf text;
    char file_id[STORE_ID_BYTES], beginning[1101];
    unsigned most = 0;
    memset(beginning, 'x', sizeof beginning - 1);
    beginning[sizeof beginning - 1] = '\0';
    buf_init(&text, BUF_UNLIMITED);
    for (unsigned i = 0; i < groups; i++) most = sizes[i] > most ? sizes[i] : most;
    for (unsigned line = 0; line < most; line++)
        for (unsigned i = 0; i < groups; i++)
            if (line < sizes[i])
                buf_printf(&text,
                           "{\"custom_id\":\"%u-%u\",\"method\":\"POST\",\"url\":"
                           "\"/v1/chat/completions\",\"body\":{\"model\":\"%s\",\"messages\":"
                           "[{\"role\":\"user\",\"content\":\"g%u %s %u\"}]}}\n",
                           i, line, model, fleet->groups + i, beginning, line);
    fleet->groups += groups;
    assert_true(fleet->groups <= GROUPS_MAX && fleet->batch_count < BATCHES_MAX);
    fleet->batches[fleet->batch_count].model = model;
    for (unsigned i = 0; i < groups; i++) fleet->batches[fleet->batch_count].lines += sizes[i];
    fleet->batch_count++;
    pipeline_upload(&fleet->p, buf_str(&text), "batch", file_id);
    buf_release(&text);
    pipeline_create(&fleet->p, file_id, 0, ret_id);
    struct store_batch batch = pipeline_wait(&fleet->p, ret_id, is_running);
    store_batch_release(&batch);
}

static size_t given_to(struct node *node, bool *ret_is_full) {
    pthread_mutex_lock(&node->lock);
    size_t given = node->count;
    *ret_is_full = given - node->answered >= node->in_flight_max;
    pthread_mutex_unlock(&node->lock);
    return given;
}

/* Whether each node has all that it takes, or its model has no more lines. */
static bool is_fed(struct fleet *fleet) {
    for (size_t i = 0; i < fleet->node_count; i++) {
        const char *model = fleet->nodes[i].model;
        size_t given = 0, lines = 0;
        bool is_full = false, is_other_full;
        for (size_t k = 0; k < fleet->batch_count; k++)
            if (strcmp(fleet->batches[k].model, model) == 0) lines += fleet->batches[k].lines;
        for (size_t k = 0; k < fleet->node_count; k++)
            if (strcmp(fleet->nodes[k].model, model) == 0)
                given += given_to(&fleet->nodes[k], k == i ? &is_full : &is_other_full);
        if (!is_full && given < lines) return false;
    }
    return true;
}

/* Nodes that answer faster than the runner gives, as on a busy machine, would take each other's
 * lines for want of their own. One that answers too few in a second gets no more. */
static void wait_fed(struct fleet *fleet) {
    const int64_t until_ns = test_real_ns() + FED_MS_MAX * INT64_C(1000000);
    while (!is_fed(fleet) && test_real_ns() < until_ns) usleep(200);
}

/* Node i answers rates[i] lines at a time until the batch has ended. Returns the lines done. */
static uint64_t fleet_run(struct fleet *fleet, const size_t *rates, const char *id) {
    struct error error;
    struct store_batch batch;
    int64_t until_ns = test_real_ns() + WAIT_MS_MAX * INT64_C(1000000);
    for (;;) {
        wait_fed(fleet);
        for (size_t i = 0; i < fleet->node_count; i++) node_answer(&fleet->nodes[i], rates[i]);
        must(runner_batch_get(fleet->p.runner, str_from(id), &batch, &error));
        uint64_t completed = batch.completed;
        bool is_done = is_over(&batch);
        store_batch_release(&batch);
        if (is_done) return completed;
        assert_true(test_real_ns() < until_ns);
        usleep(500);
    }
}

static void node_wait(struct node *node, size_t count) {
    int64_t until_ns = test_real_ns() + WAIT_MS_MAX * INT64_C(1000000);
    size_t given = 0;
    while (given < count && test_real_ns() < until_ns) {
        usleep(500);
        pthread_mutex_lock(&node->lock);
        given = node->count;
        pthread_mutex_unlock(&node->lock);
    }
    assert_int_equal(given, count);
}

/* How often a worker began a beginning. */
static unsigned begun(const struct fleet *fleet) {
    unsigned count = 0;
    for (size_t i = 0; i < fleet->node_count; i++)
        for (unsigned k = 0; k < fleet->groups; k++) count += fleet->nodes[i].given[k] > 0;
    return count;
}

static const char *const one_model[NODES] = {"m", "m", "m", "m"};
static const size_t even[NODES] = {4, 4, 4, 4};

/* `groups` beginnings of `size` lines each over four nodes. */
static unsigned begun_of(unsigned groups, unsigned size, size_t in_flight) {
    struct fleet fleet;
    char id[STORE_ID_BYTES];
    unsigned sizes[GROUPS_MAX];
    for (unsigned i = 0; i < groups; i++) sizes[i] = size;
    fleet_open(&fleet, one_model, NODES, in_flight);
    fleet_submit(&fleet, "m", sizes, groups, id);
    assert_int_equal(fleet_run(&fleet, even, id), groups * size);
    unsigned count = begun(&fleet);
    fleet_close(&fleet);
    print_message("# %u beginnings of %u lines were begun %u times\n", groups, size, count);
    return count;
}

static void each_beginning_goes_to_one_worker(void **state) {
    (void)state;
    assert_in_range(begun_of(40, 60, 32), 40, 46); /* 1.15 of the least */
    assert_in_range(begun_of(40, 60, 4096), 40, 46);
    assert_in_range(begun_of(120, 20, 16), 120, 138);
    assert_in_range(begun_of(13, 400, 64), 13, 25); /* the last ones are shared out */
}

static void a_batch_of_one_beginning_keeps_all_workers_busy(void **state) {
    (void)state;
    struct fleet fleet;
    char id[STORE_ID_BYTES];
    const unsigned size = 600;
    fleet_open(&fleet, one_model, NODES, 16);
    fleet_submit(&fleet, "m", &size, 1, id);
    assert_int_equal(fleet_run(&fleet, even, id), 600);
    for (size_t i = 0; i < NODES; i++) assert_in_range(fleet.nodes[i].count, 75, 300);
    fleet_close(&fleet);
}

static void what_a_slow_worker_has_not_begun_goes_to_others(void **state) {
    (void)state;
    struct fleet fleet;
    char id[STORE_ID_BYTES];
    const unsigned sizes[] = {300, 300};
    const size_t both[NODES] = {8, 8};
    fleet_open(&fleet, one_model, 2, 8);
    fleet_submit(&fleet, "m", sizes, 2, id);
    int64_t until_ns = test_real_ns() + WAIT_MS_MAX * INT64_C(1000000);
    /* The second does not answer. */
    while (fleet.nodes[0].answered < 2 * 300 - 16 && test_real_ns() < until_ns) {
        node_answer(&fleet.nodes[0], 8);
        usleep(500);
    }
    assert_int_equal(fleet.nodes[1].count, 8);
    assert_true(fleet.nodes[0].answered >= 2 * 300 - 16); /* all but those in flight */
    assert_int_equal(fleet_run(&fleet, both, id), 600);
    fleet_close(&fleet);
}

static void a_worker_of_another_model_gets_no_place(void **state) {
    (void)state;
    static const char *const models[NODES] = {"other", "m", "other", "m"};
    struct fleet fleet;
    char id[STORE_ID_BYTES], second[STORE_ID_BYTES];
    unsigned sizes[20];
    for (unsigned i = 0; i < 20; i++) sizes[i] = 50;
    fleet_open(&fleet, models, NODES, 16);
    fleet_submit(&fleet, "m", sizes, 20, id);
    fleet_submit(&fleet, "other", sizes, 20, second);
    assert_int_equal(fleet_run(&fleet, even, id), 1000);
    assert_int_equal(fleet_run(&fleet, even, second), 1000);
    /* Two workers end together, or the later one's last beginning is shared out by halves: 25, 12,
     * 6, 3, 2, 1. */
    assert_in_range(begun(&fleet), 40, 40 + 2 * 6);
    for (size_t i = 0; i < NODES; i++) assert_in_range(fleet.nodes[i].count, 400, 600);
    fleet_close(&fleet);
}

static void a_second_batch_with_the_same_beginnings_finds_them_warm(void **state) {
    (void)state;
    struct fleet fleet;
    char id[STORE_ID_BYTES];
    const unsigned sizes[] = {64, 64};
    fleet_open(&fleet, one_model, 2, 64);
    for (size_t round = 1; round <= 2; round++) {
        fleet.groups = 0; /* the second batch has those of the first */
        fleet_submit(&fleet, "m", sizes, 2, id);
        /* Whoever has ended early would take a share of the other's. */
        node_wait(&fleet.nodes[0], round * 64);
        node_wait(&fleet.nodes[1], round * 64);
        assert_int_equal(fleet_run(&fleet, even, id), 128);
    }
    assert_int_equal(begun(&fleet), 2);
    fleet_close(&fleet);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_beginning_goes_to_one_worker),
        cmocka_unit_test(a_batch_of_one_beginning_keeps_all_workers_busy),
        cmocka_unit_test(what_a_slow_worker_has_not_begun_goes_to_others),
        cmocka_unit_test(a_worker_of_another_model_gets_no_place),
        cmocka_unit_test(a_second_batch_with_the_same_beginnings_finds_them_warm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
