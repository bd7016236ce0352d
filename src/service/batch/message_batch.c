/* SPDX-License-Identifier: Apache-2.0 */
#include "batch/message_batch.h"

#include "batch/state.h"
#include "dialects/dialect.h"
#include "json/json.h"
#include "json/span.h"

#include <inttypes.h>
#include <string.h>

#define NS_PER_S INT64_C(1000000000)
#define BATCH_PREFIX "batch_"
#define ERROR_START "{\"type\":\"errored\",\"error\":{\"type\":\"error\",\"error\":"

bool message_batch_read_id(struct str id, char ret_batch_id[STORE_ID_BYTES]) {
    const size_t from = strlen(MESSAGE_BATCH_PREFIX), to = strlen(BATCH_PREFIX);
    if (!str_starts_with(id, STR(MESSAGE_BATCH_PREFIX)) || id.bytes == from ||
        id.bytes - from + to >= STORE_ID_BYTES)
        return false;
    memcpy(ret_batch_id, BATCH_PREFIX, to);
    memcpy(ret_batch_id + to, id.at + from, id.bytes - from);
    ret_batch_id[to + id.bytes - from] = '\0';
    return true;
}

void message_batch_add_id(struct buf *buf, const char *batch_id) {
    const char *digits = strchr(batch_id, '_');
    buf_printf(buf, MESSAGE_BATCH_PREFIX "%s", digits ? digits + 1 : batch_id);
}

bool message_batch_has_ended(const struct store_batch *batch) {
    return batch_status_is_terminal(batch->status);
}

uint64_t message_batch_total(const struct store_batch *batch) {
    return batch->total ? batch->total : batch->inline_requests;
}

static void add_time(struct buf *buf, const char *name, int64_t unix_s) {
    buf_printf(buf, ",\"%s\":", name);
    if (unix_s)
        dialect_add_time(buf, unix_s * NS_PER_S);
    else
        buf_add_text(buf, "null");
}

/* Each request is `processing` until the batch has ended. */
static void add_counts(struct buf *buf, const struct store_batch *batch) {
    uint64_t total = message_batch_total(batch), processing = 0;
    uint64_t succeeded = 0, errored = 0, canceled = 0, expired = 0;
    if (message_batch_has_ended(batch)) {
        succeeded = batch->completed < total ? batch->completed : total;
        errored = batch->failed < total - succeeded ? batch->failed : total - succeeded;
        uint64_t rest = total - succeeded - errored;
        switch (batch->status) {
        case BATCH_CANCELLED: canceled = rest; break;
        case BATCH_EXPIRED: expired = rest; break;
        default: errored += rest; break;
        }
    } else {
        processing = total;
    }
    buf_printf(buf,
               ",\"request_counts\":{\"processing\":%" PRIu64 ",\"succeeded\":%" PRIu64
               ",\"errored\":%" PRIu64 ",\"canceled\":%" PRIu64 ",\"expired\":%" PRIu64 "}",
               processing, succeeded, errored, canceled, expired);
}

void message_batch_write(struct buf *buf, const struct store_batch *batch, const char *base) {
    bool has_ended = message_batch_has_ended(batch);
    const char *status = has_ended                           ? "ended"
                         : batch->status == BATCH_CANCELLING ? "canceling"
                                                             : "in_progress";
    buf_add_text(buf, "{\"id\":\"");
    message_batch_add_id(buf, batch->id);
    buf_printf(buf, "\",\"type\":\"message_batch\",\"processing_status\":\"%s\"", status);
    add_counts(buf, batch);
    add_time(buf, "created_at", batch->created_unix_s);
    add_time(buf, "expires_at", batch->expires_unix_s);
    add_time(buf, "ended_at", store_batch_end_unix_s(batch));
    buf_add_text(buf, ",\"archived_at\":null");
    add_time(buf, "cancel_initiated_at", batch->cancelling_unix_s);
    buf_add_text(buf, ",\"results_url\":");
    if (has_ended) {
        buf_printf(buf, "\"%s/v1/messages/batches/", base);
        message_batch_add_id(buf, batch->id);
        buf_add_text(buf, "/results\"}");
    } else {
        buf_add_text(buf, "null}");
    }
}

/* --- results --- */

static void begin_result(struct buf *buf, struct str custom_id) {
    buf_add_text(buf, "{\"custom_id\":");
    buf_add_str(buf, custom_id);
    buf_add_text(buf, ",\"result\":");
}

static void add_fault(struct buf *buf, const char *type, struct str message) {
    buf_printf(buf, ERROR_START "{\"type\":\"%s\",\"message\":", type);
    buf_add_str(buf, message);
    buf_add_text(buf, "},\"request_id\":null}}");
}

/* A request that has no answer: `error` is the record's reason. */
static void add_unanswered(struct buf *buf, struct str error) {
    struct str code = json_span_get(error, "code"), message = json_span_get(error, "message");
    bool has_code = code.at && json_span_is_string(code);
    if (!message.at || !json_span_is_string(message)) message = STR("\"\"");
    if (has_code && json_span_string_is(code, "batch_expired"))
        buf_add_text(buf, "{\"type\":\"expired\"}");
    else if (has_code && json_span_string_is(code, "batch_cancelled"))
        buf_add_text(buf, "{\"type\":\"canceled\"}");
    else if (has_code && json_span_string_is(code, "request_timeout"))
        add_fault(buf, "timeout_error", message);
    else
        add_fault(buf, "api_error", message);
}

static bool has_type(struct str body, const char *type) {
    struct str value = json_span_get(body, "type");
    return value.at && json_span_is_string(value) && json_span_string_is(value, type);
}

/* An error body of this API, or of the one that the line was for. */
static void add_error(struct buf *buf, int32_t status, struct str body, struct str request_id) {
    struct buf other;
    buf_init(&other, BUF_UNLIMITED);
    if (!has_type(body, "error")) {
        dialect_write_error(ERRORS_ANTHROPIC, status, body, &other);
        body = buf_str(&other);
    }
    struct str error = json_span_get(body, "error");
    if (!error.at || !json_span_is_object(error))
        error = STR("{\"type\":\"api_error\",\"message\":\"The worker's error has no form.\"}");
    buf_add_text(buf, ERROR_START);
    buf_add_str(buf, error);
    buf_add_text(buf, ",\"request_id\":");
    buf_add_str(buf, request_id.at ? request_id : STR("null"));
    buf_add_text(buf, "}}");
    buf_release(&other);
}

bool message_batch_add_result(struct buf *buf, struct str record) {
    struct str whole, body = {NULL, 0};
    int64_t status = 0;
    if (!json_span_read(record, &whole) || !json_span_is_object(whole)) return false;
    struct str custom_id = json_span_get(whole, "custom_id");
    struct str response = json_span_get(whole, "response"), error = json_span_get(whole, "error");
    if (!custom_id.at || !json_span_is_string(custom_id)) return false;
    bool has_response = response.at && json_span_is_object(response);
    if (has_response) {
        body = json_span_get(response, "body");
        if (!body.at || !json_span_is_object(body) ||
            !str_to_i64(json_span_get(response, "status_code"), &status))
            return false;
    } else if (!error.at || !json_span_is_object(error)) {
        return false;
    }
    begin_result(buf, custom_id);
    if (!has_response) {
        add_unanswered(buf, error);
    } else if (status < 200 || status > 299) {
        add_error(buf, (int32_t)status, body, json_span_get(response, "request_id"));
    } else if (has_type(body, "message")) {
        buf_add_text(buf, "{\"type\":\"succeeded\",\"message\":");
        buf_add_str(buf, body);
        buf_add_byte(buf, '}');
    } else {
        add_fault(buf, "api_error",
                  STR("\"This request was one of another API. GET /v1/batches/{id}/results has its "
                      "answer.\""));
    }
    buf_add_text(buf, "}\n");
    return true;
}

void message_batch_add_unrun(struct buf *buf, struct str custom_id,
                             const struct store_batch *batch) {
    begin_result(buf, custom_id);
    if (batch->status == BATCH_CANCELLED)
        buf_add_text(buf, "{\"type\":\"canceled\"}");
    else if (batch->status == BATCH_EXPIRED)
        buf_add_text(buf, "{\"type\":\"expired\"}");
    else
        add_fault(buf, "api_error", STR("\"The batch could not be run.\""));
    buf_add_text(buf, "}\n");
}
