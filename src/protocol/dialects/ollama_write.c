/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/ollama.h"

#include "json/json.h"

#include <inttypes.h>

static bool is_chat(const struct dialect_call *call) {
    return call->dialect == &ollama_chat;
}

/* Begins an object: the model as the client wrote it, and the time. */
static void begin(struct dialect_call *call, int64_t unix_ns, struct buf *out) {
    buf_add_text(out, "{\"model\":");
    json_write_string(out, buf_str(&call->model));
    buf_add_text(out, ",\"created_at\":");
    dialect_add_time(out, unix_ns);
}

/* What a chunk of chat and one of generate say in different places. The texts are raw strings, or
 * `at` is NULL; `calls` holds the objects of calls with commas between. */
static void add_said(struct dialect_call *call, struct str text, struct str thought,
                     const struct buf *calls, struct buf *out) {
    buf_add_text(out, is_chat(call) ? ",\"message\":{\"role\":\"assistant\",\"content\":"
                                    : ",\"response\":");
    buf_add_str(out, text.at ? text : STR("\"\""));
    if (thought.at) dialect_add_member(out, "thinking", thought);
    if (calls && calls->bytes > 0) {
        buf_add_text(out, ",\"tool_calls\":[");
        buf_add_str(out, buf_str(calls));
        buf_add_byte(out, ']');
    }
    if (is_chat(call)) buf_add_byte(out, '}');
}

/* An entry of OpenAI's has the same members; Ollama's has no others. */
static void add_logprobs(const struct dialect_call *call, struct str entries, struct buf *out) {
    if (!call->wants_logprobs || entries.bytes == 0) return;
    buf_add_text(out, ",\"logprobs\":[");
    buf_add_str(out, entries);
    buf_add_byte(out, ']');
}

/* Appends the whole calls from `from` up to `end`, numbered by their index. */
static void add_calls(const struct chat_reply *reply, size_t from, size_t end, struct buf *calls) {
    for (size_t i = from; i < end; i++) {
        if (!chat_reply_call_is_whole(reply, i)) continue;
        buf_printf(calls, "%s{", calls->bytes > 0 ? "," : "");
        if (reply->calls[i].id.bytes > 0) {
            buf_add_text(calls, "\"id\":");
            chat_reply_add_string(calls, &reply->calls[i].id);
            buf_add_byte(calls, ',');
        }
        buf_printf(calls, "\"function\":{\"index\":%zu,\"name\":", i);
        chat_reply_add_string(calls, &reply->calls[i].name);
        buf_add_text(calls, ",\"arguments\":");
        chat_reply_add_arguments(reply, i, calls);
        buf_add_text(calls, "}}");
    }
}

static uint64_t at_least_one(int64_t value) {
    return value > 0 ? (uint64_t)value : 1;
}

/* The members of the last object. No count is left out, and none is 0 where something was done. */
static void add_end(const struct dialect_call *call, const struct dialect_end *end,
                    struct buf *out) {
    const struct dialect_times *times = &end->times;
    buf_printf(out, ",\"done\":true,\"done_reason\":\"%s\"",
               call->reply.end == CHAT_REPLY_LENGTH ? "length" : "stop");
    buf_printf(out,
               ",\"total_duration\":%" PRIu64 ",\"load_duration\":%" PRIu64
               ",\"prompt_eval_count\":%" PRIu64 ",\"prompt_eval_duration\":%" PRIu64
               ",\"eval_count\":%" PRIu64 ",\"eval_duration\":%" PRIu64 "}",
               at_least_one(times->total_ns), at_least_one(times->load_ns), end->usage.input_tokens,
               at_least_one(times->prefill_ns), end->usage.output_tokens,
               at_least_one(times->decode_ns));
}

/* Appends one event: the calls that are whole now, or a text. */
static void add_event(struct dialect_call *call, const struct piece *piece, struct str text,
                      const struct buf *calls, int64_t unix_ns, struct buf *events) {
    begin(call, unix_ns, events);
    add_said(call, text, piece->thought, calls, events);
    struct str entries = piece->logprobs;
    if (entries.bytes > 2) entries = (struct str){entries.at + 1, entries.bytes - 2};
    add_logprobs(call, entries, events);
    buf_add_text(events, ",\"done\":false}\n");
}

void ollama_take(struct dialect_call *call, const struct piece *piece, int64_t unix_ns,
                 struct buf *events) {
    struct chat_reply *reply = &call->reply;
    struct buf calls;
    buf_clear(&reply->text); /* a stream keeps only what is not shown yet */
    buf_clear(&reply->thought);
    buf_clear(&reply->logprobs);
    chat_reply_take(reply, piece);
    buf_init(&calls, BUF_UNLIMITED);
    size_t whole = reply->call_count;
    if (whole > 0 && reply->end == CHAT_REPLY_OPEN) whole--; /* the last one may go on */
    add_calls(reply, call->calls_shown, whole, &calls);
    if (whole > call->calls_shown) call->calls_shown = whole;
    struct str text = piece->content.at ? piece->content : piece->refusal;
    if (text.at || piece->thought.at || calls.bytes > 0)
        add_event(call, piece, text, &calls, unix_ns, events);
    buf_release(&calls);
}

void ollama_end(struct dialect_call *call, const struct dialect_end *end, struct buf *events) {
    begin(call, end->times.unix_ns, events);
    add_said(call, (struct str){NULL, 0}, (struct str){NULL, 0}, NULL, events);
    add_end(call, end, events);
    buf_add_byte(events, '\n');
}

void ollama_fail(struct dialect_call *call, int32_t status, struct str error, struct buf *events) {
    (void)call;
    dialect_write_error(ERRORS_OLLAMA, status, error, events);
    buf_add_byte(events, '\n');
}

void ollama_quiet(struct dialect_call *call, int64_t unix_ns, struct buf *events) {
    begin(call, unix_ns, events);
    add_said(call, (struct str){NULL, 0}, (struct str){NULL, 0}, NULL, events);
    buf_add_text(events, ",\"done\":false}\n");
}

bool ollama_body(struct dialect_call *call, struct str inner, const struct dialect_end *end,
                 struct buf *body) {
    struct piece piece;
    struct buf calls, text, thought;
    struct chat_reply *reply = &call->reply;
    if (!piece_read(inner, &piece)) return false;
    chat_reply_take(reply, &piece);
    if (reply->end == CHAT_REPLY_OPEN) reply->end = CHAT_REPLY_STOP;
    buf_init(&calls, BUF_UNLIMITED);
    buf_init(&text, BUF_UNLIMITED);
    buf_init(&thought, BUF_UNLIMITED);
    add_calls(reply, 0, reply->call_count, &calls);
    chat_reply_add_string(&text, &reply->text);
    chat_reply_add_string(&thought, &reply->thought);
    begin(call, end->times.unix_ns, body);
    add_said(call, buf_str(&text),
             reply->thought.bytes > 0 ? buf_str(&thought) : (struct str){NULL, 0}, &calls, body);
    add_logprobs(call, buf_str(&reply->logprobs), body);
    add_end(call, end, body);
    buf_release(&calls);
    buf_release(&text);
    buf_release(&thought);
    return true;
}

void ollama_idle(struct dialect_call *call, const struct dialect_times *times, struct buf *body) {
    begin(call, times->unix_ns, body);
    add_said(call, (struct str){NULL, 0}, (struct str){NULL, 0}, NULL, body);
    buf_printf(body, ",\"done\":true,\"done_reason\":\"%s\"}",
               call->wish == DIALECT_UNLOAD ? "unload" : "load");
}
