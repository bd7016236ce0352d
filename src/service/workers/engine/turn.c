/* SPDX-License-Identifier: Apache-2.0 */

/* The turns of an engine on a shared device, the holds of its model by an administrator, and its
 * leaving after a time without a job: waiting for the device, and giving it up. On the worker's own
 * thread, but for parking and rousing. */

#include "base/clock.h"
#include "base/log.h"
#include "workers/engine/engine_internal.h"

#include <poll.h>

#define POLL_MS 250

static void set_parked(struct worker_engine *engine) {
    pthread_mutex_lock(&engine->lock);
    engine->phase = PHASE_PARKED;
    engine->is_leaving = false;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

static bool is_held(struct worker_engine *engine) {
    pthread_mutex_lock(&engine->lock);
    bool held = engine->is_held;
    pthread_mutex_unlock(&engine->lock);
    return held;
}

static bool is_asleep(struct worker_engine *engine) {
    pthread_mutex_lock(&engine->lock);
    bool asleep = engine->is_asleep;
    pthread_mutex_unlock(&engine->lock);
    return asleep;
}

/* True if the engine has the device now; an engine without turns always has it. */
static bool has_turn(struct worker_engine *engine) {
    if (!engine->turns) return !is_asleep(engine);
    turns_tend(engine->turns);
    return turns_state_of(engine->turns, engine->member) == TURN_LOADING;
}

bool engine_turn_wait(struct worker_engine *engine) {
    while (!worker_engine_is_closing(engine)) {
        bool held = is_held(engine), its_turn = has_turn(engine);
        if (its_turn && !held) return true;
        bool is_parked = held || (!engine->turns && !its_turn);
        if (is_parked && engine->phase != PHASE_PARKED) set_parked(engine);
        /* A turn that began before the hold passes to the next engine. */
        if (held && its_turn && engine->turns)
            turns_report(engine->turns, engine->member, TURN_AWAY);
        struct pollfd fd = {.fd = engine->wake_fd, .events = POLLIN};
        if (poll(&fd, 1, POLL_MS) > 0) worker_engine_drain_wakes(engine);
    }
    return false;
}

/* Milliseconds without a job after which the model leaves; 0: it stays. The lock is held. */
static int64_t keep_ms_of(const struct worker_engine *engine) {
    if (engine->keep_ms <= 0) return 0;
    bool is_soon = engine->had_line && engine->keep_ms < WORKER_ENGINE_LINES_MS;
    return is_soon ? WORKER_ENGINE_LINES_MS : engine->keep_ms;
}

int64_t engine_turn_leaves_ms(const struct worker_engine *engine) {
    int64_t keep_ms = keep_ms_of(engine);
    if (keep_ms == 0 || engine->job_count > 0) return keep_ms;
    int64_t idle_ms = (clock_monotonic_ns() - engine->idle_ns) / NS_PER_MS;
    return keep_ms > idle_ms ? keep_ms - idle_ms : 1;
}

/* Begins to leave if no job is inside; the lock is held. */
static void leave(struct worker_engine *engine) {
    if (engine->phase != PHASE_READY || engine->is_leaving || engine->job_count > 0) return;
    engine->is_leaving = true;
    if (engine->turns)
        turns_park(engine->turns, engine->member);
    else
        engine->is_asleep = true;
    log_info("event=model_parks pid=%d", (int)engine->process);
}

void engine_turn_park(struct worker_engine *engine) {
    pthread_mutex_lock(&engine->lock);
    engine->keep_ms = 1; /* jobs that are inside end first */
    leave(engine);
    pthread_mutex_unlock(&engine->lock);
}

bool engine_turn_rouse(struct worker_engine *engine) {
    pthread_mutex_lock(&engine->lock);
    bool was_asleep = engine->is_asleep;
    engine->is_asleep = false;
    pthread_mutex_unlock(&engine->lock);
    return was_asleep;
}

static void leave_if_idle(struct worker_engine *engine) {
    pthread_mutex_lock(&engine->lock);
    int64_t keep_ms = keep_ms_of(engine);
    if (keep_ms > 0 && clock_monotonic_ns() - engine->idle_ns >= keep_ms * NS_PER_MS) leave(engine);
    pthread_mutex_unlock(&engine->lock);
}

/* Takes no more jobs, and recalls the lines, because no client waits for one of them. */
static void begin_to_leave(struct worker_engine *engine) {
    pthread_mutex_lock(&engine->lock);
    engine->is_leaving = true;
    for (uint32_t i = 0; i < engine->job_count; i++) {
        struct engine_job *job = &engine->jobs[i];
        if (!job->is_line || engine->out.bytes > WORKER_ENGINE_OUT_BYTES_MAX / 2) continue;
        job->is_recalled = true;
        wire_write(&engine->out, WIRE_CANCEL, job->id, 0, STR(""));
    }
    pthread_mutex_unlock(&engine->lock);
}

static bool must_leave(struct worker_engine *engine) {
    return is_held(engine) ||
           (engine->turns && turns_state_of(engine->turns, engine->member) == TURN_LEAVING);
}

bool engine_turn_is_over(struct worker_engine *engine) {
    if (engine->phase != PHASE_READY) return false;
    if (engine->turns) turns_tend(engine->turns);
    leave_if_idle(engine);
    if (!engine->is_leaving) {
        if (!must_leave(engine)) return false;
        begin_to_leave(engine);
    }
    pthread_mutex_lock(&engine->lock);
    bool is_empty = engine->job_count == 0;
    pthread_mutex_unlock(&engine->lock);
    return is_empty;
}

void engine_turn_end(struct worker_engine *engine) {
    set_parked(engine);
    if (engine->turns) turns_report(engine->turns, engine->member, TURN_AWAY);
}

void engine_turn_lost(struct worker_engine *engine) {
    bool is_final = engine->phase == PHASE_FAILED;
    pthread_mutex_lock(&engine->lock);
    engine->is_leaving = false;
    pthread_mutex_unlock(&engine->lock);
    if (!engine->turns) return;
    turns_report(engine->turns, engine->member, is_final ? TURN_FAILED : TURN_AWAY);
    if (!is_final && !is_held(engine)) turns_want(engine->turns, engine->member, TIER_BATCH, 0);
}
