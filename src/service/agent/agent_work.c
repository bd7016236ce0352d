/* SPDX-License-Identifier: Apache-2.0 */

/* The thread that reads packs of work. */

#include "agent/agent_internal.h"
#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>

#define WAIT_MS 250
#define AGAIN_MS 500
#define SILENT_NS INT64_C(8000000000) /* then the stream is read from its start again */

static void sync_with(struct agent *agent, const struct pack_head *head, bool keeps_jobs,
                      bool adopts) {
    bool is_same_server = agent->round >> 24 == head->round >> 24;
    bool keeps = adopts || (keeps_jobs && is_same_server);
    log_info("event=round node=%s round=%" PRIu64 " jobs=%zu kept=%d", agent->node, head->round,
             agent->by_server.count, keeps);
    agent->round = head->round;
    agent->work_seq = head->seq;
    agent->has_gap = false;
    agent->result_seq = agent->result_seq_put = 0;
    if (!keeps) out_clear(agent);
    if (keeps && !is_same_server) out_keep_answers(agent);
    if (!keeps || !is_same_server) jobs_forget(agent, UINT32_MAX, keeps);
    for (uint32_t i = 0; i < agent->seat_count; i++) agent->seats[i].is_clearing = false;
    if (adopts) jobs_tell_kept(agent);
    jobs_tell_held(agent);
    agent->beat_due_ns = 0;
    pthread_cond_signal(&agent->send);
}

/* True if the records of the pack count: it is the next one of its round, or begins one. */
static bool takes_pack(struct agent *agent, const struct pack_head *head,
                       struct pack_reader *reader) {
    struct pack_record record;
    bool keeps_jobs, adopts;
    if (head->round > agent->round && head->seq == 1) {
        if (!pack_next(reader, &record) || record.kind != PACK_SYNC ||
            (record.id != 0 && record.id != head->round) ||
            !pack_read_sync(&record, &keeps_jobs, &adopts))
            return false;
        sync_with(agent, head, keeps_jobs, adopts);
        return true;
    }
    if (head->round < agent->round || (head->round == agent->round && head->seq <= agent->work_seq))
        return false; /* an old one */
    if (head->round != agent->round || head->seq != agent->work_seq + 1) agent->has_gap = true;
    if (agent->has_gap) return false;
    agent->work_seq = head->seq;
    return true;
}

/* The lock is held, and let go for calls of workers. */
static void take_record(struct agent *agent, const struct pack_record *record) {
    struct worker_job job;
    enum tier tier;
    int64_t deadline_unix_s;
    struct worker *worker =
        record->worker < agent->seat_count ? agent->seats[record->worker].worker : NULL;
    if (record->kind == PACK_JOB && pack_read_job(record, &job)) {
        jobs_add(agent, record->worker, &job);
    } else if (record->kind == PACK_CANCEL) {
        jobs_cancel(agent, record->id);
    } else if (record->kind == PACK_RECALL) {
        jobs_recall(agent, record->id);
    } else if (record->kind == PACK_CLEAR && worker) {
        jobs_forget(agent, record->worker, false);
    } else if (record->kind == PACK_WANT && worker && worker->ops->want &&
               pack_read_want(record, &tier, &deadline_unix_s)) {
        pthread_mutex_unlock(&agent->lock);
        worker->ops->want(worker, tier, deadline_unix_s);
        pthread_mutex_lock(&agent->lock);
    }
}

static void take_pack(void *context, struct str node, struct str bytes) {
    struct agent *agent = context;
    struct pack_reader reader;
    struct pack_head head;
    struct pack_record record;
    (void)node;
    if (bytes.bytes > 0 && (uint8_t)bytes.at[0] != PACK_VERSION && !agent->is_refused) {
        log_warn("event=server_refused node=%s error=\"its packs have the layout %u and this node "
                 "reads layout %d: install releases that differ less\"",
                 agent->node, (uint8_t)bytes.at[0], PACK_VERSION);
        agent->is_refused = true;
    }
    if (!pack_open(&reader, &head, bytes)) return;
    pthread_mutex_lock(&agent->lock);
    agent->heard_ns = clock_monotonic_ns();
    if (!agent->is_stopping && takes_pack(agent, &head, &reader))
        while (pack_next(&reader, &record)) take_record(agent, &record);
    if (reader.is_bad && head.round == agent->round) {
        log_warn("event=bad_pack node=%s round=%" PRIu64 " pack=%" PRIu64, agent->node, head.round,
                 head.seq);
        agent->has_gap = true;
    }
    if (agent->has_gap) {
        agent->beat_due_ns = 0;
        pthread_cond_signal(&agent->send);
    }
    pthread_mutex_unlock(&agent->lock);
}

void *work_main(void *context) {
    struct agent *agent = context;
    struct error error;
    pthread_mutex_lock(&agent->lock);
    while (!agent->is_stopping && !agent->is_draining) {
        /* A damaged id of a pack may lie ahead of all that come. */
        bool is_silent = clock_monotonic_ns() - agent->heard_ns > SILENT_NS;
        bool from_start = agent->from_start || is_silent;
        if (is_silent) agent->heard_ns = clock_monotonic_ns();
        agent->from_start = false;
        pthread_mutex_unlock(&agent->lock);
        enum err err = agent->work_bus->ops->work(agent->work_bus, agent->node, from_start, WAIT_MS,
                                                  take_pack, agent, &error);
        agent_note(agent, WAY_WORK, err, &error);
        if (err != OK) clock_sleep_ms(AGAIN_MS);
        pthread_mutex_lock(&agent->lock);
        if (err != OK && from_start) agent->from_start = true;
    }
    pthread_mutex_unlock(&agent->lock);
    return NULL;
}
