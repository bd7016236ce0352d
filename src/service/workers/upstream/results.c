/* SPDX-License-Identifier: Apache-2.0 */

/* The way of an upstream's answer, in one direction: read it, decide its outcome, let the upstream
 * learn from it (learn.c), hand the result on. */

#include "base/clock.h"
#include "base/log.h"
#include "json/envelope.h"
#include "workers/upstream/error.h"
#include "workers/upstream/messages.h"
#include "workers/upstream/shape.h"
#include "workers/upstream/upstream_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* --- streams --- */

struct stream {
    struct worker_upstream *upstream;
    struct upstream_job *job;
};

static enum timing_origin origin_of(const struct upstream_job *job) {
    return job->job.is_line ? TIMING_LINE : TIMING_CLIENT;
}

/* Notes the time of a chunk. The first one of some upstreams holds a role and no text yet. */
static void time_chunk(struct worker_upstream *upstream, struct upstream_job *job) {
    int64_t now_ns = clock_monotonic_ns();
    if (job->first_ns == 0) {
        job->first_ns = now_ns;
    } else {
        pthread_mutex_lock(&upstream->lock);
        timings_add_ns(&upstream->timings, origin_of(job), TIMING_BETWEEN_TOKENS,
                       now_ns - job->last_ns);
        pthread_mutex_unlock(&upstream->lock);
    }
    job->last_ns = now_ns;
}

/* Passes one event of a stream on. */
static bool take_event(void *context, struct str data) {
    const struct stream *stream = context;
    struct upstream_job *job = stream->job;
    struct worker_upstream *upstream = stream->upstream;
    if (job->is_done || job->has_failed) return true; /* events after the end are ignored */
    switch (upstream_read_event(&upstream->answer, data, job->model, &job->end)) {
    case UPSTREAM_EVENT_DONE: job->is_done = true; return true;
    case UPSTREAM_EVENT_BAD: return false;
    case UPSTREAM_EVENT_ERROR:
        job->has_failed = true;
        buf_add_str(&job->error, buf_str(&upstream->answer));
        return true;
    case UPSTREAM_EVENT_USAGE:
        if (!job->wants_usage) return true; /* quern asked for it, not the client */
        break;
    case UPSTREAM_EVENT_CHUNK: break;
    }
    job->has_streamed = true;
    time_chunk(upstream, job);
    const struct worker_delta delta = {job->job.id, buf_str(&upstream->answer)};
    if (upstream->events.delta) upstream->events.delta(upstream->events.context, &delta);
    return true;
}

bool upstream_on_bytes(void *context, void *owner, struct str bytes) {
    struct stream stream = {.upstream = context, .job = owner};
    return net_sse_feed(&stream.job->sse, bytes, take_event, &stream);
}

/* Reads the end of a stream, once the exchange is over. */
static void read_stream(struct worker_upstream *upstream, struct upstream_job *job,
                        struct upstream_reading *ret_reading) {
    const struct upstream_stream_end *end = &job->end;
    *ret_reading = (struct upstream_reading){.outcome = OUTCOME_DONE,
                                             .status = 200,
                                             .wait_ms = -1,
                                             .body = STR("{}"),
                                             .usage = end->usage};
    bool has_ended = job->is_done || end->is_finished;
    if (!job->has_failed && has_ended && end->has_choice) return;
    ret_reading->outcome = OUTCOME_TRY_AGAIN;
    ret_reading->status = 502;
    buf_clear(&upstream->answer);
    if (job->has_failed) {
        ret_reading->is_overload = end->is_overload;
        if (end->is_overload) ret_reading->outcome = OUTCOME_NOT_RUN;
        ret_reading->status = end->status;
        ret_reading->wait_ms = end->wait_ms;
        buf_add_str(&upstream->answer, buf_str(&job->error));
    } else if (has_ended) {
        envelope_write(&upstream->answer, 502, "upstream_no_answer", NULL,
                       STR("The upstream ended its stream without a choice."));
    } else {
        envelope_write(&upstream->answer, 502, "upstream_broken", NULL,
                       STR("The upstream ended its stream before the answer was complete."));
    }
    ret_reading->body = buf_str(&upstream->answer);
}

/* --- answers that did not come --- */

static void read_failure(struct worker_upstream *upstream, const struct net_answer *answer,
                         struct upstream_reading *ret_reading) {
    static const struct {
        enum outcome outcome;
        int status;
        const char *code;
    } ends[] = {
        [NET_END_UNSENT] = {OUTCOME_NOT_RUN, 503, "upstream_unreachable"},
        [NET_END_UNTRUSTED] = {OUTCOME_NOT_RUN, 503, "upstream_unreachable"},
        [NET_END_TIMEOUT] = {OUTCOME_TRY_AGAIN, 504, "upstream_timeout"},
        [NET_END_BROKEN] = {OUTCOME_TRY_AGAIN, 502, "upstream_broken"},
        [NET_END_TOO_LONG] = {OUTCOME_TRY_AGAIN, 502, "upstream_bad_answer"},
        [NET_END_STOPPED] = {OUTCOME_TRY_AGAIN, 502, "upstream_bad_answer"},
    };
    char message[320];
    assert(answer->end != NET_END_WHOLE);
    snprintf(message, sizeof message, "The upstream %s %s.", upstream->spec.name, answer->what);
    buf_clear(&upstream->answer);
    envelope_write(&upstream->answer, ends[answer->end].status, ends[answer->end].code, NULL,
                   str_from(message));
    *ret_reading = (struct upstream_reading){.outcome = ends[answer->end].outcome,
                                             .status = ends[answer->end].status,
                                             .wait_ms = -1,
                                             .body = buf_str(&upstream->answer)};
}

/* --- results --- */

void upstream_unlink_running(struct worker_upstream *upstream, struct upstream_job *job) {
    pthread_mutex_lock(&upstream->lock);
    struct upstream_job **at = &upstream->running;
    while (*at != job) at = &(*at)->next;
    *at = job->next;
    upstream->running_count--;
    pthread_mutex_unlock(&upstream->lock);
    if (job->is_trial) upstream->has_trial = false;
}

void upstream_give_back(struct worker_upstream *upstream, struct upstream_job *job) {
    char message[UPSTREAM_REASON_BYTES + 128];
    pthread_mutex_lock(&upstream->lock);
    bool is_returned = job->is_recalled || (upstream->is_quiet && !job->is_cancelled);
    bool was_cancelled = job->is_cancelled && !job->is_recalled;
    pthread_mutex_unlock(&upstream->lock);
    snprintf(message, sizeof message, "The upstream %s does not take requests now: %s.",
             upstream->spec.name, upstream->reason);
    buf_clear(&upstream->answer);
    int status = was_cancelled ? 499 : 503;
    envelope_write(&upstream->answer, status, NULL, NULL,
                   was_cancelled ? STR("The request was cancelled.") : str_from(message));
    const struct worker_result result = {.id = job->job.id,
                                         .outcome = was_cancelled ? OUTCOME_CANCELLED
                                                    : is_returned ? OUTCOME_RETURNED
                                                                  : OUTCOME_NOT_RUN,
                                         .status = status,
                                         .body = buf_str(&upstream->answer)};
    upstream->events.result(upstream->events.context, &result);
    upstream_job_free(job);
}

void upstream_refuse(struct worker_upstream *upstream, struct upstream_job *job,
                     const struct refusal *refusal) {
    buf_clear(&upstream->answer);
    refusal_write(&upstream->answer, refusal);
    const struct worker_result result = {.id = job->job.id,
                                         .outcome = OUTCOME_DONE,
                                         .status = refusal->status,
                                         .body = buf_str(&upstream->answer)};
    upstream->events.result(upstream->events.context, &result);
    upstream_job_free(job);
}

/* Counts an answer of status 2xx. The lock is held. */
static void time_answer(struct worker_upstream *upstream, const struct upstream_job *job,
                        const struct net_answer *answer, const struct usage *usage) {
    struct timings *timings = &upstream->timings;
    enum timing_origin origin = origin_of(job);
    timings_add_ns(timings, origin, TIMING_QUEUE, answer->sent_ns - job->taken_ns);
    timings_add_ns(timings, origin, TIMING_WHOLE, answer->ended_ns - job->taken_ns);
    timings_add(timings, origin, TIMING_PROMPT_TOKENS, (double)usage->input_tokens);
    timings_add(timings, origin, TIMING_GENERATED_TOKENS, (double)usage->output_tokens);
    if (job->first_ns != 0)
        timings_add_ns(timings, origin, TIMING_FIRST_TOKEN, job->first_ns - job->taken_ns);
}

static void count(struct worker_upstream *upstream, const struct net_answer *answer,
                  const struct worker_result *result) {
    pthread_mutex_lock(&upstream->lock);
    struct worker_status *figures = &upstream->figures;
    if (result->outcome == OUTCOME_DONE && answer->status / 100 == 2)
        time_answer(upstream, answer->owner, answer, &result->usage);
    figures->steps++;
    figures->refusals += result->outcome == OUTCOME_NOT_RUN;
    figures->faults += result->outcome == OUTCOME_TRY_AGAIN;
    figures->prompt_tokens += result->usage.input_tokens;
    figures->cached_tokens += result->usage.cached_tokens;
    figures->completion_tokens += result->usage.output_tokens;
    pthread_mutex_unlock(&upstream->lock);
}

/* Reads the answer of an upstream that was asked for a stream and sent none: why, if it says so. */
static void read_no_stream(struct worker_upstream *upstream, const struct net_answer *answer,
                           const struct upstream_asked *asked,
                           struct upstream_reading *ret_reading) {
    upstream_read_answer(&upstream->answer, answer->status, answer->body, asked, ret_reading);
    if (ret_reading->outcome != OUTCOME_DONE) return;
    *ret_reading =
        (struct upstream_reading){.outcome = OUTCOME_TRY_AGAIN, .status = 502, .wait_ms = -1};
    buf_clear(&upstream->answer);
    envelope_write(&upstream->answer, 502, "upstream_bad_answer", NULL,
                   STR("The upstream was asked for a stream, and sent a whole answer."));
    ret_reading->body = buf_str(&upstream->answer);
}

static void read_answer(struct worker_upstream *upstream, const struct net_answer *answer,
                        struct upstream_reading *ret_reading) {
    struct upstream_job *job = answer->owner;
    const struct upstream_asked asked = {.endpoint = job->job.endpoint,
                                         .request = job->job.body,
                                         .model = job->model,
                                         .name = upstream->spec.name};
    bool has_begun = job->has_streamed || job->is_done || job->has_failed;
    bool is_whole = answer->end == NET_END_WHOLE;
    bool is_stream = is_whole && job->job.stream && answer->status / 100 == 2;
    if (has_begun || (is_stream && answer->body.bytes == 0))
        read_stream(upstream, job, ret_reading);
    else if (is_stream)
        read_no_stream(upstream, answer, &asked, ret_reading);
    else if (!is_whole)
        read_failure(upstream, answer, ret_reading);
    else
        upstream_read_answer(&upstream->answer, answer->status, answer->body, &asked, ret_reading);
}

/* Compares an answer with its shape. One of another form becomes an error, written into `room`.
 * Only the batch's own `retry` has it tried again, because the upstream has answered. A stream is
 * not compared: its client has most of it before its end is known. */
static enum shape_end check_shape(const struct worker_upstream *upstream,
                                  const struct upstream_job *job, struct upstream_reading *reading,
                                  struct buf *room) {
    const char *param;
    bool is_answer = !job->job.stream && reading->status / 100 == 2;
    bool generates =
        job->job.endpoint == ENDPOINT_CHAT || job->job.endpoint == ENDPOINT_COMPLETIONS;
    if (!is_answer || !generates) return SHAPE_NONE;
    enum shape_end end = upstream_shape_look(job->job.body, reading->body, &param);
    if (end != SHAPE_MISMATCHED) return end;
    upstream_shape_write_error(room, reading->body, param, upstream->spec.name);
    reading->status = 502;
    reading->body = buf_str(room);
    return end;
}

/* Sorts the messages of a whole chat answer that has them in its text; the new answer is in `room`.
 */
static void sort_messages(const struct upstream_job *job, struct upstream_reading *reading,
                          struct buf *room) {
    bool is_chat = job->job.endpoint == ENDPOINT_CHAT && !job->job.stream;
    if (is_chat && reading->status / 100 == 2 &&
        upstream_messages_sort(job->job.body, reading->body, room))
        reading->body = buf_str(room);
}

void upstream_on_done(void *context, const struct net_answer *answer) {
    struct worker_upstream *upstream = context;
    struct upstream_job *job = answer->owner;
    struct upstream_reading reading;
    if (!job) {
        upstream_probe_done(upstream, answer);
        return;
    }
    read_answer(upstream, answer, &reading);
    enum outcome outcome = upstream_decide(upstream, answer, &reading);
    upstream_learn(upstream, answer, &reading, outcome);
    upstream_unlink_running(upstream, job);
    struct buf room, sorted;
    buf_init(&room, BUF_UNLIMITED);
    buf_init(&sorted, BUF_UNLIMITED);
    if (outcome == OUTCOME_DONE) sort_messages(job, &reading, &sorted);
    enum shape_end shape =
        outcome == OUTCOME_DONE ? check_shape(upstream, job, &reading, &room) : SHAPE_NONE;
    const struct worker_result result = {.id = job->job.id,
                                         .outcome = outcome,
                                         .status = reading.status,
                                         .body = reading.body,
                                         .usage = reading.usage,
                                         .shape = shape,
                                         .retry_after_ms = answer->retry_after_ms};
    count(upstream, answer, &result);
    upstream->events.result(upstream->events.context, &result);
    buf_release(&room);
    buf_release(&sorted);
    upstream_job_free(job);
}
