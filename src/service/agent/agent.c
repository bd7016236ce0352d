/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/agent_internal.h"

#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/no_memory.h"
#include "base/sync.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAST_MS 5000 /* for the last results and the word of the end */

void agent_open(struct agent **ret_agent, const struct agent_options *options) {
    struct agent *agent = mem_new(1, sizeof *agent);
    char random[17];
    id_hex(random, sizeof random, "", 16);
    agent->options = *options;
    snprintf(agent->node, sizeof agent->node, "%.64s-%s", options->name, random);
    agent->last_pack = &agent->first_pack;
    agent->send_due_ns = SYNC_NEVER;
    snprintf(agent->status.text, sizeof agent->status.text, "not connected yet");
    pthread_mutex_init(&agent->lock, NULL);
    sync_cond_init(&agent->give);
    sync_cond_init(&agent->send);
    sync_cond_init(&agent->idle);
    agent->work_bus = options->place.open(options->place.context);
    agent->send_bus = options->place.open(options->place.context);
    *ret_agent = agent;
}

bool agent_seat(struct agent *agent, struct worker_events *ret_events, uint32_t *ret_seat) {
    assert(!agent->is_started);
    if (agent->seat_count == AGENT_WORKERS_MAX) return false;
    struct agent_seat *seat = &agent->seats[agent->seat_count];
    *seat = (struct agent_seat){.agent = agent, .index = agent->seat_count, .weight = 1};
    seat->last = &seat->first;
    *ret_events = jobs_events(seat);
    *ret_seat = agent->seat_count++;
    return true;
}

void agent_attach(struct agent *agent, uint32_t seat, struct worker *worker) {
    assert(seat < agent->seat_count && !agent->seats[seat].worker);
    agent->seats[seat].worker = worker;
}

void agent_tune(struct agent *agent, uint32_t seat, uint32_t weight, uint32_t lines_max) {
    assert(seat < agent->seat_count && !agent->is_started);
    agent->seats[seat].weight = weight;
    agent->seats[seat].lines_max = lines_max;
}

static enum err start_thread(pthread_t *thread, void *(*run)(void *), struct agent *agent,
                             const char *name, struct error *error) {
    int failed = pthread_create(thread, NULL, run, agent);
    if (failed) return err_from_errno(error, failed, "cannot start a thread");
    pthread_setname_np(*thread, name);
    return OK;
}

enum err agent_start(struct agent *agent, struct error *error) {
    enum err err = start_thread(&agent->send_thread, out_send_main, agent, "node-send", error);
    if (err == OK)
        err = start_thread(&agent->give_thread, jobs_give_main, agent, "node-give", error);
    if (err == OK) err = start_thread(&agent->work_thread, work_main, agent, "node-work", error);
    if (err != OK) no_memory(); /* for a thread */
    agent->is_started = true;
    return OK;
}

const char *agent_node(const struct agent *agent) {
    return agent->node;
}

void agent_status(struct agent *agent, struct agent_status *ret_status) {
    pthread_mutex_lock(&agent->lock);
    *ret_status = agent->status;
    ret_status->jobs = agent->by_server.count;
    ret_status->unsent_bytes = agent->unsent_bytes;
    pthread_mutex_unlock(&agent->lock);
}

/* --- the end --- */

/* Waits until no worker has a job. The lock is held. */
static bool wait_for_workers(struct agent *agent, int64_t deadline_ms) {
    int64_t due_ns = sync_deadline_ns(deadline_ms);
    while (agent->by_local.count > 0)
        if (!sync_wait_until(&agent->idle, &agent->lock, due_ns)) return false;
    return true;
}

/* Cancels what runs; on_result makes it returned. The lock is held, and let go for calls. */
static void cancel_running(struct agent *agent) {
    size_t count = 0;
    struct {
        uint64_t local;
        uint32_t seat;
    } *list = mem_new(agent->by_local.count + 1, sizeof *list);
    for (size_t i = 0; i < agent->by_local.capacity; i++) {
        const struct job_entry *entry = &agent->by_local.entries[i];
        const struct agent_job *job = (const struct agent_job *)(uintptr_t)entry->value;
        if (!entry->id) continue;
        list[count].local = entry->id;
        list[count++].seat = job->seat;
    }
    pthread_mutex_unlock(&agent->lock);
    for (size_t i = 0; i < count; i++) {
        struct worker *worker = agent->seats[list[i].seat].worker;
        worker->ops->cancel(worker, list[i].local);
    }
    pthread_mutex_lock(&agent->lock);
    free(list);
}

void agent_drain(struct agent *agent, int64_t deadline_ms) {
    struct error error;
    pthread_mutex_lock(&agent->lock);
    agent->is_draining = true;
    agent->beat_due_ns = 0;
    pthread_cond_signal(&agent->send);
    pthread_mutex_unlock(&agent->lock);
    if (agent->is_started) pthread_join(agent->work_thread, NULL);
    for (uint32_t i = 0; i < agent->seat_count; i++) {
        struct worker *worker = agent->seats[i].worker;
        if (worker && worker->ops->quiesce) worker->ops->quiesce(worker);
    }
    pthread_mutex_lock(&agent->lock);
    jobs_return_waiting(agent);
    if (!wait_for_workers(agent, deadline_ms)) {
        cancel_running(agent);
        (void)wait_for_workers(agent, LAST_MS);
    }
    if (agent->round > 0) out_bye(agent);
    int64_t due_ns = sync_deadline_ns(LAST_MS);
    while (agent->first_pack && sync_wait_until(&agent->idle, &agent->lock, due_ns)) continue;
    agent->is_stopping = true;
    pthread_cond_broadcast(&agent->give);
    pthread_cond_broadcast(&agent->send);
    pthread_mutex_unlock(&agent->lock);
    if (!agent->is_started) return;
    pthread_join(agent->give_thread, NULL);
    pthread_join(agent->send_thread, NULL);
    agent->is_started = false;
    if (agent->send_bus->ops->leave(agent->send_bus, agent->node, &error) != OK)
        log_warn("event=queue_lost node=%s error=\"%s\"", agent->node, error.text);
}

void agent_close(struct agent *agent) {
    if (!agent) return;
    pthread_mutex_lock(&agent->lock);
    bool was_draining = agent->is_draining;
    agent->is_stopping = true;
    pthread_cond_broadcast(&agent->give);
    pthread_cond_broadcast(&agent->send);
    pthread_mutex_unlock(&agent->lock);
    if (agent->is_started) {
        if (!was_draining) pthread_join(agent->work_thread, NULL);
        pthread_join(agent->give_thread, NULL);
        pthread_join(agent->send_thread, NULL);
    }
    for (uint32_t i = 0; i < agent->seat_count; i++)
        if (agent->seats[i].worker) agent->seats[i].worker->ops->close(agent->seats[i].worker);
    jobs_free_all(agent);
    out_clear(agent);
    agent->work_bus->ops->close(agent->work_bus);
    agent->send_bus->ops->close(agent->send_bus);
    pthread_cond_destroy(&agent->give);
    pthread_cond_destroy(&agent->send);
    pthread_cond_destroy(&agent->idle);
    pthread_mutex_destroy(&agent->lock);
    free(agent);
}
