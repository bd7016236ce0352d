/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/request_tools.h"

#include "base/utf8.h"
#include "chat/tool_tags.h"
#include "json/json.h"

#include <assert.h>
#include <stdio.h>

#define PARAM_BYTES 96
#define NAME_CHARACTERS_MAX 64

/* --- the fields --- */

/* Checks a function's name: 1 to 64 characters of [A-Za-z0-9_-]. */
static bool check_name(const json_t *function, const char *param, struct refusal *refusal) {
    const json_t *name = require_member(function, "name", JSON_STRING, param, refusal);
    if (!name) return false;
    struct str text = json_str(name);
    if (text.bytes > NAME_CHARACTERS_MAX)
        return refuse(refusal, "string_above_max_length", param,
                      "Invalid '%s': string too long. Expected at most %d characters, but got %zu.",
                      param, NAME_CHARACTERS_MAX, utf8_count(text));
    bool is_good = text.bytes > 0;
    for (size_t i = 0; i < text.bytes && is_good; i++) {
        char c = text.at[i];
        is_good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-';
    }
    char value[VALUE_TEXT_BYTES];
    return is_good || refuse(refusal, "invalid_value", param,
                             "Invalid '%s': %s does not match '^[a-zA-Z0-9_-]{1,64}$'.", param,
                             value_text(name, value));
}

static bool check_tool(const json_t *tool, size_t index, struct refusal *refusal) {
    char param[PARAM_BYTES];
    snprintf(param, sizeof param, "tools[%zu]", index);
    if (!json_is_object(tool)) return refuse_type(refusal, param, "an object", tool);
    snprintf(param, sizeof param, "tools[%zu].type", index);
    const json_t *type = require_member(tool, "type", JSON_STRING, param, refusal);
    if (!type) return false;
    if (!str_is(json_str(type), "function"))
        return refuse_value(refusal, param, type, "'function'");
    snprintf(param, sizeof param, "tools[%zu].function", index);
    const json_t *function = require_member(tool, "function", JSON_OBJECT, param, refusal);
    if (!function) return false;
    snprintf(param, sizeof param, "tools[%zu].function.parameters", index);
    const json_t *parameters = json_member(function, "parameters");
    if (parameters && !json_is_object(parameters))
        return refuse_type(refusal, param, "an object", parameters);
    snprintf(param, sizeof param, "tools[%zu].function.description", index);
    const json_t *description = json_member(function, "description");
    if (description && !json_is_string(description))
        return refuse_type(refusal, param, "a string", description);
    snprintf(param, sizeof param, "tools[%zu].function.strict", index);
    const json_t *strict = json_member(function, "strict");
    if (strict && !json_is_boolean(strict)) return refuse_type(refusal, param, "a boolean", strict);
    snprintf(param, sizeof param, "tools[%zu].function.name", index);
    return check_name(function, param, refusal);
}

static bool check_tools(const json_t *body, struct refusal *ret_refusal) {
    const json_t *tools = json_member(body, "tools");
    if (tools && !json_is_array(tools))
        return refuse_type(ret_refusal, "tools", "an array of objects", tools);
    if (tools && json_array_size(tools) == 0)
        return refuse(ret_refusal, "array_below_min_length", "tools",
                      "Invalid 'tools': empty array. Expected an array with at least one tool, or "
                      "no 'tools' at all.");
    if (json_array_size(tools) > TOOLS_MAX)
        return refuse(ret_refusal, "array_above_max_length", "tools",
                      "Invalid 'tools': array too long. Expected at most %d tools, but got %zu.",
                      TOOLS_MAX, json_array_size(tools));
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (!check_tool(json_array_get(tools, i), i, ret_refusal)) return false;
    const json_t *parallel = json_member(body, "parallel_tool_calls");
    if (parallel && !json_is_boolean(parallel))
        return refuse_type(ret_refusal, "parallel_tool_calls", "a boolean", parallel);
    return true;
}

/* Adds the tool that `holder` names: {"function": {"name": …}} or {"name": …}. */
static bool add_callable(struct request *request, const json_t *holder, const char *param,
                         struct refusal *refusal) {
    char inner[PARAM_BYTES];
    const json_t *function = json_member(holder, "function");
    snprintf(inner, sizeof inner, "%s.function.name", param);
    if (!json_is_object(holder)) return refuse_type(refusal, param, "an object", holder);
    const json_t *name =
        require_member(function ? function : holder, "name", JSON_STRING, inner, refusal);
    if (!name) return false;
    bool is_found = false;
    for (size_t i = 0; i < json_array_size(request->tools); i++) {
        const json_t *one = json_object_get(json_array_get(request->tools, i), "function");
        if (!str_equals(json_member_str(one, "name"), json_str(name))) continue;
        tool_set_add(&request->callable, i);
        is_found = true;
    }
    return is_found || refuse(refusal, "invalid_value", "tool_choice",
                              "Invalid '%s': none of 'tools' has this name.", inner);
}

static bool parse_allowed_tools(struct request *request, const json_t *choice,
                                struct refusal *refusal) {
    const char *param = "tool_choice.allowed_tools";
    const json_t *allowed = require_member(choice, "allowed_tools", JSON_OBJECT, param, refusal);
    if (!allowed) return false;
    const json_t *mode = json_member(allowed, "mode");
    if (!mode) return refuse_missing(refusal, "tool_choice.allowed_tools.mode");
    if (!str_is(json_str(mode), "auto") && !str_is(json_str(mode), "required"))
        return refuse_value(refusal, "tool_choice.allowed_tools.mode", mode, "'auto', 'required'");
    param = "tool_choice.allowed_tools.tools";
    const json_t *tools = require_member(allowed, "tools", JSON_ARRAY, param, refusal);
    if (!tools) return false;
    if (json_array_size(tools) == 0)
        return refuse(refusal, "array_below_min_length", param,
                      "Invalid '%s': empty array. Expected an array with at least one tool.",
                      param);
    request->tool_choice =
        str_is(json_str(mode), "required") ? TOOL_CHOICE_REQUIRED : TOOL_CHOICE_AUTO;
    request->has_allowed_tools = true;
    for (size_t i = 0; i < json_array_size(tools); i++) {
        char one[PARAM_BYTES];
        snprintf(one, sizeof one, "%s[%zu]", param, i);
        if (!add_callable(request, json_array_get(tools, i), one, refusal)) return false;
    }
    return true;
}

static bool parse_choice_object(struct request *request, const json_t *choice,
                                struct refusal *refusal) {
    const json_t *type = json_member(choice, "type");
    if (!type) return refuse_missing(refusal, "tool_choice.type");
    if (str_is(json_str(type), "allowed_tools"))
        return parse_allowed_tools(request, choice, refusal);
    if (!str_is(json_str(type), "function"))
        return refuse_value(refusal, "tool_choice.type", type, "'function', 'allowed_tools'");
    request->tool_choice = TOOL_CHOICE_NAMED;
    return add_callable(request, choice, "tool_choice", refusal);
}

static bool parse_tool_choice(struct request *request, struct refusal *refusal) {
    const json_t *choice = json_member(request->body, "tool_choice");
    struct str word = json_str(choice);
    request->tool_choice = request->tools ? TOOL_CHOICE_AUTO : TOOL_CHOICE_NONE;
    if (choice && !json_is_string(choice) && !json_is_object(choice))
        return refuse_type(refusal, "tool_choice", "a string or an object", choice);
    if (choice && !request->tools && !str_is(word, "none"))
        return refuse(refusal, "invalid_value", "tool_choice",
                      "Invalid 'tool_choice': it is only allowed when 'tools' are given.");
    if (json_is_object(choice)) return parse_choice_object(request, choice, refusal);
    if (str_is(word, "none"))
        request->tool_choice = TOOL_CHOICE_NONE;
    else if (str_is(word, "required"))
        request->tool_choice = TOOL_CHOICE_REQUIRED;
    else if (choice && !str_is(word, "auto"))
        return refuse_value(refusal, "tool_choice", choice, "'none', 'auto', 'required'");
    for (size_t i = 0; i < json_array_size(request->tools); i++)
        tool_set_add(&request->callable, i);
    return true;
}

bool request_parse_tools(struct request *request, struct refusal *ret_refusal) {
    if (!check_tools(request->body, ret_refusal)) return false;
    request->tools = json_member(request->body, "tools");
    request->one_tool_call = json_is_false(json_member(request->body, "parallel_tool_calls"));
    if (!parse_tool_choice(request, ret_refusal)) return false;
    /* A named tool is called once. */
    if (request->tool_choice == TOOL_CHOICE_NAMED) request->one_tool_call = true;
    return true;
}

/* --- the model --- */

uint64_t request_show_marks(struct request *request, const struct vocabulary *vocabulary,
                            uint64_t marks) {
    const struct mark_tokens *tokens = &vocabulary->marks;
    for (size_t k = 0; k < CHAT_MARKS_MAX; k++) {
        if (!((marks & tokens->known & ~request->shown_marks) >> k & 1)) continue;
        assert(request->shown_token_count < REQUEST_SHOWN_TOKENS_MAX);
        request->shown_tokens[request->shown_token_count++] = tokens->at[k];
    }
    request->shown_marks |= marks & tokens->known;
    return marks & tokens->control;
}

bool request_holds_messages(const struct request *request) {
    return request->tool_format == TOOL_FORMAT_HARMONY && request->thinking_token_budget >= 0;
}

static bool is_forced(const struct request *request) {
    return request->tool_choice == TOOL_CHOICE_REQUIRED ||
           request->tool_choice == TOOL_CHOICE_NAMED;
}

/* The parameter by which a client asks for calls that are held to a form; NULL: it does not. */
static const char *asks_for_form(const struct request *request) {
    if (is_forced(request) || request->has_allowed_tools) return "tool_choice";
    for (size_t i = 0; i < json_array_size(request->tools); i++) {
        const json_t *function = json_object_get(json_array_get(request->tools, i), "function");
        if (json_is_true(json_object_get(function, "strict"))) return "tools";
    }
    return NULL;
}

/* Holds the answer to the calls of the tools. A shape that the request asks for, too, is the form
 * of an answer without calls. */
static void hold_calls(struct request *request, const char *param, uint64_t marks) {
    const struct tool_tags tags = {
        .format = request->tool_format,
        .tools = request->tools,
        .callable = request->callable,
        .is_forced = is_forced(request),
        .only_one = request->one_tool_call,
        .marks = marks,
        .instead = asked_shape_take_format(&request->shape, request->shape.param)};
    request->shape = (struct asked_shape){param, GRAMMAR_TAGS, tool_tags_format(&tags)};
    json_decref(tags.instead);
}

bool request_prep_tools(struct request *request, const struct served_model *model,
                        const struct jinja_template *template, struct refusal *ret_refusal) {
    if (request->tool_choice == TOOL_CHOICE_NONE) return true;
    const char *param = asks_for_form(request);
    enum tool_format taught = tool_format_of(template), named = model->tool_format;
    if (taught == TOOL_FORMAT_NONE)
        return refuse_unsupported(ret_refusal, "tools",
                                  "the chat template of this model does not show tools to it");
    /* vLLM has one name for both forms of Mistral. */
    bool is_named = named != TOOL_FORMAT_NONE &&
                    !(named == TOOL_FORMAT_MISTRAL && taught == TOOL_FORMAT_NAMED) &&
                    taught != TOOL_FORMAT_HARMONY; /* whose messages are read in any case */
    request->tool_format = is_named ? named : taught;
    if (request->tool_format == TOOL_FORMAT_PLAIN && is_forced(request))
        request->tool_format = TOOL_FORMAT_LLAMA;
    if (request->tool_format == TOOL_FORMAT_PLAIN && param)
        return refuse_unsupported(ret_refusal, param,
                                  "the calls of this model are not read; force one with "
                                  "tool_choice 'required', or name their form with "
                                  "--tool-call-parser");
    uint64_t marks =
        request_show_marks(request, &model->vocabulary, tool_format_mark_set(request->tool_format));
    bool has_shape = request->shape.source && request->tool_format != TOOL_FORMAT_PLAIN;
    request->holds_calls = param || has_shape || request_holds_messages(request);
    if (!param && !has_shape) request->is_frame_only = request->holds_calls;
    if (request->holds_calls) hold_calls(request, param ? param : "tools", marks);
    return true;
}
