/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/responses.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))
#define SHOWN_BYTES 60 /* most of a client's value that a sentence repeats */

static bool refuse_hosted(struct refusal *refusal, const char *param, struct str type) {
    size_t shown = type.bytes < SHOWN_BYTES ? type.bytes : SHOWN_BYTES;
    return refuse(refusal, "unsupported_value", param,
                  "Unsupported value: '%s' is %.*s: this server runs no tools of its own; give "
                  "tools of the type 'function', or leave this one out.",
                  param, (int)shown, type.at);
}

static bool refuse_member(struct refusal *refusal, size_t index, const char *member,
                          const char *expected, struct str got) {
    char param[REFUSAL_PARAM_BYTES];
    snprintf(param, sizeof param, "tools[%zu]%s", index, member);
    return responses_refuse_kind(refusal, param, expected, got);
}

static bool add_tool(struct dialect_call *call, struct str tool, size_t index,
                     struct refusal *refusal) {
    struct str type, name, description, parameters, strict;
    const struct member places[] = {{"type", &type},
                                    {"name", &name},
                                    {"description", &description},
                                    {"parameters", &parameters},
                                    {"strict", &strict}};
    struct buf *body = &call->body;
    if (!json_span_is_object(tool)) return refuse_member(refusal, index, "", "an object", tool);
    if (!members_read(tool, places, COUNT(places), refusal)) return false;
    if (!type.at || !json_span_is_string(type))
        return refuse_member(refusal, index, ".type", "a string", type);
    if (!json_span_string_is(type, "function")) {
        char param[REFUSAL_PARAM_BYTES];
        snprintf(param, sizeof param, "tools[%zu].type", index);
        return refuse_hosted(refusal, param, type);
    }
    if (!name.at || !json_span_is_string(name))
        return refuse_member(refusal, index, ".name", "a string", name);
    if (parameters.at && !json_span_is_object(parameters))
        return refuse_member(refusal, index, ".parameters", "an object", parameters);
    if (strict.at && !member_is_bool(strict))
        return refuse_member(refusal, index, ".strict", "a boolean", strict);
    buf_add_text(body, index > 0 ? "," : ",\"tools\":[");
    buf_add_text(body, "{\"type\":\"function\",\"function\":{\"name\":");
    buf_add_str(body, name);
    if (description.at) dialect_add_member(body, "description", description);
    if (parameters.at) dialect_add_member(body, "parameters", parameters);
    if (strict.at) dialect_add_member(body, "strict", strict);
    buf_add_text(body, "}}");
    return true;
}

static void add_function(struct buf *body, struct str name) {
    buf_add_text(body, "{\"type\":\"function\",\"function\":{\"name\":");
    buf_add_str(body, name);
    buf_add_text(body, "}}");
}

static bool add_allowed(struct dialect_call *call, struct str choice, struct refusal *refusal) {
    struct str mode = json_span_get(choice, "mode"), tools = json_span_get(choice, "tools"), tool;
    struct json_span_iter iter;
    struct buf *body = &call->body;
    size_t count = 0;
    if (!mode.at || !json_span_is_string(mode))
        return responses_refuse_kind(refusal, "tool_choice.mode", "a string", mode);
    if (!tools.at || !member_is_array(tools) || !json_span_enter(&iter, tools))
        return responses_refuse_kind(refusal, "tool_choice.tools", "an array", tools);
    buf_add_text(body, ",\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":");
    buf_add_str(body, mode);
    buf_add_text(body, ",\"tools\":[");
    while (json_span_element(&iter, &tool)) {
        struct str type = {NULL, 0}, name = {NULL, 0};
        if (json_span_is_object(tool)) {
            type = json_span_get(tool, "type");
            name = json_span_get(tool, "name");
        }
        if (!type.at || !json_span_is_string(type))
            return responses_refuse_kind(refusal, "tool_choice.tools", "objects with a type", tool);
        if (!json_span_string_is(type, "function"))
            return refuse_hosted(refusal, "tool_choice.tools", type);
        if (!name.at || !json_span_is_string(name))
            return responses_refuse_kind(refusal, "tool_choice.tools", "functions with a name",
                                         tool);
        if (count++ > 0) buf_add_byte(body, ',');
        add_function(body, name);
    }
    buf_add_text(body, "]}}");
    return true;
}

static bool add_choice(struct dialect_call *call, struct str choice, struct refusal *refusal) {
    struct str type, name;
    struct buf *body = &call->body;
    if (json_span_is_string(choice)) { /* "none", "auto", "required": the chat's own words */
        dialect_add_member(body, "tool_choice", choice);
        return true;
    }
    if (!json_span_is_object(choice))
        return responses_refuse_kind(refusal, "tool_choice", "a string or an object", choice);
    type = json_span_get(choice, "type");
    name = json_span_get(choice, "name");
    if (!type.at || !json_span_is_string(type))
        return responses_refuse_kind(refusal, "tool_choice.type", "a string", type);
    if (json_span_string_is(type, "allowed_tools")) return add_allowed(call, choice, refusal);
    if (!json_span_string_is(type, "function"))
        return refuse_hosted(refusal, "tool_choice.type", type);
    if (!name.at || !json_span_is_string(name))
        return responses_refuse_kind(refusal, "tool_choice.name", "a string", name);
    buf_add_text(body, ",\"tool_choice\":");
    add_function(body, name);
    return true;
}

bool responses_add_tools(struct dialect_call *call, struct str tools, struct str choice,
                         struct refusal *refusal) {
    struct json_span_iter iter;
    struct str tool;
    size_t count = 0;
    if (tools.at && (!member_is_array(tools) || !json_span_enter(&iter, tools)))
        return responses_refuse_kind(refusal, "tools", "an array", tools);
    while (tools.at && json_span_element(&iter, &tool))
        if (!add_tool(call, tool, count++, refusal)) return false;
    if (count == 0) return true; /* a choice among no tools means nothing */
    buf_add_byte(&call->body, ']');
    return !choice.at || add_choice(call, choice, refusal);
}

/* --- the form of the text --- */

static bool add_schema(struct dialect_call *call, struct str format, struct refusal *refusal) {
    struct str name, schema, strict, description;
    const struct member places[] = {
        {"name", &name}, {"schema", &schema}, {"strict", &strict}, {"description", &description}};
    struct buf *body = &call->body;
    if (!members_read(format, places, COUNT(places), refusal)) return false;
    if (!name.at || !json_span_is_string(name))
        return responses_refuse_kind(refusal, "text.format.name", "a string", name);
    if (!json_span_is_object(schema))
        return responses_refuse_kind(refusal, "text.format.schema", "an object", schema);
    buf_add_text(body, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":");
    buf_add_str(body, name);
    dialect_add_member(body, "schema", schema);
    if (strict.at) dialect_add_member(body, "strict", strict);
    if (description.at) dialect_add_member(body, "description", description);
    buf_add_text(body, "}}");
    return true;
}

bool responses_add_text(struct dialect_call *call, struct str text, struct refusal *refusal) {
    if (!text.at) return true;
    if (!json_span_is_object(text))
        return responses_refuse_kind(refusal, "text", "an object", text);
    struct str format = json_span_get(text, "format");
    if (!format.at || str_is(format, "null")) return true;
    if (!json_span_is_object(format))
        return responses_refuse_kind(refusal, "text.format", "an object", format);
    struct str type = json_span_get(format, "type");
    if (!type.at || !json_span_is_string(type))
        return responses_refuse_kind(refusal, "text.format.type", "a string", type);
    if (json_span_string_is(type, "text")) return true;
    if (json_span_string_is(type, "json_schema")) return add_schema(call, format, refusal);
    if (!json_span_string_is(type, "json_object"))
        return refuse(refusal, "invalid_value", "text.format.type",
                      "Invalid value for 'text.format.type': expected 'text', 'json_object' or "
                      "'json_schema', got %.*s.",
                      (int)(type.bytes < SHOWN_BYTES ? type.bytes : SHOWN_BYTES), type.at);
    buf_add_text(&call->body, ",\"response_format\":{\"type\":\"json_object\"}");
    return true;
}
