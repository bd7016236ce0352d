/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/tool_tags.h"

#include "chat/harmony_format.h"
#include "chat/tag_words.h"
#include "json/json.h"

#include <stdio.h>
#include <string.h>

/* How calls are written: open, then each call as head NAME middle ARGUMENTS tail, with separators,
 * then close. */
struct form {
    const char *open, *head, *middle, *tail, *separator, *close;
};

#define NAME_HEAD "{\"name\": \""
#define ARGUMENTS "\", \"arguments\": "

static const struct form forms[TOOL_FORMAT_COUNT] = {
    [TOOL_FORMAT_HERMES] = {"", "<tool_call>\n" NAME_HEAD, ARGUMENTS, "}\n</tool_call>", "\n", ""},
    [TOOL_FORMAT_XML] = {"", "<tool_call>\n" NAME_HEAD, ARGUMENTS, "}\n</tool_call>", "\n", ""},
    [TOOL_FORMAT_KEYS] = {"", "<tool_call>\n" NAME_HEAD, ARGUMENTS, "}\n</tool_call>", "\n", ""},
    [TOOL_FORMAT_MISTRAL] = {"[TOOL_CALLS][", NAME_HEAD, ARGUMENTS, "}", ", ", "]"},
    [TOOL_FORMAT_NAMED] = {"", "[TOOL_CALLS]", "[ARGS]", "", "", ""},
    [TOOL_FORMAT_LLAMA] = {"", NAME_HEAD, "\", \"parameters\": ", "}", "; ", ""},
    [TOOL_FORMAT_PYTHON] = {"", NAME_HEAD, "\", \"parameters\": ", "}", "; ", ""},
    [TOOL_FORMAT_PHI] = {"functools[", NAME_HEAD, ARGUMENTS, "}", ", ", "]"},
    [TOOL_FORMAT_GEMMA] = {"", "<|tool_call>call:", "", "<tool_call|>", "", ""},
    [TOOL_FORMAT_FUNCTION] = {"", "<start_function_call>call:", "", "<end_function_call>", "", ""},
    [TOOL_FORMAT_ACTION] = {"<|START_ACTION|>[\n", "{\"tool_name\": \"",
                            "\", \"parameters\": ", "}", ",\n", "\n]<|END_ACTION|>"},
    [TOOL_FORMAT_MEMBERS] = {"<|tools_prefix|>[", "{\"", "\": ", "}", ", ", "]<|tools_suffix|>"},
    [TOOL_FORMAT_DEEPSEEK] = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
                              "<｜tool▁call▁end｜>", "", "<｜tool▁calls▁end｜>"},
    [TOOL_FORMAT_DEEPSEEK_3] = {"<｜tool▁calls▁begin｜>",
                                "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n",
                                "\n```<｜tool▁call▁end｜>", "\n", "<｜tool▁calls▁end｜>"},
    [TOOL_FORMAT_KIMI] = {"<|tool_calls_section_begin|>", "<|tool_call_begin|>functions.",
                          ":0<|tool_call_argument_begin|>", "<|tool_call_end|>", "",
                          "<|tool_calls_section_end|>"},
    [TOOL_FORMAT_HUNYUAN] = {"<tool_calls>\n", "<tool_call>", "\n```json\n", "\n```</tool_call>",
                             "\n", "\n</tool_calls>"},
    [TOOL_FORMAT_HARMONY] = {"", HARMONY_FUNCTION, HARMONY_JSON HARMONY_BODY, "",
                             HARMONY_END HARMONY_NEXT, ""},
};

/* Whether members that the schema does not list may be ruled out: no other keyword could name them.
 */
static bool may_close(const json_t *schema) {
    static const char *const others[] = {"additionalProperties",
                                         "unevaluatedProperties",
                                         "patternProperties",
                                         "allOf",
                                         "anyOf",
                                         "oneOf",
                                         "$ref",
                                         "minProperties"};
    const json_t *properties = json_object_get(schema, "properties"),
                 *required = json_object_get(schema, "required");
    if (properties && !json_is_object(properties)) return false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (json_object_get(schema, others[i])) return false;
    for (size_t i = 0; i < json_array_size(required); i++) {
        struct str name = json_str(json_array_get(required, i));
        if (!name.at || !json_object_getn(properties, name.at, name.bytes)) return false;
    }
    return true;
}

/* The schema of a tool's arguments: an object. Without a word about other members, there are none,
 * because functions take only the parameters they have. */
static json_t *arguments_schema(const json_t *function) {
    json_t *parameters = json_object_get(function, "parameters");
    json_t *schema = json_is_object(parameters) ? json_copy(parameters) : json_object();
    json_object_set_new(schema, "type", json_string("object"));
    if (may_close(schema)) json_object_set_new(schema, "additionalProperties", json_false());
    return schema;
}

static const json_t *function_at(const json_t *tools, size_t index) {
    return json_object_get(json_array_get(tools, index), "function");
}

static bool is_strict(const json_t *function) {
    return json_is_true(json_object_get(function, "strict"));
}

/* The arguments of a call as a format that names its place. */
static json_t *arguments_of(const json_t *function, size_t index) {
    char place[64];
    snprintf(place, sizeof place, "tools[%zu].function.parameters", index);
    json_t *arguments = tag_format("json_schema", "json_schema", arguments_schema(function));
    json_object_set_new(arguments, "place", json_string(place));
    return arguments;
}

/* One call of a tool. */
static json_t *call_of(const struct tool_tags *from, size_t index) {
    const struct form *form = &forms[from->format];
    const json_t *function = function_at(from->tools, index);
    struct str name = json_member_str(function, "name");
    json_t *list = json_array(), *arguments = arguments_of(function, index);
    if (!from->is_forced && !is_strict(function))
        json_object_set_new(arguments, "otherwise", json_pack("{s:s}", "type", "object"));
    tag_add_words(list, from->marks, form->head);
    tag_add_text(list, name.at, name.bytes);
    tag_add_words(list, from->marks, form->middle);
    json_array_append_new(list, arguments);
    tag_add_words(list, from->marks, form->tail);
    return tag_format("sequence", "elements", list);
}

/* The text between calls: a string, or a format if it has control tokens. */
static json_t *separator_of(const struct tool_tags *from) {
    const char *separator = forms[from->format].separator;
    if (!(chat_marks_in(separator) & from->marks)) return json_string(separator);
    json_t *list = json_array();
    tag_add_words(list, from->marks, separator);
    return tag_format("sequence", "elements", list);
}

/* One call, or up to TOOL_CALLS_MAX of them unless `is_single`. */
static json_t *calls_of(const struct tool_tags *from, bool is_single) {
    const struct form *form = &forms[from->format];
    json_t *list = json_array(), *calls = json_array();
    for (size_t i = 0; i < json_array_size(from->tools); i++)
        if (tool_set_has(&from->callable, i)) json_array_append_new(calls, call_of(from, i));
    json_t *some = tag_format("tags_with_separator", "tags", calls);
    json_object_set_new(some, "separator", separator_of(from));
    json_object_set_new(some, "at_least_one", json_true());
    json_object_set_new(some, "stop_after_first", json_boolean(is_single));
    json_object_set_new(some, "max", json_integer(TOOL_CALLS_MAX));
    tag_add_words(list, from->marks, form->open);
    json_array_append_new(list, some);
    tag_add_words(list, from->marks, form->close);
    return tag_format("sequence", "elements", list);
}

/* Text without calls, in a form whose calls have no mark: it begins as no call does. */
static json_t *plain_text(enum tool_format format) {
    const char *pattern = format == TOOL_FORMAT_PYTHON
                              ? "[ \\n\\r\\t]*([^ \\n\\r\\t{\\[][\\s\\S]*)?"
                              : "[ \\n\\r\\t]*([^ \\n\\r\\t{][\\s\\S]*)?";
    return tag_format("regex", "pattern", json_string(pattern));
}

/* Text, with calls in it or behind it. */
static json_t *text_with_calls(const struct tool_tags *from) {
    const char *begin = tool_format_marks(from->format).begin;
    /* Calls without a list around them may have any text between them. */
    bool is_single = from->only_one || (begin && !*forms[from->format].open);
    json_t *list = json_array(), *calls = calls_of(from, is_single);
    if (!begin) {
        json_array_append_new(list, calls);
        json_array_append_new(list, plain_text(from->format));
        return tag_format("or", "elements", list);
    }
    json_t *text = tag_format("any_text", "excludes", json_pack("[s]", begin));
    json_t *more = tag_format("sequence", "elements", json_pack("[o,O]", calls, text));
    json_array_append_new(list, text);
    json_array_append_new(list, tag_format(from->only_one ? "optional" : "star", "content", more));
    return tag_format("sequence", "elements", list);
}

/* Calls in messages, or the message of an answer without calls. */
static json_t *messages_with_calls(const struct tool_tags *from) {
    json_t *calls = calls_of(from, from->only_one);
    if (from->is_forced) return calls;
    json_t *last = harmony_final(from->marks, json_incref(from->instead));
    json_t *either = tag_format("or", "elements", json_pack("[o,o]", calls, last));
    return from->instead ? either : harmony_with_preamble(from->marks, either);
}

json_t *tool_tags_format(const struct tool_tags *from) {
    if (from->format == TOOL_FORMAT_HARMONY) return messages_with_calls(from);
    if (!from->is_forced && !from->instead) return text_with_calls(from);
    json_t *calls = calls_of(from, from->only_one);
    if (from->is_forced) return calls;
    return tag_format("or", "elements", json_pack("[o,O]", calls, from->instead));
}

/* --- before the model is known --- */

/* Whether tool_choice names the function, as {"function": {"name": …}} or {"name": …}. */
static bool is_named(const json_t *holder, const json_t *function) {
    const json_t *inner = json_member(holder, "function");
    struct str name = json_member_str(inner ? inner : holder, "name");
    return name.at && str_equals(name, json_member_str(function, "name"));
}

static bool is_listed(const json_t *list, const json_t *function) {
    for (size_t i = 0; i < json_array_size(list); i++)
        if (is_named(json_array_get(list, i), function)) return true;
    return false;
}

json_t *tool_tags_schemas(const json_t *body, const char **ret_param) {
    const json_t *tools = json_member(body, "tools"), *choice = json_member(body, "tool_choice");
    const json_t *allowed = json_member(choice, "allowed_tools");
    bool is_one = json_is_object(choice) && !allowed;
    const json_t *mode = allowed ? json_member(allowed, "mode") : choice;
    bool is_forced = is_one || str_is(json_str(mode), "required");
    *ret_param = is_forced || allowed ? "tool_choice" : "tools";
    if (str_is(json_str(choice), "none")) return NULL;
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = function_at(tools, i);
        bool may_come = !allowed || is_listed(json_member(allowed, "tools"), function);
        if (is_one) may_come = is_named(choice, function);
        if (may_come && (is_forced || is_strict(function)))
            json_array_append_new(list, arguments_of(function, i));
    }
    if (json_array_size(list) > 0) return tag_format("or", "elements", list);
    json_decref(list);
    return NULL;
}
