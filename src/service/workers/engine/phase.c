/* SPDX-License-Identifier: Apache-2.0 */
/* The phase of an engine's worker, and what wakes its thread: what its other files ask and set. */
#include "workers/engine/engine_internal.h"

#include <stdio.h>
#include <unistd.h>

bool worker_engine_has_room(const struct worker_engine *engine) {
    return engine->phase == PHASE_READY && !engine->is_closing && !engine->is_leaving &&
           engine->job_count < engine->jobs_max &&
           engine->out.bytes < WORKER_ENGINE_OUT_BYTES_MAX / 2;
}

bool worker_engine_is_closing(struct worker_engine *engine) {
    pthread_mutex_lock(&engine->lock);
    bool closing = engine->is_closing;
    pthread_mutex_unlock(&engine->lock);
    return closing;
}

void worker_engine_set_phase(struct worker_engine *engine, enum worker_phase phase,
                             const char *reason) {
    pthread_mutex_lock(&engine->lock);
    engine->phase = phase;
    if (reason) snprintf(engine->reason, sizeof engine->reason, "%s", reason);
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->lock);
}

void worker_engine_drain_wakes(const struct worker_engine *engine) {
    uint64_t ignored;
    ssize_t count = read(engine->wake_fd, &ignored, sizeof ignored);
    (void)count;
}
