/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api_internal.h"

#include <stdio.h>

/* The contract: 200 when requests are taken, 503 while loading or draining. */
void health_live(void *context, struct http_request *request) {
    struct api *api = context;
    struct runner_status status;
    struct buf body;
    runner_status(api->options.runner, &status);
    bool draining = atomic_load(&api->draining) || status.draining;
    if (draining || status.workers_ready == 0) {
        api_fail(request, &(struct api_error){
                              503, draining ? "The server is draining" : "No engine is ready yet",
                              NULL, NULL});
        return;
    }
    buf_init(&body, 256);
    buf_add_text(&body, "{\"status\":\"ok\"}");
    api_answer_json(request, &body);
}

static void write_check(struct buf *body, const char *name, bool good) {
    buf_printf(body, ",\"%s\":%s", name, good ? "true" : "false");
}

void health_ready(void *context, struct http_request *request) {
    struct api *api = context;
    struct runner_status status;
    struct buf body;
    runner_status(api->options.runner, &status);
    bool draining = atomic_load(&api->draining) || status.draining;
    bool ready = status.ready && !draining;
    buf_init(&body, 4096);
    buf_printf(&body, "{\"ready\":%s,\"checks\":{\"store\":true", ready ? "true" : "false");
    write_check(&body, "space", !status.disk_full);
    write_check(&body, "engine", status.workers_ready > 0);
    write_check(&body, "accepting", !draining);
    buf_add_text(&body, "},\"text\":");
    json_write_string(&body, str_from(draining ? "draining" : status.text));
    buf_add_byte(&body, '}');
    api_pass(request, ready ? 200 : 503, buf_str(&body));
    buf_release(&body);
}

void health_version(void *context, struct http_request *request) {
    struct buf body;
    (void)context;
    buf_init(&body, 256);
    buf_add_text(&body, "{\"version\":\"" QUERN_VERSION "\"}");
    api_answer_json(request, &body);
}

void health_metrics(void *context, struct http_request *request) {
    struct buf body;
    buf_init(&body, (size_t)4 << 20);
    metrics_write(context, &body);
    http_answer(request,
                &(struct http_answer){.status = 200,
                                      .content_type = "text/plain; version=0.0.4; charset=utf-8",
                                      .body = buf_str(&body)});
    buf_release(&body);
}
