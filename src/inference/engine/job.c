/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/job.h"

#include "base/clock.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct job *job_open(uint64_t id, const struct wire_job *from) {
    struct job *job = mem_new(1, sizeof *job);
    job->id = id;
    job->endpoint = from->endpoint;
    job->tier = from->tier;
    job->stream = from->stream;
    job->is_line = from->is_line;
    job->arrived_ns = clock_monotonic_ns();
    job->priority = from->priority;
    assert(from->owner.bytes < sizeof job->owner); /* the frame's reader has checked it */
    if (from->owner.bytes > 0) memcpy(job->owner, from->owner.at, from->owner.bytes);
    buf_init(&job->body, WIRE_PAYLOAD_BYTES_MAX);
    buf_add_str(&job->body, from->body);
    buf_init(&job->words, WIRE_PAYLOAD_BYTES_MAX);
    atomic_init(&job->is_cancelled, false);
    return job;
}

void job_drop_request(struct job *job) {
    if (job->prompts)
        for (size_t i = 0; i < job->request.prompt_count; i++) prompt_release(&job->prompts[i]);
    free(job->prompts);
    job->prompts = NULL;
    request_release(&job->request);
    embedding_release(&job->embedding);
    score_release(&job->score);
    decision_release(&job->decision);
    buf_release(&job->body);
}

void job_close(struct job *job) {
    if (!job) return;
    for (uint32_t i = 0; i < job->choice_count; i++) choice_release(&job->choices[i]);
    for (uint32_t i = 0; job->shapes && i < job->choice_count; i++)
        grammar_state_release(&job->shapes[i]);
    free(job->shapes);
    free(job->closing_masks);
    free(job->choices);
    job_drop_request(job);
    buf_release(&job->words);
    free(job);
}

void job_refuse_cancelled(struct job *job) {
    job->is_refused = true;
    job->outcome = OUTCOME_CANCELLED;
    refuse_status(&job->refusal, 499, "cancelled", NULL, "The request was cancelled.");
}

void job_refuse_failed(struct job *job) {
    job->is_refused = true;
    job->outcome = OUTCOME_TRY_AGAIN;
    refuse_status(&job->refusal, 500, NULL, NULL, "The engine has failed.");
}

struct usage job_usage(const struct job *job) {
    struct usage usage = {0};
    if (endpoint_is_pooled(job->endpoint)) usage.input_tokens = job->embedding.ids.count;
    if (endpoint_is_decision(job->endpoint)) {
        usage.input_tokens = job->decision.input_tokens;
        usage.cached_tokens = job->decision.cached_tokens;
    }
    uint32_t choices = (uint32_t)job->request.candidates;
    for (uint32_t i = 0; i < job->choice_count; i += choices) {
        uint32_t prompt_tokens = 0, cached_tokens = UINT32_MAX;
        for (uint32_t k = 0; k < choices; k++) {
            const struct choice *choice = &job->choices[i + k];
            /* A choice cancelled before it began reports no prompt. */
            if (choice->prompt_tokens > prompt_tokens) prompt_tokens = choice->prompt_tokens;
            /* Later choices find the prefix that the first one computed. Only the first one's finds
             * were cached before this request. */
            if (choice->cached_tokens < cached_tokens) cached_tokens = choice->cached_tokens;
            usage.output_tokens += choice->token_count;
            usage.reasoning_tokens += choice->thought.token_count;
        }
        usage.input_tokens += prompt_tokens;
        usage.cached_tokens += cached_tokens < prompt_tokens ? cached_tokens : prompt_tokens;
    }
    return usage;
}

struct request_times job_times(const struct job *job) {
    struct request_times times = {0};
    if (job->started_ns > job->arrived_ns) times.queue_ns = job->started_ns - job->arrived_ns;
    if (job->started_ns == 0 || job->first_token_ns < job->started_ns) return times;
    times.prefill_ns = job->first_token_ns - job->started_ns;
    times.decode_ns = job->last_token_ns - job->first_token_ns;
    return times;
}
