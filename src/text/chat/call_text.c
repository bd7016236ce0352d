/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/call_text.h"

#include "base/utf8.h"
#include "json/json.h"
#include "json/span.h"

#define MISTRAL_ARGUMENTS STR("[ARGS]")

bool call_is_of_tool(const json_t *tools, struct str name) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        struct str one = json_member_str(function, "name");
        if (one.at && str_equals(one, name)) return true;
    }
    return false;
}

/* Whether a JSON value, or none, says that there are no arguments: null, "", or nothing at all. */
static bool is_nothing(struct str value) {
    if (!value.at || str_is(str_trim(value), "null")) return true;
    if (!json_span_is_string(value)) return false;
    return str_trim((struct str){value.at + 1, value.bytes - 2}).bytes == 0;
}

/* Arguments are an object, or a string that holds one, as some models write it. */
static bool read_arguments(struct str value, struct buf *arguments) {
    if (json_span_is_object(value)) {
        buf_add_str(arguments, value);
        return true;
    }
    if (!json_span_is_string(value)) return false;
    json_span_decode(arguments, value);
    struct str object;
    return json_span_read(buf_str(arguments), &object) && json_span_is_object(object);
}

/* A valid JSON value that is a call. Of members that come twice the first counts: a stream has
 * shown it. Without marks around it, a call must have its arguments. */
static bool read_call(struct str value, const json_t *tools, bool has_marks,
                      struct call_list *calls) {
    struct json_span_iter iter;
    struct str key, member, name = {NULL, 0}, arguments = {NULL, 0};
    if (!json_span_is_object(value) || !json_span_enter(&iter, value)) return false;
    while (json_span_member(&iter, &key, &member)) {
        const bool is_name = json_span_string_is(key, "name") ||
                             (has_marks && json_span_string_is(key, "tool_name"));
        if (!name.at && is_name) name = member;
        bool is_either =
            json_span_string_is(key, "arguments") || json_span_string_is(key, "parameters");
        if (!arguments.at && is_either) arguments = member;
    }
    if (!name.at || !json_span_is_string(name) || (!arguments.at && !has_marks)) return false;
    struct tool_call *call = call_list_add(calls);
    json_span_decode(&call->name, name);
    if (is_nothing(arguments) && call_is_of_tool(tools, buf_str(&call->name))) {
        buf_add_text(&call->arguments, "{}");
        return true;
    }
    if (call->name.bytes > 0 && arguments.at && read_arguments(arguments, &call->arguments))
        return true;
    call_list_cut(calls, calls->count - 1);
    return false;
}

bool call_text_json(struct str text, const json_t *tools, struct call_list *calls) {
    struct str value;
    return utf8_is_valid(text) && json_span_read(text, &value) &&
           read_call(value, tools, true, calls);
}

bool call_text_array(struct str text, const json_t *tools, struct call_list *calls) {
    struct str list, element;
    struct json_span_iter iter;
    size_t before = calls->count;
    if (!utf8_is_valid(text) || !json_span_read(text, &list)) return false;
    if (list.at[0] != '[' || !json_span_enter(&iter, list)) return false;
    while (json_span_element(&iter, &element)) {
        if (read_call(element, tools, true, calls)) continue;
        call_list_cut(calls, before);
        return false;
    }
    return calls->count > before;
}

/* An object with one member: a name and its arguments. */
static bool read_member(struct str element, const json_t *tools, struct call_list *calls) {
    struct json_span_iter iter;
    struct str key, value, other;
    struct buf name;
    if (!json_span_is_object(element) || !json_span_enter(&iter, element) ||
        !json_span_member(&iter, &key, &value) || json_span_member(&iter, &other, &other))
        return false;
    buf_init(&name, BUF_UNLIMITED);
    json_span_decode(&name, key);
    const bool is_call = call_text_arguments(buf_str(&name), value, tools, calls);
    buf_release(&name);
    return is_call;
}

bool call_text_members(struct str text, const json_t *tools, struct call_list *calls) {
    struct str list, element;
    struct json_span_iter iter;
    const size_t before = calls->count;
    if (!utf8_is_valid(text) || !json_span_read(text, &list)) return false;
    if (list.at[0] != '[' || !json_span_enter(&iter, list)) return false;
    while (json_span_element(&iter, &element)) {
        if (read_member(element, tools, calls)) continue;
        call_list_cut(calls, before);
        return false;
    }
    return calls->count > before;
}

bool call_text_sequence(struct str text, const json_t *tools, struct call_list *calls) {
    size_t before = calls->count;
    if (!utf8_is_valid(text)) return false;
    for (text = str_trim(text); text.bytes > 0;) {
        size_t end = json_span_end(text, 0);
        struct str value;
        if (end == SIZE_MAX || !json_span_read((struct str){text.at, end}, &value) ||
            !read_call(value, tools, false, calls)) {
            call_list_cut(calls, before);
            return false;
        }
        text = str_trim(str_skip(text, end));
        if (text.bytes > 0 && text.at[0] == ';') text = str_trim(str_skip(text, 1));
    }
    return calls->count > before;
}

bool call_text_arguments(struct str name, struct str text, const json_t *tools,
                         struct call_list *calls) {
    struct str value;
    bool is_none = str_trim(text).bytes == 0 || is_nothing(text);
    if (is_none && call_is_of_tool(tools, name)) text = STR("{}");
    if (name.bytes == 0 || !utf8_is_valid(name) || !utf8_is_valid(text) ||
        !json_span_read(text, &value) || !json_span_is_object(value))
        return false;
    struct tool_call *call = call_list_add(calls);
    buf_add_str(&call->name, name);
    buf_add_str(&call->arguments, value);
    return true;
}

/* "f[ARGS]{…}" or "f[CALL_ID]…[ARGS]{…}" or "f{…}". */
static bool read_named_call(struct str text, const json_t *tools, struct call_list *calls) {
    size_t name_end = 0;
    while (name_end < text.bytes && text.at[name_end] != '[' && text.at[name_end] != '{')
        name_end++;
    struct str name = str_trim((struct str){text.at, name_end});
    size_t at = str_find(text, MISTRAL_ARGUMENTS, name_end);
    /* Behind a brace it is in a string of the arguments. */
    if (at == SIZE_MAX || at > str_find_byte(text, '{', name_end))
        at = name_end;
    else
        at += MISTRAL_ARGUMENTS.bytes;
    return utf8_is_valid(text) && call_text_arguments(name, str_skip(text, at), tools, calls);
}

bool call_text_mistral(struct str text, const json_t *tools, struct call_list *calls) {
    text = str_trim(text);
    if (text.bytes == 0) return false;
    if (text.at[0] == '{') return call_text_json(text, tools, calls);
    if (text.at[0] == '[') return call_text_array(text, tools, calls);
    return read_named_call(text, tools, calls);
}
