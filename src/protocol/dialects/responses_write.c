/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/responses.h"

#include "base/base64.h"
#include "json/json.h"

#include <inttypes.h>
#include <string.h>

#define NS_PER_S 1000000000

void responses_add_item_id(const struct dialect_call *call, enum responses_item kind, size_t index,
                           struct buf *out) {
    static const char *const starts[] = {
        [ITEM_THOUGHT] = "rs_", [ITEM_TEXT] = "msg_", [ITEM_REFUSAL] = "msg_", [ITEM_CALL] = "fc_"};
    buf_add_byte(out, '"');
    chat_reply_add_id(&call->reply, starts[kind], out);
    buf_printf(out, "_%zu\"", index);
}

/* The client keeps a thought as a text that means nothing to it. */
static void add_encrypted(const struct responses_state *state, struct buf *out) {
    struct buf string, thought;
    buf_init(&string, BUF_UNLIMITED);
    buf_init(&thought, BUF_UNLIMITED);
    chat_reply_add_string(&string, &state->text);
    json_span_decode(&thought, buf_str(&string));
    buf_add_text(out, "\"" RESPONSES_THOUGHT_MARK);
    base64_add(out, thought.at, thought.bytes);
    buf_add_byte(out, '"');
    buf_release(&string);
    buf_release(&thought);
}

static void add_thought(const struct dialect_call *call, bool is_empty, struct buf *out) {
    const struct responses_state *state = call->own;
    buf_add_text(out, ",\"summary\":[],\"content\":[");
    if (!is_empty) responses_add_part(call, false, out);
    buf_add_text(out, "],\"encrypted_content\":");
    if (is_empty || !state->shows_encrypted)
        buf_add_text(out, "null");
    else
        add_encrypted(state, out);
}

/* The worker's id of the call, or one made from the answer's where it gives none. */
static void add_call(const struct dialect_call *call, bool is_empty, struct buf *out) {
    const struct responses_state *state = call->own;
    const struct chat_reply_call *tool = &call->reply.calls[state->call];
    buf_add_text(out, ",\"call_id\":");
    if (tool->id.bytes > 0) {
        chat_reply_add_string(out, &tool->id);
    } else {
        buf_add_byte(out, '"');
        chat_reply_add_id(&call->reply, "call_", out);
        buf_printf(out, "_%zu\"", state->call);
    }
    buf_add_text(out, ",\"name\":");
    chat_reply_add_string(out, &tool->name);
    buf_add_text(out, ",\"arguments\":\"");
    if (!is_empty && tool->arguments.bytes == 0)
        buf_add_text(out, "{}");
    else if (!is_empty)
        buf_add_str(out, buf_str(&tool->arguments));
    buf_add_byte(out, '"');
}

void responses_add_part(const struct dialect_call *call, bool is_empty, struct buf *out) {
    const struct responses_state *state = call->own;
    const char *type = state->open == ITEM_THOUGHT ? "reasoning_text" : "output_text";
    bool is_refusal = state->open == ITEM_REFUSAL;
    buf_printf(out, "{\"type\":\"%s\",\"%s\":\"", is_refusal ? "refusal" : type,
               is_refusal ? "refusal" : "text");
    if (!is_empty) buf_add_str(out, buf_str(&state->text));
    buf_add_byte(out, '"');
    if (state->open == ITEM_TEXT) {
        buf_add_text(out, ",\"annotations\":[],\"logprobs\":[");
        if (!is_empty) buf_add_str(out, buf_str(&state->logprobs));
        buf_add_byte(out, ']');
    }
    buf_add_byte(out, '}');
}

void responses_add_item(const struct dialect_call *call, const char *status, struct buf *out) {
    const struct responses_state *state = call->own;
    static const char *const types[] = {[ITEM_THOUGHT] = "reasoning",
                                        [ITEM_TEXT] = "message",
                                        [ITEM_REFUSAL] = "message",
                                        [ITEM_CALL] = "function_call"};
    bool is_empty = strcmp(status, "in_progress") == 0;
    buf_printf(out, "{\"type\":\"%s\",\"id\":", types[state->open]);
    responses_add_item_id(call, state->open, state->index, out);
    buf_printf(out, ",\"status\":\"%s\"", status);
    if (state->open == ITEM_THOUGHT) {
        add_thought(call, is_empty, out);
    } else if (state->open == ITEM_CALL) {
        add_call(call, is_empty, out);
    } else {
        buf_add_text(out, ",\"role\":\"assistant\",\"content\":[");
        if (!is_empty) responses_add_part(call, false, out);
        buf_add_byte(out, ']');
    }
    buf_add_byte(out, '}');
}

const char *responses_status(const struct dialect_call *call) {
    bool is_cut = call->reply.end == CHAT_REPLY_LENGTH || call->reply.end == CHAT_REPLY_FILTERED;
    return is_cut ? "incomplete" : "completed";
}

static void add_usage(const struct dialect_end *end, struct buf *out) {
    if (!end) {
        buf_add_text(out, ",\"usage\":null");
        return;
    }
    const struct usage *usage = &end->usage;
    buf_printf(out,
               ",\"usage\":{\"input_tokens\":%" PRIu64
               ",\"input_tokens_details\":{\"cached_tokens\":%" PRIu64
               ",\"cache_write_tokens\":0},\"output_tokens\":%" PRIu64
               ",\"output_tokens_details\":{\"reasoning_tokens\":%" PRIu64
               "},\"total_tokens\":%" PRIu64 "}",
               usage->input_tokens, usage->cached_tokens, usage->output_tokens,
               usage->reasoning_tokens, usage->input_tokens + usage->output_tokens);
}

/* Without a clock an answer ends when it began: a record that is read twice says the same. */
static void add_times(const struct dialect_call *call, const struct dialect_end *end,
                      struct buf *out) {
    int64_t created = call->reply.created_unix_s, now = end ? end->times.unix_ns / NS_PER_S : 0;
    buf_printf(out, ",\"created_at\":%" PRId64 ",\"completed_at\":", created);
    if (end)
        buf_printf(out, "%" PRId64, now > created ? now : created);
    else
        buf_add_text(out, "null");
}

void responses_add_response(const struct dialect_call *call, const char *status,
                            const struct dialect_end *end, struct str error, struct buf *out) {
    const struct responses_state *state = call->own;
    bool is_filtered = call->reply.end == CHAT_REPLY_FILTERED;
    bool is_incomplete = strcmp(status, "incomplete") == 0;
    buf_add_text(out, "{\"id\":\"");
    chat_reply_add_id(&call->reply, "resp_", out);
    buf_add_text(out, "\",\"object\":\"response\"");
    add_times(call, strcmp(status, "completed") == 0 ? end : NULL, out);
    buf_printf(out, ",\"status\":\"%s\",\"error\":", status);
    if (error.bytes > 0) {
        buf_add_text(out, "{\"code\":\"server_error\",\"message\":");
        buf_add_str(out, error);
        buf_add_byte(out, '}');
    } else {
        buf_add_text(out, "null");
    }
    buf_add_text(out, ",\"incomplete_details\":");
    if (is_incomplete)
        buf_printf(out, "{\"reason\":\"%s\"}",
                   is_filtered ? "content_filter" : "max_output_tokens");
    else
        buf_add_text(out, "null");
    buf_add_text(out, ",\"model\":");
    json_write_string(out, buf_str(&call->model));
    buf_add_str(out, buf_str(&state->echo));
    buf_add_text(out, ",\"output\":[");
    buf_add_str(out, buf_str(&state->items));
    buf_add_byte(out, ']');
    add_usage(end, out);
    buf_add_byte(out, '}');
}
