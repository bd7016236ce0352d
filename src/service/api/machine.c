/* SPDX-License-Identifier: Apache-2.0 */

/* GET /v1/machine (an extension): the state of the machine for its page: models, queues, owners,
 * cards, nodes, the throughput of the last hour, and events. The figures equal those of /metrics;
 * the work of owners and the events are in no metric.
 *
 * An owner sees its own work and the events of its own batches; an admin sees all. */

#include "api/api_internal.h"
#include "api/copies.h"
#include "api/nodes.h"
#include "base/clock.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MACHINE_BYTES_MAX ((size_t)4 << 20)

static void write_text(struct buf *body, const char *name, const char *text) {
    buf_printf(body, "\"%s\":", name);
    if (text && *text)
        json_write_string(body, str_from(text));
    else
        buf_add_text(body, "null");
}

/* --- models and queues --- */

static uint64_t depth_of(const struct runner_progress *progress, const char *model) {
    for (size_t i = 0; i < progress->queue_count; i++)
        if (strcmp(progress->queues[i].model, model) == 0)
            return progress->queues[i].lines + progress->queues[i].requests;
    return 0;
}

/* Memory on the card, if the worker runs on one; else memory of its process. */
static uint64_t memory_of(const struct worker_status *status) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < CARD_PARTS; i++) bytes += status->ledger.part_bytes[i];
    return bytes ? bytes : status->memory_bytes;
}

static void write_model(struct buf *body, size_t worker, const char *model,
                        const struct worker_status *status, uint64_t depth) {
    enum model_state state = model_state_of(status);
    buf_printf(body, "%s{\"worker\":%zu,", worker > 0 ? "," : "", worker);
    write_text(body, "id", model);
    buf_printf(body, ",\"state\":\"%s\",", model_state_name(state));
    write_text(body, "text", status->text);
    buf_add_byte(body, ',');
    write_text(body, "upstream", status->upstream);
    buf_add_byte(body, ',');
    write_text(body, "device", status->card);
    uint64_t bytes = memory_of(status);
    if (bytes)
        buf_printf(body, ",\"memory_bytes\":%" PRIu64, bytes);
    else
        buf_add_text(body, ",\"memory_bytes\":null");
    buf_printf(body, ",\"can_unload\":%s,\"held\":%s", status->can_unload ? "true" : "false",
               status->is_held ? "true" : "false");
    buf_printf(body,
               ",\"running\":%" PRIu32 ",\"waiting\":%" PRIu32 ",\"queue_depth\":%" PRIu64
               ",\"kv_used\":%.6g,\"restarts\":%" PRIu64 ",\"tokens\":%" PRIu64 "}",
               status->running, status->waiting, depth, status->kv_used, status->restarts,
               status->completion_tokens);
}

static void write_models(struct api *api, const struct runner_progress *progress,
                         struct buf *body) {
    struct worker_status *statuses = mem_new(RUNNER_WORKERS_MAX, sizeof *statuses);
    size_t count = runner_worker_statuses(api->options.runner, statuses, RUNNER_WORKERS_MAX);
    char model[MODEL_NAME_BYTES];
    buf_add_text(body, ",\"models\":[");
    for (size_t i = 0; i < count && runner_worker_model(api->options.runner, i, model); i++)
        write_model(body, i, model, &statuses[i], depth_of(progress, model));
    buf_add_byte(body, ']');
    free(statuses);
}

/* Appends the queues. An empty model stands for batches of several models. */
static void write_queues(const struct runner_progress *progress, struct buf *body) {
    buf_add_text(body, ",\"queues\":[");
    for (size_t i = 0; i < progress->queue_count; i++) {
        const struct runner_queue *queue = &progress->queues[i];
        buf_add_text(body, i > 0 ? ",{" : "{");
        write_text(body, "model", queue->model);
        buf_printf(body,
                   ",\"lines\":%" PRIu64 ",\"requests\":%" PRIu64 ",\"waiting_batches\":%" PRIu64
                   ",\"oldest_age_s\":%" PRId64 "}",
                   queue->lines, queue->requests, queue->waiting_batches, queue->oldest_age_s);
    }
    buf_add_byte(body, ']');
}

static void write_owners(struct api *api, struct http_request *request, struct buf *body) {
    struct runner_owner *owners = mem_new(RUNNER_OWNERS_MAX, sizeof *owners);
    size_t count = runner_owners(api->options.runner, api_sees_owner(request), owners);
    buf_add_text(body, ",\"owners\":[");
    for (size_t i = 0; i < count; i++) {
        buf_add_text(body, i > 0 ? ",{" : "{");
        write_text(body, "owner", *owners[i].owner ? owners[i].owner : "default");
        buf_printf(body,
                   ",\"open_batches\":%" PRIu64 ",\"queued_lines\":%" PRIu64
                   ",\"requests\":%" PRIu64 "}",
                   owners[i].open_batches, owners[i].queued_lines, owners[i].requests);
    }
    buf_add_byte(body, ']');
    free(owners);
}

/* --- cards --- */

static const char *const value_names[CARD_VALUES] = {
    [CARD_MEMORY_BYTES] = "memory_bytes",
    [CARD_MEMORY_USED_BYTES] = "memory_used_bytes",
    [CARD_UTILISATION] = "utilisation",
    [CARD_MEMORY_UTILISATION] = "memory_utilisation",
    [CARD_POWER_WATTS] = "power_watts",
    [CARD_POWER_LIMIT_WATTS] = "power_limit_watts",
    [CARD_ENERGY_JOULES] = "energy_joules",
    [CARD_SM_CLOCK_HERTZ] = "sm_clock_hertz",
    [CARD_MEMORY_CLOCK_HERTZ] = "memory_clock_hertz",
    [CARD_CELSIUS] = "celsius",
    [CARD_ECC_ERRORS] = "ecc_errors",
};
static const char *const brake_names[CARD_BRAKES] = {"power", "heat", "hardware"};

/* Appends a value, or null if it is not known: values of a card that is down are old. */
static void write_number(struct buf *body, const char *name, double value, bool is_known) {
    if (is_known && isfinite(value))
        buf_printf(body, ",\"%s\":%.12g", name, value);
    else
        buf_printf(body, ",\"%s\":null", name);
}

static void write_card(const struct card_status *card, struct buf *body) {
    write_text(body, "id", card->uuid);
    buf_add_byte(body, ',');
    write_text(body, "name", card->name);
    buf_printf(body, ",\"up\":%s", card->is_up ? "true" : "false");
    for (size_t i = 0; i < CARD_VALUES; i++)
        write_number(body, value_names[i], card->values[i], card->is_up);
    write_number(body, "tokens_per_second", card->tokens_per_s, card->is_up);
    write_number(body, "joules_per_1000_tokens", card->joules_per_1000_tokens, card->is_up);
    buf_printf(body, ",\"xid_errors\":%" PRIu64 ",\"limited_by\":[", card->xid_count);
    const char *before = "";
    for (size_t i = 0; i < CARD_BRAKES; i++) {
        if (!card->is_up || !card->brakes[i]) continue;
        buf_printf(body, "%s\"%s\"", before, brake_names[i]);
        before = ",";
    }
    buf_add_byte(body, ']');
}

static void write_cards(struct api *api, struct buf *body) {
    struct card_status cards[CARDS_MAX];
    size_t count = 0;
    if (api->options.cards) count = api->options.cards(api->options.cards_context, cards);
    buf_add_text(body, ",\"devices\":[");
    for (size_t i = 0; i < count; i++) {
        buf_add_text(body, i > 0 ? ",{" : "{");
        write_card(&cards[i], body);
        buf_add_byte(body, '}');
    }
    buf_add_byte(body, ']');
}

/* --- the last hour --- */

static void write_throughput(struct history *history, struct buf *body) {
    struct history_step *steps = mem_new(HISTORY_STEPS, sizeof *steps);
    size_t count = history_steps(history, steps);
    buf_printf(body, ",\"throughput\":{\"step_s\":%d,\"tokens\":[", HISTORY_STEP_S);
    for (size_t i = 0; i < count; i++)
        buf_printf(body, "%s%" PRIu64, i > 0 ? "," : "", steps[i].tokens);
    buf_add_text(body, "],\"lines\":[");
    for (size_t i = 0; i < count; i++)
        buf_printf(body, "%s%" PRIu64, i > 0 ? "," : "", steps[i].lines);
    buf_add_text(body, "]}");
    free(steps);
}

static void write_events(struct history *history, const struct http_request *request,
                         struct buf *body) {
    struct history_event *events = mem_new(HISTORY_EVENTS, sizeof *events);
    size_t count = history_events(history, events);
    const char *before = "{";
    buf_add_text(body, ",\"events\":[");
    for (size_t i = 0; i < count; i++) {
        const struct history_event *event = &events[i];
        if (*event->batch_id && !api_may_see(request, event->owner)) continue;
        buf_printf(body, "%s\"at\":%" PRId64 ",\"kind\":\"%s\",", before, event->at_unix_s,
                   history_kind_name(event->kind));
        write_text(body, "message", event->text);
        buf_add_byte(body, ',');
        write_text(body, "batch_id", event->batch_id);
        buf_add_byte(body, '}');
        before = ",{";
    }
    buf_add_byte(body, ']');
    free(events);
}

void machine_get(void *context, struct http_request *request) {
    struct api *api = context;
    struct history *history = runner_history(api->options.runner);
    struct runner_progress *progress = mem_alloc(sizeof *progress);
    struct nodes nodes;
    struct buf body;
    runner_progress(api->options.runner, progress);
    buf_init(&body, MACHINE_BYTES_MAX);
    buf_printf(&body, "{\"object\":\"machine\",\"at\":%" PRId64 ",\"started_at\":%" PRId64,
               clock_unix_s(), api->started_unix_s);
    bool is_admin = key_caller_has(http_request_caller(request), KEY_SCOPE_ADMIN);
    buf_printf(&body, ",\"admin\":%s", is_admin ? "true" : "false");
    write_models(api, progress, &body);
    write_queues(progress, &body);
    write_owners(api, request, &body);
    write_cards(api, &body);
    nodes_read(api, &nodes);
    nodes_write_json(&nodes, is_admin, &body);
    nodes_release(&nodes);
    copies_write_json(api, &body);
    write_throughput(history, &body);
    write_events(history, request, &body);
    buf_add_byte(&body, '}');
    free(progress);
    api_answer_json(request, &body);
}
