/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api_internal.h"
#include "base/mem.h"
#include "batch/line.h"
#include "json/span.h"
#include "runner/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHORT_BYTES ((size_t)64 << 10) /* longer bodies are not built as trees */

/* Chat completions, completions, embeddings and decisions for single clients: the body goes to the
 * runner unchanged, and the client waits for the result, or reads the deltas as they come. */

/* One request that the runner has. The HTTP request holds it until its end, the handler while it
 * submits. */
struct inference {
    struct api *api;
    struct http_request *request;
    struct inference *next, *previous; /* in api->running, from submission to result */
    enum endpoint endpoint;
    bool stream;
    pthread_mutex_t lock; /* guards the next two */
    bool streaming;       /* the event stream has begun */
    bool ended;           /* the answer is settled, or the stream ends now */
    atomic_bool cancelled;
    atomic_bool submitted; /* runner_id is set */
    uint64_t runner_id;
    atomic_uint holds;
};

static void inference_drop(void *context) {
    struct inference *inference = context;
    if (atomic_fetch_sub(&inference->holds, 1) != 1) return;
    pthread_mutex_destroy(&inference->lock);
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

static bool put_event(struct inference *inference, struct str data) {
    struct buf event;
    buf_init(&event, BUF_UNLIMITED);
    buf_add_text(&event, "data: ");
    buf_add_str(&event, data);
    buf_add_text(&event, "\n\n");
    bool good = http_stream_put(inference->request, buf_str(&event));
    buf_release(&event);
    return good;
}

static void begin_stream(struct inference *inference) {
    pthread_mutex_lock(&inference->lock);
    if (!inference->streaming && !inference->ended) {
        inference->streaming = true;
        http_stream_begin(inference->request);
    }
    pthread_mutex_unlock(&inference->lock);
}

/* Begins the stream of a request that has waited long for its first token: comment lines then keep
 * it open, and a later error is an event. */
static void take_quiet(void *context) {
    struct inference *inference = context;
    if (inference->stream && atomic_load(&inference->submitted)) begin_stream(inference);
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
    begin_stream(inference);
    /* The client has gone, reads too slowly for its text to be kept, or has lost its key: stop the
     * request. */
    bool is_known = key_set_still_knows(inference->api->options.keys, caller);
    bool good = is_known && put_event(inference, chunk);
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

/* Ends the request. Afterwards it may be freed, and the inference with it. */
static void take_result(void *context, const struct worker_result *result) {
    struct inference *inference = context;
    int status = result->status < 200 || result->status > 599 ? 500 : result->status;
    count_result(inference, result);
    list_remove(inference);
    if (inference->stream && status == 200) begin_stream(inference);
    if (!settle(inference)) {
        api_pass_worker(inference->request, status, result->body);
        return;
    }
    /* An error in the middle of a stream is an event of its own; [DONE] would hide it. */
    put_event(inference, status == 200 ? STR("[DONE]") : result->body);
    http_stream_end(inference->request);
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

static void submit(struct api *api, struct http_request *request,
                   const struct runner_request *job) {
    struct error error = {0};
    struct inference *inference = mem_new(1, sizeof *inference);
    inference->api = api;
    inference->request = request;
    inference->endpoint = job->endpoint;
    inference->stream = job->stream;
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

static enum tier tier_of(struct str service_tier) {
    if (str_is(service_tier, "priority") || str_is(service_tier, "fast")) return TIER_PRIORITY;
    if (str_is(service_tier, "flex")) return TIER_FLEX;
    if (str_is(service_tier, "batch")) return TIER_BATCH;
    return TIER_DEFAULT;
}

/* The members of a body that the server itself reads, as raw JSON; `at` is NULL if a member is
 * absent or null. */
struct members {
    struct str model, stream, stream_options, service_tier, priority;
};

/* Returns the name of a member that is given twice; NULL: none. */
static const char *find_members(struct str object, struct members *ret_members) {
    struct members found = {.model = {NULL, 0}};
    const struct {
        const char *name;
        struct str *value;
    } places[] = {{"model", &found.model},
                  {"stream", &found.stream},
                  {"stream_options", &found.stream_options},
                  {"service_tier", &found.service_tier},
                  {"priority", &found.priority}};
    struct json_span_iter iter;
    struct str key, value;
    const char *twice = NULL;
    uint32_t seen = 0;
    if (!json_span_enter(&iter, object)) return NULL;
    while (json_span_member(&iter, &key, &value))
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            if (!json_span_string_is(key, places[i].name)) continue;
            if (seen >> i & 1) twice = places[i].name;
            seen |= 1u << i;
            *places[i].value = str_is(value, "null") ? (struct str){NULL, 0} : value;
        }
    *ret_members = found;
    return twice;
}

/* Finds the object that the body is. A long body is only stepped over: its tree would cost up to 75
 * times its bytes here, and the worker reads it once more. False, and answered with 400, if the
 * body is no object. */
static bool find_object(struct http_request *request, struct str text, struct str *ret_object) {
    struct error error;
    json_t *tree = NULL;
    size_t room = api_tree_room(text.bytes);
    bool is_json = json_span_is_utf8(text) && json_span_read(text, ret_object);
    if (text.bytes <= SHORT_BYTES || !is_json) {
        /* The tree tells the fault and its place, and finds numbers that quern cannot hold. */
        enum err err = json_read_once(&tree, text, &room, &error);
        json_decref(tree);
        if (err == ERR_LIMIT && !is_json) err = err_set(&error, ERR_INVALID, "not valid JSON");
        if (err != OK && err != ERR_LIMIT) {
            api_fail_json(request, err, &error);
            return false;
        }
    }
    if (json_span_is_object(*ret_object)) return true;
    api_fail_param(request, NULL, NULL, "The request body must be a JSON object");
    return false;
}

static bool read_model(struct http_request *request, struct str model, struct buf *scratch,
                       struct str *ret_model) {
    if (!model.at)
        api_fail_param(request, "missing_required_parameter", "model",
                       "Missing required parameter: 'model'.");
    else if (!json_span_is_string(model))
        api_fail_param(request, "invalid_type", "model",
                       "Invalid type for 'model': expected a string.");
    else
        *ret_model = json_span_text(model, scratch);
    return json_span_is_string(model);
}

static bool read_stream(struct http_request *request, enum endpoint endpoint,
                        const struct members *members, bool *ret_stream) {
    struct str stream = members->stream, options = members->stream_options;
    *ret_stream = str_is(stream, "true");
    if (stream.at && !*ret_stream && !str_is(stream, "false"))
        api_fail_param(request, "invalid_type", "stream",
                       "Invalid type for 'stream': expected a boolean.");
    else if (*ret_stream && endpoint == ENDPOINT_EMBEDDINGS)
        api_fail_param(request, "unsupported_parameter", "stream",
                       "Unsupported parameter: 'stream': embeddings come all at once.");
    else if (*ret_stream && endpoint_is_decision(endpoint))
        api_fail_param(request, "invalid_value", "stream",
                       "Invalid 'stream': decisions come all at once; expected false.");
    else if (options.at && !*ret_stream)
        api_fail_param(request, "invalid_value", "stream_options",
                       "The 'stream_options' parameter is only allowed when 'stream' is true.");
    else if (options.at && !json_span_is_object(options))
        api_fail_param(request, "invalid_type", "stream_options",
                       "Invalid type for 'stream_options': expected an object.");
    else
        return true;
    return false;
}

/* The integer, within 32 bits; 0 for any other value. */
static int32_t read_priority(struct str value) {
    int64_t priority;
    if (!value.at || !str_to_i64(value, &priority)) return 0;
    if (priority > INT32_MAX) return INT32_MAX;
    return priority < INT32_MIN ? INT32_MIN : (int32_t)priority;
}

static enum tier read_tier(struct str value, struct buf *scratch) {
    return json_span_is_string(value) ? tier_of(json_span_text(value, scratch)) : TIER_DEFAULT;
}

/* Submits a body that names no model with the name of one. */
static void submit_with_model(struct api *api, struct http_request *request,
                              struct runner_request *job, struct str object, struct str model) {
    const struct batch_line line = {.body = object};
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    job->model = model;
    job->body = batch_line_with_model(&line, model, &body);
    submit(api, request, job);
    buf_release(&body);
}

/* Submits a question about words that names no model, if only one is served. */
static void ask_default_model(struct api *api, struct http_request *request,
                              struct runner_request *job, struct str object) {
    char name[MODEL_NAME_BYTES];
    if (runner_default_model(api->options.runner, name) != SERVED) {
        api_fail_param(request, "missing_required_parameter", "model",
                       "Missing required parameter: 'model', since not one model alone is served.");
        return;
    }
    submit_with_model(api, request, job, object, str_from(name));
}

/* Submits the body, which the caller has taken out of the request, because the request may be over
 * before the submission returns. */
static void infer_body(struct api *api, struct http_request *request, enum endpoint endpoint,
                       struct str body) {
    struct runner_request job = {.endpoint = endpoint, .body = body};
    struct members members = {.model = {NULL, 0}};
    struct str object = {NULL, 0};
    struct buf model, tier;
    memcpy(job.owner, http_request_caller(request)->owner, sizeof job.owner);
    if (!find_object(request, body, &object)) return;
    const char *twice = find_members(object, &members);
    if (twice) {
        api_fail_param(request, "invalid_value", twice,
                       "The key '%s' is given twice: it is not clear which one counts.", twice);
        return;
    }
    /* Azure's clients name the model in the URL, and may leave it out of the body. */
    struct str deployment = http_request_query(request, "deployment");
    bool has_deployment = deployment.bytes > 0 && !members.model.at;
    buf_init(&model, BUF_UNLIMITED);
    buf_init(&tier, BUF_UNLIMITED);
    if (endpoint_is_words(endpoint) && !members.model.at) {
        ask_default_model(api, request, &job, object);
    } else if ((has_deployment || read_model(request, members.model, &model, &job.model)) &&
               read_stream(request, endpoint, &members, &job.stream)) {
        job.tier = read_tier(members.service_tier, &tier);
        job.priority = read_priority(members.priority);
        if (has_deployment)
            submit_with_model(api, request, &job, object, deployment);
        else
            submit(api, request, &job);
    }
    buf_release(&model);
    buf_release(&tier);
}

static void infer(struct api *api, struct http_request *request, enum endpoint endpoint) {
    if (api_refuses_new_work(api, request)) return;
    struct buf body = http_request_take_body(request);
    infer_body(api, request, endpoint, buf_str(&body));
    buf_release(&body);
}

void inference_chat(void *context, struct http_request *request) {
    infer(context, request, ENDPOINT_CHAT);
}

void inference_completions(void *context, struct http_request *request) {
    infer(context, request, ENDPOINT_COMPLETIONS);
}

void inference_embeddings(void *context, struct http_request *request) {
    infer(context, request, ENDPOINT_EMBEDDINGS);
}

void inference_decisions(void *context, struct http_request *request) {
    infer(context, request, ENDPOINT_DECISIONS);
}

void inference_systemone(void *context, struct http_request *request) {
    infer(context, request, ENDPOINT_SYSTEMONE);
}

void inference_tokenize(void *context, struct http_request *request) {
    infer(context, request, ENDPOINT_TOKENIZE);
}

void inference_detokenize(void *context, struct http_request *request) {
    infer(context, request, ENDPOINT_DETOKENIZE);
}

void inference_tokenizer_info(void *context, struct http_request *request) {
    struct str model = http_request_query(request, "model");
    struct buf body;
    if (api_refuses_new_work(context, request)) return;
    buf_init(&body, 4096);
    buf_add_text(&body, "{\"model\":");
    if (model.at)
        json_write_string(&body, model);
    else
        buf_add_text(&body, "null");
    buf_add_byte(&body, '}');
    infer_body(context, request, ENDPOINT_TOKENIZER_INFO, buf_str(&body));
    buf_release(&body);
}

void inference_unsupported(void *context, struct http_request *request) {
    (void)context;
    api_fail(request, 400, "unsupported_endpoint", NULL,
             "The endpoint %s is not supported by this server.",
             http_request_route(request)->pattern);
}
