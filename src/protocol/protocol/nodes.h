/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* nodes: what is told about the nodes of a server and the queue between them.
 *
 * Plain structs, so that the API tells about nodes and knows no queue.
 *
 * Thread: any.
 * Memory: names of models are borrowed from the fleet, which keeps them to its end. */

#include "base/err.h"
#include "base/histogram.h"
#include "base/str.h"
#include "protocol/worker.h"

#define NODES_MAX 1024
#define NODE_NAME_BYTES 96
#define NODE_NAMES_MAX 32
/* Workers of nodes that have a seat at the server at a time; more nodes get no work. */
#define NODE_SEATS_MAX 48

struct fleet_status {
    bool is_adopting;            /* nodes are asked for lines that they have from before */
    bool is_reached;             /* the last call of the queue succeeded, and this server leads */
    char text[ERROR_TEXT_BYTES]; /* why not */
    uint32_t nodes;
    uint64_t jobs, bytes;                  /* in flight at nodes */
    uint64_t bytes_max;                    /* bodies that may be in flight */
    uint64_t rounds;                       /* begun */
    uint64_t lost;                         /* nodes that ended without a word */
    uint64_t returned;                     /* jobs that were given out again */
    uint64_t adopted;                      /* lines that nodes had from the server before */
    uint64_t late;                         /* results that no job waited for */
    uint64_t queue_bytes, queue_bytes_max; /* memory of the queue; 0: not known, no limit */
    struct histogram result_waits; /* seconds of packs of results in the queue, until read */
};

extern const struct histogram_bounds nodes_wait_bounds;

struct fleet_node_status {
    char node[NODE_NAME_BYTES], name[NODE_NAME_BYTES], version[32];
    bool is_ready, is_draining;
    bool is_sick;                 /* one of its workers is (WORKER_SICK_DOWNS) */
    bool is_failed;               /* none of its workers will ever be ready */
    char text[WORKER_TEXT_BYTES]; /* from its first worker that is not ready; empty: all are */
    uint32_t workers, workers_ready;
    uint32_t running, waiting; /* at its workers */
    uint64_t jobs;             /* that it has, by the server's count */
    uint64_t results, restarts, tokens;
    double busy_results_per_s; /* in the last two busy minutes; 0: not known */
    int64_t beat_age_ms;
    size_t model_count;
    struct str models[NODE_NAMES_MAX];
};
