/* SPDX-License-Identifier: Apache-2.0 */

/* GET /v1/machine/workers (an extension): how many nodes the waiting work wants, for a program that
 * starts and ends them. `wanted` is one number at the top of the object, as readers of metrics like
 * KEDA's metrics-api want it. */

#include "api/api_internal.h"
#include "api/nodes.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WORKERS_BYTES_MAX ((size_t)1 << 20)
#define RULE_MAX 1000000000

/* A whole number of the query; false: answered with 400. */
static bool read_rule(struct http_request *request, const char *name, uint64_t *number) {
    struct str text = http_request_query(request, name);
    if (!text.at) return true;
    if (str_to_u64(text, number) && *number >= 1 && *number <= RULE_MAX) return true;
    api_fail_param(request, "invalid_value", name,
                   "Invalid '%s': expected a whole number from 1 to %d, got '%.40s'.", name,
                   RULE_MAX, api_text(request, text));
    return false;
}

static void write_wish(const struct wish *wish, struct buf *body) {
    buf_printf(body,
               ",\"wanted\":%" PRIu32 ",\"ready\":%" PRIu32 ",\"backlog\":%" PRIu64
               ",\"lines_per_second\":",
               wish->wanted, wish->ready, wish->backlog);
    if (wish->lines_per_s > 0)
        buf_printf(body, "%.6g", wish->lines_per_s);
    else
        buf_add_text(body, "null");
    buf_printf(body, ",\"seconds\":%" PRId64, wish->seconds);
}

void machine_workers(void *context, struct http_request *request) {
    struct api *api = context;
    struct wish_rules rules = {.seconds = WISH_SECONDS, .lines = WISH_LINES};
    struct str name = http_request_query(request, "model");
    if (!read_rule(request, "seconds", &rules.seconds) ||
        !read_rule(request, "lines", &rules.lines))
        return;
    struct runner_progress *progress = mem_alloc(sizeof *progress);
    struct nodes nodes;
    struct wish wish;
    struct buf body;
    const char *model = name.at ? api_text(request, name) : "";
    runner_progress(api->options.runner, progress);
    nodes_read(api, &nodes);
    nodes_wish(&nodes, progress, model, &rules, &wish);
    buf_init(&body, WORKERS_BYTES_MAX);
    buf_add_text(&body, "{\"object\":\"machine.workers\",\"model\":");
    if (*model)
        json_write_string(&body, str_from(model));
    else
        buf_add_text(&body, "null");
    write_wish(&wish, &body);
    buf_add_text(&body, ",\"models\":[");
    for (size_t i = 0; i < progress->queue_count; i++) {
        const char *one = progress->queues[i].model;
        if (!*one || (*model && strcmp(one, model) != 0)) continue;
        nodes_wish(&nodes, progress, one, &rules, &wish);
        if (body.at[body.bytes - 1] == '}') buf_add_byte(&body, ',');
        buf_add_text(&body, "{\"model\":");
        json_write_string(&body, str_from(one));
        write_wish(&wish, &body);
        buf_add_byte(&body, '}');
    }
    buf_add_text(&body, "]}");
    nodes_release(&nodes);
    free(progress);
    api_answer_json(request, &body);
}
