/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/translated.h"

#include "dialects/messages.h"
#include "dialects/responses.h"
#include "json/span.h"
#include "runner/dialect_names.h"

struct dialect_call *translated_read(struct batch_line *line, struct buf *room,
                                     struct refusal *ret_refusal) {
    const struct dialect *dialect =
        line->endpoint == ENDPOINT_MESSAGES ? &messages_create : &responses_create;
    struct dialect_call *call = dialect_names_read(dialect, line->body, ret_refusal);
    if (!call) return NULL;
    if (call->stream) {
        refuse(ret_refusal, "streaming_unsupported", "stream",
               "Invalid value for 'stream': Streaming is not supported in the Batch API.");
        dialect_call_free(call);
        return NULL;
    }
    buf_clear(room);
    buf_add_text(room, "{\"custom_id\":");
    buf_add_str(room, line->custom_id);
    buf_printf(room, ",\"method\":\"POST\",\"url\":\"%s\",\"body\":", endpoint_path(ENDPOINT_CHAT));
    buf_add_str(room, buf_str(&call->body));
    buf_add_byte(room, '}');
    buf_release(&call->body);
    buf_init(&call->body, BUF_UNLIMITED);
    if (batch_line_read(buf_str(room), line) != BATCH_LINE_READ || !line->body.at) {
        refuse(ret_refusal, "invalid_request", NULL, "The request is nested too deeply.");
        dialect_call_free(call);
        return NULL;
    }
    line->endpoint = ENDPOINT_CHAT;
    return call;
}

bool translated_write(struct dialect_call *call, enum endpoint endpoint, int32_t status,
                      struct str body, const struct usage *usage, struct buf *out) {
    const struct dialect_end end = {.usage = *usage};
    struct buf text, own;
    bool is_good = true, is_success = status >= 200 && status < 300;
    buf_init(&text, BUF_UNLIMITED);
    buf_init(&own, BUF_UNLIMITED);
    if (!is_success && call) {
        dialect_own_error(call, body, &own);
        body = buf_str(&own);
    }
    if (is_success)
        is_good = call && call->dialect->body(call, body, &end, &text);
    else if (endpoint == ENDPOINT_MESSAGES)
        dialect_write_error(ERRORS_ANTHROPIC, status, body, &text);
    else
        buf_add_str(&text, body);
    if (is_good) json_span_add_ascii(out, buf_str(&text));
    buf_release(&text);
    buf_release(&own);
    return is_good && !out->overflowed;
}
