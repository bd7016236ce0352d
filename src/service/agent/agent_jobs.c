/* SPDX-License-Identifier: Apache-2.0 */

/* Jobs of a node: from the pack to a worker, and their ends. */

#include "agent/agent_internal.h"
#include "base/mem.h"
#include "base/sync.h"
#include "json/envelope.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define UNSENT_BYTES_MAX ((size_t)16 << 20) /* results; above it no job is submitted */
#define ROOM_MS 200

static struct agent_job *job_of(const struct job_set *set, uint64_t id) {
    const uint64_t *value = job_set_find(set, id);
    return value ? (struct agent_job *)(uintptr_t)*value : NULL;
}

static void free_text(struct agent *agent, struct agent_job *job) {
    if (!job->text) return;
    agent->waiting_bytes -= job->bytes;
    free(job->text);
    job->text = NULL;
}

/* The job has ended, or never began: no set has it any more. */
static void free_job(struct agent *agent, struct agent_job *job) {
    uint64_t value;
    if (!job->is_dropped) (void)job_set_take(&agent->by_server, job->id, &value);
    if (job->is_running) (void)job_set_take(&agent->by_local, job->local, &value);
    free_text(agent, job);
    free(job);
    pthread_cond_broadcast(&agent->idle);
}

static void tell_returned(struct agent *agent, uint32_t seat, uint64_t id) {
    const struct worker_result result = {.id = id, .outcome = OUTCOME_RETURNED, .body = STR("{}")};
    out_result(agent, seat, &result, "", true);
}

/* Requests of clients stand in front of lines, which wait for minutes where a worker is full. */
static void enqueue(struct agent_seat *seat, struct agent_job *job) {
    struct agent_job **at = seat->last;
    if (!job->job.is_line)
        for (at = &seat->first; *at && !(*at)->job.is_line;) at = &(*at)->next;
    job->next = *at;
    *at = job;
    if (!job->next) seat->last = &job->next;
}

void jobs_add(struct agent *agent, uint8_t worker, const struct worker_job *from) {
    size_t bytes = from->body.bytes + from->model.bytes;
    if (from->id == 0 || job_set_find(&agent->by_server, from->id)) return;
    if (worker >= agent->seat_count || agent->is_draining ||
        agent->waiting_bytes + bytes > AGENT_WAITING_BYTES_MAX) {
        tell_returned(agent, worker, from->id);
        return;
    }
    struct agent_seat *seat = &agent->seats[worker];
    if (seat->is_clearing) return; /* the server takes it back when it hears of `down` */
    struct agent_job *job = mem_new(1, sizeof *job);
    *job = (struct agent_job){.id = from->id, .seat = worker, .job = *from, .bytes = bytes};
    job->text = mem_alloc(bytes + 1);
    if (from->body.bytes > 0) memcpy(job->text, from->body.at, from->body.bytes);
    if (from->model.bytes > 0)
        memcpy(job->text + from->body.bytes, from->model.at, from->model.bytes);
    job->job.body.at = job->text;
    job->job.model.at = job->text + from->body.bytes;
    if (from->line.bytes > 0) memcpy(job->line, from->line.at, from->line.bytes);
    job->job.line = (struct str){0};
    agent->waiting_bytes += bytes;
    job_set_put(&agent->by_server, job->id, (uintptr_t)job);
    enqueue(seat, job);
    pthread_cond_signal(&agent->give);
}

/* Takes a job that waits out of its seat's list. */
static void unlink_waiting(struct agent *agent, struct agent_job *job) {
    struct agent_seat *seat = &agent->seats[job->seat];
    struct agent_job **at = &seat->first;
    while (*at != job) at = &(*at)->next;
    *at = job->next;
    if (seat->last == &job->next) seat->last = at;
}

void jobs_cancel(struct agent *agent, uint64_t id) {
    struct agent_job *job = job_of(&agent->by_server, id);
    if (!job) return;
    if (job->is_running) {
        struct worker *worker = agent->seats[job->seat].worker;
        uint64_t local = job->local;
        job->is_cancelled = true;
        pthread_mutex_unlock(&agent->lock);
        worker->ops->cancel(worker, local);
        pthread_mutex_lock(&agent->lock);
        return;
    }
    struct buf body;
    buf_init(&body, 4096);
    envelope_write(&body, 499, "cancelled", NULL, STR("The request was cancelled."));
    const struct worker_result result = {
        .id = id, .outcome = OUTCOME_CANCELLED, .status = 499, .body = buf_str(&body)};
    out_result(agent, job->seat, &result, job->line, true);
    unlink_waiting(agent, job);
    free_job(agent, job);
    buf_release(&body);
}

void jobs_recall(struct agent *agent, uint64_t id) {
    struct agent_job *job = job_of(&agent->by_server, id);
    if (!job || job->is_cancelled) return;
    if (!job->is_running) {
        tell_returned(agent, job->seat, id);
        unlink_waiting(agent, job);
        free_job(agent, job);
        return;
    }
    struct worker *worker = agent->seats[job->seat].worker;
    uint64_t local = job->local;
    job->is_recalled = true;
    pthread_mutex_unlock(&agent->lock);
    (worker->ops->recall ? worker->ops->recall : worker->ops->cancel)(worker, local);
    pthread_mutex_lock(&agent->lock);
}

/* The jobs that workers have, of one seat or all, as numbers for `cancel`. */
static uint64_t *list_running(const struct agent *agent, uint32_t seat, size_t *ret_count) {
    uint64_t *list = mem_new(agent->by_local.count + 1, sizeof *list);
    *ret_count = 0;
    for (size_t i = 0; i < agent->by_local.capacity; i++) {
        const struct job_entry *entry = &agent->by_local.entries[i];
        const struct agent_job *job = (const struct agent_job *)(uintptr_t)entry->value;
        if (entry->id && (seat == UINT32_MAX || job->seat == seat))
            list[(*ret_count)++] = entry->id;
    }
    return list;
}

void jobs_forget(struct agent *agent, uint32_t only, bool keeps_lines) {
    for (uint32_t i = 0; i < agent->seat_count; i++) {
        if (only != UINT32_MAX && only != i) continue;
        agent->seats[i].is_clearing = false;
        for (struct agent_job *job = agent->seats[i].first, *next; job; job = next) {
            next = job->next;
            if (keeps_lines && *job->line) continue;
            unlink_waiting(agent, job);
            free_job(agent, job);
        }
    }
    size_t count;
    uint64_t *list = list_running(agent, only, &count);
    for (size_t i = 0; i < count; i++) {
        struct agent_job *job = job_of(&agent->by_local, list[i]);
        uint64_t value;
        if (!job || job->is_dropped || (keeps_lines && *job->line)) continue;
        (void)job_set_take(&agent->by_server, job->id, &value);
        job->is_dropped = true;
        struct worker *worker = agent->seats[job->seat].worker;
        pthread_mutex_unlock(&agent->lock);
        worker->ops->cancel(worker, list[i]);
        pthread_mutex_lock(&agent->lock);
    }
    free(list);
}

void jobs_return_waiting(struct agent *agent) {
    for (uint32_t i = 0; i < agent->seat_count; i++) {
        while (agent->seats[i].first) {
            struct agent_job *job = agent->seats[i].first;
            unlink_waiting(agent, job);
            tell_returned(agent, i, job->id);
            free_job(agent, job);
        }
    }
}

void jobs_tell_held(struct agent *agent) {
    uint64_t *ids = mem_new(agent->by_server.count + 1, sizeof *ids);
    size_t count = 0;
    for (size_t i = 0; i < agent->by_server.capacity; i++)
        if (agent->by_server.entries[i].id) ids[count++] = agent->by_server.entries[i].id;
    out_held(agent, ids, count);
    free(ids);
}

void jobs_tell_kept(struct agent *agent) {
    for (size_t i = 0; i < agent->by_server.capacity; i++) {
        const struct job_entry *entry = &agent->by_server.entries[i];
        const struct agent_job *job = (const struct agent_job *)(uintptr_t)entry->value;
        if (entry->id && *job->line && !job->is_cancelled)
            out_text(agent, PACK_KEPT, job->seat, job->id, str_from(job->line));
    }
}

/* --- giving them to workers --- */

/* A seat with a job that its worker may take; NULL if there is none. */
static struct agent_seat *next_seat(struct agent *agent) {
    if (agent->unsent_bytes > UNSENT_BYTES_MAX) return NULL;
    for (uint32_t i = 0; i < agent->seat_count; i++)
        if (agent->seats[i].first && !agent->seats[i].is_full) return &agent->seats[i];
    return NULL;
}

/* Submits the first job of the seat. The lock is held, and let go for the call. */
static void give(struct agent *agent, struct agent_seat *seat) {
    struct agent_job *job = seat->first;
    unlink_waiting(agent, job);
    job->next = NULL;
    job->local = ++agent->job_count;
    job->is_running = true;
    job_set_put(&agent->by_local, job->local, (uintptr_t)job);
    char *text = job->text; /* its result may come before `submit` returns, and free the job */
    struct worker_job given = job->job;
    uint64_t local = job->local;
    job->text = NULL;
    agent->waiting_bytes -= job->bytes;
    given.id = local;
    seat->is_full = true; /* until `submit` says otherwise, so that a `room` meanwhile counts */
    pthread_mutex_unlock(&agent->lock);
    bool is_taken = seat->worker->ops->submit(seat->worker, &given);
    pthread_mutex_lock(&agent->lock);
    job = job_of(&agent->by_local, local);
    if (is_taken) seat->is_full = false;
    if (is_taken || !job) {
        free(text);
        if (!job || (!job->is_cancelled && !job->is_dropped)) return;
        /* A cancel before the worker had the job found nothing to cancel there. */
        pthread_mutex_unlock(&agent->lock);
        seat->worker->ops->cancel(seat->worker, local);
        pthread_mutex_lock(&agent->lock);
        return;
    }
    uint64_t value;
    (void)job_set_take(&agent->by_local, local, &value);
    job->is_running = false;
    job->text = text;
    agent->waiting_bytes += job->bytes;
    if (job->is_dropped) {
        free_job(agent, job);
        return;
    }
    job->next = seat->first;
    if (!seat->first) seat->last = &job->next;
    seat->first = job;
    if (job->is_cancelled) jobs_cancel(agent, job->id);
}

void *jobs_give_main(void *context) {
    struct agent *agent = context;
    pthread_mutex_lock(&agent->lock);
    while (!agent->is_stopping) {
        struct agent_seat *seat = next_seat(agent);
        if (seat)
            give(agent, seat);
        else
            pthread_cond_wait(&agent->give, &agent->lock);
    }
    pthread_mutex_unlock(&agent->lock);
    return NULL;
}

/* --- events of workers --- */

static void on_result(void *context, const struct worker_result *from) {
    struct agent_seat *seat = context;
    struct agent *agent = seat->agent;
    struct worker_result result = *from;
    pthread_mutex_lock(&agent->lock);
    struct agent_job *job = job_of(&agent->by_local, from->id);
    if (job) {
        result.id = job->id;
        bool gives_back = agent->is_draining || job->is_recalled;
        if (gives_back && result.outcome == OUTCOME_CANCELLED && !job->is_cancelled)
            result.outcome = OUTCOME_RETURNED;
        if (!job->is_dropped) out_result(agent, seat->index, &result, job->line, !job->job.is_line);
        free_job(agent, job);
    }
    pthread_mutex_unlock(&agent->lock);
}

static void on_delta(void *context, const struct worker_delta *delta) {
    struct agent_seat *seat = context;
    struct agent *agent = seat->agent;
    pthread_mutex_lock(&agent->lock);
    const struct agent_job *job = job_of(&agent->by_local, delta->id);
    if (job && !job->is_dropped) out_text(agent, PACK_DELTA, seat->index, job->id, delta->chunk);
    pthread_mutex_unlock(&agent->lock);
}

static void on_down(void *context, const char *reason) {
    struct agent_seat *seat = context;
    struct agent *agent = seat->agent;
    size_t count;
    pthread_mutex_lock(&agent->lock);
    uint64_t *list = list_running(agent, seat->index, &count);
    for (size_t i = 0; i < count; i++) free_job(agent, job_of(&agent->by_local, list[i]));
    free(list);
    for (struct agent_job *job = seat->first, *next; job; job = next) {
        next = job->next;
        free_job(agent, job);
    }
    seat->first = NULL;
    seat->last = &seat->first;
    seat->is_clearing = true;
    seat->is_full = false;
    out_text(agent, PACK_DOWN, seat->index, 0, str_from(reason));
    pthread_mutex_unlock(&agent->lock);
}

static void on_room(void *context) {
    struct agent_seat *seat = context;
    struct agent *agent = seat->agent;
    pthread_mutex_lock(&agent->lock);
    seat->is_full = false;
    /* The server hears soon that it is ready. */
    int64_t soon_ns = sync_deadline_ns(ROOM_MS);
    if (agent->beat_due_ns > soon_ns) agent->beat_due_ns = soon_ns;
    pthread_cond_signal(&agent->give);
    pthread_cond_signal(&agent->send);
    pthread_mutex_unlock(&agent->lock);
}

struct worker_events jobs_events(struct agent_seat *seat) {
    return (struct worker_events){
        .context = seat, .delta = on_delta, .result = on_result, .down = on_down, .room = on_room};
}

void jobs_free_all(struct agent *agent) {
    for (uint32_t i = 0; i < agent->seat_count; i++) {
        while (agent->seats[i].first) {
            struct agent_job *job = agent->seats[i].first;
            unlink_waiting(agent, job);
            free_job(agent, job);
        }
    }
    size_t count;
    uint64_t *list = list_running(agent, UINT32_MAX, &count);
    for (size_t i = 0; i < count; i++) free_job(agent, job_of(&agent->by_local, list[i]));
    free(list);
    job_set_release(&agent->by_server);
    job_set_release(&agent->by_local);
}
