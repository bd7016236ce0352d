/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/messages.h"

#include "json/json.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* A schema without a type is that of an object. */
static void add_schema(struct buf *body, struct str schema) {
    bool has_type = json_span_get(schema, "type").at != NULL;
    if (has_type) {
        buf_add_str(body, schema);
        return;
    }
    buf_add_text(body, "{\"type\":\"object\"");
    if (!member_is_empty(schema)) buf_add_byte(body, ',');
    buf_add_str(body, str_skip(schema, 1));
}

static bool refuse_tool(struct refusal *refusal, size_t index, const char *member,
                        const char *sentence) {
    char param[64];
    snprintf(param, sizeof param, "tools.%zu%s", index, member);
    return refuse(refusal, "invalid_value", param, "%s: %s", param, sentence);
}

static bool add_tool(struct dialect_call *call, struct str tool, size_t index,
                     struct refusal *refusal) {
    struct str type, name, description, schema, strict;
    const struct member places[] = {{"type", &type},
                                    {"name", &name},
                                    {"description", &description},
                                    {"input_schema", &schema},
                                    {"strict", &strict}};
    char sentence[160];
    struct buf *body = &call->body;
    if (!json_span_is_object(tool)) return refuse_tool(refusal, index, "", "expected an object");
    if (!members_read(tool, places, COUNT(places), refusal)) return false;
    if (type.at && !(json_span_is_string(type) && json_span_string_is(type, "custom"))) {
        snprintf(sentence, sizeof sentence,
                 "this server has no tools of the type %.*s; it takes tools with an input_schema",
                 (int)(type.bytes < 60 ? type.bytes : 60), type.at);
        return refuse_tool(refusal, index, ".type", sentence);
    }
    if (!json_span_is_string(name)) return refuse_tool(refusal, index, ".name", "Field required");
    if (!json_span_is_object(schema))
        return refuse_tool(refusal, index, ".input_schema", "expected an object");
    if (strict.at && !member_is_bool(strict))
        return refuse_tool(refusal, index, ".strict", "expected a boolean");
    buf_add_text(body, index > 0 ? "," : ",\"tools\":[");
    buf_add_text(body, "{\"type\":\"function\",\"function\":{\"name\":");
    buf_add_str(body, name);
    if (json_span_is_string(description)) dialect_add_member(body, "description", description);
    buf_add_text(body, ",\"parameters\":");
    add_schema(body, schema);
    if (strict.at) dialect_add_member(body, "strict", strict);
    buf_add_text(body, "}}");
    return true;
}

static bool add_choice(struct dialect_call *call, struct str choice, struct refusal *refusal) {
    struct str type, name, alone;
    const struct member places[] = {
        {"type", &type}, {"name", &name}, {"disable_parallel_tool_use", &alone}};
    struct buf *body = &call->body;
    if (!json_span_is_object(choice))
        return refuse(refusal, "invalid_type", "tool_choice",
                      "tool_choice: expected an object, got %s", member_kind(choice));
    if (!members_read(choice, places, COUNT(places), refusal)) return false;
    bool is_text = json_span_is_string(type);
    if (is_text && json_span_string_is(type, "auto")) {
        dialect_add_member(body, "tool_choice", STR("\"auto\""));
    } else if (is_text && json_span_string_is(type, "any")) {
        dialect_add_member(body, "tool_choice", STR("\"required\""));
    } else if (is_text && json_span_string_is(type, "none")) {
        dialect_add_member(body, "tool_choice", STR("\"none\""));
    } else if (is_text && json_span_string_is(type, "tool") && json_span_is_string(name)) {
        buf_add_text(body, ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":");
        buf_add_str(body, name);
        buf_add_text(body, "}}");
    } else {
        return refuse(
            refusal, "invalid_value", "tool_choice",
            "tool_choice: expected the type 'auto', 'any', 'none', or 'tool' with a name");
    }
    if (member_is_true(alone)) buf_add_text(body, ",\"parallel_tool_calls\":false");
    return true;
}

bool messages_add_tools(struct dialect_call *call, struct str tools, struct str choice,
                        struct refusal *refusal) {
    struct json_span_iter iter;
    struct str tool;
    size_t count = 0;
    if (tools.at && (!member_is_array(tools) || !json_span_enter(&iter, tools)))
        return refuse(refusal, "invalid_type", "tools", "tools: expected an array, got %s",
                      member_kind(tools));
    while (tools.at && json_span_element(&iter, &tool))
        if (!add_tool(call, tool, count++, refusal)) return false;
    if (count == 0) return true; /* a choice among no tools means nothing */
    buf_add_byte(&call->body, ']');
    return !choice.at || add_choice(call, choice, refusal);
}
