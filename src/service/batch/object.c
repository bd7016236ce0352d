/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/object.h"

#include "batch/batch_costs.h"
#include "batch/extras.h"
#include "batch/state.h"
#include "json/json.h"

#include <inttypes.h>

static void add_text(struct buf *buf, const char *name, const char *text) {
    buf_printf(buf, ",\"%s\":", name);
    if (text && *text)
        json_write_string(buf, str_from(text));
    else
        buf_add_text(buf, "null");
}

static void add_time(struct buf *buf, const char *name, int64_t unix_s) {
    if (unix_s)
        buf_printf(buf, ",\"%s\":%" PRId64, name, unix_s);
    else
        buf_printf(buf, ",\"%s\":null", name);
}

static void add_times(struct buf *buf, const struct store_batch *batch) {
    add_time(buf, "created_at", batch->created_unix_s);
    add_time(buf, "in_progress_at", batch->in_progress_unix_s);
    add_time(buf, "expires_at", batch->expires_unix_s);
    add_time(buf, "finalizing_at", batch->finalizing_unix_s);
    add_time(buf, "completed_at", batch->completed_unix_s);
    add_time(buf, "failed_at", batch->failed_unix_s);
    add_time(buf, "expired_at", batch->expired_unix_s);
    add_time(buf, "cancelling_at", batch->cancelling_unix_s);
    add_time(buf, "cancelled_at", batch->cancelled_unix_s);
}

static void add_usage(struct buf *buf, const struct store_batch *batch) {
    const struct usage *usage = &batch->usage;
    if (!batch->has_usage) {
        buf_add_text(buf, ",\"usage\":null");
        return;
    }
    buf_printf(buf,
               ",\"usage\":{\"input_tokens\":%" PRIu64
               ",\"input_tokens_details\":{\"cached_tokens\":%" PRIu64
               ",\"deduplicated_tokens\":%" PRIu64 "},\"output_tokens\":%" PRIu64
               ",\"output_tokens_details\":{\"reasoning_tokens\":%" PRIu64
               ",\"deduplicated_tokens\":%" PRIu64 "},\"total_tokens\":%" PRIu64 "}",
               usage->input_tokens, usage->cached_tokens, usage->reused_input_tokens,
               usage->output_tokens, usage->reasoning_tokens, usage->reused_output_tokens,
               usage->input_tokens + usage->output_tokens);
}

/* Appends the extensions, in one object of their own. */
static void add_extras(struct buf *buf, const struct store_batch *batch,
                       const struct prices *prices) {
    buf_add_text(buf, ",\"quern\":{\"retry_of\":");
    if (*batch->retry_of)
        json_write_string(buf, str_from(batch->retry_of));
    else
        buf_add_text(buf, "null");
    batch_extras_write(buf, batch->extras);
    const char *paused = NULL;
    bool is_over = batch_status_is_terminal(batch->status);
    if (!is_over && batch->paused == BATCH_PAUSED_BY_REQUEST) paused = "request";
    if (!is_over && batch->paused == BATCH_PAUSED_BY_QUALITY) paused = "quality";
    add_text(buf, "paused", paused);
    buf_printf(buf, ",\"quality\":%s,\"costs\":", batch->quality ? batch->quality : "null");
    batch_costs_write(buf, batch, prices);
    add_time(buf, "delete_at", batch->delete_unix_s);
    buf_add_byte(buf, '}');
}

void batch_write_json(struct buf *buf, const struct store_batch *batch,
                      const struct prices *prices) {
    buf_add_text(buf, "{\"id\":");
    json_write_string(buf, str_from(batch->id));
    buf_add_text(buf, ",\"object\":\"batch\"");
    add_text(buf, "endpoint", batch->endpoint);
    add_text(buf, "model", batch->model);
    if (batch->errors)
        buf_printf(buf, ",\"errors\":{\"object\":\"list\",\"data\":%s}", batch->errors);
    else
        buf_add_text(buf, ",\"errors\":null");
    add_text(buf, "input_file_id", batch->input_file_id);
    add_text(buf, "completion_window", batch->completion_window);
    add_text(buf, "status", batch_status_name(batch->status));
    add_text(buf, "output_file_id", batch->output_file_id);
    add_text(buf, "error_file_id", batch->error_file_id);
    add_times(buf, batch);
    buf_printf(buf,
               ",\"request_counts\":{\"total\":%" PRIu64 ",\"completed\":%" PRIu64
               ",\"failed\":%" PRIu64 "}",
               batch->total, batch->completed, batch->failed);
    add_usage(buf, batch);
    buf_printf(buf, ",\"metadata\":%s", batch->metadata ? batch->metadata : "null");
    /* Extensions: the tier and priority in the order of work, and why the batch waits. */
    add_text(buf, "service_tier", tier_name(tier_of_batch(batch->service_tier)));
    buf_printf(buf, ",\"priority\":%" PRId32, batch->priority);
    add_text(buf, "waiting_for", batch->waiting_for);
    add_extras(buf, batch, prices);
    buf_add_byte(buf, '}');
}
