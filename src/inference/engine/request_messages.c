/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/request_messages.h"

#include "base/utf8.h"
#include "engine/request_body.h"
#include "json/json.h"

#include <stdio.h>

#define PARAM_BYTES 96

#define ROLES "'system', 'developer', 'user', 'assistant', 'tool', 'function'"

static bool is_role(struct str role) {
    return str_is(role, "system") || str_is(role, "developer") || str_is(role, "user") ||
           str_is(role, "assistant") || str_is(role, "tool") || str_is(role, "function");
}

static bool is_media_part(struct str type) {
    return str_is(type, "image_url") || str_is(type, "image") || str_is(type, "input_image") ||
           str_is(type, "input_audio") || str_is(type, "audio_url") || str_is(type, "video_url") ||
           str_is(type, "file") || str_is(type, "input_file") || str_is(type, "image_embeds") ||
           str_is(type, "image_pil");
}

static bool check_part(const json_t *part, const char *param, struct refusal *refusal) {
    if (!json_is_object(part)) return refuse_type(refusal, param, "an object", part);
    char inner[PARAM_BYTES + 8];
    snprintf(inner, sizeof inner, "%s.type", param);
    const json_t *type = require_member(part, "type", JSON_STRING, inner, refusal);
    if (!type) return false;
    struct str name = json_str(type);
    if (is_media_part(name)) {
        char value[VALUE_TEXT_BYTES];
        return refuse(refusal, "unsupported_parameter", inner,
                      "Unsupported content part in '%s': %s; this model reads text only.", param,
                      value_text(type, value));
    }
    const char *member = str_is(name, "refusal") ? "refusal" : "text";
    if (!str_is(name, member)) return refuse_value(refusal, inner, type, "'text'");
    snprintf(inner, sizeof inner, "%s.%s", param, member);
    return require_member(part, member, JSON_STRING, inner, refusal);
}

static bool check_content(const json_t *message, bool may_be_absent, size_t index,
                          struct refusal *refusal) {
    char param[PARAM_BYTES];
    snprintf(param, sizeof param, "messages[%zu].content", index);
    const json_t *content = json_member(message, "content");
    if (!content) return may_be_absent || refuse_missing(refusal, param);
    if (json_is_string(content)) return true;
    if (!json_is_array(content))
        return refuse_type(refusal, param, "a string or an array of content parts", content);
    if (json_array_size(content) == 0 && !may_be_absent)
        return refuse(refusal, "invalid_value", param,
                      "Invalid '%s': an array of content parts must not be empty.", param);
    for (size_t i = 0; i < json_array_size(content); i++) {
        snprintf(param, sizeof param, "messages[%zu].content[%zu]", index, i);
        if (!check_part(json_array_get(content, i), param, refusal)) return false;
    }
    return true;
}

/* Checks `arguments`: JSON text of an object, or empty; some clients send the object itself. */
static bool check_arguments(const json_t *arguments, const char *param, size_t *room,
                            struct refusal *refusal) {
    if (!arguments || json_is_object(arguments)) return true;
    if (!json_is_string(arguments)) return refuse_type(refusal, param, "a string", arguments);
    if (str_trim(json_str(arguments)).bytes == 0) return true;
    json_t *value;
    struct error error;
    char text[VALUE_TEXT_BYTES];
    enum err err = json_read_within(&value, json_str(arguments), room, &error);
    if (err == ERR_UNAVAILABLE || err == ERR_LIMIT)
        return request_body_refuse(refusal, err, param, &error);
    if (err != OK)
        return refuse(refusal, "invalid_value", param, "Invalid '%s': %s is %s.", param,
                      value_text(arguments, text), error.text);
    bool is_object = json_is_object(value);
    json_decref(value);
    return is_object ||
           refuse(refusal, "invalid_value", param, "Invalid '%s': %s is not a JSON object.", param,
                  value_text(arguments, text));
}

static bool check_tool_call(const json_t *call, size_t message_index, size_t index, size_t *room,
                            struct refusal *refusal) {
    char param[PARAM_BYTES];
    snprintf(param, sizeof param, "messages[%zu].tool_calls[%zu]", message_index, index);
    if (!json_is_object(call)) return refuse_type(refusal, param, "an object", call);
    snprintf(param, sizeof param, "messages[%zu].tool_calls[%zu].function", message_index, index);
    const json_t *function = require_member(call, "function", JSON_OBJECT, param, refusal);
    if (!function) return false;
    snprintf(param, sizeof param, "messages[%zu].tool_calls[%zu].function.name", message_index,
             index);
    if (!require_member(function, "name", JSON_STRING, param, refusal)) return false;
    snprintf(param, sizeof param, "messages[%zu].tool_calls[%zu].function.arguments", message_index,
             index);
    return check_arguments(json_member(function, "arguments"), param, room, refusal);
}

static bool check_message(const json_t *message, size_t index, size_t *room,
                          struct refusal *refusal) {
    char param[PARAM_BYTES];
    snprintf(param, sizeof param, "messages[%zu]", index);
    if (!json_is_object(message)) return refuse_type(refusal, param, "an object", message);
    snprintf(param, sizeof param, "messages[%zu].role", index);
    const json_t *role = require_member(message, "role", JSON_STRING, param, refusal);
    if (!role) return false;
    if (!is_role(json_str(role))) return refuse_value(refusal, param, role, ROLES);

    snprintf(param, sizeof param, "messages[%zu].tool_calls", index);
    const json_t *calls = json_member(message, "tool_calls");
    if (calls && !json_is_array(calls)) return refuse_type(refusal, param, "an array", calls);
    for (size_t i = 0; i < json_array_size(calls); i++)
        if (!check_tool_call(json_array_get(calls, i), index, i, room, refusal)) return false;
    bool is_assistant = str_is(json_str(role), "assistant");
    bool may_be_absent =
        is_assistant && (json_array_size(calls) > 0 || json_member(message, "function_call") ||
                         json_member(message, "refusal"));
    return check_content(message, may_be_absent, index, refusal);
}

bool request_check_messages(const json_t *body, size_t *room, struct refusal *ret_refusal) {
    const json_t *messages = require_member(body, "messages", JSON_ARRAY, "messages", ret_refusal);
    if (!messages) return false;
    if (json_array_size(messages) == 0)
        return refuse(ret_refusal, "array_below_min_length", "messages",
                      "Invalid 'messages': empty array. Expected an array with at least one "
                      "message.");
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (!check_message(json_array_get(messages, i), i, room, ret_refusal)) return false;
    return true;
}
