/* SPDX-License-Identifier: Apache-2.0 */

/* The operations of the worker interface. */

#include "base/clock.h"
#include "base/crc.h"
#include "base/mem.h"
#include "base/sync.h"
#include "workers/fleet/fleet_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OUT_BYTES_MAX ((size_t)8 << 20) /* not yet taken by the bus, per node */
#define WANT_NS INT64_C(500000000)      /* between two wishes */

static struct berth *of(struct worker *worker) {
    return (struct berth *)worker;
}

uint64_t fleet_key_of(struct str text) {
    return (uint64_t)text.bytes << 32 | crc32c(0, text.at, text.bytes);
}

static bool has_room(const struct berth *berth, size_t bytes) {
    const struct fleet *fleet = berth->fleet;
    if (!berth->node || !berth->is_ready || berth->node->must_sync) return false;
    if (berth->node->out.bytes > OUT_BYTES_MAX) return false;
    return fleet->bytes == 0 || fleet->bytes + bytes <= fleet->options.bytes_max;
}

static bool fleet_submit(struct worker *worker, const struct worker_job *job) {
    struct berth *berth = of(worker);
    struct fleet *fleet = berth->fleet;
    struct fleet_job *own = mem_new(1, sizeof *own);
    own->body_key = fleet_key_of(job->line.bytes > 0 ? job->line : job->body);
    own->wire_id = job->id;
    own->bytes = (uint32_t)job->body.bytes;
    own->streams = job->stream;
    pthread_mutex_lock(&fleet->lock);
    bool takes = has_room(berth, job->body.bytes);
    if (takes) {
        struct fleet_node *node = berth->node;
        own->round = node->round;
        own->seq = node->work_seq + 1;
        pack_job(&node->out, berth->index, job);
        assert(!node->out.overflowed);
        job_set_put(&berth->jobs, job->id, (uintptr_t)own);
        fleet->bytes += own->bytes;
        node_added(fleet, node, !job->is_line);
    } else {
        berth->was_full = true;
        fleet->was_full = true;
    }
    pthread_mutex_unlock(&fleet->lock);
    if (!takes) free(own);
    return takes;
}

/* Sends the node a record about a job that the berth has. */
static void send_about(struct berth *berth, uint64_t job_id, enum pack_kind kind) {
    struct fleet *fleet = berth->fleet;
    pthread_mutex_lock(&fleet->lock);
    const uint64_t *value = job_set_find(&berth->jobs, job_id);
    if (berth->node && value) {
        const struct fleet_job *job = (const struct fleet_job *)(uintptr_t)*value;
        pack_bare(&berth->node->out, kind, berth->index, job->wire_id);
        node_added(fleet, berth->node, false);
    }
    pthread_mutex_unlock(&fleet->lock);
}

static void fleet_cancel(struct worker *worker, uint64_t job_id) {
    send_about(of(worker), job_id, PACK_CANCEL);
}

static void fleet_recall(struct worker *worker, uint64_t job_id) {
    send_about(of(worker), job_id, PACK_RECALL);
}

static const struct fleet_model *find_model(const struct berth *berth, struct str name) {
    for (size_t i = 0; i < berth->model_count; i++)
        if (str_equals(berth->models[i].served.name, name)) return &berth->models[i];
    return NULL;
}

static bool fleet_serves(struct worker *worker, struct str model) {
    struct berth *berth = of(worker);
    pthread_mutex_lock(&berth->fleet->lock);
    bool serves = find_model(berth, model) != NULL;
    pthread_mutex_unlock(&berth->fleet->lock);
    return serves;
}

static size_t fleet_models(struct worker *worker, struct worker_model *ret_models,
                           size_t models_max) {
    struct berth *berth = of(worker);
    size_t count = 0;
    pthread_mutex_lock(&berth->fleet->lock);
    for (; count < berth->model_count && count < models_max; count++)
        ret_models[count] = berth->models[count].served;
    pthread_mutex_unlock(&berth->fleet->lock);
    return count;
}

static void fleet_worker_status(struct worker *worker, struct worker_status *ret_status) {
    struct berth *berth = of(worker);
    pthread_mutex_lock(&berth->fleet->lock);
    *ret_status = berth->status;
    ret_status->ready = berth->is_ready;
    ret_status->is_vacant = !berth->node;
    ret_status->is_silent = berth->node && berth->node->is_silent;
    ret_status->is_unheard =
        !berth->fleet->status.is_reached || (berth->node && !berth->node->is_synced);
    if (!berth->node)
        snprintf(ret_status->text, sizeof ret_status->text, "waits for a node");
    else if (berth->node->is_silent)
        snprintf(ret_status->text, sizeof ret_status->text, "the node %s shows no sign of life",
                 berth->node->name);
    else if (!berth->is_ready && berth->status.ready)
        snprintf(ret_status->text, sizeof ret_status->text, "the node %s is asked for its jobs",
                 berth->node->name);
    pthread_mutex_unlock(&berth->fleet->lock);
}

static bool fleet_identity(struct worker *worker, struct str model,
                           unsigned char ret_identity[WORKER_IDENTITY_BYTES]) {
    struct berth *berth = of(worker);
    pthread_mutex_lock(&berth->fleet->lock);
    const struct fleet_model *found = find_model(berth, model);
    bool has_one = found && found->has_identity;
    if (has_one) memcpy(ret_identity, found->identity, WORKER_IDENTITY_BYTES);
    pthread_mutex_unlock(&berth->fleet->lock);
    return has_one;
}

static void fleet_want(struct worker *worker, enum tier tier, int64_t deadline_unix_s) {
    struct berth *berth = of(worker);
    struct fleet *fleet = berth->fleet;
    int64_t now_ns = clock_monotonic_ns();
    pthread_mutex_lock(&fleet->lock);
    if (berth->node && !berth->is_ready && now_ns - berth->wanted_ns > WANT_NS) {
        berth->wanted_ns = now_ns;
        pack_want(&berth->node->out, berth->index, tier, deadline_unix_s);
        node_added(fleet, berth->node, false);
    }
    pthread_mutex_unlock(&fleet->lock);
}

/* The fleet keeps the berth; no event follows. */
static void fleet_worker_close(struct worker *worker) {
    struct berth *berth = of(worker);
    pthread_mutex_lock(&berth->fleet->calling);
    berth->is_closed = true;
    pthread_mutex_unlock(&berth->fleet->calling);
}

#define OPS(handling)                                                                              \
    {                                                                                              \
        .shapes = (handling), .submit = fleet_submit, .cancel = fleet_cancel,                      \
        .recall = fleet_recall, .serves = fleet_serves, .models = fleet_models,                    \
        .status = fleet_worker_status, .identity = fleet_identity, .want = fleet_want,             \
        .close = fleet_worker_close                                                                \
    }

/* A seat is for workers with one way of handling shapes. */
static const struct worker_ops fleet_ops[] = {[SHAPES_PASSED_ON] = OPS(SHAPES_PASSED_ON),
                                              [SHAPES_HELD] = OPS(SHAPES_HELD),
                                              [SHAPES_REFUSED] = OPS(SHAPES_REFUSED)};

struct berth *berth_open(struct fleet *fleet, enum shape_handling shapes) {
    if (fleet->berth_count == FLEET_SEATS_MAX) return NULL;
    struct berth *berth = mem_new(1, sizeof *berth);
    if (!fleet->options.seat(fleet->options.context, &berth->events, &berth->seat)) {
        free(berth);
        return NULL;
    }
    berth->worker.ops = &fleet_ops[shapes];
    berth->fleet = fleet;
    pthread_mutex_lock(&fleet->lock);
    fleet->berths[fleet->berth_count++] = berth;
    pthread_mutex_unlock(&fleet->lock);
    fleet->options.attach(fleet->options.context, berth->seat, &berth->worker);
    return berth;
}
