/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/chat_turns.h"

#include "json/span.h"

#include <string.h>

void chat_turns_init(struct chat_turns *turns, struct buf *body) {
    *turns = (struct chat_turns){.body = body};
    buf_init(&turns->thought, BUF_UNLIMITED);
    buf_init(&turns->calls, BUF_UNLIMITED);
    buf_init(&turns->system, BUF_UNLIMITED);
    map_init(&turns->ids);
    buf_add_text(body, ",\"messages\":[");
    turns->start = body->bytes;
}

void chat_turns_release(struct chat_turns *turns) {
    buf_release(&turns->thought);
    buf_release(&turns->calls);
    buf_release(&turns->system);
    map_release(&turns->ids);
}

void chat_turns_add_inside(struct buf *to, struct str string) {
    if (string.at && json_span_is_string(string)) buf_add(to, string.at + 1, string.bytes - 2);
}

static void begin_message(struct chat_turns *turns, const char *role) {
    if (turns->body->bytes > turns->start) buf_add_byte(turns->body, ',');
    buf_printf(turns->body, "{\"role\":\"%s\",\"content\":", role);
}

void chat_turns_open(struct chat_turns *turns, enum chat_role role) {
    if (turns->role == role) return;
    chat_turns_end(turns);
    turns->role = role;
    turns->turn_at = turns->body->bytes;
    turns->part_count = 0;
    begin_message(turns, role == CHAT_USER ? "user" : "assistant");
}

static void end_turn(struct chat_turns *turns) {
    struct buf *to = turns->body;
    buf_add_text(to, turns->part_count > 0 ? "]" : "\"\"");
    if (turns->thought.bytes > 0) {
        buf_add_text(to, ",\"reasoning_content\":\"");
        buf_add_str(to, buf_str(&turns->thought));
        buf_add_byte(to, '"');
    }
    if (turns->calls.bytes > 0) {
        buf_add_text(to, ",\"tool_calls\":[");
        buf_add_str(to, buf_str(&turns->calls));
        buf_add_byte(to, ']');
    }
    buf_add_byte(to, '}');
}

void chat_turns_end(struct chat_turns *turns) {
    bool is_empty = turns->part_count + turns->thought.bytes + turns->calls.bytes == 0;
    if (turns->role == CHAT_NOBODY) return;
    if (is_empty && turns->drops_empty && turns->role == CHAT_ASSISTANT)
        buf_truncate(turns->body, turns->turn_at);
    else
        end_turn(turns);
    turns->role = CHAT_NOBODY;
    buf_clear(&turns->thought);
    buf_clear(&turns->calls);
}

void chat_turns_add_text(struct chat_turns *turns, struct str text) {
    buf_add_byte(turns->body, turns->part_count++ > 0 ? ',' : '[');
    buf_add_text(turns->body, "{\"type\":\"text\",\"text\":");
    buf_add_str(turns->body, text);
    buf_add_byte(turns->body, '}');
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

struct buf *chat_turns_begin_result(struct chat_turns *turns) {
    begin_message(turns, "tool");
    buf_add_byte(turns->body, '"');
    return turns->body;
}

void chat_turns_end_result(struct chat_turns *turns, struct str id) {
    buf_add_text(turns->body, "\",\"tool_call_id\":");
    buf_add_str(turns->body, id);
    buf_add_byte(turns->body, '}');
}

void chat_turns_begin_system(struct chat_turns *turns) {
    if (turns->system.bytes > 0) buf_add_text(&turns->system, "\\n\\n");
}

/* Puts the system's message in front of the others. */
static void write_system(struct chat_turns *turns) {
    struct buf *body = turns->body;
    const size_t after = body->bytes - turns->start;
    const struct str parts[] = {STR("{\"role\":\"system\",\"content\":\""), buf_str(&turns->system),
                                after > 0 ? STR("\"},") : STR("\"}")};
    size_t more = 0;
    for (size_t i = 0; i < 3; i++) more += parts[i].bytes;
    char *at = buf_reserve(body, more) - after;
    memmove(at + more, at, after);
    for (size_t i = 0; i < 3; i++) {
        memcpy(at, parts[i].at, parts[i].bytes);
        at += parts[i].bytes;
    }
    buf_commit(body, more);
}

void chat_turns_finish(struct chat_turns *turns) {
    chat_turns_end(turns);
    if (turns->system.bytes > 0) write_system(turns);
    buf_add_byte(turns->body, ']');
}
