/* SPDX-License-Identifier: Apache-2.0 */
#include "api/nodes.h"

#include "api/api_internal.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void nodes_read(struct api *api, struct nodes *ret_nodes) {
    const struct api_options *options = &api->options;
    *ret_nodes = (struct nodes){.has_queue = options->nodes != NULL};
    if (!options->nodes) return;
    ret_nodes->list = mem_new(NODES_MAX, sizeof *ret_nodes->list);
    ret_nodes->count =
        options->nodes(options->nodes_context, &ret_nodes->queue, ret_nodes->list, NODES_MAX);
}

void nodes_release(struct nodes *nodes) {
    free(nodes->list);
    nodes->list = NULL;
}

enum node_state node_state_of(const struct fleet_node_status *node) {
    if (node->is_draining) return NODE_DRAINING;
    if (node->is_sick) return NODE_SICK;
    if (node->is_ready) return NODE_READY;
    return node->is_failed ? NODE_FAILED : NODE_LOADING;
}

const char *node_state_name(enum node_state state) {
    static const char *const names[NODE_STATES] = {"ready", "loading", "draining", "sick",
                                                   "failed"};
    return names[state];
}

/* --- the wish for nodes --- */

static bool serves(const struct fleet_node_status *node, const char *model) {
    if (!*model) return true;
    for (size_t i = 0; i < node->model_count; i++)
        if (str_is(node->models[i], model)) return true;
    return false;
}

/* A batch that names several models may hold lines for this one. */
static uint64_t backlog_of(const struct runner_progress *progress, const char *model) {
    uint64_t backlog = 0;
    for (size_t i = 0; i < progress->queue_count; i++) {
        const struct runner_queue *queue = &progress->queues[i];
        if (!*model || !*queue->model || strcmp(queue->model, model) == 0)
            backlog += queue->lines + queue->requests + queue->waiting_batches;
    }
    return backlog;
}

void nodes_wish(const struct nodes *nodes, const struct runner_progress *progress,
                const char *model, const struct wish_rules *rules, struct wish *ret_wish) {
    struct wish wish = {.backlog = backlog_of(progress, model), .seconds = (int64_t)rules->seconds};
    double rates = 0;
    uint32_t measured = 0;
    for (size_t i = 0; i < nodes->count; i++) {
        const struct fleet_node_status *node = &nodes->list[i];
        if (!serves(node, model)) continue;
        wish.ready += node_state_of(node) == NODE_READY;
        rates += node->busy_results_per_s;
        measured += node->busy_results_per_s > 0;
    }
    if (measured > 0) wish.lines_per_s = rates / measured;
    /* Half of the time to the first deadline, because nodes need time to start. */
    if (progress->has_deadline && progress->deadline_s_min / 2 < wish.seconds)
        wish.seconds = progress->deadline_s_min > 2 ? progress->deadline_s_min / 2 : 1;
    double per_node =
        wish.lines_per_s > 0 ? wish.lines_per_s * (double)wish.seconds : (double)rules->lines;
    double wanted = ceil((double)wish.backlog / per_node);
    if (wanted < 1 && wish.backlog > 0) wanted = 1;
    wish.wanted = wanted < NODE_SEATS_MAX ? (uint32_t)wanted : NODE_SEATS_MAX;
    *ret_wish = wish;
}

/* --- JSON --- */

static void write_text(struct buf *body, const char *name, const char *text) {
    buf_printf(body, "\"%s\":", name);
    if (text && *text)
        json_write_string(body, str_from(text));
    else
        buf_add_text(body, "null");
}

static void write_node(const struct fleet_node_status *node, struct buf *body) {
    write_text(body, "id", node->node);
    buf_add_byte(body, ',');
    write_text(body, "name", node->name);
    buf_add_byte(body, ',');
    write_text(body, "version", node->version);
    buf_printf(body, ",\"state\":\"%s\",", node_state_name(node_state_of(node)));
    write_text(body, "text", node->text);
    buf_add_text(body, ",\"models\":[");
    for (size_t i = 0; i < node->model_count; i++) {
        if (i > 0) buf_add_byte(body, ',');
        json_write_string(body, node->models[i]);
    }
    buf_printf(body,
               "],\"workers\":%" PRIu32 ",\"workers_ready\":%" PRIu32 ",\"in_flight\":%" PRIu64
               ",\"running\":%" PRIu32 ",\"waiting\":%" PRIu32 ",\"results\":%" PRIu64
               ",\"tokens\":%" PRIu64 ",\"restarts\":%" PRIu64
               ",\"busy_results_per_second\":%.6g,\"beat_age_s\":%.3f",
               node->workers, node->workers_ready, node->jobs, node->running, node->waiting,
               node->results, node->tokens, node->restarts, node->busy_results_per_s,
               (double)node->beat_age_ms / 1000);
}

void nodes_write_json(const struct nodes *nodes, bool is_admin, struct buf *body) {
    const struct fleet_status *queue = &nodes->queue;
    buf_add_text(body, ",\"queue\":");
    if (nodes->has_queue) {
        buf_printf(body, "{\"up\":%s,", queue->is_reached ? "true" : "false");
        write_text(body, "text", is_admin ? queue->text : NULL); /* it may hold paths */
        buf_printf(body,
                   ",\"in_flight\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"bytes_max\":%" PRIu64
                   ",\"rounds\":%" PRIu64 ",\"nodes_lost\":%" PRIu64 ",\"returned\":%" PRIu64
                   ",\"adopted\":%" PRIu64 ",\"late\":%" PRIu64 "}",
                   queue->jobs, queue->bytes, queue->bytes_max, queue->rounds, queue->lost,
                   queue->returned, queue->adopted, queue->late);
    } else {
        buf_add_text(body, "null");
    }
    buf_add_text(body, ",\"nodes\":[");
    for (size_t i = 0; i < nodes->count; i++) {
        buf_add_text(body, i > 0 ? ",{" : "{");
        write_node(&nodes->list[i], body);
        buf_add_byte(body, '}');
    }
    buf_add_byte(body, ']');
}
