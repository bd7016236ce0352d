/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/messages.h"

#include "json/json.h"

#include <assert.h>

static json_t *text_value(struct str text) {
    json_t *value = json_stringn(text.bytes ? text.at : "", text.bytes);
    assert(value); /* the body was valid UTF-8 */
    return value;
}

static struct str part_text(const json_t *part) {
    struct str type = json_member_str(part, "type");
    return json_member_str(part, str_is(type, "refusal") ? "refusal" : "text");
}

static json_t *joined_parts(const json_t *parts) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    for (size_t i = 0; i < json_array_size(parts); i++) {
        if (i > 0) buf_add_byte(&text, '\n');
        buf_add_str(&text, part_text(json_array_get(parts, i)));
    }
    json_t *value = text_value(buf_str(&text));
    buf_release(&text);
    return value;
}

/* Turns refusals into texts, which templates know. */
static void clean_parts(json_t *parts) {
    for (size_t i = 0; i < json_array_size(parts); i++) {
        json_t *part = json_array_get(parts, i);
        if (!str_is(json_member_str(part, "type"), "refusal")) continue;
        json_object_set_new(part, "text", text_value(part_text(part)));
        json_object_set_new(part, "type", json_string("text"));
    }
}

static void clean_content(json_t *message, bool takes_parts) {
    json_t *content = json_member(message, "content");
    if (!content)
        json_object_set_new(message, "content", json_string(""));
    else if (json_is_array(content) && takes_parts)
        clean_parts(content);
    else if (json_is_array(content))
        json_object_set_new(message, "content", joined_parts(content));
}

static void clean_tool_calls(json_t *message) {
    json_t *calls = json_object_get(message, "tool_calls");
    if (!calls) return;
    if (json_array_size(calls) == 0) { /* also null */
        json_object_del(message, "tool_calls");
        return;
    }
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *function = json_object_get(json_array_get(calls, i), "function");
        const json_t *arguments = json_member(function, "arguments");
        if (json_is_object(arguments)) continue;
        struct str text = str_trim(json_str(arguments));
        json_t *value = NULL;
        if (text.bytes == 0)
            value = json_object();
        else if (json_read(&value, text, NULL) != OK)
            assert(false); /* request_check_messages has read it */
        json_object_set_new(function, "arguments", value);
    }
}

static void clean_reasoning(json_t *message) {
    if (json_member(message, "reasoning_content")) return;
    json_t *reasoning = json_member(message, "reasoning");
    if (!reasoning) reasoning = json_member(message, "thinking");
    if (json_is_string(reasoning)) json_object_set(message, "reasoning_content", reasoning);
}

void messages_clean(json_t *messages, struct messages_options options) {
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        clean_tool_calls(message);
        clean_content(message, options.takes_parts);
        clean_reasoning(message);
        if (!options.knows_developer && str_is(json_member_str(message, "role"), "developer"))
            json_object_set_new(message, "role", json_string("system"));
    }
}

struct str messages_last_text(const json_t *messages) {
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *content = json_member(last, "content");
    if (json_is_array(content) && json_array_size(content) > 0)
        return part_text(json_array_get(content, json_array_size(content) - 1));
    return json_str(content);
}
