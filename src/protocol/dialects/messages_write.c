/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/messages.h"

#include "json/json.h"

#include <inttypes.h>

enum block { BLOCK_NONE, BLOCK_THOUGHT, BLOCK_TEXT, BLOCK_CALL };

/* --- what bodies and events have in common --- */

/* The id of a call: the worker's, with the beginning that this API's ids have, or one made from the
 * answer's where it gives none. */
static void add_call_id(const struct chat_reply *reply, size_t index, struct buf *out) {
    struct str id = buf_str(&reply->calls[index].id);
    buf_add_byte(out, '"');
    if (id.bytes == 0) {
        chat_reply_add_id(reply, "toolu_", out);
        buf_printf(out, "_%zu", index);
    } else if (str_starts_with(id, STR("call_"))) {
        buf_add_text(out, "toolu_");
        buf_add_str(out, str_skip(id, 5));
    } else {
        buf_add_str(out, id);
    }
    buf_add_byte(out, '"');
}

/* Any text that is not empty serves as the signature of a thought; this one is a sum of it. */
static void add_signature(const struct chat_reply *reply, struct buf *out) {
    uint64_t sum = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < reply->thought.bytes; i++)
        sum = (sum ^ (unsigned char)reply->thought.at[i]) * 1099511628211u;
    buf_printf(out, "\"quern-%016" PRIx64 "\"", sum);
}

static bool has_whole_call(const struct chat_reply *reply) {
    for (size_t i = 0; i < reply->call_count; i++)
        if (chat_reply_call_is_whole(reply, i)) return true;
    return false;
}

static void add_stop(const struct chat_reply *reply, struct buf *out) {
    bool is_cut = reply->end == CHAT_REPLY_LENGTH;
    bool is_call = !is_cut && has_whole_call(reply);
    bool is_text = !is_cut && !is_call && reply->stop.bytes > 0;
    buf_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":",
               is_cut              ? "max_tokens"
               : is_call           ? "tool_use"
               : is_text           ? "stop_sequence"
               : reply->is_refusal ? "refusal"
                                   : "end_turn");
    if (is_text)
        chat_reply_add_string(out, &reply->stop);
    else
        buf_add_text(out, "null");
}

/* Cached tokens are counted apart, as Anthropic does. */
static void add_usage(uint64_t input, uint64_t cached, uint64_t output, struct buf *out) {
    buf_printf(out,
               "\"usage\":{\"input_tokens\":%" PRIu64
               ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%" PRIu64
               ",\"output_tokens\":%" PRIu64 ",\"service_tier\":\"standard\"}",
               input > cached ? input - cached : 0, cached, output);
}

static void add_head(struct dialect_call *call, struct buf *out) {
    buf_add_text(out, "{\"id\":\"");
    chat_reply_add_id(&call->reply, "msg_", out);
    buf_add_text(out, "\",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    json_write_string(out, buf_str(&call->model));
}

/* --- a whole body --- */

static void add_thought_block(const struct chat_reply *reply, struct buf *out) {
    buf_add_text(out, "{\"type\":\"thinking\",\"thinking\":");
    chat_reply_add_string(out, &reply->thought);
    buf_add_text(out, ",\"signature\":");
    add_signature(reply, out);
    buf_add_byte(out, '}');
}

static void add_call_block(const struct chat_reply *reply, size_t index, struct buf *out) {
    buf_add_text(out, "{\"type\":\"tool_use\",\"id\":");
    add_call_id(reply, index, out);
    buf_add_text(out, ",\"name\":");
    chat_reply_add_string(out, &reply->calls[index].name);
    buf_add_text(out, ",\"input\":");
    chat_reply_add_arguments(reply, index, out);
    buf_add_byte(out, '}');
}

bool messages_body(struct dialect_call *call, struct str inner, const struct dialect_end *end,
                   struct buf *body) {
    struct piece piece;
    struct chat_reply *reply = &call->reply;
    const char *before = "";
    if (!piece_read(inner, &piece)) return false;
    chat_reply_take(reply, &piece);
    add_head(call, body);
    buf_add_text(body, ",\"content\":[");
    if (reply->thought.bytes > 0) {
        add_thought_block(reply, body);
        before = ",";
    }
    if (reply->text.bytes > 0 || (reply->call_count == 0 && reply->thought.bytes == 0)) {
        buf_printf(body, "%s{\"type\":\"text\",\"text\":", before);
        chat_reply_add_string(body, &reply->text);
        buf_add_byte(body, '}');
        before = ",";
    }
    for (size_t i = 0; i < reply->call_count; i++) {
        if (!chat_reply_call_is_whole(reply, i)) continue;
        buf_add_text(body, before);
        add_call_block(reply, i, body);
        before = ",";
    }
    buf_add_text(body, "],");
    add_stop(reply, body);
    buf_add_byte(body, ',');
    add_usage(end->usage.input_tokens, end->usage.cached_tokens, end->usage.output_tokens, body);
    buf_add_byte(body, '}');
    return true;
}

/* --- a stream --- */

static void begin_event(struct buf *events, const char *type) {
    buf_printf(events, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void end_event(struct buf *events) {
    buf_add_text(events, "}\n\n");
}

static void begin_message(struct dialect_call *call, struct buf *events) {
    struct chat_reply *reply = &call->reply;
    if (call->has_begun) return;
    call->has_begun = true;
    begin_event(events, "message_start");
    buf_add_text(events, ",\"message\":");
    add_head(call, events);
    buf_add_text(events, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
    add_usage(reply->input_tokens, reply->cached_tokens, 1, events);
    buf_add_byte(events, '}');
    end_event(events);
}

static void end_block(struct dialect_call *call, struct buf *events) {
    if (call->block == BLOCK_NONE) return;
    if (call->block == BLOCK_THOUGHT) {
        begin_event(events, "content_block_delta");
        buf_printf(events, ",\"index\":%zu,\"delta\":{\"type\":\"signature_delta\",\"signature\":",
                   call->block_index);
        add_signature(&call->reply, events);
        buf_add_byte(events, '}');
        end_event(events);
    }
    begin_event(events, "content_block_stop");
    buf_printf(events, ",\"index\":%zu", call->block_index);
    end_event(events);
    call->block = BLOCK_NONE;
    call->block_index++;
}

/* Opens a block of that kind, unless it is open. */
static void open_block(struct dialect_call *call, enum block kind, struct buf *events) {
    const struct chat_reply *reply = &call->reply;
    if (call->block == (unsigned)kind && kind != BLOCK_CALL) return;
    end_block(call, events);
    begin_event(events, "content_block_start");
    buf_printf(events, ",\"index\":%zu,\"content_block\":", call->block_index);
    if (kind == BLOCK_TEXT) {
        buf_add_text(events, "{\"type\":\"text\",\"text\":\"\"}");
    } else if (kind == BLOCK_THOUGHT) {
        buf_add_text(events, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    } else {
        buf_add_text(events, "{\"type\":\"tool_use\",\"id\":");
        add_call_id(reply, call->calls_shown, events);
        buf_add_text(events, ",\"name\":");
        chat_reply_add_string(events, &reply->calls[call->calls_shown].name);
        buf_add_text(events, ",\"input\":{}}");
    }
    end_event(events);
    call->block = kind;
}

/* `text` is a raw string. */
static void add_delta(struct dialect_call *call, const char *type, const char *member,
                      struct str text, struct buf *events) {
    begin_event(events, "content_block_delta");
    buf_printf(events, ",\"index\":%zu,\"delta\":{\"type\":\"%s\",\"%s\":", call->block_index, type,
               member);
    buf_add_str(events, text);
    buf_add_byte(events, '}');
    end_event(events);
}

/* A call is shown once it is whole, in one delta: its end is what tells that it can be run. */
static void add_calls(struct dialect_call *call, size_t whole, struct buf *events) {
    const struct chat_reply *reply = &call->reply;
    struct buf object, string;
    for (; call->calls_shown < whole; call->calls_shown++) {
        if (!chat_reply_call_is_whole(reply, call->calls_shown)) continue;
        buf_init(&object, BUF_UNLIMITED);
        buf_init(&string, BUF_UNLIMITED);
        chat_reply_add_arguments(reply, call->calls_shown, &object);
        json_write_string(&string, buf_str(&object));
        open_block(call, BLOCK_CALL, events);
        add_delta(call, "input_json_delta", "partial_json", buf_str(&string), events);
        end_block(call, events);
        buf_release(&object);
        buf_release(&string);
    }
}

void messages_take(struct dialect_call *call, const struct piece *piece, int64_t unix_ns,
                   struct buf *events) {
    struct chat_reply *reply = &call->reply;
    (void)unix_ns;
    buf_clear(&reply->text); /* a stream keeps only what is not shown yet */
    buf_clear(&reply->logprobs);
    chat_reply_take(reply, piece);
    bool says = piece->thought.at || piece->content.at || piece->refusal.at || piece->calls.at ||
                piece->finish_reason.at;
    if (!says) return;
    begin_message(call, events);
    if (piece->thought.at) {
        open_block(call, BLOCK_THOUGHT, events);
        add_delta(call, "thinking_delta", "thinking", piece->thought, events);
    }
    struct str text = piece->content.at ? piece->content : piece->refusal;
    if (text.at) {
        open_block(call, BLOCK_TEXT, events);
        add_delta(call, "text_delta", "text", text, events);
    }
    size_t whole = reply->call_count;
    if (whole > 0 && reply->end == CHAT_REPLY_OPEN) whole--; /* the last one may go on */
    add_calls(call, whole, events);
}

void messages_end(struct dialect_call *call, const struct dialect_end *end, struct buf *events) {
    struct chat_reply *reply = &call->reply;
    reply->input_tokens = end->usage.input_tokens;
    reply->cached_tokens = end->usage.cached_tokens;
    begin_message(call, events);
    add_calls(call, reply->call_count, events);
    end_block(call, events);
    begin_event(events, "message_delta");
    buf_add_text(events, ",\"delta\":{");
    add_stop(reply, events);
    buf_add_text(events, "},");
    add_usage(end->usage.input_tokens, end->usage.cached_tokens, end->usage.output_tokens, events);
    end_event(events);
    begin_event(events, "message_stop");
    end_event(events);
}

void messages_fail(struct dialect_call *call, int32_t status, struct str error,
                   struct buf *events) {
    (void)call;
    buf_add_text(events, "event: error\ndata: ");
    dialect_write_error(ERRORS_ANTHROPIC, status, error, events);
    buf_add_text(events, "\n\n");
}

void messages_quiet(struct dialect_call *call, int64_t unix_ns, struct buf *events) {
    (void)call, (void)unix_ns;
    begin_event(events, "ping");
    end_event(events);
}

static const char *type_of(int32_t status) {
    switch (status) {
    case 401: return "authentication_error";
    case 402: return "billing_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503:
    case 529: return "overloaded_error";
    case 504: return "timeout_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

void messages_add_error(int32_t status, struct str message, struct buf *body) {
    buf_printf(body,
               "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", type_of(status));
    buf_add_str(body, message);
    buf_add_text(body, "}}");
}
