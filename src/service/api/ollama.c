/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/ollama.h"

#include "api/api_internal.h"
#include "api/dialects.h"
#include "base/clock.h"
#include "base/digest.h"
#include "json/span.h"

#include <inttypes.h>
#include <string.h>

/* Ollama's own API. Requests for answers go through dialects/ollama.h; what it says about models
 * comes from the runner. */

/* The version of Ollama whose API this is. Clients refuse older ones, and read numbers and dots
 * only; quern's own version is in /version. */
#define OLLAMA_VERSION "0.33.0"
#define NS_PER_MS 1000000

void ollama_post_chat(void *context, struct http_request *request) {
    api_answer_in(context, request, &ollama_chat);
}

void ollama_post_generate(void *context, struct http_request *request) {
    api_answer_in(context, request, &ollama_generate);
}

void ollama_post_embed(void *context, struct http_request *request) {
    api_answer_in(context, request, &ollama_embed);
}

void ollama_post_embeddings(void *context, struct http_request *request) {
    api_answer_in(context, request, &ollama_embeddings);
}

/* --- models --- */

/* The models written so far. */
struct listing {
    struct buf *body;
    size_t count;
    bool only_loaded;
};

/* Appends a name that has a tag, as all names of Ollama's have. */
static void add_name(struct buf *body, struct str name) {
    struct buf tagged;
    buf_init(&tagged, BUF_UNLIMITED);
    buf_add_str(&tagged, name);
    if (str_find_byte(name, ':', 0) == SIZE_MAX) buf_add_text(&tagged, ":latest");
    json_write_string(body, buf_str(&tagged));
    buf_release(&tagged);
}

/* A digest that names the model as it is served now: Ollama's is that of a manifest. */
static void add_digest(struct buf *body, const struct runner_model *model) {
    struct buf text;
    struct digest digest;
    char hex[DIGEST_HEX_BYTES];
    buf_init(&text, BUF_UNLIMITED);
    buf_add_str(&text, model->served.name);
    buf_printf(&text, " %" PRId64, model->served.created_unix_s);
    digest_begin(&digest, DIGEST_SHA256);
    digest_add(&digest, text.at, text.bytes);
    digest_end_hex(&digest, hex);
    buf_release(&text);
    buf_printf(body, ",\"digest\":\"%s\"", hex);
}

static void add_capabilities(struct buf *body, const struct worker_model *served) {
    buf_add_text(body, ",\"capabilities\":[");
    if (served->generates || !served->embeds) buf_add_text(body, "\"completion\"");
    if (served->generates && served->embeds) buf_add_byte(body, ',');
    if (served->embeds) buf_add_text(body, "\"embedding\"");
    buf_add_byte(body, ']');
}

/* What this server knows of a model. No text is empty: clients read each. */
static void add_details(struct buf *body, const struct runner_model *model) {
    buf_add_text(body, ",\"details\":{\"parent_model\":\"\",\"format\":\"gguf\",\"family\":"
                       "\"unknown\",\"families\":[\"unknown\"],\"parameter_size\":\"unknown\","
                       "\"quantization_level\":\"unknown\"");
    if (model->served.context_tokens_max)
        buf_printf(body, ",\"context_length\":%" PRIu32, model->served.context_tokens_max);
    buf_add_byte(body, '}');
    add_capabilities(body, &model->served);
}

static void add_model(void *context, const struct runner_model *model) {
    struct listing *listing = context;
    struct buf *body = listing->body;
    if (listing->only_loaded && model->state != MODEL_LOADED) return;
    if (listing->count++ > 0) buf_add_byte(body, ',');
    buf_add_text(body, "{\"name\":");
    add_name(body, model->name);
    buf_add_text(body, ",\"model\":");
    add_name(body, model->name);
    buf_add_text(body, ",\"modified_at\":");
    dialect_add_time(body, model->served.created_unix_s * INT64_C(1000000000));
    buf_add_text(body, ",\"size\":0");
    add_digest(body, model);
    add_details(body, model);
    if (listing->only_loaded)
        buf_printf(body,
                   ",\"expires_at\":\"2318-01-01T00:00:00Z\",\"size_vram\":0,\"context_length\":"
                   "%" PRIu32,
                   model->served.context_tokens_max);
    buf_add_byte(body, '}');
}

static void list(struct api *api, struct http_request *request, bool only_loaded) {
    struct buf body;
    buf_init(&body, BUF_UNLIMITED);
    buf_add_text(&body, "{\"models\":[");
    runner_models(api->options.runner, add_model,
                  &(struct listing){.body = &body, .only_loaded = only_loaded});
    buf_add_text(&body, "]}");
    api_answer_json(request, &body);
}

void ollama_get_tags(void *context, struct http_request *request) {
    list(context, request, false);
}

void ollama_get_ps(void *context, struct http_request *request) {
    list(context, request, true);
}

void ollama_get_version(void *context, struct http_request *request) {
    (void)context;
    http_answer(request, &(struct http_answer){.status = 200,
                                               .body = STR("{\"version\":\"" OLLAMA_VERSION "\"}"),
                                               .is_static = true});
}

static void add_shown(void *context, const struct runner_model *model) {
    struct buf *body = context;
    buf_add_text(body, "{\"license\":\"\",\"modelfile\":\"\",\"parameters\":\"\",\"template\":\"\","
                       "\"system\":\"\"");
    add_details(body, model);
    buf_add_text(body,
                 ",\"model_info\":{\"general.architecture\":\"unknown\",\"general.basename\":");
    json_write_string(body, model->name);
    if (model->served.context_tokens_max)
        buf_printf(body, ",\"unknown.context_length\":%" PRIu32, model->served.context_tokens_max);
    buf_add_text(body, "},\"modified_at\":");
    dialect_add_time(body, model->served.created_unix_s * INT64_C(1000000000));
    buf_add_byte(body, '}');
}

/* The name of the body's `model`, or of the older `name`. */
static bool read_name(struct http_request *request, struct str object, struct buf *name) {
    struct refusal refusal;
    struct str model, older;
    const struct member places[] = {{"model", &model}, {"name", &older}};
    if (!members_read(object, places, 2, &refusal)) {
        api_refuse(request, &refusal);
        return false;
    }
    if (!model.at) model = older;
    if (!json_span_is_string(model) || member_is_empty(model)) {
        api_fail_param(request, "missing_required_parameter", "model", "model is required");
        return false;
    }
    json_span_decode(name, model);
    return true;
}

void ollama_post_show(void *context, struct http_request *request) {
    struct api *api = context;
    struct str object;
    struct buf body, name;
    buf_init(&body, BUF_UNLIMITED);
    buf_init(&name, BUF_UNLIMITED);
    if (api_find_object(request, http_request_body(request), &object) &&
        read_name(request, object, &name)) {
        if (runner_model_find(api->options.runner, buf_str(&name), add_shown, &body))
            api_answer_json(request, &body);
        else
            api_fail(request, 404, "model_not_found", "model", "model '%.300s' not found",
                     api_text(request, buf_str(&name)));
    }
    buf_release(&body);
    buf_release(&name);
}

void ollama_unsupported(void *context, struct http_request *request) {
    (void)context;
    api_fail(request, 501, "unsupported_endpoint", NULL,
             "%s is not supported by this server: models are made with the tools of their makers, "
             "and fetched with 'quern pull'",
             http_request_route(request)->pattern);
}
