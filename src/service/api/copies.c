/* SPDX-License-Identifier: Apache-2.0 */
#include "api/copies.h"

#include "api/metrics_text.h"
#include "base/clock.h"
#include "json/json.h"

#include <inttypes.h>
#include <string.h>

#define NS_PER_MS INT64_C(1000000)
#define WAIT_MS_LEAST 100

static const char sentence[] =
    "The copy of this server's state (--copy-to) cannot be stored now. Nothing is lost; try again "
    "later";

/* Whether answers on the route tell of what the database has. Inference, models, health and the
 * figures of the machine do not. */
static bool tells_of_state(const struct http_route *route) {
    return route->scope == KEY_SCOPE_FILES || route->scope == KEY_SCOPE_BATCHES ||
           route->scope == KEY_SCOPE_ADMIN;
}

const char *copies_hold(void *context, const struct http_route *route, bool is_done) {
    struct api *api = context;
    struct copy *copy = api->options.copy;
    bool is_change = strcmp(route->method, "GET") != 0;
    struct copy_status status;
    if (!tells_of_state(route)) return NULL;
    copy_status(copy, &status);
    if (!is_done) return is_change && status.is_away ? sentence : NULL;
    if (is_change && route->scope == KEY_SCOPE_ADMIN) copy_look_at_files(copy);
    int64_t left_ms = COPY_AWAY_MS - status.behind_ms;
    int64_t wait_ms = left_ms > WAIT_MS_LEAST ? left_ms : WAIT_MS_LEAST;
    return copy_wait(copy, false, clock_monotonic_ns() + wait_ms * NS_PER_MS) ? NULL : sentence;
}

void copies_write_metrics(struct api *api, struct buf *buf) {
    struct copy_status status = {0};
    if (api->options.copy) copy_status(api->options.copy, &status);
    metrics_one(buf, "quern_copy_up", "gauge", !status.is_away,
                "0 while the copy of --copy-to takes nothing and answers wait for it, else 1.");
    metrics_one(buf, "quern_copy_behind_seconds", "gauge", (double)status.behind_ms / 1000,
                "Age of the oldest change that the copy lacks.");
    metrics_one(buf, "quern_copy_waiting_bytes", "gauge", (double)status.waiting_bytes,
                "Bytes of changes that the copy lacks.");
    metrics_one(buf, "quern_copy_entries_total", "counter", (double)status.entries,
                "Entries written to the log of the copy.");
    metrics_one(buf, "quern_copy_bytes_total", "counter", (double)status.entry_bytes,
                "Bytes of these entries.");
    metrics_one(buf, "quern_copy_bases_total", "counter", (double)status.bases,
                "Whole states written to the copy.");
    metrics_one(buf, "quern_copy_failures_total", "counter", (double)status.failures,
                "Writes to the copy that failed and were tried again.");
}

void copies_write_json(struct api *api, struct buf *buf) {
    struct copy_status status;
    if (!api->options.copy) {
        buf_add_text(buf, ",\"copy\":null");
        return;
    }
    copy_status(api->options.copy, &status);
    buf_printf(buf, ",\"copy\":{\"state\":\"%s\",\"behind_ms\":%" PRId64,
               status.is_fenced ? "fenced"
               : status.is_away ? "away"
                                : "stored",
               status.behind_ms);
    buf_printf(buf, ",\"waiting_bytes\":%" PRIu64 ",\"entries\":%" PRIu64 ",\"error\":",
               status.waiting_bytes, status.entries);
    if (*status.sentence)
        json_write_string(buf, str_from(status.sentence));
    else
        buf_add_text(buf, "null");
    buf_add_text(buf, "}");
}
