/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* nodes: what the API tells about nodes on other machines: the part of the machine's object, the
 * metrics, and how many nodes the waiting work wants.
 *
 * Thread: any.
 * Memory: a copy of the state of all nodes, until nodes_release. */

#include "api/api.h"
#include "runner/runner.h"

struct api;

struct nodes {
    bool has_queue; /* false: the server was started without --queue; the rest is empty */
    struct fleet_status queue;
    struct fleet_node_status *list;
    size_t count;
};

void nodes_read(struct api *api, struct nodes *ret_nodes);
void nodes_release(struct nodes *nodes);

enum node_state { NODE_READY, NODE_LOADING, NODE_DRAINING, NODE_SICK, NODE_FAILED, NODE_STATES };
enum node_state node_state_of(const struct fleet_node_status *node);
const char *node_state_name(enum node_state state);

/* How the wish for nodes is computed. */
struct wish_rules {
    uint64_t seconds; /* in which the waiting work is to be done */
    uint64_t lines;   /* per node, where no rate has been measured yet */
};
#define WISH_SECONDS 600
#define WISH_LINES 1000

struct wish {
    uint64_t backlog;   /* lines and requests without an answer, and 1 per unchecked batch */
    uint32_t ready;     /* nodes that are ready for the model */
    double lines_per_s; /* per node; 0: not measured */
    int64_t seconds;    /* the rule's, or less for the sake of a deadline */
    uint32_t wanted;    /* nodes */
};

/* Nodes for one model, or for all (an empty name). */
void nodes_wish(const struct nodes *nodes, const struct runner_progress *progress,
                const char *model, const struct wish_rules *rules, struct wish *ret_wish);
/* Appends `,"queue":…,"nodes":[…]`. */
void nodes_write_json(const struct nodes *nodes, bool is_admin, struct buf *body);
