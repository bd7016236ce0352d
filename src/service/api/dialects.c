/* SPDX-License-Identifier: Apache-2.0 */
#include "api/dialects.h"

#include "api/inference_run.h"
#include "base/clock.h"
#include "dialects/messages.h"
#include "dialects/ollama.h"
#include "dialects/ollama_preset.h"
#include "dialects/responses.h"
#include "json/span.h"
#include "runner/dialect_names.h"

#include <string.h>

/* Lets the model leave, and answers at once, as Ollama does. */
static void unload(struct api *api, struct http_request *request, struct dialect_call *call) {
    struct error error;
    struct buf body;
    const struct dialect_times times = {.unix_ns = clock_unix_ms() * INT64_C(1000000)};
    if (runner_model_park(api->options.runner, buf_str(&call->model), &error) != OK) {
        api_fail_model(api, request, buf_str(&call->model), "");
    } else {
        buf_init(&body, BUF_UNLIMITED);
        call->dialect->idle(call, &times, &body);
        http_answer_json(request, &body);
    }
    dialect_call_free(call);
}

/* Runs what the call asks for. A load becomes the shortest question about the model's
 * words, which is answered as soon as the model is there. */
static void run(struct api *api, struct http_request *request, struct dialect_call *call) {
    struct runner_request job = {.endpoint = call->endpoint,
                                 .tier = call->tier,
                                 .stream = call->stream,
                                 .model = buf_str(&call->model),
                                 .body = buf_str(&call->body),
                                 .keep_ms = call->keep_ms};
    struct buf probe, body = call->body; /* the runner takes it over: the call need not keep it */
    if (call->wish == DIALECT_UNLOAD) {
        unload(api, request, call);
        return;
    }
    buf_init(&probe, BUF_UNLIMITED);
    buf_init(&call->body, BUF_UNLIMITED);
    job.owned = &body;
    memcpy(job.owner, http_request_caller(request)->owner, sizeof job.owner);
    if (call->wish != DIALECT_RUN) {
        buf_add_text(&probe, "{\"prompt\":\"\",\"model\":");
        json_write_string(&probe, buf_str(&call->model));
        buf_add_byte(&probe, '}');
        job.endpoint = ENDPOINT_TOKENIZE;
        job.stream = false;
        job.body = buf_str(&probe);
        job.owned = NULL;
    }
    inference_submit(api, request, &job, call);
    buf_release(&probe);
    buf_release(&body);
}

/* What the model of a call is asked. */
struct fit {
    const struct dialect_call *call;
    struct refusal *refusal;
    bool is_good;
};

static void check_model(void *context, const struct runner_model *model) {
    struct fit *fit = context;
    fit->is_good = fit->call->dialect->fits(fit->call, &model->served, fit->refusal);
}

/* A model that no worker serves is refused later. */
static bool fits(struct api *api, const struct dialect_call *call, struct refusal *refusal) {
    struct fit fit = {call, refusal, true};
    if (call->dialect->fits && call->wish == DIALECT_RUN)
        runner_model_find(api->options.runner, buf_str(&call->model), check_model, &fit);
    return fit.is_good;
}

/* Puts what the Modelfile of the asked model says into the request; *body then becomes the request
 * that *object is in. */
static void add_preset(struct api *api, const struct dialect *dialect, struct str *object,
                       struct buf *body) {
    struct ollama_preset preset;
    struct buf name, whole;
    if (!api->options.preset || (dialect != &ollama_chat && dialect != &ollama_generate)) return;
    struct str model = json_span_get(*object, "model");
    if (!model.at || !json_span_is_string(model)) return;
    ollama_preset_init(&preset);
    buf_init(&name, BUF_UNLIMITED);
    buf_init(&whole, BUF_UNLIMITED);
    json_span_decode(&name, model);
    if (api->options.preset(api->options.pull_context, buf_str(&name), &preset) &&
        ollama_preset_apply(&preset, dialect, *object, &whole)) {
        buf_release(body);
        *body = whole;
        *object = buf_str(body);
        buf_init(&whole, BUF_UNLIMITED);
    }
    buf_release(&whole);
    buf_release(&name);
    ollama_preset_release(&preset);
}

void api_answer_in(struct api *api, struct http_request *request, const struct dialect *dialect) {
    struct str object;
    struct refusal refusal;
    if (api_refuses_new_work(api, request)) return;
    struct buf body = http_request_take_body(request);
    if (api_find_object(request, buf_str(&body), &object)) {
        add_preset(api, dialect, &object, &body);
        struct dialect_call *call = dialect_names_read(dialect, object, &refusal);
        buf_release(&body); /* the call has what it needs of it */
        bool is_good = call && fits(api, call, &refusal);
        if (is_good) {
            run(api, request, call);
        } else {
            dialect_call_free(call);
            api_refuse(request, &refusal);
        }
    }
    buf_release(&body);
}

void messages_post(void *context, struct http_request *request) {
    api_answer_in(context, request, &messages_create);
}

void messages_post_count(void *context, struct http_request *request) {
    api_answer_in(context, request, &messages_count);
}

void responses_post(void *context, struct http_request *request) {
    api_answer_in(context, request, &responses_create);
}

void responses_post_count(void *context, struct http_request *request) {
    api_answer_in(context, request, &responses_count);
}

void responses_kept(void *context, struct http_request *request) {
    (void)context;
    api_fail(request, 404, "response_not_found", NULL,
             "There is no response '%.100s': this server keeps no responses; send the earlier "
             "items in 'input'",
             api_text(request, http_request_param(request, 0)));
}
