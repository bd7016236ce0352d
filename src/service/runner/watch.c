/* SPDX-License-Identifier: Apache-2.0 */

/* Measures the rates of the active batches and reports those that will be late or are stuck. */

#include "runner/watch.h"

#include "base/clock.h"
#include "base/log.h"
#include "runner/events.h"
#include "runner/models.h"
#include "runner/runner_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S INT64_C(1000000000)
#define WATCH_NS NS_PER_S
#define SILENT_NS (5 * NS_PER_S) /* time without a result until its reason is looked for */
#define KNOWN_LINES 32           /* finished lines from which on their mean cost counts */

/* --- measuring --- */

static void read_progress(struct active_batch *batch, int64_t now_ns) {
    struct seglog_counts counts = seglog_counts(batch->log);
    uint64_t done = counts.successes + counts.errors + counts.others;
    struct active_progress *progress = &batch->progress;
    bool has_turn = progress->is_waiting_turn && batch->in_flight > 0;
    if (done != progress->lines_done || progress->is_waiting_turn || active_is_paused(batch))
        progress->since_ns = now_ns;
    if (done != progress->lines_done || has_turn) {
        progress->tell_ns = 0;
        progress->is_stuck = false;
        progress->is_waiting_turn = false;
        progress->waiting_for[0] = '\0';
    }
    progress->lines_done = done;
    batch->order.lines_done = done;
    if (counts.successes >= KNOWN_LINES)
        batch->order.line_cost = (double)(counts.usage.input_tokens + counts.usage.output_tokens) /
                                 (double)counts.successes;
}

static void tell_risk(struct runner *runner, const char *batch_id, const char *owner, bool is_late,
                      int64_t left_s) {
    const struct runner_event event = {
        .kind = RUNNER_BATCH_AT_RISK,
        .batch_id = batch_id,
        .owner = owner,
        .text = is_late ? "At the rate measured it cannot meet its deadline."
                        : "At the rate measured it would miss its deadline; it goes first now.",
        .age_s = left_s};
    events_tell(runner, &event);
}

/* Reports one batch that is newly at risk; false if none is. The lock is held, and released for the
 * report: so one batch per call. */
static bool tell_one_risk(struct runner *runner) {
    char id[STORE_ID_BYTES], owner[OWNER_BYTES];
    for (struct active_batch *batch = runner->batches; batch; batch = batch->next) {
        bool is_at_risk = batch->order.is_hurried || batch->order.is_late;
        if (batch->phase != PHASE_RUN || !is_at_risk || batch->progress.was_risk_told) continue;
        batch->progress.was_risk_told = true;
        bool is_late = batch->order.is_late;
        int64_t left_s = batch->row.expires_unix_s - runner_now_unix_s(runner);
        memcpy(id, batch->row.id, sizeof id);
        memcpy(owner, batch->row.owner, sizeof owner);
        pthread_mutex_unlock(&runner->lock);
        tell_risk(runner, id, owner, is_late, left_s);
        pthread_mutex_lock(&runner->lock);
        return true;
    }
    return false;
}

/* --- what a batch waits for --- */

/* True if every batch waits for the disk or the whole server; writes what for. */
static bool server_waits(struct runner *runner, char ret_text[STORE_WAITING_BYTES]) {
    struct store_status disk;
    store_status(runner->store, &disk);
    pthread_mutex_lock(&runner->lock);
    bool is_draining = runner->is_draining;
    pthread_mutex_unlock(&runner->lock);
    if (disk.disk_full)
        snprintf(ret_text, STORE_WAITING_BYTES, "the disk is full");
    else if (is_draining)
        snprintf(ret_text, STORE_WAITING_BYTES, "the server is shutting down");
    else
        return false;
    return true;
}

/* Writes which worker is waited for, and why. */
static void write_worker(const struct worker_status *status, char ret_text[STORE_WAITING_BYTES]) {
    static const struct str beginnings[] = {{"waiting: ", 9}, {"ready, but ", 11}};
    struct str why = str_from(status->text);
    if (!status->upstream) {
        snprintf(ret_text, STORE_WAITING_BYTES, "an engine: %.300s", status->text);
        return;
    }
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (str_starts_with(why, beginnings[i])) why = str_skip(why, beginnings[i].bytes);
    snprintf(ret_text, STORE_WAITING_BYTES, "the upstream %.60s: %.250s", status->upstream, why.at);
}

/* True if no worker for the model takes jobs; writes the reason. An empty model: several models. */
static bool engine_waits(struct runner *runner, const char *model,
                         char ret_text[STORE_WAITING_BYTES]) {
    struct worker *workers[RUNNER_WORKERS_MAX];
    struct worker_status status;
    char served[MODEL_NAME_BYTES];
    size_t count = runner_workers(runner, workers);
    bool is_served = false;
    snprintf(ret_text, STORE_WAITING_BYTES, "no worker");
    for (size_t i = 0; i < count; i++) {
        if (*model && !runner_finds(runner, workers[i], str_from(model), served)) continue;
        workers[i]->ops->status(workers[i], &status);
        if (status.ready && !status.is_refusing) return false;
        is_served = true;
        write_worker(&status, ret_text);
    }
    if (count > 0 && !is_served)
        snprintf(ret_text, STORE_WAITING_BYTES, "no worker serves the model %.90s", model);
    return true;
}

/* A silent batch that this round has not looked at yet. */
struct silent {
    char id[STORE_ID_BYTES];
    char owner[OWNER_BYTES];
    char model[256];
};

static bool find_silent(struct runner *runner, uint64_t after, int64_t now_ns,
                        struct silent *ret_silent, uint64_t *ret_sequence) {
    struct active_batch *found = NULL;
    int64_t stuck_ns = runner->options.stuck_ms * 1000000;
    int64_t silent_ns = stuck_ns < SILENT_NS ? stuck_ns : SILENT_NS;
    for (struct active_batch *batch = runner->batches; batch; batch = batch->next) {
        if (batch->phase == PHASE_END || batch->row.sequence <= after) continue;
        /* The reason of a batch that waits for its turn is looked for again in every round: an
         * engine that is lost ends that wait, and a wait for it begins. */
        bool is_silent = now_ns - batch->progress.since_ns >= silent_ns;
        if (!is_silent && !batch->progress.is_waiting_turn) continue;
        if (!found || batch->row.sequence < found->row.sequence) found = batch;
    }
    if (!found) return false;
    memcpy(ret_silent->id, found->row.id, sizeof ret_silent->id);
    memcpy(ret_silent->owner, found->row.owner, sizeof ret_silent->owner);
    memcpy(ret_silent->model, found->row.model, sizeof ret_silent->model);
    *ret_sequence = found->row.sequence;
    return true;
}

/* Writes the reason of a batch that waits for neither the server nor an engine. */
static void own_reason(const struct active_batch *batch, bool is_held,
                       char ret_text[STORE_WAITING_BYTES]) {
    bool is_new = batch->row.status == BATCH_VALIDATING;
    switch (batch->phase) {
    case PHASE_VALIDATE:
        snprintf(ret_text, STORE_WAITING_BYTES,
                 is_new ? "its turn to be validated" : "files that cannot be read");
        break;
    case PHASE_VALIDATING:
        snprintf(ret_text, STORE_WAITING_BYTES, "the check of its input file");
        break;
    case PHASE_PUBLISH:
    case PHASE_PUBLISHING:
        snprintf(ret_text, STORE_WAITING_BYTES, "the writing of its result files");
        break;
    case PHASE_RUN:
    case PHASE_END:
        if (is_held)
            snprintf(ret_text, STORE_WAITING_BYTES,
                     "nodes to tell which of its requests they have");
        else if (batch->in_flight > 0)
            snprintf(ret_text, STORE_WAITING_BYTES,
                     "results of %u requests that are with an engine", batch->in_flight);
        else
            snprintf(ret_text, STORE_WAITING_BYTES, "its turn");
        break;
    }
}

/* Notes the reason; true if it is to be reported. The lock is held. */
static bool note_reason(struct runner *runner, struct active_batch *batch, const char *reason,
                        int64_t now_ns) {
    struct active_progress *progress = &batch->progress;
    int64_t stuck_ns = runner->options.stuck_ms * 1000000;
    /* Without lines in flight it waits for batches that go first. */
    progress->is_waiting_turn = !*reason && batch->phase == PHASE_RUN && batch->in_flight == 0;
    if (*reason)
        snprintf(progress->waiting_for, sizeof progress->waiting_for, "%s", reason);
    else
        own_reason(batch, runner->is_holding && batch->is_taken_up, progress->waiting_for);
    if (progress->is_waiting_turn || now_ns - progress->since_ns < stuck_ns) return false;
    if (progress->tell_ns > now_ns) return false;
    progress->is_stuck = true;
    progress->tell_ns = now_ns + (now_ns - progress->since_ns); /* after twice as long */
    return true;
}

static void watch_silent(struct runner *runner, const struct silent *silent, int64_t now_ns) {
    char reason[STORE_WAITING_BYTES] = "", text[STORE_WAITING_BYTES + 40];
    if (!server_waits(runner, reason) && !engine_waits(runner, silent->model, reason))
        reason[0] = '\0';
    int64_t age_s = 0;
    pthread_mutex_lock(&runner->lock);
    struct active_batch *batch = active_find(runner, str_from(silent->id));
    bool is_told = batch && note_reason(runner, batch, reason, now_ns);
    if (is_told) {
        age_s = (now_ns - batch->progress.since_ns) / NS_PER_S;
        snprintf(text, sizeof text, "It waits for %s.", batch->progress.waiting_for);
    }
    pthread_mutex_unlock(&runner->lock);
    if (!is_told) return;
    const struct runner_event event = {.kind = RUNNER_BATCH_STUCK,
                                       .batch_id = silent->id,
                                       .owner = silent->owner,
                                       .text = text,
                                       .age_s = age_s};
    events_tell(runner, &event);
}

/* --- all of it --- */

void watch_batches(struct runner *runner) {
    int64_t now_ns = clock_monotonic_ns();
    struct silent silent;
    uint64_t sequence = 0;
    if (now_ns < runner->watch_ns) return; /* only dispatch uses watch_ns */
    runner->watch_ns = now_ns + WATCH_NS;
    pthread_mutex_lock(&runner->lock);
    for (struct active_batch *batch = runner->batches; batch; batch = batch->next)
        if (batch->phase == PHASE_RUN) read_progress(batch, now_ns);
    if (order_tend(&runner->order, now_ns, runner_now_unix_s(runner))) runner->is_reordered = true;
    while (tell_one_risk(runner)) continue;
    while (find_silent(runner, sequence, now_ns, &silent, &sequence)) {
        pthread_mutex_unlock(&runner->lock);
        watch_silent(runner, &silent, now_ns);
        pthread_mutex_lock(&runner->lock);
    }
    pthread_mutex_unlock(&runner->lock);
    machine_look(runner, now_ns);
}

/* --- for /metrics --- */

static struct runner_queue *queue_for(struct runner_progress *progress, const char *model) {
    for (size_t i = 0; i < progress->queue_count; i++)
        if (strcmp(progress->queues[i].model, model) == 0) return &progress->queues[i];
    if (progress->queue_count == RUNNER_QUEUES_MAX) return &progress->queues[RUNNER_QUEUES_MAX - 1];
    struct runner_queue *queue = &progress->queues[progress->queue_count++];
    snprintf(queue->model, sizeof queue->model, "%s", model);
    return queue;
}

static void add_batch(struct runner *runner, struct active_batch *batch, int64_t now_ns,
                      struct runner_progress *progress) {
    int64_t now_unix_s = runner_now_unix_s(runner);
    int64_t left_s = batch->row.expires_unix_s - now_unix_s;
    if (!progress->has_deadline || left_s < progress->deadline_s_min)
        progress->deadline_s_min = left_s;
    progress->has_deadline = true;
    progress->batches_stuck += batch->progress.is_stuck;
    if (*batch->awaits_model) queue_for(progress, batch->awaits_model)->waiting_batches++;
    if (batch->phase != PHASE_RUN) return;
    progress->batches_at_risk += batch->order.is_hurried || batch->order.is_late;
    struct runner_queue *queue = queue_for(progress, batch->row.model);
    uint64_t done = active_lines_done(batch);
    queue->lines += batch->row.total > done ? batch->row.total - done : 0;
    int64_t age_s = now_unix_s - batch->row.created_unix_s;
    if (age_s > queue->oldest_age_s) queue->oldest_age_s = age_s;
    int64_t silent_s = (now_ns - batch->progress.since_ns) / NS_PER_S;
    if (batch->progress.lines_done == done && silent_s > progress->oldest_progress_age_s)
        progress->oldest_progress_age_s = silent_s;
}

void runner_progress(struct runner *runner, struct runner_progress *ret_progress) {
    *ret_progress = (struct runner_progress){0};
    pthread_mutex_lock(&runner->lock);
    int64_t now_ns = clock_monotonic_ns();
    for (struct active_batch *batch = runner->batches; batch; batch = batch->next)
        add_batch(runner, batch, now_ns, ret_progress);
    for (struct request *request = runner->requests; request; request = request->next)
        queue_for(ret_progress, request->model)->requests++;
    pthread_mutex_unlock(&runner->lock);
}
