/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/chat_turns.h"

#include "json/span.h"

void chat_turns_init(struct chat_turns *turns) {
    *turns = (struct chat_turns){0};
    buf_init(&turns->parts, BUF_UNLIMITED);
    buf_init(&turns->thought, BUF_UNLIMITED);
    buf_init(&turns->calls, BUF_UNLIMITED);
    buf_init(&turns->system, BUF_UNLIMITED);
    buf_init(&turns->written, BUF_UNLIMITED);
    map_init(&turns->ids);
}

void chat_turns_release(struct chat_turns *turns) {
    buf_release(&turns->parts);
    buf_release(&turns->thought);
    buf_release(&turns->calls);
    buf_release(&turns->system);
    buf_release(&turns->written);
    map_release(&turns->ids);
}

void chat_turns_add_inside(struct buf *to, struct str string) {
    if (string.at && json_span_is_string(string)) buf_add(to, string.at + 1, string.bytes - 2);
}

static void begin_message(struct chat_turns *turns, const char *role) {
    if (turns->written.bytes > 0) buf_add_byte(&turns->written, ',');
    buf_printf(&turns->written, "{\"role\":\"%s\",\"content\":", role);
}

static void write_turn(struct chat_turns *turns) {
    struct buf *to = &turns->written;
    begin_message(turns, turns->role == CHAT_USER ? "user" : "assistant");
    if (turns->parts.bytes > 0)
        buf_printf(to, "[%.*s]", STR_ARGS(buf_str(&turns->parts)));
    else
        buf_add_text(to, "\"\"");
    if (turns->thought.bytes > 0)
        buf_printf(to, ",\"reasoning_content\":\"%.*s\"", STR_ARGS(buf_str(&turns->thought)));
    if (turns->calls.bytes > 0)
        buf_printf(to, ",\"tool_calls\":[%.*s]", STR_ARGS(buf_str(&turns->calls)));
    buf_add_byte(to, '}');
}

void chat_turns_end(struct chat_turns *turns) {
    bool is_empty = turns->parts.bytes + turns->thought.bytes + turns->calls.bytes == 0;
    bool is_dropped = turns->drops_empty && turns->role == CHAT_ASSISTANT && is_empty;
    if (turns->role != CHAT_NOBODY && !is_dropped) write_turn(turns);
    turns->role = CHAT_NOBODY;
    buf_clear(&turns->parts);
    buf_clear(&turns->thought);
    buf_clear(&turns->calls);
}

void chat_turns_open(struct chat_turns *turns, enum chat_role role) {
    if (turns->role == role) return;
    chat_turns_end(turns);
    turns->role = role;
}

void chat_turns_add_text(struct chat_turns *turns, struct str text) {
    struct buf *parts = &turns->parts;
    buf_add_text(parts, parts->bytes > 0 ? ",{\"type\":\"text\",\"text\":"
                                         : "{\"type\":\"text\",\"text\":");
    buf_add_str(parts, text);
    buf_add_byte(parts, '}');
}

void chat_turns_add_call(struct chat_turns *turns, struct str id, struct str name,
                         struct str arguments) {
    struct buf *calls = &turns->calls;
    map_put(&turns->ids, id, 0);
    buf_add_text(calls, calls->bytes > 0 ? ",{\"id\":" : "{\"id\":");
    buf_add_str(calls, id);
    buf_add_text(calls, ",\"type\":\"function\",\"function\":{\"name\":");
    buf_add_str(calls, name);
    buf_add_text(calls, ",\"arguments\":");
    buf_add_str(calls, arguments);
    buf_add_text(calls, "}}");
}

bool chat_turns_know(const struct chat_turns *turns, struct str id) {
    return map_get(&turns->ids, id, NULL);
}

void chat_turns_begin_result(struct chat_turns *turns) {
    begin_message(turns, "tool");
    buf_add_byte(&turns->written, '"');
}

void chat_turns_end_result(struct chat_turns *turns, struct str id) {
    buf_add_text(&turns->written, "\",\"tool_call_id\":");
    buf_add_str(&turns->written, id);
    buf_add_byte(&turns->written, '}');
}

void chat_turns_begin_system(struct chat_turns *turns) {
    if (turns->system.bytes > 0) buf_add_text(&turns->system, "\\n\\n");
}

void chat_turns_write(struct chat_turns *turns, struct buf *body) {
    chat_turns_end(turns);
    buf_add_text(body, ",\"messages\":[");
    if (turns->system.bytes > 0) {
        buf_printf(body, "{\"role\":\"system\",\"content\":\"%.*s\"}",
                   STR_ARGS(buf_str(&turns->system)));
        if (turns->written.bytes > 0) buf_add_byte(body, ',');
    }
    buf_add_str(body, buf_str(&turns->written));
    buf_add_byte(body, ']');
}
