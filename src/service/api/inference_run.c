/* SPDX-License-Identifier: Apache-2.0 */
#include "api/inference_run.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>

/* One request that the runner has. The HTTP request holds it until its end, the handler while it
 * submits. */
struct inference {
    struct api *api;
    struct http_request *request;
    struct inference *next, *previous; /* in api->running, from submission to result */
    struct dialect_call *call;         /* NULL: the answer is passed on as it is */
    enum endpoint endpoint;
    bool stream;
    int64_t begun_ns;         /* monotonic */
    _Atomic int64_t first_ns; /* when the first delta came; 0: none yet */
    pthread_mutex_t lock;     /* guards the next two */
    bool streaming;           /* the event stream has begun */
    bool ended;               /* the answer is settled, or the stream ends now */
    atomic_bool cancelled;
    atomic_bool submitted; /* runner_id is set */
    uint64_t runner_id;
    atomic_uint holds;
};

static void inference_drop(void *context) {
    struct inference *inference = context;
    if (atomic_fetch_sub(&inference->holds, 1) != 1) return;
    pthread_mutex_destroy(&inference->lock);
    dialect_call_free(inference->call);
    free(inference);
}

/* Cancels, from any thread. Either this or the submission sees the flag that the other has set. */
static void cancel(void *context) {
    struct inference *inference = context;
    atomic_store(&inference->cancelled, true);
    if (atomic_load(&inference->submitted))
        runner_request_cancel(inference->api->options.runner, inference->runner_id);
}

static void list_add(struct inference *inference) {
    struct api *api = inference->api;
    pthread_mutex_lock(&api->lock);
    inference->next = api->running;
    if (inference->next) inference->next->previous = inference;
    api->running = inference;
    pthread_mutex_unlock(&api->lock);
}

static void list_remove(struct inference *inference) {
    struct api *api = inference->api;
    pthread_mutex_lock(&api->lock);
    if (inference->previous)
        inference->previous->next = inference->next;
    else
        api->running = inference->next;
    if (inference->next) inference->next->previous = inference->previous;
    pthread_mutex_unlock(&api->lock);
}

void inference_cancel_all(struct api *api) {
    for (;;) {
        struct inference *found = NULL;
        pthread_mutex_lock(&api->lock);
        for (struct inference *i = api->running; i && !found; i = i->next)
            if (!atomic_load(&i->cancelled)) found = i;
        if (found) atomic_fetch_add(&found->holds, 1);
        pthread_mutex_unlock(&api->lock);
        if (!found) return;
        cancel(found);
        inference_drop(found);
    }
}

/* --- what comes back --- */

/* Puts the events of one chunk. */
static bool put_chunk(struct inference *inference, struct str data) {
    struct dialect_call *call = inference->call;
    struct piece piece;
    struct buf event;
    buf_init(&event, BUF_UNLIMITED);
    if (!call) {
        buf_add_text(&event, "data: ");
        buf_add_str(&event, data);
        buf_add_text(&event, "\n\n");
    } else if (piece_read(data, &piece)) {
        call->dialect->take(call, &piece, clock_unix_ms() * INT64_C(1000000), &event);
    }
    bool good = event.bytes == 0 || http_stream_put(inference->request, buf_str(&event));
    buf_release(&event);
    return good;
}

static void begin_stream(struct inference *inference) {
    pthread_mutex_lock(&inference->lock);
    if (!inference->streaming && !inference->ended) {
        inference->streaming = true;
        if (inference->call)
            http_stream_begin_as(inference->request, inference->call->dialect->stream_type);
        else
            http_stream_begin(inference->request);
    }
    pthread_mutex_unlock(&inference->lock);
}

/* Begins the stream of a request that has waited long for its first token: comment lines then keep
 * it open, and a later error is an event. */
static void take_quiet(void *context) {
    struct inference *inference = context;
    struct buf events;
    if (!inference->stream || !atomic_load(&inference->submitted)) return;
    begin_stream(inference);
    if (!inference->call || !inference->call->dialect->quiet) return;
    buf_init(&events, BUF_UNLIMITED);
    pthread_mutex_lock(&inference->lock);
    inference->call->dialect->quiet(inference->call, clock_unix_ms() * INT64_C(1000000), &events);
    if (!inference->ended) http_stream_put(inference->request, buf_str(&events));
    pthread_mutex_unlock(&inference->lock);
    buf_release(&events);
}

/* Settles the answer: no stream begins after this. True if one has begun. */
static bool settle(struct inference *inference) {
    pthread_mutex_lock(&inference->lock);
    inference->ended = true;
    bool streaming = inference->streaming;
    pthread_mutex_unlock(&inference->lock);
    return streaming;
}

static void take_delta(void *context, struct str chunk) {
    struct inference *inference = context;
    const struct key_caller *caller = http_request_caller(inference->request);
    if (atomic_load(&inference->first_ns) == 0)
        atomic_store(&inference->first_ns, clock_monotonic_ns());
    begin_stream(inference);
    /* The client has gone, reads too slowly for its text to be kept, or has lost its key: stop the
     * request. */
    bool is_known = key_set_still_knows(inference->api->options.keys, caller);
    bool good = is_known && put_chunk(inference, chunk);
    if (!good && !atomic_load(&inference->cancelled)) cancel(inference);
}

static void count_result(struct inference *inference, const struct worker_result *result) {
    struct metrics *metrics = &inference->api->metrics;
    enum metrics_outcome outcome = METRICS_ERRORED;
    if (result->status == 200) outcome = METRICS_SUCCEEDED;
    if (result->outcome == OUTCOME_CANCELLED) outcome = METRICS_CANCELLED;
    atomic_fetch_add(&metrics->requests[inference->endpoint][outcome], 1);
    atomic_fetch_add(&metrics->tokens[TOKENS_INPUT], result->usage.input_tokens);
    atomic_fetch_add(&metrics->tokens[TOKENS_CACHED], result->usage.cached_tokens);
    atomic_fetch_add(&metrics->tokens[TOKENS_OUTPUT], result->usage.output_tokens);
}

/* How the call ended, with the worker's times, or else as this side has seen them. */
static struct dialect_end end_of(struct inference *inference, const struct worker_result *result) {
    int64_t now_ns = clock_monotonic_ns(), first_ns = atomic_load(&inference->first_ns);
    struct dialect_end end = {.usage = result->usage};
    const struct request_times *times = &result->times;
    if (first_ns == 0) first_ns = now_ns;
    end.times.unix_ns = clock_unix_ms() * INT64_C(1000000);
    end.times.total_ns = now_ns - inference->begun_ns;
    end.times.load_ns = times->wait_ns;
    bool is_told = times->prefill_ns > 0;
    end.times.prefill_ns =
        is_told ? times->prefill_ns : first_ns - inference->begun_ns - times->wait_ns;
    end.times.decode_ns = is_told ? times->decode_ns : now_ns - first_ns;
    return end;
}

/* Answers with the whole body in the call's dialect. */
static void answer_call(struct inference *inference, const struct worker_result *result) {
    struct dialect_call *call = inference->call;
    struct dialect_end end = end_of(inference, result);
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    bool is_good = true;
    if (call->wish == DIALECT_RUN)
        is_good = call->dialect->body(call, result->body, &end, &body);
    else
        call->dialect->idle(call, &end.times, &body);
    if (is_good) {
        http_answer_json(inference->request, &body);
        return;
    }
    buf_release(&body);
    api_fail(inference->request, 502, NULL, NULL, "The worker's answer has another form");
}

/* Puts the last events of a stream: its end, or an error, which [DONE] would hide. */
static void end_stream(struct inference *inference, int status,
                       const struct worker_result *result) {
    struct dialect_call *call = inference->call;
    struct dialect_end end = end_of(inference, result);
    struct buf events, own;
    buf_init(&events, BUF_UNLIMITED);
    buf_init(&own, BUF_UNLIMITED);
    if (call && status != 200) dialect_own_error(call, result->body, &own);
    if (!call)
        buf_printf(&events, "data: %.*s\n\n",
                   STR_ARGS(status == 200 ? STR("[DONE]") : result->body));
    else if (status == 200)
        call->dialect->end(call, &end, &events);
    else
        call->dialect->fail(call, status, buf_str(&own), &events);
    http_stream_put(inference->request, buf_str(&events));
    buf_release(&events);
    buf_release(&own);
    http_stream_end(inference->request);
}

/* Answers with what the worker refused, in the words of the API that was asked. */
static void pass_refusal(struct inference *inference, int status,
                         const struct worker_result *result) {
    struct buf own;
    if (!inference->call || status < 400) {
        api_pass_worker(inference->request, status, result->body);
        return;
    }
    buf_init(&own, BUF_UNLIMITED);
    dialect_own_error(inference->call, result->body, &own);
    api_pass_worker(inference->request, status, buf_str(&own));
    buf_release(&own);
}

/* Ends the request. Afterwards it may be freed, and the inference with it. */
static void take_result(void *context, const struct worker_result *result) {
    struct inference *inference = context;
    int status = result->status < 200 || result->status > 599 ? 500 : result->status;
    count_result(inference, result);
    list_remove(inference);
    if (inference->stream && status == 200) begin_stream(inference);
    if (settle(inference))
        end_stream(inference, status, result);
    else if (inference->call && status == 200)
        answer_call(inference, result);
    else
        pass_refusal(inference, status, result);
}

/* --- what goes out --- */

/* Answers a request that the runner did not take. */
static void fail_submission(struct inference *inference, const struct runner_request *job,
                            enum err err, const struct error *error) {
    struct http_request *request = inference->request;
    atomic_fetch_add(&inference->api->metrics.requests[inference->endpoint][METRICS_ERRORED], 1);
    list_remove(inference);
    if (err == ERR_NOT_FOUND)
        api_fail_model(inference->api, request, job->model, "");
    else if (err == ERR_UNAVAILABLE && !error->is_system)
        api_fail(request, 503, NULL, NULL, "%s", error->text);
    else if (err == ERR_LIMIT && job->tier == TIER_FLEX)
        api_fail(request, 429, "resource_unavailable", NULL, "%s", error->text);
    else
        api_fail_err(request, err, error, NULL);
}

void inference_submit(struct api *api, struct http_request *request,
                      const struct runner_request *job, struct dialect_call *call) {
    struct error error = {0};
    struct inference *inference = mem_new(1, sizeof *inference);
    inference->api = api;
    inference->request = request;
    inference->endpoint = job->endpoint;
    inference->stream = job->stream;
    inference->call = call;
    inference->begun_ns = clock_monotonic_ns();
    atomic_store(&inference->holds, 2);
    pthread_mutex_init(&inference->lock, NULL);
    list_add(inference);
    http_request_on_gone(request, cancel, inference_drop, inference);
    http_request_on_quiet(request, take_quiet);
    struct runner_request_events events = {inference, take_delta, take_result};
    enum err err = runner_request(api->options.runner, job, &events, &inference->runner_id, &error);
    if (err == OK) {
        atomic_store(&inference->submitted, true);
        if (atomic_load(&inference->cancelled))
            runner_request_cancel(api->options.runner, inference->runner_id);
    } else {
        fail_submission(inference, job, err, &error);
    }
    inference_drop(inference);
}
