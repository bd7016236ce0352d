/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's statistics, which the server judges its liveness by. On the loop's thread. */
#include "base/clock.h"
#include "engine/state.h"
#include "scheduler/scheduler.h"

bool loop_has_work(const struct engine *engine) {
    return !engine->has_failed &&
           ((engine->scheduler && scheduler_has_work(engine->scheduler)) ||
            (engine->embed_queue && embed_queue_has_work(engine->embed_queue)));
}

static uint32_t ms_since(int64_t then_ns, int64_t now_ns) {
    int64_t ms = (now_ns - then_ns) / 1000000;
    if (then_ns == 0 || ms < 0) return 0;
    return ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

/* Reads the ages of the latest step, and of the oldest last token of a request. */
static void read_ages(const struct engine *engine, struct wire_stats *stats) {
    int64_t now_ns = clock_monotonic_ns(), oldest_ns = 0;
    stats->step_ms_max = (uint32_t)(engine->step_ns_max / 1000000);
    if (!loop_has_work(engine)) return;
    for (uint32_t slot = 0; slot < ENGINE_JOBS_MAX; slot++) {
        const struct job *job = engine->running[slot];
        if (!job || job->token_ns == 0) continue;
        if (oldest_ns == 0 || job->token_ns < oldest_ns) oldest_ns = job->token_ns;
    }
    stats->step_age_ms = ms_since(engine->step_ended_ns, now_ns);
    stats->token_age_ms = ms_since(oldest_ns, now_ns);
}

static void read_stats(struct engine *engine) {
    struct scheduler_stats from = {0};
    struct embed_queue_stats embedded = {0};
    if (engine->scheduler) scheduler_stats(engine->scheduler, &from);
    if (engine->embed_queue) embed_queue_stats(engine->embed_queue, &embedded);
    engine->stats = (struct wire_stats){
        .steps = from.steps + embedded.steps,
        .prompt_tokens = from.prefix_queried_tokens + embedded.tokens,
        .prefix_queries = from.prefix_queried_tokens,
        .cached_tokens = from.prefix_hit_tokens,
        .completion_tokens = from.generated_tokens,
        .preemptions = from.preemptions,
        .nonfinite_rows = from.nonfinite_rows,
        .drafts = from.drafts,
        .draft_tokens = from.draft_tokens,
        .accepted_tokens = from.accepted_tokens,
        .state_saves = from.state_saves,
        .state_hits = from.state_hits,
        .state_evictions = from.state_evictions,
        .states_stored = from.states_stored,
        .running = from.sequences_running + embedded.running,
        .waiting = from.sequences_waiting + from.sequences_preempted + embedded.waiting +
                   (uint32_t)ring_count(engine->prep_ring),
        .timings = engine->timings,
        .kv_used = from.pages_total ? (double)from.pages_used / from.pages_total : 0,
    };
    read_ages(engine, &engine->stats);
}

void loop_report_stats(struct engine *engine, uint64_t ping) {
    if (!engine->events.stats) return;
    if (!engine->has_failed) read_stats(engine);
    engine->events.stats(engine->events.context, ping, &engine->stats);
}
