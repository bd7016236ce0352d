/* SPDX-License-Identifier: Apache-2.0 */
#include "nodes.h"

#include "agent/agent.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sync.h"
#include "cluster/bus_memory.h"
#include "life.h"
#include "rig_worker.h"
#include "run.h"
#include "threads.h"

#include <stdlib.h>
#include <unistd.h>

#define MACHINES_MAX 2
#define WORKERS_MAX 4
#define NODE_LINES_MAX 12
#define FOR_EVER_NS (INT64_C(86400) * 366 * 1000000000)
#define DOWN_MS_MAX 30000 /* longer than a server waits for any node */

enum group { RIG, SERVER, NODES };

static struct bus_memory *memory;
static struct agent *agents[MACHINES_MAX];
static struct worker *workers[WORKERS_MAX];
static pthread_mutex_t lock;
static pthread_cond_t changed;
static bool has_ended;
static enum life_end how_it_ended;

void nodes_die(enum life_end how) {
    if (world->plan.nodes == 0) _exit(how);
    has_ended = true;
    how_it_ended = how;
    threads_hold(SERVER, FOR_EVER_NS, false);
    pthread_cond_signal(&changed);
    for (;;) threads_sleep_ns(FOR_EVER_NS);
}

struct worker *nodes_worker(uint32_t index) {
    return workers[index];
}

/* --- the server's side --- */

static bool take_seat(void *context, struct worker_events *ret_events, uint32_t *ret_seat) {
    return runner_worker_seat(context, ret_events, ret_seat);
}

static void attach(void *context, uint32_t seat, struct worker *worker) {
    runner_worker_attach(context, seat, worker);
}

static void tune(void *context, uint32_t seat, uint32_t weight, uint32_t lines_max) {
    runner_worker_tune(context, seat, weight, lines_max);
}

static uint64_t adopt(void *context, uint32_t seat, struct str line) {
    uint64_t id = runner_adopt(context, seat, line);
    world->adopted += id != 0;
    return id;
}

static void adopted(void *context) {
    runner_adopted(context);
}

static size_t ended(void *context, const uint64_t *job_ids, size_t count) {
    return runner_jobs_ended(context, job_ids, count);
}

struct fleet *nodes_open_fleet(struct runner *runner) {
    struct fleet *fleet;
    struct error error;
    const struct fleet_options options = {.place = bus_memory_place(memory),
                                          .id = "rig",
                                          .lines_max = NODE_LINES_MAX,
                                          .context = runner,
                                          .seat = take_seat,
                                          .attach = attach,
                                          .tune = tune,
                                          .adopt = adopt,
                                          .adopted = adopted,
                                          .ended = ended};
    if (fleet_open(&fleet, &options, &error) != OK)
        world_fail("the fleet does not open: %s", error.text);
    return fleet;
}

/* --- the nodes --- */

static void open_nodes(void) {
    struct error error;
    threads_enter(NODES);
    memory = bus_memory_open();
    for (uint32_t i = 0; i < world->plan.nodes; i++) {
        const struct agent_options options = {
            .name = "node", .version = "rig", .place = bus_memory_place(memory)};
        agent_open(&agents[i], &options);
    }
    for (uint32_t i = 0; i < world->plan.workers; i++) {
        struct agent *agent = agents[i % world->plan.nodes];
        struct worker_events events;
        uint32_t seat;
        if (!agent_seat(agent, &events, &seat)) abort();
        workers[i] = rig_worker_open(i, &events);
        agent_attach(agent, seat, workers[i]);
    }
    for (uint32_t i = 0; i < world->plan.nodes; i++)
        if (agent_start(agents[i], &error) != OK) abort();
    threads_enter(RIG);
}

/* Between two servers the nodes go on. */
static void stay_down(void) {
    struct rng rng = world_rng('o');
    int64_t most = rng_below(&rng, 3) ? DOWN_MS_MAX / 10 : DOWN_MS_MAX;
    if (rng_below(&rng, 3)) clock_sleep_ms((int64_t)rng_below(&rng, (uint64_t)most));
}

void nodes_trouble(enum queue_trouble trouble, int64_t ms) {
    if (!memory) return;
    world->may_rerun = true;
    if (trouble == QUEUE_AWAY) bus_memory_set_away(memory, true);
    if (trouble == QUEUE_EMPTIED) bus_memory_empty(memory);
    if (trouble == QUEUE_LOSES_WORK) bus_memory_lose_work(memory);
    if (trouble == QUEUE_LOSES_RESULTS) bus_memory_lose_results(memory);
    clock_sleep_ms(ms);
    bus_memory_set_away(memory, false);
}

static void *server_main(void *context) {
    threads_enter(SERVER);
    life_main();
    nodes_die(LIFE_DONE);
    return context;
}

static void serve_once(void) {
    pthread_t server;
    has_ended = false;
    if (pthread_create(&server, NULL, server_main, NULL) != 0) abort();
    pthread_mutex_lock(&lock);
    while (!has_ended) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    threads_end(SERVER);
}

void nodes_run(void) {
    life_begin();
    log_set_level(LOG_WARN);
    pthread_mutex_init(&lock, NULL);
    sync_cond_init(&changed);
    open_nodes();
    for (serve_once(); how_it_ended != LIFE_DONE; serve_once()) {
        if (world->life > 4 * PLAN_LIVES_MAX) world_fail("too many lives");
        run_bury(how_it_ended == LIFE_CUT);
        bus_memory_set_away(memory, false);
        stay_down();
    }
    for (uint32_t i = 0; i < world->plan.nodes; i++) agent_close(agents[i]);
    _exit(LIFE_DONE);
}
