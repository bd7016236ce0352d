/* SPDX-License-Identifier: Apache-2.0 */

/* The metrics of nodes on other machines and of the queue between. A server without a queue writes
 * their heads alone. */

#include "api/api_internal.h"
#include "api/metrics_text.h"
#include "api/nodes.h"

#include <inttypes.h>
#include <stddef.h>

static const struct {
    const char *name, *type, *help;
    size_t offset;
} queue_metrics[] = {
    {"quern_cluster_requests_inflight", "gauge", "Requests and lines that nodes have.",
     offsetof(struct fleet_status, jobs)},
    {"quern_cluster_body_bytes", "gauge", "Bodies of requests that nodes have.",
     offsetof(struct fleet_status, bytes)},
    {"quern_cluster_body_bytes_max", "gauge", "Most that bodies at nodes may take together.",
     offsetof(struct fleet_status, bytes_max)},
    {"quern_cluster_rounds_total", "counter",
     "Times that a node was asked for its requests, because packs were lost or may have been.",
     offsetof(struct fleet_status, rounds)},
    {"quern_cluster_nodes_lost_total", "counter", "Nodes that ended without a word.",
     offsetof(struct fleet_status, lost)},
    {"quern_cluster_returned_total", "counter",
     "Requests and lines that a node had and that were given out again.",
     offsetof(struct fleet_status, returned)},
    {"quern_cluster_adopted_total", "counter",
     "Lines that nodes had when this server started, and that did not run again.",
     offsetof(struct fleet_status, adopted)},
    {"quern_cluster_redis_bytes", "gauge",
     "Memory of the Redis server between machines; 0: not known.",
     offsetof(struct fleet_status, queue_bytes)},
    {"quern_cluster_redis_bytes_max", "gauge", "Its maxmemory; 0: not known, or no limit.",
     offsetof(struct fleet_status, queue_bytes_max)},
    {"quern_cluster_results_late_total", "counter", "Results that no request waited for any more.",
     offsetof(struct fleet_status, late)},
};

static void write_queue(const struct nodes *nodes, struct buf *buf) {
    metrics_head(buf, "quern_cluster_queue_up", "gauge",
                 "1 when the queue between machines is reached and this server leads.");
    if (nodes->has_queue) buf_printf(buf, "quern_cluster_queue_up %d\n", nodes->queue.is_reached);
    for (size_t i = 0; i < sizeof queue_metrics / sizeof *queue_metrics; i++) {
        metrics_head(buf, queue_metrics[i].name, queue_metrics[i].type, queue_metrics[i].help);
        const void *at = (const char *)&nodes->queue + queue_metrics[i].offset;
        if (nodes->has_queue)
            buf_printf(buf, "%s %" PRIu64 "\n", queue_metrics[i].name, *(const uint64_t *)at);
    }
    metrics_head(buf, "quern_cluster_result_wait_seconds", "histogram",
                 "From a node's put of a pack of results to this server's read.");
    if (nodes->has_queue)
        metrics_histogram(buf, "quern_cluster_result_wait_seconds", "", &nodes_wait_bounds,
                          &nodes->queue.result_waits);
    metrics_head(buf, "quern_cluster_nodes", "gauge", "Nodes by state.");
    for (int state = 0; state < NODE_STATES && nodes->has_queue; state++) {
        size_t count = 0;
        for (size_t i = 0; i < nodes->count; i++)
            count += node_state_of(&nodes->list[i]) == (enum node_state)state;
        buf_printf(buf, "quern_cluster_nodes{state=\"%s\"} %zu\n",
                   node_state_name((enum node_state)state), count);
    }
}

enum node_value {
    NODE_UP,
    NODE_BEAT_AGE,
    NODE_IN_FLIGHT,
    NODE_RUNNING,
    NODE_WAITING,
    NODE_RATE,
    NODE_RESULTS,
    NODE_TOKENS,
    NODE_RESTARTS,
    NODE_VALUES
};

static const struct {
    const char *name, *type, *help;
} node_metrics[NODE_VALUES] = {
    [NODE_UP] = {"quern_node_up", "gauge", "1 when a worker of the node takes requests."},
    [NODE_BEAT_AGE] = {"quern_node_beat_age_seconds", "gauge", "Since the node's last new beat."},
    [NODE_IN_FLIGHT] = {"quern_node_requests_inflight", "gauge",
                        "Requests and lines that the node has."},
    [NODE_RUNNING] = {"quern_node_running", "gauge", "Of these, at work."},
    [NODE_WAITING] = {"quern_node_waiting", "gauge", "Of these, with a worker and not begun."},
    [NODE_RATE] = {"quern_node_busy_results_per_second", "gauge",
                   "Results per second of the last two minutes in which the node had requests."},
    [NODE_RESULTS] = {"quern_node_results_total", "counter", "Results of the node."},
    [NODE_TOKENS] = {"quern_node_generated_tokens_total", "counter", "Tokens generated."},
    [NODE_RESTARTS] = {"quern_node_restarts_total", "counter", "Restarts of its engines."},
};

static double value_of(const struct fleet_node_status *node, enum node_value value) {
    switch (value) {
    case NODE_UP: return node->is_ready && !node->is_draining;
    case NODE_BEAT_AGE: return (double)node->beat_age_ms / 1000;
    case NODE_IN_FLIGHT: return (double)node->jobs;
    case NODE_RUNNING: return node->running;
    case NODE_WAITING: return node->waiting;
    case NODE_RATE: return node->busy_results_per_s;
    case NODE_RESULTS: return (double)node->results;
    case NODE_TOKENS: return (double)node->tokens;
    case NODE_RESTARTS: return (double)node->restarts;
    case NODE_VALUES: break;
    }
    return 0;
}

static void write_nodes(const struct nodes *nodes, struct buf *buf) {
    for (int value = 0; value < NODE_VALUES; value++) {
        metrics_head(buf, node_metrics[value].name, node_metrics[value].type,
                     node_metrics[value].help);
        for (size_t i = 0; i < nodes->count; i++) /* names have no character to be escaped */
            buf_printf(buf, "%s{node=\"%s\",machine=\"%s\"} %.12g\n", node_metrics[value].name,
                       nodes->list[i].node, nodes->list[i].name,
                       value_of(&nodes->list[i], (enum node_value)value));
    }
}

static void write_wishes(const struct nodes *nodes, const struct runner_progress *progress,
                         struct buf *buf) {
    static const struct wish_rules rules = {.seconds = WISH_SECONDS, .lines = WISH_LINES};
    for (int ready = 0; ready < 2; ready++) {
        const char *name = ready ? "quern_workers_ready" : "quern_workers_wanted";
        metrics_head(buf, name, "gauge",
                     ready ? "Nodes that are ready for the model."
                           : "Nodes that the model's waiting work wants, as at "
                             "/v1/machine/workers.");
        for (size_t i = 0; i < progress->queue_count && nodes->has_queue; i++) {
            struct wish wish;
            if (!*progress->queues[i].model) continue;
            nodes_wish(nodes, progress, progress->queues[i].model, &rules, &wish);
            buf_printf(buf, "%s{model=\"", name);
            metrics_label(buf, progress->queues[i].model);
            buf_printf(buf, "\"} %" PRIu32 "\n", ready ? wish.ready : wish.wanted);
        }
    }
}

void metrics_write_nodes(struct api *api, const struct runner_progress *progress, struct buf *buf) {
    struct nodes nodes;
    nodes_read(api, &nodes);
    write_queue(&nodes, buf);
    write_nodes(&nodes, buf);
    write_wishes(&nodes, progress, buf);
    nodes_release(&nodes);
}
