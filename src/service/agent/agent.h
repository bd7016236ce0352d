/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* agent: a node of a server on another machine: it takes jobs from the bus, gives them to workers,
 * and puts their results on the bus.
 *
 * It decides nothing: no retry, no suspect, no record. Each of its workers has a seat at the server
 * (workers/fleet), and what the worker interface says there happens here: a result, `down`, a
 * cancel. It knows no store. When the bus is away, its workers go on; their results wait in memory.
 *
 * Thread: agent_open, seat, attach, drain and close belong to one thread. Its own threads are
 *     node-work (reads packs), node-give (submits jobs) and node-send (results and beats).
 * Memory: bodies of jobs that no worker has taken yet, at most AGENT_WAITING_BYTES_MAX, and results
 *     that the bus has not taken. With more than 16 MiB of results it submits no further job.
 * Invariant: a job is in at most one worker, and has at most one result. */

#include "cluster/bus.h"
#include "protocol/worker.h"

#define AGENT_WAITING_BYTES_MAX ((size_t)512 << 20)
#define AGENT_WORKERS_MAX 32

struct agent;

struct agent_options {
    const char *name;       /* name of this machine; letters, digits, ".", "_" and "-"; borrowed */
    const char *version;    /* version of quern; borrowed */
    struct bus_place place; /* borrowed */
};

struct agent_status {
    bool is_reached;             /* the last call of the bus succeeded */
    char text[ERROR_TEXT_BYTES]; /* why it did not */
    uint64_t jobs;               /* taken from the bus and not yet ended */
    uint64_t results;            /* put on the bus since the start */
    size_t unsent_bytes;
};

/* Opens the bus; threads run from agent_start on. */
void agent_open(struct agent **ret_agent, const struct agent_options *options);
/* A seat for one more worker, as runner_worker_seat. Before agent_start. */
bool agent_seat(struct agent *agent, struct worker_events *ret_events,
                uint32_t *ret_seat) MUST_CHECK;
/* Puts the worker on its seat; the agent closes it. */
void agent_attach(struct agent *agent, uint32_t seat, struct worker *worker);
void agent_tune(struct agent *agent, uint32_t seat, uint32_t weight, uint32_t lines_max);
enum err agent_start(struct agent *agent, struct error *error) MUST_CHECK;
/* The name of this node on the bus: the machine's name, "-" and 16 random digits. */
const char *agent_node(const struct agent *agent);
void agent_status(struct agent *agent, struct agent_status *ret_status);
/* Reads no more work, gives back what no worker has begun, waits up to `deadline_ms` for the rest,
 * gives that back, too, and says that it has ended. */
void agent_drain(struct agent *agent, int64_t deadline_ms);
/* Stops at once and closes the workers. NULL is allowed. */
void agent_close(struct agent *agent);
