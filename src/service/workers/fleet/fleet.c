/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/mem.h"
#include "base/no_memory.h"
#include "base/sync.h"
#include "workers/fleet/fleet_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX ((uint64_t)256 << 20)
#define LINES_MAX 4096

enum err fleet_open(struct fleet **ret_fleet, const struct fleet_options *options,
                    struct error *error) {
    struct fleet *fleet = mem_new(1, sizeof *fleet);
    fleet->options = *options;
    if (fleet->options.bytes_max == 0) fleet->options.bytes_max = BYTES_MAX;
    if (fleet->options.lines_max == 0) fleet->options.lines_max = LINES_MAX;
    fleet->is_adopting = options->adopt != NULL;
    snprintf(fleet->id, sizeof fleet->id, "%s", options->id);
    snprintf(fleet->status.text, sizeof fleet->status.text, "not connected yet");
    pthread_mutex_init(&fleet->lock, NULL);
    pthread_mutex_init(&fleet->calling, NULL);
    sync_cond_init(&fleet->send);
    sync_cond_init(&fleet->change);
    fleet->send_bus = options->place.open(options->place.context);
    fleet->read_bus = options->place.open(options->place.context);
    if (!berth_open(fleet, SHAPES_PASSED_ON)) {
        fleet->is_stopping = true;
        fleet_close(fleet);
        return err_set(error, ERR_LIMIT, "no seat is left for nodes");
    }
    if (pthread_create(&fleet->send_thread, NULL, fleet_send_main, fleet) != 0 ||
        pthread_create(&fleet->read_thread, NULL, fleet_read_main, fleet) != 0)
        no_memory(); /* for a thread */
    pthread_setname_np(fleet->send_thread, "fleet-send");
    pthread_setname_np(fleet->read_thread, "fleet-read");
    *ret_fleet = fleet;
    return OK;
}

void fleet_start(struct fleet *fleet) {
    pthread_mutex_lock(&fleet->lock);
    fleet->started_ns = clock_monotonic_ns();
    fleet->look_due_ns = 0;
    pthread_cond_signal(&fleet->send);
    pthread_mutex_unlock(&fleet->lock);
}

bool fleet_wait_ready(struct fleet *fleet, int64_t timeout_ms) {
    int64_t due_ns = sync_deadline_ns(timeout_ms);
    bool is_ready = false, is_late = false;
    pthread_mutex_lock(&fleet->lock);
    for (;;) {
        for (uint32_t i = 0; i < fleet->berth_count; i++) is_ready |= fleet->berths[i]->is_ready;
        if (is_ready || is_late) break;
        is_late = !sync_wait_until(&fleet->change, &fleet->lock, due_ns);
    }
    pthread_mutex_unlock(&fleet->lock);
    return is_ready;
}

void node_free(struct fleet_node *node) {
    buf_release(&node->out);
    job_set_release(&node->held);
    job_set_release(&node->adopted);
    free(node);
}

static void free_berth(struct berth *berth) {
    for (size_t i = 0; i < berth->jobs.capacity; i++)
        if (berth->jobs.entries[i].id) free((void *)(uintptr_t)berth->jobs.entries[i].value);
    job_set_release(&berth->jobs);
    free(berth);
}

void fleet_close(struct fleet *fleet) {
    if (!fleet) return;
    pthread_mutex_lock(&fleet->lock);
    bool is_started = !fleet->is_stopping;
    fleet->is_stopping = true;
    pthread_cond_broadcast(&fleet->send);
    pthread_mutex_unlock(&fleet->lock);
    if (is_started) {
        pthread_join(fleet->send_thread, NULL);
        pthread_join(fleet->read_thread, NULL);
        fleet_end(fleet);
    }
    fleet->send_bus->ops->close(fleet->send_bus);
    fleet->read_bus->ops->close(fleet->read_bus);
    for (uint32_t i = 0; i < fleet->berth_count; i++) free_berth(fleet->berths[i]);
    while (fleet->nodes) {
        struct fleet_node *node = fleet->nodes;
        fleet->nodes = node->next;
        node_free(node);
    }
    for (size_t i = 0; i < fleet->name_count; i++) free(fleet->names[i]);
    free(fleet->told.ids);
    free(fleet->told.packs);
    pthread_cond_destroy(&fleet->send);
    pthread_cond_destroy(&fleet->change);
    pthread_mutex_destroy(&fleet->calling);
    pthread_mutex_destroy(&fleet->lock);
    free(fleet);
}
