/* SPDX-License-Identifier: Apache-2.0 */

/* Events of workers and of the log's writer, each on a thread of its sender. */

#include "runner/results.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "batch/quality.h"
#include "batch/result.h"
#include "batch/shape_ends.h"
#include "json/envelope.h"
#include "runner/events.h"
#include "runner/leaders.h"
#include "runner/runner_internal.h"
#include "runner/translated.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RESULT_BYTES_MAX ((size_t)128 << 20)
#define DELAY_MS_MAX 30000
#define REFUSED_DELAY_MS_MAX 10000
/* Refusals of a line after which each further one counts as a try. A gateway may answer "away"
 * whenever the line takes its engine down, and would otherwise do so for ever. */
#define REFUSALS_MAX 1000

/* --- committing --- */

/* `told`: how the answer keeps its shape, as the worker says. */
static void put_record(struct runner *runner, struct slot *slot, const struct batch_result *result,
                       enum seglog_kind kind, enum shape_end told) {
    struct buf text, body;
    struct batch_result shown = *result;
    buf_init(&text, SEGLOG_TEXT_BYTES_MAX);
    buf_init(&body, SEGLOG_TEXT_BYTES_MAX);
    if (result->outcome == BATCH_RAN && endpoint_is_translated(slot->endpoint) &&
        translated_write(slot->call, slot->endpoint, result->status, result->body, &slot->usage,
                         &body))
        shown.body = buf_str(&body);
    buf_reserve(&text, shown.body.bytes + result->custom_id.bytes + 512);
    batch_result_write(&text, &shown);
    slot->kind = kind;
    if (slot->asks_shape) slot->shape = shape_end_of(kind == SEGLOG_SUCCESS, told, result->body);
    struct seglog_record record = {.line = slot->line.number,
                                   .kind = kind,
                                   .attempt = (uint16_t)(slot->line.attempts + slot->line.downs),
                                   .epoch = slot->batch->row.epoch,
                                   .usage = slot->usage,
                                   .shape = slot->shape,
                                   .text = buf_str(&text)};
    if (kind == SEGLOG_SUCCESS) quality_look(result->body, &record.marks, &record.answer);
    seglog_put(runner->writer, slot->batch->log, &record, slot->id);
    buf_release(&text);
    buf_release(&body);
}

static struct batch_result result_of(const struct runner *runner, const struct slot *slot,
                                     char request_id[64]) {
    /* The nonce is of this start, the job's number is never used again in it. */
    snprintf(request_id, 64, "req_%016" PRIx64 "%016" PRIx64, runner->nonce, slot->id);
    return (struct batch_result){.batch_id = slot->batch->row.id,
                                 .line = slot->line.number,
                                 .custom_id = {slot->custom_id, slot->custom_id_bytes},
                                 .outcome = BATCH_RAN,
                                 .request_id = str_from(request_id)};
}

void commit_refusal(struct runner *runner, struct slot *slot, const struct refusal *refusal) {
    char request_id[64];
    struct buf body;
    buf_init(&body, 4096);
    refusal_write(&body, refusal);
    struct batch_result result = result_of(runner, slot, request_id);
    result.status = refusal->status;
    result.body = buf_str(&body);
    put_record(runner, slot, &result, SEGLOG_ERROR, SHAPE_NONE);
    buf_release(&body);
}

void commit_error(struct runner *runner, struct slot *slot, int32_t status, const char *code,
                  const char *message) {
    struct refusal refusal;
    refuse_status(&refusal, status, code, NULL, "%s", message);
    commit_refusal(runner, slot, &refusal);
}

static void commit_result(struct runner *runner, struct slot *slot,
                          const struct worker_result *from) {
    char request_id[64];
    struct buf scratch;
    struct batch_result result = result_of(runner, slot, request_id);
    result.status = from->status;
    if (from->status == 408 || from->status == 504) result.outcome = BATCH_TIMED_OUT;
    buf_init(&scratch, RESULT_BYTES_MAX);
    if (from->status < 100 || from->status > 599 ||
        !batch_body_read(from->body, &scratch, &result.body)) {
        log_warn("batch=%s request=%u event=bad_answer status=%d", slot->batch->row.id,
                 slot->line.number, from->status);
        commit_error(runner, slot, 500, "bad_answer", "The worker's answer was not a JSON object.");
    } else {
        enum seglog_kind kind = batch_result_kind(from->status);
        if (kind == SEGLOG_SUCCESS) slot->usage = from->usage;
        if (kind == SEGLOG_SUCCESS) leader_keep(runner, slot, result.body, from->shape);
        put_record(runner, slot, &result, kind, from->shape);
    }
    buf_release(&scratch);
}

void commit_reused(struct runner *runner, struct slot *slot, struct str body,
                   const struct result_cache_facts *facts) {
    char request_id[64];
    struct batch_result result = result_of(runner, slot, request_id);
    result.status = 200;
    result.body = body;
    slot->usage = facts->usage;
    slot->usage.reused_input_tokens = slot->usage.input_tokens;
    slot->usage.reused_output_tokens = slot->usage.output_tokens;
    put_record(runner, slot, &result, SEGLOG_SUCCESS, facts->shape);
}

/* --- results --- */

/* A request runs again once, and only if nothing was streamed yet. The lock is held. */
static bool request_may_run_again(const struct request *request) {
    return !request->was_lost && !request->has_streamed && !request->cancel;
}

/* True if the request waits to run again; its client gets nothing then. The lock is held. */
static bool put_request_aside(struct runner *runner, struct request *request,
                              enum outcome outcome) {
    bool is_returned = outcome == OUTCOME_RETURNED && !request->cancel;
    bool has_failed = outcome == OUTCOME_TRY_AGAIN || outcome == OUTCOME_NOT_RUN;
    if (!is_returned && !(has_failed && request_may_run_again(request))) return false;
    if (!is_returned) request->was_lost = true;
    request->job_id = 0;
    request->blocked_at = UINT64_MAX;
    pthread_cond_signal(&runner->work);
    return true;
}

/* A random part of a time that doubles with each try, so that lines that failed together do not
 * come back together. */
static int64_t delay_ns(const struct runner *runner, const struct slot *slot, unsigned tries,
                        int64_t delay_ms_max) {
    int64_t delay_ms = runner->options.retry_delay_ms;
    for (unsigned i = 1; i < tries && delay_ms < delay_ms_max; i++) delay_ms *= 2;
    if (delay_ms > delay_ms_max) delay_ms = delay_ms_max;
    return (int64_t)(rng_unit_at(runner->nonce, slot->id) * (double)delay_ms * 1e6);
}

/* The time at which a line that was not run, or whose try failed, runs again. A line that was
 * refused once may go to another worker at once, because a worker that refuses takes no line for a
 * while. */
static int64_t due_ns(const struct runner *runner, const struct slot *slot, bool was_run,
                      const struct worker_result *result) {
    const struct line_state *line = &slot->line;
    int64_t now_ns = clock_monotonic_ns(), delay = 0;
    if (was_run)
        delay = delay_ns(runner, slot, line->attempts, DELAY_MS_MAX);
    else if (line->refusals > 1)
        delay = delay_ns(runner, slot, line->refusals - 1u, REFUSED_DELAY_MS_MAX);
    int64_t asked_ns = result->retry_after_ms < DELAY_MS_MAX ? result->retry_after_ms * 1000000
                                                             : (int64_t)DELAY_MS_MAX * 1000000;
    return now_ns + (was_run && asked_ns > delay ? asked_ns : delay);
}

/* The worker gave the line back as it took it: it waits as if it had never been submitted. The lock
 * is held. */
static void take_returned(struct runner *runner, struct slot *slot) {
    struct active_batch *batch = slot->batch;
    if (batch->phase == PHASE_RUN)
        active_put_back(batch, &slot->line);
    else
        seat_clear_suspect(runner, &slot->line);
    batch->blocked_at = UINT64_MAX;
    slot_free(runner, slot);
    pthread_cond_signal(&runner->work);
}

/* An error of a worker is no record while a well one of its model is left that has not failed with
 * the line. The lock is held. */
static bool is_doubted(const struct runner *runner, const struct slot *slot,
                       const struct worker_result *result) {
    const struct line_state *line = &slot->line;
    return seat_is_fault(result) && seat_has_well_neighbour(runner, &runner->seats[slot->seat],
                                                            line->peers & ~line->failed_at);
}

/* True when the line runs again, or its batch no longer wants it: the slot is gone then. False when
 * this result is its record. The lock is held. */
static bool put_aside(struct runner *runner, struct slot *slot,
                      const struct worker_result *result) {
    bool was_recalled = slot->recalled_ns != 0 && result->outcome == OUTCOME_CANCELLED;
    if (result->outcome == OUTCOME_RETURNED || was_recalled) {
        take_returned(runner, slot);
        return true;
    }
    struct active_batch *batch = slot->batch;
    const struct batch_extras *extras = &batch->extras;
    uint32_t attempts_max = active_attempts_max(runner, batch);
    bool is_again = result->outcome != OUTCOME_DONE ||
                    batch_extras_tries_again(extras, result->status) ||
                    is_doubted(runner, slot, result);
    seat_acquit(runner, &slot->line);
    if (!is_again) return false;
    bool was_run = result->outcome != OUTCOME_NOT_RUN || slot->line.refusals >= REFUSALS_MAX;
    if (was_run) {
        slot->line.avoids = (uint8_t)(slot->seat + 1);
        slot->line.failed_at |= UINT64_C(1) << slot->seat;
        slot->line.attempts++;
    } else {
        slot->line.refusals++;
    }
    if (batch->phase == PHASE_RUN && slot->line.attempts >= attempts_max) return false;
    if (batch->phase == PHASE_RUN) {
        slot->line.due_ns = due_ns(runner, slot, was_run, result);
        active_put_back(batch, &slot->line);
        batch->blocked_at = UINT64_MAX;
        runner->counters.lines_retried++;
    }
    slot_free(runner, slot);
    pthread_cond_signal(&runner->work);
    return true;
}

/* A line that was given back says nothing about its worker's speed. The lock is held. */
static void note_time(struct seat *seat, const struct slot *slot, enum outcome outcome,
                      int64_t now_ns) {
    if (outcome == OUTCOME_RETURNED || outcome == OUTCOME_CANCELLED) return;
    seat->answers++;
    if (!seat_is_slow(seat))
        pace_took(&slot->batch->longest, (double)now_ns / 1e9,
                  (double)(seat_clock_ns(seat, now_ns) - slot->begun_ns) / 1e9);
}

void runner_on_result(void *context, const struct worker_result *result) {
    struct seat *seat = context;
    struct runner *runner = seat->runner;
    pthread_mutex_lock(&runner->lock);
    struct slot *slot = slot_find(runner, result->id);
    /* Late: after `down`, or after its batch gave it up. */
    if (!slot || slot->state != SLOT_RUNNING || slot->seat != seat->index) {
        pthread_mutex_unlock(&runner->lock);
        return;
    }
    seat_leave(runner, slot);
    int64_t now_ns = clock_monotonic_ns();
    seat_note_answer(seat, result, now_ns);
    if (slot->request) {
        struct request *request = slot->request;
        slot_free(runner, slot);
        bool is_again = put_request_aside(runner, request, result->outcome);
        if (!is_again) request_unlink(runner, request);
        pthread_mutex_unlock(&runner->lock);
        if (!is_again) request_finish(runner, request, result);
        return;
    }
    note_time(seat, slot, result->outcome, now_ns);
    bool is_done = put_aside(runner, slot, result);
    if (!is_done) slot->state = SLOT_COMMITTING;
    pthread_mutex_unlock(&runner->lock);
    if (!is_done) commit_result(runner, slot, result);
}

void line_refuse(struct runner *runner, struct slot *slot, int32_t status, const char *code,
                 const char *message) {
    struct buf body;
    buf_init(&body, 4096);
    envelope_write(&body, status, code, NULL, str_from(message));
    const struct worker_result result = {.id = slot->id, .status = status, .body = buf_str(&body)};
    pthread_mutex_lock(&runner->lock);
    slot->line.peers = 0; /* it is no answer of a worker: all have failed */
    bool is_done = put_aside(runner, slot, &result);
    if (!is_done) slot->state = SLOT_COMMITTING;
    pthread_mutex_unlock(&runner->lock);
    if (!is_done) commit_result(runner, slot, &result);
    buf_release(&body);
}

void runner_on_durable(void *context, const struct seglog_done *done, size_t count) {
    struct runner *runner = context;
    pthread_mutex_lock(&runner->lock);
    for (size_t i = 0; i < count; i++) {
        struct slot *slot = slot_find(runner, done[i].cookie);
        if (!slot) continue;
        struct active_batch *batch = slot->batch;
        runner->counters.lines_done++;
        runner->counters.lines_ended[slot->kind]++;
        if (slot->usage.reused_input_tokens + slot->usage.reused_output_tokens > 0)
            runner->counters.lines_reused++;
        usage_add(&runner->counters.usage, &slot->usage);
        if (slot->shape != SHAPE_NONE) runner->counters.shapes[slot->shape]++;
        slot_free(runner, slot);
        if (batch->in_flight == 0) pthread_cond_signal(&runner->work);
    }
    pthread_mutex_unlock(&runner->lock);
}

void runner_on_room(void *context) {
    struct seat *seat = context;
    struct runner *runner = seat->runner;
    pthread_mutex_lock(&runner->lock);
    seat->is_full = seat->is_away = false;
    seat->has_failed = false;
    seat->rooms++;
    runner->progress++;
    pthread_cond_signal(&runner->work);
    pthread_cond_broadcast(&runner->helpers);
    pthread_mutex_unlock(&runner->lock);
}

/* --- a worker went down --- */

/* Lost jobs that end; their ends are told without the lock. */
struct losses {
    struct slot **lines; /* each gets an error record */
    size_t line_count;
    struct request **requests; /* each fails */
    size_t request_count;
};

static void note_alone(struct line_state *line, uint32_t seat) {
    line->alone++;
    line->was_apart |= line->alone_at != 0 && line->alone_at != seat + 1;
    line->alone_at = (uint8_t)(seat + 1);
}

static void lose_line(struct runner *runner, struct slot *slot, bool was_alone, bool is_blamed,
                      struct losses *losses) {
    struct line_state *line = &slot->line;
    struct active_batch *batch = slot->batch;
    /* A line goes free once: it may be what takes down the only worker of its model. */
    is_blamed = is_blamed || line->is_suspect || line->downs > 0;
    seat_clear_suspect(runner, line);
    runner->counters.lines_lost++;
    line->downs++;
    if (was_alone && is_blamed) note_alone(line, slot->seat);
    bool is_culprit =
        line->alone >= runner->options.lost_alone_max && (line->was_apart || line->has_no_other);
    line->has_no_other = false;
    if (batch->phase == PHASE_RUN && is_culprit) {
        slot->state = SLOT_COMMITTING;
        losses->lines[losses->line_count++] = slot;
        return;
    }
    if (batch->phase == PHASE_RUN) {
        line->due_ns = 0;
        if (is_blamed) seat_add_suspect(&runner->seats[slot->seat], line);
        active_put_back(batch, line);
        batch->blocked_at = UINT64_MAX;
    }
    slot_free(runner, slot);
}

static void lose_request(struct runner *runner, struct slot *slot, struct losses *losses) {
    struct request *request = slot->request;
    slot_free(runner, slot);
    request->job_id = 0;
    if (request_may_run_again(request)) {
        request->was_lost = true;
        return;
    }
    request_unlink(runner, request);
    losses->requests[losses->request_count++] = request;
}

/* Takes all jobs off the seat. The lock is held. */
static void collect_losses(struct runner *runner, struct seat *seat, struct losses *losses) {
    uint32_t lines = seat->lines, all = lines + seat->requests;
    /* The one line that a sick seat had is no suspect for it. */
    bool is_blamed =
        all > 1 || !seat_is_sick(seat) || !seat_has_well_neighbour(runner, seat, seat->peers);
    losses->lines = mem_new((size_t)lines + 1, sizeof(struct slot *));
    losses->requests = mem_new((size_t)seat->requests + 1, sizeof(struct request *));
    for (uint32_t i = 0; i < runner->slot_count && seat->lines + seat->requests > 0; i++) {
        struct slot *slot = slot_at(runner, i);
        if (slot->state != SLOT_RUNNING || slot->seat != seat->index) continue;
        seat_leave(runner, slot);
        if (slot->request)
            lose_request(runner, slot, losses);
        else
            lose_line(runner, slot, all == 1, is_blamed, losses);
    }
    if (lines > 0) { /* it may go down again while it loads */
        seat->suspects_max = lines > 1 ? lines / 2 : 1;
        seat->suspects_good = 0;
    }
    seat->is_full = seat->is_away = false;
    seat->rooms++;
    seat->down_ns = clock_monotonic_ns();
    if (all > 0) seat_note_down(seat, seat->down_ns);
    runner->progress++;
    pthread_cond_signal(&runner->work);
}

void runner_on_down(void *context, const char *reason) {
    struct seat *seat = context;
    struct runner *runner = seat->runner;
    struct losses losses = {0};
    char message[ERROR_TEXT_BYTES + 80];
    snprintf(message, sizeof message,
             "Every engine that ran this request went down. The last one: %s", reason);
    pthread_mutex_lock(&runner->lock);
    log_write(seat->lines + seat->requests > 0 ? LOG_WARN : LOG_INFO,
              "worker=%u event=down lines=%u requests=%u reason=\"%s\", retrying", seat->index,
              seat->lines, seat->requests, reason);
    collect_losses(runner, seat, &losses);
    pthread_mutex_unlock(&runner->lock);
    const struct runner_event event = {
        .kind = RUNNER_ENGINE_DOWN, .worker = seat->index, .text = reason};
    events_tell(runner, &event);
    for (size_t i = 0; i < losses.request_count; i++)
        request_fail(runner, losses.requests[i], 500, "worker_lost",
                     "The engine that ran this request went down.");
    for (size_t i = 0; i < losses.line_count; i++) {
        struct slot *slot = losses.lines[i];
        log_error("batch=%s request=%u event=quarantined downs=%u", slot->batch->row.id,
                  slot->line.number, slot->line.downs);
        events_note(runner, HISTORY_LINE_LOST, slot->batch->row.id, slot->batch->row.owner,
                    "Line %u has an error record: every engine that ran it went down.",
                    slot->line.number + 1);
        commit_error(runner, slot, 500, "worker_lost", message);
    }
    free(losses.lines);
    free(losses.requests);
}

void runner_on_delta(void *context, const struct worker_delta *delta) {
    struct seat *seat = context;
    struct runner *runner = seat->runner;
    struct request *request = NULL;
    pthread_mutex_lock(&runner->lock);
    struct slot *slot = slot_find(runner, delta->id);
    if (slot && slot->state == SLOT_RUNNING && slot->seat == seat->index) request = slot->request;
    if (request) {
        request->has_streamed = true;
        request->holds++;
    }
    pthread_mutex_unlock(&runner->lock);
    if (!request) return;
    pthread_mutex_lock(&request->calling);
    if (!request->is_finished && request->events.delta)
        request->events.delta(request->events.context, delta->chunk);
    pthread_mutex_unlock(&request->calling);
    request_drop(runner, request);
}
