/* SPDX-License-Identifier: Apache-2.0 */

/* The turns of an engine on a shared device, and the holds of its model by an administrator:
 * waiting for the device, and giving it up. On the worker's own thread. */

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

/* True if the engine has the device now; an engine without turns always has it. */
static bool has_turn(struct worker_engine *engine) {
    if (!engine->turns) return true;
    turns_tend(engine->turns);
    return turns_state_of(engine->turns, engine->member) == TURN_LOADING;
}

bool engine_turn_wait(struct worker_engine *engine) {
    while (!worker_engine_is_closing(engine)) {
        bool held = is_held(engine), its_turn = has_turn(engine);
        if (its_turn && !held) return true;
        if (held && engine->phase != PHASE_PARKED) set_parked(engine);
        /* A turn that began before the hold passes to the next engine. */
        if (held && its_turn && engine->turns)
            turns_report(engine->turns, engine->member, TURN_AWAY);
        struct pollfd fd = {.fd = engine->wake_fd, .events = POLLIN};
        if (poll(&fd, 1, POLL_MS) > 0) worker_engine_drain_wakes(engine);
    }
    return false;
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
