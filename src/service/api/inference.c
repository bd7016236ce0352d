/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api_internal.h"
#include "api/inference_run.h"
#include "base/mem.h"
#include "batch/line.h"
#include "json/span.h"
#include "runner/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Chat completions, completions, embeddings and decisions for single clients: the body goes to the
 * runner unchanged, and the client waits for the result, or reads the deltas as they come. */

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
    else if (*ret_stream && endpoint_is_pooled(endpoint))
        api_fail_param(request, "unsupported_parameter", "stream",
                       "Unsupported parameter: 'stream': %s come all at once.",
                       endpoint == ENDPOINT_EMBEDDINGS ? "embeddings" : "scores");
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
    return json_span_is_string(value) ? tier_of_request(json_span_text(value, scratch))
                                      : TIER_DEFAULT;
}

/* Submits a body that names no model with the name of one. */
static void submit_with_model(struct api *api, struct http_request *request,
                              struct runner_request *job, struct str object, struct str model) {
    const struct batch_line line = {.body = object};
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    job->model = model;
    job->body = batch_line_with_model(&line, model, &body);
    job->owned = NULL;
    inference_submit(api, request, job, NULL);
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
                       struct buf *body) {
    struct runner_request job = {.endpoint = endpoint, .body = buf_str(body), .owned = body};
    struct members members = {.model = {NULL, 0}};
    struct str object = {NULL, 0};
    struct buf model, tier;
    memcpy(job.owner, http_request_caller(request)->owner, sizeof job.owner);
    if (!api_find_object(request, job.body, &object)) return;
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
            inference_submit(api, request, &job, NULL);
    }
    buf_release(&model);
    buf_release(&tier);
}

static void infer(struct api *api, struct http_request *request, enum endpoint endpoint) {
    if (api_refuses_new_work(api, request)) return;
    struct buf body = http_request_take_body(request);
    infer_body(api, request, endpoint, &body);
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

void inference_score(void *context, struct http_request *request) {
    infer(context, request, ENDPOINT_SCORE);
}

void inference_rerank(void *context, struct http_request *request) {
    infer(context, request, ENDPOINT_RERANK);
}

void inference_classify(void *context, struct http_request *request) {
    infer(context, request, ENDPOINT_CLASSIFY);
}

void inference_pooling(void *context, struct http_request *request) {
    infer(context, request, ENDPOINT_POOLING);
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
    infer_body(context, request, ENDPOINT_TOKENIZER_INFO, &body);
    buf_release(&body);
}

void inference_unsupported(void *context, struct http_request *request) {
    (void)context;
    api_fail(request, 400, "unsupported_endpoint", NULL,
             "The endpoint %s is not supported by this server.",
             http_request_route(request)->pattern);
}
