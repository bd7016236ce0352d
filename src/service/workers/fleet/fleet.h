/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* fleet: the workers of nodes on other machines, as workers of this server.
 *
 * Each worker of a node gets a seat of the runner, so that leases, suspects and cancels are what
 * they are for a worker of this machine. A seat whose node has gone waits for another node.
 *
 * A job is with its node until its result has come, or until one of these says that it is not:
 *
 *   - the worker went down (PACK_DOWN): its jobs are lost as at a crash here;
 *   - the node has said that it ends (PACK_BYE), or its beat has left the bus and no new one has
 *     come for FLEET_LOST_MS while the bus was there: its jobs run elsewhere, as if never
 *     submitted. If one of them was lost with a node before, the seat goes down instead: a line
 *     that kills machines becomes a suspect;
 *   - the bus has lost packs. Then the server begins a round: the node tells which jobs it has
 *     (PACK_HELD), and the others run again.
 *
 * A node outlives its server. The next server of the state directory adopts the lines that nodes
 * have and the results that the former one had not made durable (fleet_adopt.c), by the names of
 * lines. A pack of results stays on the bus until its results are durable.
 *
 * A pack is counted in its round. A gap in the numbers, an emptied bus, a put that failed and packs
 * that do not arrive each begin a round. A job's number is never used again under one epoch, so its
 * result is taken once, from whatever round it comes; results of another epoch are not taken
 * once the adoption has ended.
 *
 * Thread: fleet-send (packs of work, beats) and fleet-read (results); operations of the workers are
 *     the runner's.
 * Memory: 40 bytes per job in flight; packs until the bus has taken them, at most 8 MiB per node;
 *     names of models, which are kept to the end, at most FLEET_NAMES_MAX. */

#include "cluster/bus.h"
#include "protocol/nodes.h"
#include "protocol/worker.h"

#define FLEET_SEATS_MAX NODE_SEATS_MAX
#define FLEET_SILENT_MS 6000 /* three beats; then a node gets no more jobs */
#define FLEET_LOST_MS 12000
#define FLEET_NAMES_MAX 1024

struct fleet;

struct fleet_options {
    struct bus_place place; /* borrowed */
    const char *id;         /* as for bus_ops.lead; copied */
    uint64_t bytes_max;     /* bodies in flight at all nodes (default 256 MiB) */
    uint32_t lines_max;     /* lines in flight per worker, if its node does not say less */
    /* Whether this server may begin to lead the queue now, if it does not; NULL: always. */
    bool (*may_lead)(void *copy);
    void *copy;
    void *context;
    /* As runner_worker_seat, _attach and _tune. */
    bool (*seat)(void *context, struct worker_events *ret_events, uint32_t *ret_seat);
    void (*attach)(void *context, uint32_t seat, struct worker *worker);
    void (*tune)(void *context, uint32_t seat, uint32_t weight, uint32_t lines_max);
    /* As runner_adopt, _adopted and _jobs_ended. The first two NULL: nothing is adopted; the third:
     * results are durable at once. */
    uint64_t (*adopt)(void *context, uint32_t seat, struct str line);
    void (*adopted)(void *context);
    size_t (*ended)(void *context, const uint64_t *job_ids, size_t count);
};

/* Attaches one seat at once, for the first node, and starts the threads. */
enum err fleet_open(struct fleet **ret_fleet, const struct fleet_options *options,
                    struct error *error) MUST_CHECK;
/* The runner has started and knows its batches: results are read from now on. */
void fleet_start(struct fleet *fleet);
/* Waits up to `timeout_ms` until a node is ready. */
bool fleet_wait_ready(struct fleet *fleet, int64_t timeout_ms);
void fleet_status(struct fleet *fleet, struct fleet_status *ret_status);
size_t fleet_nodes(struct fleet *fleet, struct fleet_node_status *ret_nodes, size_t nodes_max);
/* After the runner has closed the workers (runner_halt), while it can be asked for ended jobs. NULL
 * is allowed. */
void fleet_close(struct fleet *fleet);
