/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api_internal.h"

#include <inttypes.h>
#include <stdio.h>

/* Collects model objects: all of them, or the one that is wanted. */
struct listing {
    struct api *api;
    struct buf *body;
    struct str wanted; /* empty: all */
    size_t count;
};

static void add(struct listing *listing, struct str name, const struct worker_model *model) {
    if (listing->wanted.bytes > 0 && (listing->count > 0 || !str_equals(name, listing->wanted)))
        return;
    struct buf *body = listing->body;
    if (listing->count++ > 0) buf_add_byte(body, ',');
    buf_add_text(body, "{\"id\":");
    json_write_string(body, name);
    buf_printf(body,
               ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"quern\",\"root\":",
               model->created_unix_s);
    json_write_string(body, model->name);
    buf_add_text(body, ",\"parent\":null,\"max_model_len\":");
    if (model->context_tokens_max)
        buf_printf(body, "%" PRIu32 "}", model->context_tokens_max);
    else
        buf_add_text(body, "null}");
}

static void add_model(void *context, const struct worker_model *model) {
    struct listing *listing = context;
    const struct api_options *options = &listing->api->options;
    add(listing, model->name, model);
    for (size_t i = 0; i < options->alias_count; i++)
        if (str_is(model->name, options->aliases[i].model))
            add(listing, str_from(options->aliases[i].name), model);
}

void models_list(void *context, struct http_request *request) {
    struct api *api = context;
    struct buf body;
    buf_init(&body, SIZE_MAX / 2);
    buf_add_text(&body, "{\"object\":\"list\",\"data\":[");
    runner_models(api->options.runner, add_model, &(struct listing){.api = api, .body = &body});
    buf_add_text(&body, "]}");
    api_answer_json(request, &body);
}

void models_get(void *context, struct http_request *request) {
    struct api *api = context;
    struct buf body;
    buf_init(&body, SIZE_MAX / 2);
    struct listing listing = {.api = api, .body = &body, .wanted = http_request_param(request, 0)};
    runner_models(api->options.runner, add_model, &listing);
    if (listing.count > 0) {
        api_answer_json(request, &body);
        return;
    }
    char message[400];
    snprintf(message, sizeof message, "The model '%.300s' does not exist.",
             api_text(request, listing.wanted));
    api_fail(request, &(struct api_error){404, message, "model", "model_not_found"});
    buf_release(&body);
}
