/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cluster: a server and its nodes in one process, over the bus in memory. The clock moves with each
 * look of a test that waits, so that silence of a node takes no time. It stands while a node that
 * lives has not beaten for long: the machine gives it no time, and the server would lose it. */

#include "../../runner/pipeline.h"
#include "agent/agent.h"
#include "cluster/bus_memory.h"
#include "workers/fleet/fleet.h"

#include <cmocka.h>

#define NODES 4
#define LATE_MS 4000 /* two beats; nodes of 6 s are silent */

struct cluster {
    struct pipeline p;
    struct bus_memory *memory;
    struct fleet *fleet;
    struct agent *agents[NODES];
    struct worker *workers[NODES];
    /* In the place of that of the nodes' workers; NULL: none. Set before a node starts. */
    void (*recall)(struct worker *worker, uint64_t job_id);
    struct worker_ops ops[NODES];
    bool settles_none; /* the server deletes no pack of results, as if it died each time before */
};

static inline bool cluster_seat(void *context, struct worker_events *ret_events,
                                uint32_t *ret_seat) {
    return runner_worker_seat(((struct cluster *)context)->p.runner, ret_events, ret_seat);
}

static inline void cluster_attach(void *context, uint32_t seat, struct worker *worker) {
    runner_worker_attach(((struct cluster *)context)->p.runner, seat, worker);
}

static inline void cluster_tune(void *context, uint32_t seat, uint32_t weight, uint32_t lines_max) {
    runner_worker_tune(((struct cluster *)context)->p.runner, seat, weight, lines_max);
}

static inline uint64_t cluster_adopt(void *context, uint32_t seat, struct str line) {
    return runner_adopt(((struct cluster *)context)->p.runner, seat, line);
}

static inline void cluster_adopted(void *context) {
    runner_adopted(((struct cluster *)context)->p.runner);
}

static inline size_t cluster_ended(void *context, const uint64_t *job_ids, size_t count) {
    const struct cluster *cluster = context;
    return cluster->settles_none ? 0 : runner_jobs_ended(cluster->p.runner, job_ids, count);
}

/* Starts the server on the directory that the pipeline has. */
static inline void cluster_start_server(struct cluster *cluster) {
    struct error error;
    const struct runner_options runner = {
        .now_unix_s = test_now, .retry_delay_ms = 1, .holds_lines = true};
    const struct fleet_options fleet = {.place = bus_memory_place(cluster->memory),
                                        .id = "server",
                                        .lines_max = 256,
                                        .context = cluster,
                                        .seat = cluster_seat,
                                        .attach = cluster_attach,
                                        .tune = cluster_tune,
                                        .adopt = cluster_adopt,
                                        .adopted = cluster_adopted,
                                        .ended = cluster_ended};
    pipeline_open_store(&cluster->p);
    must(runner_open(&cluster->p.runner, cluster->p.store, &runner, &error));
    must(fleet_open(&cluster->fleet, &fleet, &error));
    must(runner_start(cluster->p.runner, &error));
    fleet_start(cluster->fleet);
}

/* A stop without a word to lines in flight, as a kill is for the nodes. */
static inline void cluster_stop_server(struct cluster *cluster) {
    runner_halt(cluster->p.runner);
    fleet_close(cluster->fleet);
    runner_close(cluster->p.runner);
    store_close(cluster->p.store);
}

static inline void cluster_start_node(struct cluster *cluster, unsigned at,
                                      const struct worker_echo_options *echo) {
    static const char *const models[] = {"m", NULL};
    static const char *const names[NODES] = {"host0", "host1", "host2", "host3"};
    struct error error;
    struct worker_events events;
    uint32_t seat;
    struct worker_echo_options own = *echo;
    own.models = models;
    const struct agent_options options = {
        .name = names[at], .version = "1", .place = bus_memory_place(cluster->memory)};
    agent_open(&cluster->agents[at], &options);
    if (!agent_seat(cluster->agents[at], &events, &seat)) abort();
    must(worker_echo_open(&cluster->workers[at], &own, &events, &error));
    if (cluster->recall) {
        cluster->ops[at] = *cluster->workers[at]->ops;
        cluster->ops[at].recall = cluster->recall;
        cluster->workers[at]->ops = &cluster->ops[at];
    }
    agent_attach(cluster->agents[at], seat, cluster->workers[at]);
    must(agent_start(cluster->agents[at], &error));
}

/* Without a word, as a kill. */
static inline void cluster_kill_node(struct cluster *cluster, unsigned at) {
    agent_close(cluster->agents[at]);
    cluster->agents[at] = NULL;
}

static inline bool cluster_lives(const struct cluster *cluster, const char *node) {
    for (unsigned i = 0; i < NODES; i++)
        if (cluster->agents[i] && strcmp(agent_node(cluster->agents[i]), node) == 0) return true;
    return false;
}

static inline bool cluster_is_late(void *context) {
    const struct cluster *cluster = context;
    struct fleet_node_status nodes[4 * NODES];
    size_t count = fleet_nodes(cluster->fleet, nodes, 4 * NODES);
    for (size_t i = 0; i < count; i++)
        if (nodes[i].beat_age_ms > LATE_MS && cluster_lives(cluster, nodes[i].node)) return true;
    return false;
}

static inline void cluster_open(struct cluster *cluster, unsigned nodes,
                                const struct worker_echo_options *echo) {
    *cluster = (struct cluster){0};
    clock_make_movable();
    cluster->memory = bus_memory_open();
    pipeline_dir(&cluster->p);
    cluster->p.is_anyone_late = cluster_is_late;
    cluster->p.context = cluster;
    cluster_start_server(cluster);
    for (unsigned i = 0; i < nodes; i++) cluster_start_node(cluster, i, echo);
}

static inline void cluster_close(struct cluster *cluster) {
    for (unsigned i = 0; i < NODES; i++) agent_close(cluster->agents[i]);
    cluster_stop_server(cluster);
    assert_int_equal(pipeline_fsck(&cluster->p), 0);
    bus_memory_close(cluster->memory);
    pipeline_remove(&cluster->p);
}

/* The output has one line for each of `count` requests, in their order, with the answer that an
 * echo gives. */
static inline void check_output(struct cluster *cluster, const struct store_batch *batch,
                                const char *salt, unsigned count) {
    size_t bytes;
    char *text = pipeline_read(&cluster->p, batch->output_file_id, &bytes), *at = text;
    assert_int_equal(count_lines(text, bytes), count);
    for (unsigned i = 0; i < count; i++) {
        char id[64], said[64];
        char *end = strchr(at, '\n');
        *end = '\0';
        snprintf(id, sizeof id, "\"custom_id\":\"%s-%u\"", salt, i);
        snprintf(said, sizeof said, "\"content\":\"%s %u ", salt, i);
        if (!strstr(at, id) || !strstr(at, said)) fail_msg("line %u: %s", i, at);
        at = end + 1;
    }
    free(text);
}

/* Waits, while the clock moves, until the test says so. */
static inline void cluster_wait(bool (*test)(struct cluster *), struct cluster *cluster,
                                const char *what) {
    int64_t until_ns = test_real_ns() + WAIT_MS_MAX * INT64_C(1000000);
    while (!test(cluster)) {
        if (test_real_ns() > until_ns) {
            struct fleet_status status;
            fleet_status(cluster->fleet, &status);
            fail_msg("never: %s; %llu jobs, %zu packs", what, (unsigned long long)status.jobs,
                     bus_memory_packs(cluster->memory));
        }
        pipeline_pass(&cluster->p);
    }
}

static inline bool all_is_idle(struct cluster *cluster) {
    struct fleet_status status;
    fleet_status(cluster->fleet, &status);
    return status.jobs == 0 && status.bytes == 0 && bus_memory_packs(cluster->memory) == 0;
}
