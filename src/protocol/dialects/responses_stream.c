/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/responses.h"

#include "json/json.h"

#include <inttypes.h>
#include <string.h>

/* A body is written by the steps of a stream, whose events are dropped: the two cannot differ. */

static void begin_event(struct responses_state *state, const char *type, struct buf *events) {
    buf_printf(events, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%" PRIu64, type, type,
               state->events++);
}

static void end_event(struct buf *events) {
    buf_add_text(events, "}\n\n");
}

/* Begins an event about the open item. */
static void begin_item_event(struct dialect_call *call, const char *type, bool has_part,
                             struct buf *events) {
    struct responses_state *state = call->own;
    begin_event(state, type, events);
    buf_add_text(events, ",\"item_id\":");
    responses_add_item_id(call, state->open, state->index, events);
    buf_printf(events, ",\"output_index\":%zu", state->index);
    if (has_part) buf_add_text(events, ",\"content_index\":0");
}

/* An event that shows the whole response. */
static void add_response_event(struct dialect_call *call, const char *type, const char *status,
                               const struct dialect_end *end, struct str error,
                               struct buf *events) {
    begin_event(call->own, type, events);
    buf_add_text(events, ",\"response\":");
    responses_add_response(call, status, end, error, events);
    end_event(events);
}

static void begin_response(struct dialect_call *call, struct buf *events) {
    if (call->has_begun) return;
    call->has_begun = true;
    add_response_event(call, "response.created", "in_progress", NULL, (struct str){NULL, 0},
                       events);
    add_response_event(call, "response.in_progress", "in_progress", NULL, (struct str){NULL, 0},
                       events);
}

/* --- items --- */

static void add_part_event(struct dialect_call *call, const char *type, bool is_empty,
                           struct buf *events) {
    begin_item_event(call, type, true, events);
    buf_add_text(events, ",\"part\":");
    responses_add_part(call, is_empty, events);
    end_event(events);
}

static void add_item_event(struct dialect_call *call, const char *type, const char *status,
                           struct buf *events) {
    struct responses_state *state = call->own;
    begin_event(state, type, events);
    buf_printf(events, ",\"output_index\":%zu,\"item\":", state->index);
    responses_add_item(call, status, events);
    end_event(events);
}

/* The entries of logprobs that no event has shown. */
static void add_logprobs(struct responses_state *state, struct buf *events) {
    struct str entries = str_skip(buf_str(&state->logprobs), state->logprobs_shown);
    if (entries.bytes > 0 && entries.at[0] == ',') entries = str_skip(entries, 1);
    buf_add_text(events, ",\"logprobs\":[");
    buf_add_str(events, entries);
    buf_add_byte(events, ']');
    state->logprobs_shown = state->logprobs.bytes;
}

/* `inside` is what stands between the quotes. */
static void add_delta(struct dialect_call *call, struct str inside, struct buf *events) {
    static const char *const types[] = {[ITEM_THOUGHT] = "response.reasoning_text.delta",
                                        [ITEM_TEXT] = "response.output_text.delta",
                                        [ITEM_REFUSAL] = "response.refusal.delta",
                                        [ITEM_CALL] = "response.function_call_arguments.delta"};
    struct responses_state *state = call->own;
    begin_item_event(call, types[state->open], state->open != ITEM_CALL, events);
    buf_add_text(events, ",\"delta\":\"");
    buf_add_str(events, inside);
    buf_add_byte(events, '"');
    if (state->open == ITEM_TEXT) add_logprobs(state, events);
    end_event(events);
}

static void add_text_done(struct dialect_call *call, struct buf *events) {
    static const char *const types[] = {[ITEM_THOUGHT] = "response.reasoning_text.done",
                                        [ITEM_TEXT] = "response.output_text.done",
                                        [ITEM_REFUSAL] = "response.refusal.done"};
    struct responses_state *state = call->own;
    begin_item_event(call, types[state->open], true, events);
    buf_printf(events, ",\"%s\":", state->open == ITEM_REFUSAL ? "refusal" : "text");
    chat_reply_add_string(events, &state->text);
    if (state->open == ITEM_TEXT) {
        buf_add_text(events, ",\"logprobs\":[");
        buf_add_str(events, buf_str(&state->logprobs));
        buf_add_byte(events, ']');
    }
    end_event(events);
    add_part_event(call, "response.content_part.done", false, events);
}

static void add_call_done(struct dialect_call *call, struct buf *events) {
    struct responses_state *state = call->own;
    const struct chat_reply_call *tool = &call->reply.calls[state->call];
    bool has_none = tool->arguments.bytes == 0;
    if (has_none) add_delta(call, STR("{}"), events);
    begin_item_event(call, "response.function_call_arguments.done", false, events);
    buf_add_text(events, ",\"name\":");
    chat_reply_add_string(events, &tool->name);
    buf_add_text(events, ",\"arguments\":");
    if (has_none)
        buf_add_text(events, "\"{}\"");
    else
        chat_reply_add_string(events, &tool->arguments);
    end_event(events);
}

/* Ends the open item, and keeps it for the last event. */
static void close_item(struct dialect_call *call, const char *status, struct buf *events) {
    struct responses_state *state = call->own;
    if (state->open == ITEM_NONE) return;
    if (state->open == ITEM_CALL)
        add_call_done(call, events);
    else
        add_text_done(call, events);
    add_item_event(call, "response.output_item.done", status, events);
    if (state->items.bytes > 0) buf_add_byte(&state->items, ',');
    responses_add_item(call, status, &state->items);
    if (state->open == ITEM_CALL) state->call++;
    if (state->open == ITEM_TEXT) {
        buf_clear(&state->logprobs);
        state->logprobs_shown = 0;
    }
    buf_clear(&state->text);
    state->shown = 0;
    state->index++;
    state->open = ITEM_NONE;
}

/* Opens an item of that kind, unless one is open; a call is always a new one. */
static void open_item(struct dialect_call *call, enum responses_item kind, struct buf *events) {
    struct responses_state *state = call->own;
    if (state->open == kind && kind != ITEM_CALL) return;
    close_item(call, "completed", events);
    state->open = kind;
    add_item_event(call, "response.output_item.added", "in_progress", events);
    if (kind != ITEM_CALL) add_part_event(call, "response.content_part.added", true, events);
}

/* `text` is a raw string, or absent. */
static void add_text(struct dialect_call *call, enum responses_item kind, struct str text,
                     struct buf *events) {
    struct responses_state *state = call->own;
    if (!text.at || !json_span_is_string(text)) return;
    struct str inside = {text.at + 1, text.bytes - 2};
    open_item(call, kind, events);
    buf_add_str(&state->text, inside);
    add_delta(call, inside, events);
}

/* Shows what calls have grown by. All but the last are whole. */
static void add_calls(struct dialect_call *call, struct buf *events) {
    struct responses_state *state = call->own;
    const struct chat_reply *reply = &call->reply;
    while (state->call < reply->call_count) {
        const struct chat_reply_call *tool = &reply->calls[state->call];
        bool is_last = state->call + 1 == reply->call_count;
        if (tool->name.bytes == 0) { /* cannot be run: not shown */
            if (is_last) return;
            state->call++;
            continue;
        }
        if (state->open != ITEM_CALL) open_item(call, ITEM_CALL, events);
        if (tool->arguments.bytes > state->shown)
            add_delta(call, str_skip(buf_str(&tool->arguments), state->shown), events);
        state->shown = tool->arguments.bytes;
        if (is_last) return;
        close_item(call, "completed", events);
    }
}

static void keep_logprobs(struct responses_state *state, const struct chat_reply *reply) {
    if (reply->logprobs.bytes == 0) return;
    if (state->logprobs.bytes > 0) buf_add_byte(&state->logprobs, ',');
    buf_add_str(&state->logprobs, buf_str(&reply->logprobs));
}

/* --- the answer --- */

void responses_take(struct dialect_call *call, const struct piece *piece, int64_t unix_ns,
                    struct buf *events) {
    struct responses_state *state = call->own;
    struct chat_reply *reply = &call->reply;
    (void)unix_ns;
    buf_clear(&reply->text); /* the state keeps what the last event repeats */
    buf_clear(&reply->thought);
    buf_clear(&reply->logprobs);
    chat_reply_take(reply, piece);
    keep_logprobs(state, reply);
    bool says = piece->thought.at || piece->content.at || piece->refusal.at || piece->calls.at ||
                piece->finish_reason.at;
    if (!says) return;
    begin_response(call, events);
    add_text(call, ITEM_THOUGHT, piece->thought, events);
    add_text(call, ITEM_TEXT, piece->content, events);
    add_text(call, ITEM_REFUSAL, piece->refusal, events);
    add_calls(call, events);
}

/* Ends what is open. An answer that says nothing is an empty message. */
static void finish(struct dialect_call *call, struct buf *events) {
    struct responses_state *state = call->own;
    begin_response(call, events);
    if (state->open == ITEM_NONE && state->index == 0) open_item(call, ITEM_TEXT, events);
    close_item(call, responses_status(call), events);
}

void responses_end(struct dialect_call *call, const struct dialect_end *end, struct buf *events) {
    bool is_cut = strcmp(responses_status(call), "incomplete") == 0;
    finish(call, events);
    add_response_event(call, is_cut ? "response.incomplete" : "response.completed",
                       responses_status(call), end, (struct str){NULL, 0}, events);
}

bool responses_body(struct dialect_call *call, struct str inner, const struct dialect_end *end,
                    struct buf *body) {
    struct piece piece;
    struct buf events;
    if (!piece_read(inner, &piece)) return false;
    buf_init(&events, BUF_UNLIMITED);
    responses_take(call, &piece, 0, &events);
    finish(call, &events);
    buf_release(&events);
    responses_add_response(call, responses_status(call), end, (struct str){NULL, 0}, body);
    return true;
}

/* A stream that has begun ends with its response, which has failed; one that has only waited has
 * no id yet. */
void responses_fail(struct dialect_call *call, int32_t status, struct str error,
                    struct buf *events) {
    struct str message = dialect_error_message(error);
    (void)status;
    if (!message.at) message = STR("\"The request failed\"");
    if (!call->has_begun) {
        begin_event(call->own, "error", events);
        buf_add_text(events, ",\"code\":\"server_error\",\"param\":null,\"message\":");
        buf_add_str(events, message);
        end_event(events);
        return;
    }
    close_item(call, "incomplete", events);
    add_response_event(call, "response.failed", "failed", NULL, message, events);
}
