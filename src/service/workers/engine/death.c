/* SPDX-License-Identifier: Apache-2.0 */

/* The death of a child: its end is awaited, told and judged. On the worker's own thread. */

#include "base/log.h"
#include "base/os.h"
#include "workers/engine/dump.h"
#include "workers/engine/engine_internal.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define POLL_MS 250
#define END_PATIENCE_MS 200 /* time between the end of a child's socket and its own end */

/* Adds the counters of a child that is gone to those of the children before it, so that what a
 * monitor sees never falls. What the child did after its last STATS is lost. */
static void keep_counters(struct wire_stats *ended, const struct wire_stats *stats) {
    ended->steps += stats->steps;
    ended->prompt_tokens += stats->prompt_tokens;
    ended->prefix_queries += stats->prefix_queries;
    ended->cached_tokens += stats->cached_tokens;
    ended->completion_tokens += stats->completion_tokens;
    ended->preemptions += stats->preemptions;
    ended->nonfinite_rows += stats->nonfinite_rows;
    ended->drafts += stats->drafts;
    ended->draft_tokens += stats->draft_tokens;
    ended->accepted_tokens += stats->accepted_tokens;
    ended->state_saves += stats->state_saves;
    ended->state_hits += stats->state_hits;
    ended->state_evictions += stats->state_evictions;
    timings_merge(&ended->timings, &stats->timings);
}

void engine_death_forget(struct worker_engine *engine) {
    wire_reader_release(&engine->reader);
    wire_reader_init(&engine->reader);
    buf_clear(&engine->sending);
    engine->sent = 0;
    pthread_mutex_lock(&engine->lock);
    buf_clear(&engine->out);
    engine->job_count = 0;
    engine->too_large_count = 0;
    keep_counters(&engine->ended, &engine->stats);
    engine->stats = (struct wire_stats){0};
    engine->process = 0;
    engine->memory_bytes = 0;
    pthread_mutex_unlock(&engine->lock);
}

void engine_death_tell_held(struct worker_engine *engine) {
    log_error(
        "event=engine_held pid=%d reason=\"it was killed and does not end: a driver holds it; "
        "its device is left alone until then\"",
        (int)engine->child.pid);
    pthread_mutex_lock(&engine->lock);
    engine->held_pid = engine->child.pid;
    pthread_mutex_unlock(&engine->lock);
}

bool engine_death_await(struct worker_engine *engine) {
    while (!engine_child_has_ended(&engine->child)) {
        if (worker_engine_is_closing(engine)) return false;
        struct pollfd fd = {.fd = engine->wake_fd, .events = POLLIN};
        if (poll(&fd, 1, POLL_MS) > 0) worker_engine_drain_wakes(engine);
    }
    if (engine->held_pid == 0) return true;
    log_info("event=engine_released pid=%d", (int)engine->held_pid);
    pthread_mutex_lock(&engine->lock);
    engine->held_pid = 0;
    pthread_mutex_unlock(&engine->lock);
    return true;
}

/* Whether a model has been ready on the GPU that the engine lacks now: this one, or one that takes
 * turns with it. */
static bool had_card(const struct worker_engine *engine) {
    return engine->has_ready || (engine->turns && turns_have_loaded(engine->turns));
}

/* Whether the worker fails for good. A FATAL before the first READY would come again, and so would
 * the third death before it. A model that has loaded once may have met a passing trouble, or a file
 * that is being replaced: it fails after WORKER_ENGINE_RELOADS_MAX loads with the same sentence. A
 * GPU that was there once is waited for without end, and so are the lines. */
static bool is_hopeless(struct worker_engine *engine, bool was_ready, const char *reason) {
    /* Only this thread writes `reason`. */
    bool is_same = !was_ready && strcmp(engine->reason, reason) == 0;
    engine->same_failures = was_ready ? 0 : is_same ? engine->same_failures + 1 : 1;
    if (was_ready || (engine->has_told_no_card && had_card(engine))) return false;
    if (engine->has_ready) return engine->same_failures >= WORKER_ENGINE_RELOADS_MAX;
    return engine->has_told_fatal || engine->failures >= WORKER_ENGINE_LOADS_MAX;
}

void engine_death_bury(struct worker_engine *engine, const struct error *why) {
    char end[96], reason[ERROR_TEXT_BYTES], path[4300];
    bool was_ready = engine->phase == PHASE_READY;
    int pid = engine->child.pid, dump_fd = engine->child.dump_fd;
    engine->failures++;
    if (!engine_child_end(&engine->child, END_PATIENCE_MS, engine->kill_ms, end, sizeof end))
        engine_death_tell_held(engine);
    if (engine_dump_keep(dump_fd, pid, engine->dump_dir, path, sizeof path))
        log_error("event=engine_stacks pid=%d path=\"%s\"", pid, path);
    os_close(dump_fd);
    if (engine->has_told_fatal)
        snprintf(reason, sizeof reason, "%s", why->text);
    else
        snprintf(reason, sizeof reason, "%.400s; it %s", why->text, end);
    bool is_final = is_hopeless(engine, was_ready, reason);
    /* The caller of worker_engine_wait_ready gets the engine's own sentence and reports it once. */
    log_write(engine->has_told_fatal && !was_ready ? LOG_INFO : LOG_ERROR,
              "event=engine_down will_restart=%s reason=\"%s\"", is_final ? "no" : "yes", reason);
    pthread_mutex_lock(&engine->lock);
    engine->lacks_card = engine->has_told_no_card && !is_final;
    pthread_mutex_unlock(&engine->lock);
    /* The phase first, so that no job is taken that the next child would not get. */
    worker_engine_set_phase(engine, is_final ? PHASE_FAILED : PHASE_DOWN, reason);
    engine_death_forget(engine);
    if (engine->events.down) engine->events.down(engine->events.context, reason);
}
