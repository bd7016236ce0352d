/* SPDX-License-Identifier: Apache-2.0 */

/* A batch that ends as if nothing had happened, whatever the bus and the nodes do. The seed is
 * printed; QUERN_SEED repeats its draws, though not the order in which threads run. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/rng.h"
#include "cluster.h"
#include "cluster/beat.h"
#include "cluster/pack.h"
#include "tests/draws.h"

#define LINES 1500

static uint64_t seed, draws;

static unsigned draw(unsigned below) {
    return (unsigned)(rng_unit_at(seed, ++draws) * below);
}

static const struct worker_echo_options slow = {.latency_ms = 30};

/* Bytes that nobody should have put there. */
static void put_rubbish(struct cluster *cluster) {
    struct bus_place place = bus_memory_place(cluster->memory);
    struct bus *bus = place.open(place.context);
    struct error error;
    struct buf pack;
    bool was_emptied;
    uint64_t id = draw(2000);
    const struct worker_result result = {.id = id << 20 | id, .status = 200, .body = STR("{}")};
    buf_init(&pack, PACK_BYTES_MAX);
    pack_begin(&pack);
    pack_result(&pack, (uint8_t)draw(4), &result, draw(2) ? STR("batch_1:3") : STR(""));
    pack_held(&pack, &id, 1, true);
    pack_text(&pack, PACK_DOWN, (uint8_t)draw(4), 0, STR("no"));
    pack_seal(&pack, 99ull << 24, draw(9));
    for (unsigned i = draw(8); i > 0; i--)
        pack.at[draw((unsigned)pack.bytes)] = (char)(unsigned char)draw(256);
    (void)!bus->ops->answer(bus, "nobody", 1 + draw(4), buf_str(&pack), &error);
    struct fleet_node_status nodes[NODES];
    size_t count = fleet_nodes(cluster->fleet, nodes, NODES);
    for (size_t i = 0; i < count; i++)
        (void)!bus->ops->answer(bus, nodes[i].node, 1 + draw(4), buf_str(&pack), &error);
    (void)!bus->ops->beat(bus, "no node {*}", buf_str(&pack), &was_emptied, &error);
    (void)!bus->ops->beat(bus, "rubbish", buf_str(&pack), &was_emptied, &error);
    buf_release(&pack);
    bus->ops->close(bus);
}

static void break_something(struct cluster *cluster) {
    unsigned at = draw(NODES);
    switch (draw(7)) {
    case 0: bus_memory_empty(cluster->memory); break;
    case 1: bus_memory_lose_work(cluster->memory); break;
    case 2: bus_memory_lose_results(cluster->memory); break;
    case 3:
        bus_memory_set_away(cluster->memory, true);
        for (unsigned i = draw(40); i > 0; i--) {
            clock_move_ms(STEP_MS * 10);
            usleep(200);
        }
        bus_memory_set_away(cluster->memory, false);
        break;
    case 4:
        if (cluster->agents[at]) cluster_kill_node(cluster, at);
        cluster_start_node(cluster, at, &slow);
        break;
    case 5:
        cluster_stop_server(cluster);
        cluster_start_server(cluster);
        break;
    default: put_rubbish(cluster); break;
    }
}

static bool some_more(const struct store_batch *batch) {
    static uint64_t before;
    bool has_more = batch->completed > before + 20 || batch->completed < before;
    if (has_more) before = batch->completed;
    return has_more || is_over(batch);
}

static void run_with_faults(unsigned faults) {
    struct cluster cluster;
    char id[STORE_ID_BYTES];
    cluster_open(&cluster, 2, &slow);
    pipeline_submit(&cluster.p, "a", LINES, id);
    for (unsigned i = 0; i < faults; i++) {
        struct store_batch batch = pipeline_wait(&cluster.p, id, some_more);
        bool ended = is_over(&batch);
        store_batch_release(&batch);
        if (ended) break;
        break_something(&cluster);
    }
    struct store_batch batch = pipeline_wait(&cluster.p, id, is_over);
    assert_int_equal(batch.completed, LINES);
    check_output(&cluster, &batch, "a", LINES);
    store_batch_release(&batch);
    cluster_wait(all_is_idle, &cluster, "nothing is left on the bus");
    cluster_close(&cluster);
}

static void a_batch_survives_what_is_drawn(void **state) {
    (void)state;
    const char *share = getenv("QUERN_SHARE");
    double rounds = 24 * (share ? strtod(share, NULL) : 0.25);
    for (unsigned i = 0; i < (rounds < 3 ? 3 : (unsigned)rounds); i++) run_with_faults(25);
}

/* Jobs that the nodes' workers have. */
static uint32_t held_by_nodes(const struct cluster *cluster) {
    uint32_t count = 0;
    for (unsigned i = 0; i < NODES; i++) {
        struct worker_status status;
        if (!cluster->workers[i]) continue;
        cluster->workers[i]->ops->status(cluster->workers[i], &status);
        count += status.waiting;
    }
    return count;
}

/* Each kind by itself: what it costs is at most what it lost. */
static void an_emptied_bus_runs_no_line_again_that_a_node_still_has(void **state) {
    (void)state;
    struct cluster cluster;
    struct fleet_status status;
    char id[STORE_ID_BYTES];
    cluster_open(&cluster, 2, &(struct worker_echo_options){.latency_ms = 3600000});
    pipeline_submit(&cluster.p, "a", 100, id);
    struct store_batch batch = pipeline_wait(&cluster.p, id, is_running);
    store_batch_release(&batch);
    /* A pack that no node has read yet would be lost with its lines. */
    do {
        pipeline_pass(&cluster.p);
        fleet_status(cluster.fleet, &status);
    } while (status.jobs < 100 || held_by_nodes(&cluster) < 100);
    uint64_t rounds = status.rounds;
    for (int i = 0; i < 5; i++) {
        bus_memory_empty(cluster.memory);
        do {
            pipeline_pass(&cluster.p);
            fleet_status(cluster.fleet, &status);
        } while (status.rounds < rounds + 2 || !fleet_wait_ready(cluster.fleet, 0));
        rounds = status.rounds;
    }
    assert_int_equal(status.returned, 0);
    assert_int_equal(status.jobs, 100);
    cluster_close(&cluster);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_survives_what_is_drawn),
        cmocka_unit_test(an_emptied_bus_runs_no_line_again_that_a_node_still_has),
    };
    seed = draws_seed();
    printf("# seed %llu\n", (unsigned long long)seed);
    log_set_level(LOG_ERROR);
    if (getenv("QUERN_LOG")) log_set_level(LOG_DEBUG);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
