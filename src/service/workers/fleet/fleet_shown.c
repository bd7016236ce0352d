/* SPDX-License-Identifier: Apache-2.0 */

/* What is told about nodes: states, counts and rates. */

#include "base/clock.h"
#include "workers/fleet/fleet_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RATE_NS INT64_C(5000000000) /* a rate of a shorter time is not told */

static uint64_t jobs_of(const struct fleet_node *node) {
    uint64_t jobs = 0;
    for (size_t i = 0; i < node->berth_count; i++)
        if (node->berths[i]) jobs += node->berths[i]->jobs.count;
    return jobs;
}

void node_note_rate(struct fleet_node *node) {
    int64_t now_ns = clock_monotonic_ns();
    if (node->shown_ns > 0 && jobs_of(node) > 0) node->busy_ns += now_ns - node->shown_ns;
    node->shown_ns = now_ns;
    if (node->mark_count > 0 &&
        node->busy_ns - node->marks[node->mark_count - 1].busy_ns < FLEET_MARK_NS)
        return;
    if (node->mark_count == FLEET_MARKS)
        memmove(node->marks, node->marks + 1, --node->mark_count * sizeof *node->marks);
    node->marks[node->mark_count++] = (struct fleet_mark){node->busy_ns, node->results};
}

static double rate_of(const struct fleet_node *node) {
    if (node->mark_count == 0) return 0;
    int64_t busy_ns = node->busy_ns - node->marks[0].busy_ns;
    if (busy_ns < RATE_NS) return 0;
    return (double)(node->results - node->marks[0].results) * 1e9 / (double)busy_ns;
}

static bool has_model(const struct fleet_node_status *own, struct str name) {
    for (size_t i = 0; i < own->model_count; i++)
        if (str_equals(own->models[i], name)) return true;
    return false;
}

static void add_worker(struct fleet_node_status *own, const struct berth *berth) {
    own->jobs += berth->jobs.count;
    own->workers_ready += berth->is_ready;
    own->running += berth->status.running;
    own->waiting += berth->status.waiting;
    own->restarts += berth->status.restarts;
    own->tokens += berth->status.completion_tokens;
    bool is_sick = berth->downs >= WORKER_SICK_DOWNS;
    own->is_sick |= is_sick;
    if (is_sick && !*own->text)
        snprintf(own->text, sizeof own->text,
                 "its worker went down %" PRIu32 " times and answered nothing in between",
                 berth->downs);
    bool has_none = *berth->conflict && berth->model_count == 0;
    own->is_failed = own->is_failed && (berth->status.is_failed || has_none);
    if ((!berth->status.ready || *berth->conflict) && !*own->text)
        snprintf(own->text, sizeof own->text, "%s", berth->status.text);
    for (size_t i = 0; i < berth->model_count && own->model_count < NODE_NAMES_MAX; i++)
        if (!has_model(own, berth->models[i].served.name))
            own->models[own->model_count++] = berth->models[i].served.name;
}

static void show_node(const struct fleet_node *node, struct fleet_node_status *own) {
    *own =
        (struct fleet_node_status){.is_draining = node->is_draining,
                                   .is_failed = true,
                                   .workers = (uint32_t)node->berth_count,
                                   .results = node->results,
                                   .busy_results_per_s = rate_of(node),
                                   .beat_age_ms = (clock_monotonic_ns() - node->beat_ns) / 1000000};
    memcpy(own->node, node->node, sizeof own->node);
    memcpy(own->name, node->name, sizeof own->name);
    memcpy(own->version, node->version, sizeof own->version);
    size_t seats = 0;
    for (size_t i = 0; i < node->berth_count; i++) {
        if (!node->berths[i]) continue;
        add_worker(own, node->berths[i]);
        seats++;
    }
    own->is_ready = own->workers_ready > 0;
    own->is_failed = own->is_failed && seats > 0;
    if (seats == 0)
        snprintf(own->text, sizeof own->text, "all %d seats for workers of nodes are taken",
                 FLEET_SEATS_MAX);
    else if (seats < node->berth_count && !*own->text)
        snprintf(own->text, sizeof own->text,
                 "%zu of its workers get no work: all %d seats for workers of nodes are taken",
                 node->berth_count - seats, FLEET_SEATS_MAX);
    else if (node->is_silent && !*own->text)
        snprintf(own->text, sizeof own->text, "the node shows no sign of life");
    else if (!own->is_ready && !*own->text)
        snprintf(own->text, sizeof own->text, "the node is asked for its jobs");
}

void fleet_status(struct fleet *fleet, struct fleet_status *ret_status) {
    pthread_mutex_lock(&fleet->lock);
    *ret_status = fleet->status;
    ret_status->is_adopting = fleet->is_adopting;
    ret_status->nodes = 0;
    for (struct fleet_node *node = fleet->nodes; node; node = node->next)
        ret_status->nodes += !node->is_gone;
    ret_status->jobs = 0;
    for (uint32_t i = 0; i < fleet->berth_count; i++)
        ret_status->jobs += fleet->berths[i]->jobs.count;
    ret_status->bytes = fleet->bytes;
    ret_status->bytes_max = fleet->options.bytes_max;
    pthread_mutex_unlock(&fleet->lock);
}

size_t fleet_nodes(struct fleet *fleet, struct fleet_node_status *ret_nodes, size_t nodes_max) {
    size_t count = 0;
    pthread_mutex_lock(&fleet->lock);
    for (struct fleet_node *node = fleet->nodes; node && count < nodes_max; node = node->next)
        if (!node->is_gone) show_node(node, &ret_nodes[count++]);
    pthread_mutex_unlock(&fleet->lock);
    return count;
}
