/* SPDX-License-Identifier: Apache-2.0 */

/* A server and its nodes, with nothing broken but what a test breaks. */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "cluster.h"

static uint64_t wanted_done;

static bool has_done(const struct store_batch *batch) {
    return batch->completed + batch->failed >= wanted_done || is_over(batch);
}

static void wait_done(struct cluster *cluster, const char *id, uint64_t count) {
    wanted_done = count;
    struct store_batch batch = pipeline_wait(&cluster->p, id, has_done);
    store_batch_release(&batch);
}

static void end_well(struct cluster *cluster, const char *id, const char *salt, unsigned count) {
    struct store_batch batch = pipeline_wait(&cluster->p, id, is_over);
    assert_int_equal(batch.completed, count);
    assert_int_equal(batch.failed, 0);
    check_output(cluster, &batch, salt, count);
    store_batch_release(&batch);
}

static bool has_node(struct cluster *cluster) {
    return fleet_wait_ready(cluster->fleet, 0);
}

static void nodes_share_a_batch_and_leave_nothing_on_the_bus(void **state) {
    (void)state;
    struct cluster cluster;
    char id[STORE_ID_BYTES];
    cluster_open(&cluster, 3, &(struct worker_echo_options){.latency_ms = 20});
    struct fleet_node_status nodes[4];
    pipeline_submit(&cluster.p, "a", 3000, id);
    end_well(&cluster, id, "a", 3000);
    cluster_wait(all_is_idle, &cluster, "the bus is empty");
    assert_int_equal(fleet_nodes(cluster.fleet, nodes, 4), 3);
    uint64_t sum = 0;
    for (unsigned i = 0; i < 3; i++) {
        assert_true(nodes[i].results > 0);
        sum += nodes[i].results;
    }
    assert_int_equal(sum, 3000);
    cluster_close(&cluster);
}

static void a_batch_that_comes_before_any_node_waits_for_one(void **state) {
    (void)state;
    struct cluster cluster;
    char id[STORE_ID_BYTES];
    cluster_open(&cluster, 0, &(struct worker_echo_options){0});
    pipeline_submit(&cluster.p, "a", 10, id);
    for (int i = 0; i < 50; i++) pipeline_pass(&cluster.p);
    cluster_start_node(&cluster, 0, &(struct worker_echo_options){0});
    end_well(&cluster, id, "a", 10);
    cluster_close(&cluster);
}

static bool is_refused(struct cluster *cluster) {
    struct fleet_node_status nodes[NODES];
    size_t count = fleet_nodes(cluster->fleet, nodes, NODES), refused = 0;
    for (size_t i = 0; i < count; i++)
        refused += strstr(nodes[i].text, "its weights of 'm' differ") && nodes[i].is_failed &&
                   !nodes[i].is_ready && nodes[i].model_count == 0;
    return count == 2 && refused == 1;
}

static bool is_taken(struct cluster *cluster) {
    struct fleet_node_status nodes[NODES];
    return fleet_nodes(cluster->fleet, nodes, NODES) == 1 && nodes[0].is_ready && !*nodes[0].text;
}

static void a_node_with_other_weights_gets_nothing_until_the_first_has_gone(void **state) {
    (void)state;
    struct cluster cluster;
    struct fleet_node_status nodes[NODES];
    char id[STORE_ID_BYTES];
    cluster_open(&cluster, 1, &(struct worker_echo_options){.latency_ms = 5, .weights = "q8"});
    pipeline_submit(&cluster.p, "a", 300, id);
    wait_done(&cluster, id, 10);
    cluster_start_node(&cluster, 1, &(struct worker_echo_options){.weights = "q4"});
    cluster_wait(is_refused, &cluster, "the second node is refused");
    end_well(&cluster, id, "a", 300);
    assert_int_equal(fleet_nodes(cluster.fleet, nodes, NODES), 2);
    for (size_t i = 0; i < 2; i++)
        if (!nodes[i].is_ready) assert_int_equal(nodes[i].results, 0);
    agent_drain(cluster.agents[0], 10000);
    cluster_kill_node(&cluster, 0);
    cluster_wait(is_taken, &cluster, "the second node is taken");
    pipeline_submit(&cluster.p, "b", 20, id);
    end_well(&cluster, id, "b", 20);
    cluster_close(&cluster);
}

static bool has_one_node(struct cluster *cluster) {
    struct fleet_status status;
    fleet_status(cluster->fleet, &status);
    return status.nodes == 1;
}

static void lines_of_a_killed_node_run_on_another(void **state) {
    (void)state;
    struct cluster cluster;
    struct fleet_status status;
    char id[STORE_ID_BYTES];
    cluster_open(&cluster, 2, &(struct worker_echo_options){.latency_ms = 50});
    pipeline_submit(&cluster.p, "a", 2000, id);
    wait_done(&cluster, id, 300);
    cluster_kill_node(&cluster, 0);
    end_well(&cluster, id, "a", 2000);
    /* A silent node's last lines are taken from it before it is lost. */
    cluster_wait(has_one_node, &cluster, "the killed node is lost");
    fleet_status(cluster.fleet, &status);
    /* What was given out again was in flight at that node. */
    assert_true(status.returned <= 256);
    cluster_close(&cluster);
}

static void a_node_that_drains_gives_back_what_it_has_not_begun(void **state) {
    (void)state;
    struct cluster cluster;
    char id[STORE_ID_BYTES];
    cluster_open(&cluster, 2, &(struct worker_echo_options){.latency_ms = 40, .waiting_max = 16});
    pipeline_submit(&cluster.p, "a", 1500, id);
    wait_done(&cluster, id, 100);
    agent_drain(cluster.agents[0], 10000);
    cluster_kill_node(&cluster, 0);
    end_well(&cluster, id, "a", 1500);
    cluster_close(&cluster);
}

static void a_new_server_takes_over_nodes_that_were_at_work(void **state) {
    (void)state;
    struct cluster cluster;
    char id[STORE_ID_BYTES];
    cluster_open(&cluster, 2, &(struct worker_echo_options){.latency_ms = 50});
    pipeline_submit(&cluster.p, "a", 2000, id);
    for (unsigned done = 200; done <= 1000; done += 400) {
        wait_done(&cluster, id, done);
        cluster_stop_server(&cluster);
        cluster_start_server(&cluster);
    }
    end_well(&cluster, id, "a", 2000);
    cluster_close(&cluster);
}

/* As wait_done, in real time: no node is missed. */
static void wait_done_still(struct cluster *cluster, const char *id, uint64_t count) {
    struct error error;
    struct store_batch batch = {0};
    int64_t until_ns = test_real_ns() + WAIT_MS_MAX * INT64_C(1000000);
    do {
        store_batch_release(&batch);
        if (test_real_ns() > until_ns) fail_msg("never %llu lines", (unsigned long long)count);
        usleep(500);
        must(runner_batch_get(cluster->p.runner, str_from(id), &batch, &error));
    } while (batch.completed + batch.failed < count && !is_over(&batch));
    store_batch_release(&batch);
}

static void a_new_server_adopts_what_nodes_have_and_no_line_runs_twice(void **state) {
    (void)state;
    struct cluster cluster;
    struct fleet_status status;
    char id[STORE_ID_BYTES];
    const unsigned lines = 1500;
    uint64_t adopted = 0;
    cluster_open(&cluster, 1, &(struct worker_echo_options){.latency_ms = 60});
    cluster_start_node(&cluster, 1, &(struct worker_echo_options){.latency_ms = 90});
    pipeline_submit(&cluster.p, "a", lines, id);
    for (unsigned done = 100; done <= 700; done += 200) {
        wait_done_still(&cluster, id, done);
        usleep(5000 + done / 100 * 17 % 40 * 1000); /* not between two waves of lines */
        cluster_stop_server(&cluster);
        usleep(done % 400 ? 100000 : 1000); /* some lines end while no server is there */
        cluster_start_server(&cluster);
        do {
            usleep(500);
            fleet_status(cluster.fleet, &status);
        } while (status.is_adopting);
        adopted += status.adopted;
    }
    wait_done_still(&cluster, id, lines);
    end_well(&cluster, id, "a", lines);
    assert_true(adopted > 0);
    assert_int_equal(answered_by(cluster.workers[0]) + answered_by(cluster.workers[1]), lines);
    cluster_wait(all_is_idle, &cluster, "the bus is empty");
    cluster_close(&cluster);
}

static void packs_of_durable_results_that_were_not_deleted_count_once(void **state) {
    (void)state;
    struct cluster cluster;
    struct fleet_status status;
    char id[STORE_ID_BYTES];
    cluster_open(&cluster, 1, &(struct worker_echo_options){.latency_ms = 5});
    cluster.settles_none = true;
    pipeline_submit(&cluster.p, "a", 600, id);
    wait_done(&cluster, id, 200);
    cluster_stop_server(&cluster);
    assert_true(bus_memory_packs(cluster.memory) > 0);
    cluster.settles_none = false;
    cluster_start_server(&cluster);
    end_well(&cluster, id, "a", 600);
    cluster_wait(all_is_idle, &cluster, "the bus is empty");
    fleet_status(cluster.fleet, &status);
    assert_true(status.late >= 200);
    cluster_close(&cluster);
}

static void a_bus_that_is_away_for_ten_minutes_costs_no_line(void **state) {
    (void)state;
    struct cluster cluster;
    struct fleet_status status;
    struct runner_status runner;
    char id[STORE_ID_BYTES];
    cluster_open(&cluster, 2, &(struct worker_echo_options){.latency_ms = 60});
    pipeline_submit(&cluster.p, "a", 900, id);
    wait_done_still(&cluster, id, 100);
    bus_memory_set_away(cluster.memory, true);
    for (int i = 0; i < 60; i++) {
        clock_move_ms(10000);
        usleep(2000);
    }
    bus_memory_set_away(cluster.memory, false);
    wait_done_still(&cluster, id, 900);
    end_well(&cluster, id, "a", 900);
    fleet_status(cluster.fleet, &status);
    runner_status(cluster.p.runner, &runner);
    assert_int_equal(status.lost, 0);
    /* A line that was asked back while the bus was away may have run where it was, too. */
    uint64_t ran = answered_by(cluster.workers[0]) + answered_by(cluster.workers[1]);
    assert_true(ran >= 900 && ran <= 900 + runner.lines_recalled);
    cluster_close(&cluster);
}

static void a_trim_that_is_lost_with_its_connection_comes_later(void **state) {
    (void)state;
    struct cluster cluster;
    char id[STORE_ID_BYTES];
    cluster_open(&cluster, 1, &(struct worker_echo_options){0});
    cluster_wait(has_node, &cluster, "a node");
    cluster_wait(all_is_idle, &cluster, "the node has read all");
    bus_memory_lose_trim(cluster.memory);
    pipeline_submit(&cluster.p, "a", 1, id);
    end_well(&cluster, id, "a", 1);
    cluster_wait(all_is_idle, &cluster, "the bus is empty");
    cluster_close(&cluster);
}

/* In real time: a node that was there is not lost yet. */
static void wait_for_pack(struct cluster *cluster) {
    int64_t until_ns = test_real_ns() + WAIT_MS_MAX * INT64_C(1000000);
    while (bus_memory_packs(cluster->memory) == 0) {
        if (test_real_ns() > until_ns) fail_msg("no pack is put");
        usleep(500);
    }
}

static bool has_no_node(struct cluster *cluster) {
    struct fleet_status status;
    fleet_status(cluster->fleet, &status);
    return status.nodes == 0;
}

static void what_a_lost_node_had_not_read_goes_though_the_first_call_is_lost(void **state) {
    (void)state;
    struct cluster cluster;
    char id[STORE_ID_BYTES];
    cluster_open(&cluster, 1, &(struct worker_echo_options){0});
    cluster_wait(has_node, &cluster, "a node");
    cluster_wait(all_is_idle, &cluster, "the node has read all");
    cluster_kill_node(&cluster, 0);
    bus_memory_empty(cluster.memory);
    wait_for_pack(&cluster);
    bus_memory_lose_trim(cluster.memory);
    cluster_wait(has_no_node, &cluster, "the node is lost");
    cluster_start_node(&cluster, 1, &(struct worker_echo_options){0});
    pipeline_submit(&cluster.p, "a", 1, id);
    end_well(&cluster, id, "a", 1);
    cluster_wait(all_is_idle, &cluster, "the bus is empty");
    cluster_close(&cluster);
}

static void a_lost_nodes_lines_run_again_within_30_s(void **state) {
    (void)state;
    struct cluster cluster;
    struct fleet_status status;
    char id[STORE_ID_BYTES];
    cluster_open(&cluster, 1, &(struct worker_echo_options){.latency_ms = 3600000});
    pipeline_submit(&cluster.p, "a", 20, id);
    do {
        pipeline_pass(&cluster.p);
        fleet_status(cluster.fleet, &status);
    } while (status.jobs < 20);
    cluster_kill_node(&cluster, 0);
    cluster_start_node(&cluster, 1, &(struct worker_echo_options){0});
    int64_t killed_ns = clock_monotonic_ns();
    do {
        clock_move_ms(STEP_MS);
        usleep(
            4000); /* a look of the server takes less than 600 of these steps on a busy machine */
        fleet_status(cluster.fleet, &status);
    } while (status.returned == 0);
    assert_int_equal(status.returned, 20);
    assert_true(clock_monotonic_ns() - killed_ns <= INT64_C(30000000000));
    end_well(&cluster, id, "a", 20);
    cluster_close(&cluster);
}

static void a_line_that_takes_workers_down_is_found_and_only_it_fails(void **state) {
    (void)state;
    struct cluster cluster;
    char id[STORE_ID_BYTES];
    cluster_open(&cluster, 2,
                 &(struct worker_echo_options){.latency_ms = 5, .poison = "a 77 ", .down_ms = 10});
    pipeline_submit(&cluster.p, "a", 400, id);
    struct store_batch batch = pipeline_wait(&cluster.p, id, is_over);
    assert_int_equal(batch.completed, 399);
    assert_int_equal(batch.failed, 1);
    size_t bytes;
    char *text = pipeline_read(&cluster.p, batch.error_file_id, &bytes);
    assert_non_null(strstr(text, "\"custom_id\":\"a-77\""));
    assert_non_null(strstr(text, "worker_lost"));
    free(text);
    store_batch_release(&batch);
    cluster_close(&cluster);
}

static bool one_is_sick(struct cluster *cluster) {
    struct fleet_node_status nodes[NODES];
    size_t count = fleet_nodes(cluster->fleet, nodes, NODES), sick = 0;
    for (size_t i = 0; i < count; i++)
        sick += nodes[i].is_sick && strstr(nodes[i].text, "answered nothing in between");
    return count == 2 && sick == 1;
}

static bool two_are_ready(struct cluster *cluster) {
    struct fleet_node_status nodes[NODES];
    return fleet_nodes(cluster->fleet, nodes, NODES) == 2 && nodes[0].is_ready && nodes[1].is_ready;
}

static void a_node_that_goes_down_with_everything_is_sick_and_costs_no_line(void **state) {
    (void)state;
    struct cluster cluster;
    char ids[3][STORE_ID_BYTES], salt[] = "a";
    cluster_open(&cluster, 1, &(struct worker_echo_options){.latency_ms = 30});
    cluster_start_node(&cluster, 1, &(struct worker_echo_options){.down_every = 1, .down_ms = 5});
    /* A node that is the only one yet convicts lines. */
    cluster_wait(two_are_ready, &cluster, "two nodes");
    for (int i = 0; i < 3; i++, salt[0]++) {
        pipeline_submit(&cluster.p, salt, 500, ids[i]);
        end_well(&cluster, ids[i], salt, 500);
    }
    cluster_wait(one_is_sick, &cluster, "a node is sick");
    cluster_close(&cluster);
}

static void a_cancelled_batch_is_cancelled_at_its_nodes(void **state) {
    (void)state;
    struct cluster cluster;
    char id[STORE_ID_BYTES];
    struct error error;
    struct store_batch batch;
    cluster_open(&cluster, 2, &(struct worker_echo_options){.latency_ms = 3600000});
    pipeline_submit(&cluster.p, "a", 300, id);
    batch = pipeline_wait(&cluster.p, id, is_running);
    store_batch_release(&batch);
    must(runner_batch_cancel(cluster.p.runner, str_from(id), &batch, &error));
    store_batch_release(&batch);
    batch = pipeline_wait(&cluster.p, id, is_over);
    assert_int_equal(batch.status, BATCH_CANCELLED);
    store_batch_release(&batch);
    cluster_wait(all_is_idle, &cluster, "the nodes are idle");
    cluster_close(&cluster);
}

static void a_second_server_on_one_bus_gets_no_node(void **state) {
    (void)state;
    struct cluster cluster, other = {0};
    char id[STORE_ID_BYTES];
    struct fleet_status status;
    struct error error;
    cluster_open(&cluster, 1, &(struct worker_echo_options){0});
    pipeline_submit(&cluster.p, "a", 50, id);
    wait_done(&cluster, id, 1);
    other.memory = cluster.memory;
    const struct fleet_options options = {.place = bus_memory_place(other.memory),
                                          .id = "another",
                                          .context = &cluster,
                                          .seat = cluster_seat,
                                          .attach = cluster_attach,
                                          .tune = cluster_tune};
    must(fleet_open(&other.fleet, &options, &error));
    end_well(&cluster, id, "a", 50);
    fleet_status(other.fleet, &status);
    assert_false(status.is_reached);
    assert_int_equal(status.nodes, 0);
    for (unsigned i = 0; i < NODES; i++) agent_close(cluster.agents[i]);
    memset(cluster.agents, 0, sizeof cluster.agents);
    runner_halt(cluster.p.runner);
    fleet_close(other.fleet);
    fleet_close(cluster.fleet);
    runner_close(cluster.p.runner);
    store_close(cluster.p.store);
    bus_memory_close(cluster.memory);
    pipeline_remove(&cluster.p);
}

struct answers {
    pthread_mutex_t lock;
    struct buf text;
    bool is_over;
};

static void take_delta(void *context, struct str chunk) {
    struct answers *answers = context;
    pthread_mutex_lock(&answers->lock);
    buf_add_str(&answers->text, chunk);
    pthread_mutex_unlock(&answers->lock);
}

static void take_end(void *context, const struct worker_result *result) {
    struct answers *answers = context;
    pthread_mutex_lock(&answers->lock);
    answers->is_over = result->outcome == OUTCOME_DONE && result->status == 200;
    pthread_mutex_unlock(&answers->lock);
}

static struct answers answers = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool has_ended(struct cluster *cluster) {
    (void)cluster;
    pthread_mutex_lock(&answers.lock);
    bool is_over = answers.is_over;
    pthread_mutex_unlock(&answers.lock);
    return is_over;
}

static void a_single_request_streams_from_a_node(void **state) {
    (void)state;
    struct cluster cluster;
    struct error error;
    uint64_t request_id;
    cluster_open(&cluster, 1, &(struct worker_echo_options){0});
    cluster_wait(has_node, &cluster, "a node");
    buf_init(&answers.text, BUF_UNLIMITED);
    const struct runner_request call = {
        .endpoint = ENDPOINT_CHAT,
        .stream = true,
        .model = STR("m"),
        .body = STR("{\"model\":\"m\",\"stream\":true,\"messages\":[{\"role\":\"user\","
                    "\"content\":\"good morning\"}]}")};
    const struct runner_request_events events = {&answers, take_delta, take_end};
    must(runner_request(cluster.p.runner, &call, &events, &request_id, &error));
    cluster_wait(has_ended, &cluster, "the end of the request");
    assert_true(str_find(buf_str(&answers.text), STR("good"), 0) != SIZE_MAX);
    buf_release(&answers.text);
    cluster_close(&cluster);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_share_a_batch_and_leave_nothing_on_the_bus),
        cmocka_unit_test(a_batch_that_comes_before_any_node_waits_for_one),
        cmocka_unit_test(a_node_with_other_weights_gets_nothing_until_the_first_has_gone),
        cmocka_unit_test(lines_of_a_killed_node_run_on_another),
        cmocka_unit_test(a_node_that_drains_gives_back_what_it_has_not_begun),
        cmocka_unit_test(a_new_server_takes_over_nodes_that_were_at_work),
        cmocka_unit_test(a_new_server_adopts_what_nodes_have_and_no_line_runs_twice),
        cmocka_unit_test(packs_of_durable_results_that_were_not_deleted_count_once),
        cmocka_unit_test(a_bus_that_is_away_for_ten_minutes_costs_no_line),
        cmocka_unit_test(a_trim_that_is_lost_with_its_connection_comes_later),
        cmocka_unit_test(what_a_lost_node_had_not_read_goes_though_the_first_call_is_lost),
        cmocka_unit_test(a_lost_nodes_lines_run_again_within_30_s),
        cmocka_unit_test(a_line_that_takes_workers_down_is_found_and_only_it_fails),
        cmocka_unit_test(a_node_that_goes_down_with_everything_is_sick_and_costs_no_line),
        cmocka_unit_test(a_cancelled_batch_is_cancelled_at_its_nodes),
        cmocka_unit_test(a_second_server_on_one_bus_gets_no_node),
        cmocka_unit_test(a_single_request_streams_from_a_node),
    };
    log_set_level(LOG_ERROR);
    if (getenv("QUERN_LOG")) log_set_level(LOG_DEBUG);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
