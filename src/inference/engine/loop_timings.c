/* SPDX-License-Identifier: Apache-2.0 */
/* The times and sizes of requests, as the loop sees them; protocol/timings.h says what each means.
 *
 * The loop's thread alone counts, so a token costs no lock. The clock is read once per call of the
 * scheduler that reports tokens: all tokens of one call have the same time. */
#include "base/clock.h"
#include "engine/state.h"
#include "scheduler/scheduler.h"

int64_t loop_event_ns(struct engine *engine) {
    if (engine->event_ns == 0) engine->event_ns = clock_monotonic_ns();
    return engine->event_ns;
}

static enum timing_origin origin_of(const struct job *job) {
    return job->is_line ? TIMING_LINE : TIMING_CLIENT;
}

void loop_time_start(struct engine *engine, struct job *job) {
    if (job->started_ns == 0) job->started_ns = loop_event_ns(engine);
}

void loop_time_token(struct engine *engine, struct job *job, int64_t *sequence_ns) {
    int64_t now_ns = loop_event_ns(engine);
    if (job->first_token_ns == 0) job->first_token_ns = now_ns;
    if (sequence_ns && *sequence_ns != 0)
        timings_add_ns(&engine->timings, origin_of(job), TIMING_BETWEEN_TOKENS,
                       now_ns - *sequence_ns);
    if (sequence_ns) *sequence_ns = now_ns;
    job->last_token_ns = now_ns;
}

static enum timing_end end_of(const struct job *job) {
    if (job->is_refused) return job->outcome == OUTCOME_CANCELLED ? ENDED_CANCELLED : ENDED_ERROR;
    for (uint32_t i = 0; i < job->choice_count; i++)
        if (job->choices[i].reason == FINISH_LENGTH) return ENDED_LENGTH;
    return ENDED_STOP;
}

static void add_sizes(struct timings *timings, enum timing_origin origin, const struct job *job) {
    const struct usage usage = job_usage(job);
    bool generates = job->endpoint == ENDPOINT_CHAT || job->endpoint == ENDPOINT_COMPLETIONS;
    timings_add(timings, origin, TIMING_PROMPT_TOKENS, (double)usage.input_tokens);
    if (!generates) return;
    timings_add(timings, origin, TIMING_GENERATED_TOKENS, (double)usage.output_tokens);
    timings_add(timings, origin, TIMING_MAX_TOKENS, (double)job->max_tokens);
    timings_add(timings, origin, TIMING_CHOICES, (double)job->request.choices);
    int64_t decode_ns = job->last_token_ns - job->first_token_ns;
    if (usage.output_tokens > job->choice_count && job->first_token_ns != 0)
        timings_add_ns(timings, origin, TIMING_PER_TOKEN,
                       decode_ns * job->choice_count /
                           (int64_t)(usage.output_tokens - job->choice_count));
}

/* A request that was cancelled or failed counts with its end alone: when it ended is not due to the
 * engine's speed. */
void loop_time_end(struct engine *engine, const struct job *job) {
    struct timings *timings = &engine->timings;
    enum timing_origin origin = origin_of(job);
    int64_t now_ns = loop_event_ns(engine);
    timings->ends[origin][end_of(job)]++;
    if (job->is_refused) return;
    timings_add_ns(timings, origin, TIMING_WHOLE, now_ns - job->arrived_ns);
    add_sizes(timings, origin, job);
    if (job->started_ns == 0) return;
    timings_add_ns(timings, origin, TIMING_QUEUE, job->started_ns - job->arrived_ns);
    if (job->first_token_ns == 0) return;
    timings_add_ns(timings, origin, TIMING_FIRST_TOKEN, job->first_token_ns - job->arrived_ns);
    timings_add_ns(timings, origin, TIMING_INFERENCE, job->last_token_ns - job->started_ns);
    timings_add_ns(timings, origin, TIMING_PREFILL, job->first_token_ns - job->started_ns);
    timings_add_ns(timings, origin, TIMING_DECODE, job->last_token_ns - job->first_token_ns);
}

static uint64_t rows_so_far(const struct engine *engine) {
    struct scheduler_stats stats = {0};
    struct embed_queue_stats embedded = {0};
    if (engine->scheduler) scheduler_stats(engine->scheduler, &stats);
    if (engine->embed_queue) embed_queue_stats(engine->embed_queue, &embedded);
    return stats.rows + embedded.tokens;
}

void loop_time_step(struct engine *engine) {
    uint64_t rows = rows_so_far(engine);
    if (rows > engine->timed_rows)
        histogram_add(&engine->timings.step_tokens, &timing_step_bounds,
                      (double)(rows - engine->timed_rows));
    engine->timed_rows = rows;
}
