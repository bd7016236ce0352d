/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api_internal.h"
#include "dialects/dialect.h"

#include <inttypes.h>
#include <stdio.h>

/* The model objects written so far. */
struct listing {
    struct buf *body;
    size_t count;
    struct buf first, last; /* their names, as JSON */
};

/* What a model is known to do, and in which format it is asked questions. */
static void add_capabilities(struct buf *body, const struct worker_model *served) {
    const struct {
        bool is_known;
        const char *name;
    } rows[] = {{served->generates, "completion"},
                {served->embeds, "embedding"},
                {served->decides, "decision"}};
    const char *before = ",\"capabilities\":[";
    if (!served->generates && !served->embeds) return;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].is_known) continue;
        buf_printf(body, "%s\"%s\"", before, rows[i].name);
        before = ",";
    }
    buf_add_byte(body, ']');
    if (served->decides) buf_printf(body, ",\"decision_prompt_format\":%d", DECISION_PROMPT_FORMAT);
}

/* The members that clients of Anthropic's API read; one object serves both. */
static void add_anthropic(struct buf *body, const struct runner_model *model) {
    buf_add_text(body, ",\"type\":\"model\",\"display_name\":");
    json_write_string(body, model->name);
    buf_add_text(body, ",\"created_at\":");
    dialect_add_time(body, model->served.created_unix_s * INT64_C(1000000000));
    buf_add_text(body, ",\"lifecycle\":\"active\",\"max_input_tokens\":");
    if (model->served.context_tokens_max)
        buf_printf(body, "%" PRIu32, model->served.context_tokens_max);
    else
        buf_add_text(body, "null");
}

static void listing_init(struct listing *listing, struct buf *body) {
    *listing = (struct listing){.body = body};
    buf_init(body, BUF_UNLIMITED);
    buf_init(&listing->first, BUF_UNLIMITED);
    buf_init(&listing->last, BUF_UNLIMITED);
}

static void listing_release(struct listing *listing) {
    buf_release(&listing->first);
    buf_release(&listing->last);
}

static void add_model(void *context, const struct runner_model *model) {
    struct listing *listing = context;
    struct buf *body = listing->body;
    if (listing->count++ > 0) buf_add_byte(body, ',');
    buf_clear(&listing->last);
    json_write_string(&listing->last, model->name);
    if (listing->first.bytes == 0) buf_add_str(&listing->first, buf_str(&listing->last));
    buf_add_text(body, "{\"id\":");
    json_write_string(body, model->name);
    buf_printf(body,
               ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"quern\",\"root\":",
               model->served.created_unix_s);
    json_write_string(body, model->served.name);
    buf_add_text(body, ",\"parent\":null,\"max_model_len\":");
    if (model->served.context_tokens_max)
        buf_printf(body, "%" PRIu32, model->served.context_tokens_max);
    else
        buf_add_text(body, "null");
    add_anthropic(body, model);
    add_capabilities(body, &model->served);
    buf_printf(body, ",\"status\":{\"value\":\"%s\"", model_state_name(model->state));
    if (model->text) {
        buf_add_text(body, ",\"reason\":");
        json_write_string(body, str_from(model->text));
    }
    buf_add_text(body, "}}");
}

void models_list(void *context, struct http_request *request) {
    struct api *api = context;
    struct buf body;
    struct listing listing;
    listing_init(&listing, &body);
    buf_add_text(&body, "{\"object\":\"list\",\"data\":[");
    runner_models(api->options.runner, add_model, &listing);
    buf_add_text(&body, "],\"has_more\":false");
    dialect_add_member(&body, "first_id", listing.count ? buf_str(&listing.first) : STR("null"));
    dialect_add_member(&body, "last_id", listing.count ? buf_str(&listing.last) : STR("null"));
    buf_add_byte(&body, '}');
    listing_release(&listing);
    api_answer_json(request, &body);
}

void api_fail_model(struct api *api, struct http_request *request, struct str model,
                    const char *whose) {
    struct buf advice;
    buf_init(&advice, REFUSAL_MESSAGE_BYTES);
    runner_write_advice(api->options.runner, model, &advice);
    api_fail(request, 404, "model_not_found", "model", "The model '%.300s'%s does not exist.%s",
             api_text(request, model), whose, advice.at ? advice.at : "");
    buf_release(&advice);
}

/* A client of Anthropic's API reads its errors in their form, whose target does not say so here. */
static void fail_anthropic(struct http_request *request, struct str model) {
    struct refusal refusal;
    struct buf error, body;
    buf_init(&error, BUF_UNLIMITED);
    buf_init(&body, BUF_UNLIMITED);
    refuse_status(&refusal, 404, "model_not_found", "model", "The model '%.300s' does not exist.",
                  api_text(request, model));
    refusal_write(&error, &refusal);
    dialect_write_error(ERRORS_ANTHROPIC, 404, buf_str(&error), &body);
    http_answer(request, &(struct http_answer){.status = 404,
                                               .content_type = "application/json",
                                               .body = buf_str(&body)});
    buf_release(&error);
    buf_release(&body);
}

void models_get(void *context, struct http_request *request) {
    struct api *api = context;
    struct buf body;
    struct listing listing;
    struct str wanted = http_request_param(request, 0);
    listing_init(&listing, &body);
    bool is_found = runner_model_find_anew(api->options.runner, wanted, add_model, &listing);
    listing_release(&listing);
    if (is_found) {
        api_answer_json(request, &body);
        return;
    }
    if (http_request_header(request, "anthropic-version").at)
        fail_anthropic(request, wanted);
    else
        api_fail_model(api, request, wanted, "");
    buf_release(&body);
}

/* Answers with the current state of the model, which changes soon after. */
static void hold(struct api *api, struct http_request *request, bool is_held) {
    struct error error;
    struct str model = http_request_param(request, 0);
    const char *action = is_held ? "model.unload" : "model.load";
    if (!api_audit(api, request, action, api_text(request, model))) return;
    enum err err = runner_model_hold(api->options.runner, model, is_held, &error);
    if (err != OK) api_audit_failed(api, request, action, api_text(request, model), &error);
    if (err == ERR_CONFLICT)
        api_fail_err(request, err, &error, "model");
    else
        models_get(api, request);
}

void models_load(void *context, struct http_request *request) {
    hold(context, request, false);
}

void models_unload(void *context, struct http_request *request) {
    hold(context, request, true);
}
