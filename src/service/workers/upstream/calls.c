/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/upstream/calls.h"

#include "answer/answer_text.h"
#include "grammar/shape_match.h"
#include "json/json.h"
#include "json/span.h"

#define TOOLS_MEMORY_MAX ((size_t)64 << 20) /* limit for the tree of the tools */

/* What the request says about calls. */
struct asked {
    json_t *body;    /* owned; its members tools, tool_choice, parallel_tool_calls, function_call */
    struct str name; /* name of the one function that is forced; empty: none */
    const json_t *allowed; /* an array of the tools that may be called; NULL: all of them */
    bool is_forced, is_none, only_one;
};

static struct str name_of(const json_t *tool) {
    const json_t *function = json_member(tool, "function");
    return json_member_str(function ? function : tool, "name");
}

static void read_choice(struct asked *asked) {
    const json_t *choice = json_member(asked->body, "tool_choice");
    const json_t *allowed = json_member(choice, "allowed_tools");
    struct str word = json_str(choice), type = json_member_str(choice, "type");
    asked->is_none = str_is(word, "none");
    asked->is_forced = str_is(word, "required") || str_is(word, "any") || str_is(type, "any");
    if (allowed) {
        asked->allowed = json_member(allowed, "tools");
        asked->is_forced = str_is(json_member_str(allowed, "mode"), "required");
    } else if (json_is_object(choice)) {
        asked->name = name_of(choice);
        asked->is_forced = asked->is_forced || asked->name.bytes > 0;
    }
    asked->only_one = json_is_false(json_member(asked->body, "parallel_tool_calls"));
}

/* False if the request has no tools, or its fields cannot be read. */
static bool read_asked(struct str request, struct asked *ret_asked) {
    static const char *const names[] = {"tools", "tool_choice", "parallel_tool_calls"};
    struct str body, value;
    struct error error;
    struct buf fields;
    size_t memory = TOOLS_MEMORY_MAX;
    *ret_asked = (struct asked){.body = NULL};
    if (!json_span_read(request, &body) || !json_span_get(body, "tools").at) return false;
    buf_init(&fields, BUF_UNLIMITED);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        value = json_span_get(body, names[i]);
        if (!value.at) continue;
        buf_printf(&fields, "%s\"%s\":", fields.bytes ? "," : "{", names[i]);
        buf_add_str(&fields, value);
    }
    buf_add_byte(&fields, '}');
    bool is_read = json_read_within(&ret_asked->body, buf_str(&fields), &memory, &error) == OK;
    buf_release(&fields);
    if (is_read) read_choice(ret_asked);
    return is_read;
}

static const json_t *tool_named(const json_t *tools, struct str raw_name) {
    struct buf scratch;
    const json_t *found = NULL;
    buf_init(&scratch, BUF_UNLIMITED);
    struct str name = json_span_text(raw_name, &scratch);
    for (size_t i = 0; i < json_array_size(tools) && !found; i++)
        if (str_equals(name_of(json_array_get(tools, i)), name)) found = json_array_get(tools, i);
    buf_release(&scratch);
    return found;
}

/* Whether the arguments keep the schema of a strict tool. */
static bool keeps_schema(const json_t *tool, struct str raw_arguments, uint32_t *fuel) {
    const json_t *function = json_member(tool, "function");
    const json_t *schema = json_member(function, "parameters");
    struct buf scratch;
    if (!json_is_true(json_member(function, "strict")) || !schema) return true;
    if (!json_span_is_string(raw_arguments)) return false;
    buf_init(&scratch, BUF_UNLIMITED);
    struct str text = json_span_text(raw_arguments, &scratch);
    bool keeps = shape_match_text(GRAMMAR_SCHEMA, schema, text, fuel) != SHAPE_MATCH_NO;
    buf_release(&scratch);
    return keeps;
}

/* The field that one call breaks; NULL: none. */
static const char *look_at_call(const struct asked *asked, struct str call, uint32_t *fuel) {
    const json_t *tools = json_member(asked->body, "tools");
    struct str function = json_span_get(call, "function"), name = json_span_get(function, "name");
    if (!json_span_is_string(name)) return asked->is_forced ? "tool_choice" : NULL;
    const json_t *tool = tool_named(tools, name);
    if (asked->is_forced && !tool) return "tool_choice";
    if (asked->name.bytes > 0 && !str_equals(name_of(tool), asked->name)) return "tool_choice";
    if (asked->allowed && !tool_named(asked->allowed, name)) return "tool_choice";
    return keeps_schema(tool, json_span_get(function, "arguments"), fuel) ? NULL : "tools";
}

static const char *look_at_choice(const struct asked *asked, struct str choice, uint32_t *fuel) {
    struct answer_text found;
    struct str call;
    struct json_span_iter iter;
    const char *param = NULL;
    size_t count = 0;
    answer_text_read(&found, choice);
    if (json_span_string_is(found.finish_reason, "length")) return NULL;
    if (found.kind == ANSWER_IS_REFUSAL) return NULL; /* an answer, whatever was asked for */
    bool inside =
        found.calls.bytes > 0 && *found.calls.at == '[' && json_span_enter(&iter, found.calls);
    while (inside && !param && json_span_element(&iter, &call)) {
        count++;
        param = look_at_call(asked, call, fuel);
    }
    if (param) return param;
    if ((asked->is_forced && count == 0) || (asked->is_none && count > 0)) return "tool_choice";
    return asked->only_one && count > 1 ? "parallel_tool_calls" : NULL;
}

/* The older form of a named function, which has no tools. */
static bool has_function(struct str request, struct str choice) {
    struct str body, asked, found;
    struct buf a, b;
    if (!json_span_read(request, &body)) return true;
    asked = json_span_get(json_span_get(body, "function_call"), "name");
    if (!json_span_is_string(asked) ||
        json_span_string_is(json_span_get(choice, "finish_reason"), "length"))
        return true;
    found = json_span_get(json_span_get(json_span_get(choice, "message"), "function_call"), "name");
    if (!json_span_is_string(found)) return false;
    buf_init(&a, BUF_UNLIMITED);
    buf_init(&b, BUF_UNLIMITED);
    bool is_same = str_equals(json_span_text(asked, &a), json_span_text(found, &b));
    buf_release(&a);
    buf_release(&b);
    return is_same;
}

enum shape_end upstream_calls_look(struct str request, struct str answer, uint32_t *fuel,
                                   const char **ret_param) {
    struct json_span_iter iter;
    struct str choice, choices = json_span_get(answer, "choices");
    struct asked asked;
    const char *param = NULL;
    bool has_tools = read_asked(request, &asked);
    bool inside = choices.bytes > 0 && *choices.at == '[' && json_span_enter(&iter, choices);
    while (inside && !param && json_span_element(&iter, &choice)) {
        if (has_tools) param = look_at_choice(&asked, choice, fuel);
        if (!param && !has_function(request, choice)) param = "function_call";
    }
    json_decref(asked.body);
    if (param) *ret_param = param;
    return param ? SHAPE_MISMATCHED : SHAPE_NONE;
}
