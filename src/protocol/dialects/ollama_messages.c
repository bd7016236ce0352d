/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/ollama.h"

#include "base/mem.h"
#include "json/json.h"

#include <ctype.h>
#include <stdlib.h>

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))
#define ROLE_BYTES_MAX 32

/* A call of a tool that has no result yet. */
struct open_call {
    struct str id, name; /* raw strings; an id that the client did not give is "call_N" */
    size_t number;
};

/* The conversation so far: calls are numbered, and wait for their results. */
struct conversation {
    struct dialect_call *call;
    struct refusal *refusal;
    struct open_call *open;
    size_t open_count, open_room, numbered;
    size_t at; /* index of the message */
};

static bool refuse_at(struct conversation *is, const char *member, const char *expected,
                      struct str got) {
    char param[REFUSAL_PARAM_BYTES];
    snprintf(param, sizeof param, "messages[%zu].%s", is->at, member);
    return refuse(is->refusal, "invalid_type", param, "Invalid type for '%s': expected %s, got %s.",
                  param, expected, member_kind(got));
}

static void add_id(struct buf *body, const struct open_call *call) {
    if (call->id.at)
        buf_add_str(body, call->id);
    else
        buf_printf(body, "\"call_%zu\"", call->number);
}

static void open_call(struct conversation *is, struct str id, struct str name) {
    if (is->open_count == is->open_room) {
        is->open_room = is->open_room ? is->open_room * 2 : 8;
        is->open = mem_resize(is->open, is->open_room, sizeof *is->open);
    }
    is->open[is->open_count++] = (struct open_call){id, name, is->numbered++};
}

/* Writes one call of the assistant, whose arguments become the text of their object. */
static bool add_call(struct conversation *is, struct str call, size_t index) {
    struct buf *body = &is->call->body;
    struct str id = {NULL, 0}, function = {NULL, 0}, name = {NULL, 0}, arguments = {NULL, 0};
    const struct member outer[] = {{"id", &id}, {"function", &function}};
    const struct member inner[] = {{"name", &name}, {"arguments", &arguments}};
    char member[48];
    snprintf(member, sizeof member, "tool_calls[%zu]", index);
    if (!json_span_is_object(call)) return refuse_at(is, member, "an object", call);
    if (!members_read(call, outer, COUNT(outer), is->refusal)) return false;
    snprintf(member, sizeof member, "tool_calls[%zu].function", index);
    if (!json_span_is_object(function)) return refuse_at(is, member, "an object", function);
    if (!members_read(function, inner, COUNT(inner), is->refusal)) return false;
    snprintf(member, sizeof member, "tool_calls[%zu].function.name", index);
    if (!json_span_is_string(name)) return refuse_at(is, member, "a string", name);
    snprintf(member, sizeof member, "tool_calls[%zu].function.arguments", index);
    if (arguments.at && !json_span_is_object(arguments))
        return refuse_at(is, member, "an object", arguments);
    if (!json_span_is_string(id) || member_is_empty(id)) id = (struct str){NULL, 0};
    open_call(is, id, name);
    buf_add_text(body, index > 0 ? ",{\"id\":" : "{\"id\":");
    add_id(body, &is->open[is->open_count - 1]);
    buf_add_text(body, ",\"type\":\"function\",\"function\":{\"name\":");
    buf_add_str(body, name);
    buf_add_text(body, ",\"arguments\":");
    json_write_utf8_string(body, arguments.at ? arguments : STR("{}"));
    buf_add_text(body, "}}");
    return true;
}

static bool add_calls(struct conversation *is, struct str calls) {
    struct json_span_iter iter;
    struct str call;
    size_t count = 0;
    if (!member_is_array(calls)) return refuse_at(is, "tool_calls", "an array", calls);
    if (member_is_empty(calls)) return true;
    buf_add_text(&is->call->body, ",\"tool_calls\":[");
    if (json_span_enter(&iter, calls))
        while (json_span_element(&iter, &call))
            if (!add_call(is, call, count++)) return false;
    buf_add_byte(&is->call->body, ']');
    return true;
}

/* The open call that a result belongs to: the one of its id, else the next one of its tool's name,
 * else the next one. SIZE_MAX: no call is open. */
static size_t find_open(const struct conversation *is, struct str name) {
    if (json_span_is_string(name) && !member_is_empty(name))
        for (size_t i = 0; i < is->open_count; i++)
            if (str_equals(is->open[i].name, name)) return i;
    return is->open_count > 0 ? 0 : SIZE_MAX;
}

static void close_call(struct conversation *is, size_t index) {
    for (size_t i = index; i + 1 < is->open_count; i++) is->open[i] = is->open[i + 1];
    is->open_count--;
}

static void add_result_id(struct conversation *is, struct str id, struct str name) {
    struct buf *body = &is->call->body;
    buf_add_text(body, ",\"tool_call_id\":");
    size_t found = SIZE_MAX;
    if (json_span_is_string(id) && !member_is_empty(id)) {
        buf_add_str(body, id);
        for (size_t i = 0; i < is->open_count && found == SIZE_MAX; i++)
            if (is->open[i].id.at && str_equals(is->open[i].id, id)) found = i;
    } else {
        found = find_open(is, name);
        if (found == SIZE_MAX || !is->open)
            buf_printf(body, "\"call_%zu\"", is->numbered++);
        else
            add_id(body, &is->open[found]);
    }
    if (found != SIZE_MAX) close_call(is, found);
}

/* The role in small letters, as a raw string. */
static bool add_role(struct conversation *is, struct str role, bool *ret_is_tool) {
    char text[ROLE_BYTES_MAX + 1];
    if (!json_span_is_string(role) || role.bytes > ROLE_BYTES_MAX)
        return refuse_at(is, "role", "one of 'system', 'user', 'assistant', 'tool'", role);
    for (size_t i = 0; i < role.bytes; i++) text[i] = (char)tolower((unsigned char)role.at[i]);
    *ret_is_tool = str_is((struct str){text, role.bytes}, "\"tool\"");
    buf_add_text(&is->call->body, "{\"role\":");
    buf_add(&is->call->body, text, role.bytes);
    return true;
}

static bool add_message(struct conversation *is, struct str message) {
    struct buf *body = &is->call->body;
    struct str role, content, thinking, calls, images, id, name;
    bool is_tool = false;
    char param[48];
    const struct member places[] = {
        {"role", &role},     {"content", &content}, {"thinking", &thinking}, {"tool_calls", &calls},
        {"images", &images}, {"tool_call_id", &id}, {"tool_name", &name}};
    if (!json_span_is_object(message)) return refuse_at(is, "", "an object", message);
    if (!members_read(message, places, COUNT(places), is->refusal)) return false;
    snprintf(param, sizeof param, "messages[%zu].images", is->at);
    if (!ollama_check_images(images, param, is->refusal)) return false;
    if (content.at && !json_span_is_string(content))
        return refuse_at(is, "content", "a string", content);
    if (thinking.at && !json_span_is_string(thinking))
        return refuse_at(is, "thinking", "a string", thinking);
    if (!add_role(is, role, &is_tool)) return false;
    dialect_add_member(body, "content", content.at ? content : STR("\"\""));
    if (!member_is_empty(thinking)) dialect_add_member(body, "reasoning_content", thinking);
    if (is_tool) add_result_id(is, id, name);
    if (calls.at && !add_calls(is, calls)) return false;
    buf_add_byte(body, '}');
    return true;
}

bool ollama_add_messages(struct dialect_call *call, struct str messages, struct refusal *refusal) {
    struct conversation is = {.call = call, .refusal = refusal};
    struct json_span_iter iter;
    struct str message;
    bool is_good = true;
    buf_add_text(&call->body, ",\"messages\":[");
    if (json_span_enter(&iter, messages))
        while (is_good && json_span_element(&iter, &message)) {
            if (is.at > 0) buf_add_byte(&call->body, ',');
            is_good = add_message(&is, message);
            is.at++;
        }
    buf_add_byte(&call->body, ']');
    free(is.open);
    return is_good;
}
