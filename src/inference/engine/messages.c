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

/* --- one call per message --- */

/* Adds the message with call `index` alone. The texts stay with the first one. */
static void add_call(json_t *list, json_t *message, size_t index) {
    json_t *one = json_copy(message);
    json_t *call = json_array_get(json_object_get(message, "tool_calls"), index);
    json_object_set_new(one, "tool_calls", json_pack("[O]", call));
    if (index > 0) {
        json_object_set_new(one, "content", json_string(""));
        json_object_del(one, "reasoning_content");
    }
    json_array_append_new(list, one);
}

/* The results from `at` on as arrays under the ids of their calls. Returns where the rest
 * begins. */
static size_t find_results(const json_t *messages, size_t at, json_t *results) {
    for (; at < json_array_size(messages); at++) {
        json_t *message = json_array_get(messages, at), *list;
        struct str id = json_member_str(message, "tool_call_id");
        if (!str_is(json_member_str(message, "role"), "tool") || !id.at) break;
        list = json_object_getn(results, id.at, id.bytes);
        if (!list) json_object_setn_new(results, id.at, id.bytes, list = json_array());
        json_array_append(list, message);
    }
    return at;
}

/* Moves the results of a call to the end of `list`. */
static void take_results(json_t *list, json_t *results, struct str id) {
    json_t *found = id.at ? json_object_getn(results, id.at, id.bytes) : NULL;
    if (!found) return;
    json_array_extend(list, found);
    json_object_deln(results, id.at, id.bytes);
}

/* Adds message `at`, which has several calls, and the results behind it; those of no call come
 * last. Returns where the rest begins. */
static size_t add_calls(json_t *list, const json_t *messages, size_t at) {
    json_t *message = json_array_get(messages, at), *results = json_object();
    const json_t *calls = json_object_get(message, "tool_calls");
    size_t end = find_results(messages, at + 1, results);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        add_call(list, message, i);
        take_results(list, results, json_member_str(json_array_get(calls, i), "id"));
    }
    for (size_t k = at + 1; k < end; k++)
        take_results(list, results, json_member_str(json_array_get(messages, k), "tool_call_id"));
    json_decref(results);
    return end;
}

static void split_calls(json_t *messages) {
    json_t *list = json_array();
    for (size_t at = 0; at < json_array_size(messages);) {
        const json_t *message = json_array_get(messages, at);
        if (json_array_size(json_object_get(message, "tool_calls")) > 1)
            at = add_calls(list, messages, at);
        else
            json_array_append(list, json_array_get(messages, at++));
    }
    json_array_clear(messages);
    json_array_extend(messages, list);
    json_decref(list);
}

static void name_thinking(json_t *message) {
    json_t *reasoning = json_object_get(message, "reasoning_content");
    bool has_content = json_member_str(message, "content").bytes > 0;
    json_object_del(message, "thinking");
    if (json_is_string(reasoning) && !has_content) json_object_set(message, "thinking", reasoning);
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
    if (!options.has_channels) return;
    split_calls(messages);
    for (size_t i = 0; i < json_array_size(messages); i++)
        name_thinking(json_array_get(messages, i));
}

struct str messages_last_text(const json_t *messages) {
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const json_t *content = json_member(last, "content");
    if (json_is_array(content) && json_array_size(content) > 0)
        return part_text(json_array_get(content, json_array_size(content) - 1));
    return json_str(content);
}
