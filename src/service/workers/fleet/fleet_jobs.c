/* SPDX-License-Identifier: Apache-2.0 */

/* Jobs of berths and nodes, and what is told of them: the floor of the other files. */

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sync.h"
#include "workers/fleet/fleet_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINGER_MS 5                  /* jobs of lines wait for others to come along */
#define PACK_SOON ((size_t)60 << 10) /* then a pack is put at once */

/* --- jobs --- */

struct fleet_job *berth_take(struct berth *berth, uint64_t id) {
    uint64_t value;
    if (!job_set_take(&berth->jobs, id, &value)) return NULL;
    struct fleet_job *job = (struct fleet_job *)(uintptr_t)value;
    assert(berth->fleet->bytes >= job->bytes);
    berth->fleet->bytes -= job->bytes;
    return job;
}

static void endings_add(struct endings *endings, struct berth *berth, uint64_t id,
                        enum outcome outcome) {
    if (endings->count == endings->capacity)
        endings->list =
            vec_grow(endings->list, endings->count, &endings->capacity, sizeof *endings->list);
    endings->list[endings->count++] = (struct ending){berth, id, outcome};
}

void berth_take_lost(struct berth *berth, struct endings *endings, enum outcome outcome,
                     bool (*is_lost)(const struct berth *, uint64_t, const struct fleet_job *)) {
    size_t count = 0;
    uint64_t *ids = mem_new(berth->jobs.count + 1, sizeof *ids);
    for (size_t i = 0; i < berth->jobs.capacity; i++) {
        const struct job_entry *entry = &berth->jobs.entries[i];
        if (entry->id && (!is_lost || is_lost(berth, entry->id,
                                              (const struct fleet_job *)(uintptr_t)entry->value)))
            ids[count++] = entry->id;
    }
    for (size_t i = 0; i < count; i++) {
        free(berth_take(berth, ids[i]));
        endings_add(endings, berth, ids[i], outcome);
    }
    berth->fleet->status.returned += count;
    free(ids);
}

void endings_tell(struct fleet *fleet, struct endings *endings) {
    (void)fleet;
    for (size_t i = 0; i < endings->count; i++) {
        const struct ending *ending = &endings->list[i];
        const struct worker_result result = {
            .id = ending->id,
            .outcome = ending->outcome,
            .status = 503,
            .body = STR("{\"error\":{\"message\":\"The node that ran this request was "
                        "lost.\",\"type\":\"server_error\",\"param\":null,"
                        "\"code\":\"worker_lost\"}}")};
        berth_tell_result(ending->berth, &result);
    }
    free(endings->list);
    *endings = (struct endings){0};
}

/* --- events --- */

void berth_tell_result(struct berth *berth, const struct worker_result *result) {
    pthread_mutex_lock(&berth->fleet->calling);
    if (!berth->is_closed) berth->events.result(berth->events.context, result);
    pthread_mutex_unlock(&berth->fleet->calling);
}

void berth_tell_room(struct berth *berth) {
    pthread_mutex_lock(&berth->fleet->calling);
    if (!berth->is_closed) berth->events.room(berth->events.context);
    pthread_mutex_unlock(&berth->fleet->calling);
}

void berth_tell_down(struct berth *berth, const char *reason) {
    pthread_mutex_lock(&berth->fleet->calling);
    if (!berth->is_closed) berth->events.down(berth->events.context, reason);
    pthread_mutex_unlock(&berth->fleet->calling);
}

void berth_tell_delta(struct berth *berth, const struct worker_delta *delta) {
    pthread_mutex_lock(&berth->fleet->calling);
    if (!berth->is_closed) berth->events.delta(berth->events.context, delta);
    pthread_mutex_unlock(&berth->fleet->calling);
}

/* --- nodes --- */

struct fleet_node *node_find(struct fleet *fleet, struct str name) {
    for (struct fleet_node *node = fleet->nodes; node; node = node->next)
        if (str_is(name, node->node)) return node;
    return NULL;
}

void node_added(struct fleet *fleet, struct fleet_node *node, bool is_urgent) {
    int64_t due_ns = is_urgent || node->out.bytes >= PACK_SOON ? clock_monotonic_ns()
                                                               : sync_deadline_ns(LINGER_MS);
    if (due_ns >= node->out_due_ns) return;
    node->out_due_ns = due_ns;
    pthread_cond_signal(&fleet->send);
}

static bool is_stream(const struct berth *berth, uint64_t id, const struct fleet_job *job) {
    (void)berth, (void)id;
    return job->streams;
}

void node_must_sync(struct fleet *fleet, struct fleet_node *node, struct endings *endings,
                    const char *why) {
    if (node->must_sync || node->is_gone) return;
    log_info("event=node_round node=%s why=\"%s\"", node->node, why);
    node->must_sync = true;
    fleet->from_start = true;
    node->keeps_jobs = true;
    node->is_synced = false;
    for (size_t i = 0; i < node->berth_count; i++) {
        if (!node->berths[i]) continue;
        node->berths[i]->is_ready = false;
        berth_take_lost(node->berths[i], endings, OUTCOME_TRY_AGAIN, is_stream);
    }
    pthread_cond_signal(&fleet->send);
}

void node_release(struct fleet *fleet, struct fleet_node *node, struct endings *endings) {
    for (size_t i = 0; i < node->berth_count; i++) {
        struct berth *berth = node->berths[i];
        if (!berth) continue;
        berth_take_lost(berth, endings, OUTCOME_RETURNED, NULL);
        berth->node = NULL;
        *berth->conflict = '\0';
        berth->downs = 0;
        berth->is_ready = false;
        berth->was_full = true;
        berth->status.ready = false;
        berth->status.knows_names = false;
        berth->status.running = berth->status.waiting = 0;
    }
    node->berth_count = 0;
    node->is_gone = true;
    pthread_cond_signal(&fleet->send);
}

void fleet_note(struct fleet *fleet, enum err err, const struct error *error) {
    bool was_reached = fleet->status.is_reached;
    bool is_new = err != OK && (was_reached || strcmp(fleet->status.text, error->text) != 0);
    fleet->status.is_reached = err == OK;
    snprintf(fleet->status.text, sizeof fleet->status.text, "%s",
             err == OK ? "connected" : error->text);
    if (err == OK && fleet->reached_ns == 0) fleet->reached_ns = clock_monotonic_ns();
    if (err != OK) fleet->reached_ns = 0;
    if (err == OK && !was_reached) log_info("event=queue_reached epoch=%" PRIu64, fleet->epoch);
    if (is_new) log_warn("event=queue_lost error=\"%s\", trying again", error->text);
}
