/* SPDX-License-Identifier: Apache-2.0 */

/* Lines that nodes have since a server before this one: from what nodes tell to the runner, and the
 * end of the wait for it. */

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "workers/fleet/fleet_internal.h"

#include <string.h>

#define NS_PER_MS INT64_C(1000000)
#define ADOPT_MS_MAX 20000 /* a node that is silent is lost before */
#define AWAY_MS_MAX 5000   /* for a queue that is not there */
/* For nodes that a queue which was emptied does not know yet: two beats. */
#define EMPTY_MS_MAX 4000

static uint64_t ask_runner(struct berth *berth, struct str line) {
    struct fleet *fleet = berth->fleet;
    uint64_t id = 0;
    pthread_mutex_lock(&fleet->calling);
    if (!berth->is_closed) id = fleet->options.adopt(fleet->options.context, berth->seat, line);
    pthread_mutex_unlock(&fleet->calling);
    return id;
}

uint64_t fleet_adopt_answer(struct fleet *fleet, struct berth *berth,
                            const struct worker_result *result, struct str line) {
    if (!fleet->is_adopting || result->outcome != OUTCOME_DONE || line.bytes == 0) return 0;
    pthread_mutex_unlock(&fleet->lock);
    uint64_t id = ask_runner(berth, line);
    struct worker_result own = *result;
    own.id = id;
    if (id) berth_tell_result(berth, &own);
    pthread_mutex_lock(&fleet->lock);
    if (id) fleet->status.adopted++;
    return id;
}

/* The node has the job: it is as if the runner had submitted it here. */
static void take(struct fleet *fleet, struct fleet_node *node, struct berth *berth, uint64_t id,
                 uint64_t wire_id, struct str line) {
    struct fleet_job *job = mem_new(1, sizeof *job);
    *job = (struct fleet_job){
        .round = node->round, .body_key = fleet_key_of(line), .wire_id = wire_id};
    job_set_put(&berth->jobs, id, (uintptr_t)job);
    job_set_put(&node->adopted, wire_id, id);
    fleet->status.adopted++;
}

/* The node was lost while the runner was asked: the line runs elsewhere. The lock is let go. */
static void give_back(struct fleet *fleet, struct berth *berth, uint64_t id) {
    const struct worker_result result = {.id = id, .outcome = OUTCOME_RETURNED, .body = STR("{}")};
    pthread_mutex_unlock(&fleet->lock);
    berth_tell_result(berth, &result);
    pthread_mutex_lock(&fleet->lock);
}

void fleet_take_kept(struct fleet *fleet, struct fleet_node *node, struct berth *berth,
                     const struct pack_record *record) {
    struct str line;
    uint64_t id = 0;
    bool is_known = job_set_find(&node->adopted, record->id) != NULL ||
                    (berth && job_set_find(&berth->jobs, record->id) != NULL);
    if (record->id == 0 || is_known || !pack_read_text(record, &line)) return;
    if (berth && fleet->is_adopting) {
        pthread_mutex_unlock(&fleet->lock);
        id = ask_runner(berth, line);
        pthread_mutex_lock(&fleet->lock);
    }
    if (id && node->is_gone) {
        give_back(fleet, berth, id);
    } else if (id) {
        take(fleet, node, berth, id, record->id, line);
    } else if (!node->is_gone) { /* no line waits for it */
        pack_bare(&node->out, PACK_CANCEL, record->worker, record->id);
        node_added(fleet, node, false);
    }
}

/* Whether a node may still tell of lines. The lock is held. */
static bool awaits_any(const struct fleet *fleet, int64_t now_ns) {
    int64_t age_ms = (now_ns - fleet->started_ns) / NS_PER_MS;
    bool has_synced = false;
    if (age_ms > ADOPT_MS_MAX) return false;
    if (fleet->reached_ns == 0) return age_ms < AWAY_MS_MAX;
    if (!fleet->follows && now_ns - fleet->reached_ns < EMPTY_MS_MAX * NS_PER_MS) return true;
    for (const struct fleet_node *node = fleet->nodes; node; node = node->next) {
        if (node->is_gone) continue;
        if (!node->is_synced || node->must_sync) return true;
        has_synced = true;
    }
    /* What a node tells lies behind all older results. Without a node, all of them were read once
     * nothing more comes. */
    return !has_synced && !fleet->has_read_all;
}

void fleet_check_adoption(struct fleet *fleet) {
    pthread_mutex_lock(&fleet->lock);
    bool ends =
        fleet->is_adopting && fleet->started_ns > 0 && !awaits_any(fleet, clock_monotonic_ns());
    if (ends) fleet->is_adopting = false;
    pthread_mutex_unlock(&fleet->lock);
    if (ends) fleet->options.adopted(fleet->options.context);
}

/* --- which packs are settled --- */

void fleet_note_told(struct fleet *fleet) {
    struct told *told = &fleet->told;
    told->packs =
        vec_grow(told->packs, told->pack_count, &told->pack_capacity, sizeof *told->packs);
    told->packs[told->pack_count++] = told->count;
}

void fleet_note_result(struct fleet *fleet, uint64_t id) {
    struct told *told = &fleet->told;
    told->ids = vec_grow(told->ids, told->count, &told->capacity, sizeof *told->ids);
    told->ids[told->count++] = id;
}

size_t fleet_count_settled(struct fleet *fleet) {
    struct told *told = &fleet->told;
    size_t packs = 0, ended = told->count;
    if (fleet->options.ended && told->count > 0)
        ended = fleet->options.ended(fleet->options.context, told->ids, told->count);
    while (packs < told->pack_count && told->packs[packs] <= ended) packs++;
    size_t ids = packs > 0 ? told->packs[packs - 1] : 0;
    told->count -= ids;
    told->pack_count -= packs;
    if (ids > 0) memmove(told->ids, told->ids + ids, told->count * sizeof *told->ids);
    for (size_t i = 0; i < told->pack_count; i++) told->packs[i] = told->packs[packs + i] - ids;
    return packs;
}
