/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api_internal.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

#define HEALTH_BYTES_MAX ((size_t)64 << 10)

/* Appends the state of the upstreams, if the server has any. */
static void write_upstreams(struct api *api, struct buf *body) {
    struct worker_status *statuses = mem_new(RUNNER_WORKERS_MAX, sizeof *statuses);
    size_t count = runner_worker_statuses(api->options.runner, statuses, RUNNER_WORKERS_MAX);
    const char *before = ",\"upstreams\":[";
    bool has_some = false;
    for (size_t i = 0; i < count; i++) {
        if (!statuses[i].upstream) continue;
        buf_printf(body, "%s{\"name\":\"%s\",\"ready\":%s,\"breaker\":\"%s\",\"text\":", before,
                   statuses[i].upstream, statuses[i].ready ? "true" : "false",
                   statuses[i].breaker ? statuses[i].breaker : "closed");
        json_write_string(body, str_from(statuses[i].text));
        buf_add_byte(body, '}');
        before = ",";
        has_some = true;
    }
    if (has_some) buf_add_byte(body, ']');
    free(statuses);
}

static void write_models(const struct runner_status *status, struct buf *body) {
    buf_add_text(body, ",\"models\":{");
    for (int i = MODEL_UNLOADED; i <= MODEL_FAILED; i++)
        buf_printf(body, "%s\"%s\":%u", i > 0 ? "," : "", model_state_name((enum model_state)i),
                   status->workers_in[i]);
    buf_add_byte(body, '}');
}

/* Contract: 200 while the server is alive, 503 while its engines load, before its first upstream
 * has answered, or while it drains. An upstream that takes no requests for a time makes the server
 * no less alive: a restart would not help, so only /ready says 503 then. Models, upstreams and
 * reasons are for known callers only. */
void health_live(void *context, struct http_request *request) {
    struct api *api = context;
    struct runner_status status;
    struct buf body;
    bool is_known = http_request_is_known(request);
    runner_status(api->options.runner, &status);
    bool draining = atomic_load(&api->draining) || status.draining;
    bool is_up = status.workers_ready > 0 || status.upstreams_reached > 0;
    if (draining || !is_up) {
        if (draining)
            api_fail(request, 503, NULL, NULL, "The server is draining");
        else
            api_fail(request, 503, NULL, NULL, "No engine is ready yet%s%.160s",
                     is_known ? ": " : "", is_known ? status.text : "");
        return;
    }
    buf_init(&body, HEALTH_BYTES_MAX);
    buf_printf(&body, "{\"status\":\"%s\"", status.workers_ready > 0 ? "ok" : "degraded");
    if (is_known) {
        write_models(&status, &body);
        write_upstreams(api, &body);
    }
    buf_add_byte(&body, '}');
    api_answer_json(request, &body);
}

static void write_check(struct buf *body, const char *name, bool good) {
    buf_printf(body, ",\"%s\":%s", name, good ? "true" : "false");
}

/* Appends what must hold for work to be taken, and the reason where it does not. */
static void write_checks(const struct runner_status *status, bool draining, struct buf *body) {
    buf_add_text(body, ",\"checks\":{\"store\":true");
    write_check(body, "space", !status->disk_full);
    write_check(body, "engine", status->workers_ready > 0);
    write_check(body, "accepting", !draining);
    buf_add_text(body, "},\"text\":");
    json_write_string(body, str_from(draining ? "draining" : status->text));
}

void health_ready(void *context, struct http_request *request) {
    struct api *api = context;
    struct runner_status status;
    struct buf body;
    runner_status(api->options.runner, &status);
    bool draining = atomic_load(&api->draining) || status.draining;
    bool ready = status.ready && !draining;
    buf_init(&body, HEALTH_BYTES_MAX);
    buf_printf(&body, "{\"ready\":%s", ready ? "true" : "false");
    if (http_request_is_known(request)) {
        write_checks(&status, draining, &body);
        write_upstreams(api, &body);
    }
    buf_add_byte(&body, '}');
    api_pass(request, ready ? 200 : 503, buf_str(&body));
    buf_release(&body);
}

void health_version(void *context, struct http_request *request) {
    const struct api *api = context;
    struct buf body;
    buf_init(&body, 256);
    buf_printf(&body, "{\"version\":\"" QUERN_VERSION "\",\"extended_windows\":%s}",
               api->options.rules.extended_windows ? "true" : "false");
    api_answer_json(request, &body);
}

void health_metrics(void *context, struct http_request *request) {
    struct buf body;
    /* 64 workers of about 100 KiB each, with vLLM's names, and room for long names of models. */
    buf_init(&body, (size_t)16 << 20);
    metrics_write(context, &body);
    http_answer(request,
                &(struct http_answer){.status = 200,
                                      .content_type = "text/plain; version=0.0.4; charset=utf-8",
                                      .body = buf_str(&body)});
    buf_release(&body);
}
