/* SPDX-License-Identifier: Apache-2.0 */
#include "answer/said.h"

#include "answer/by_index.h"
#include "answer/members.h"
#include "json/span.h"

static const struct str nothing = {NULL, 0};

static bool is_list(struct str value) {
    return value.bytes > 0 && *value.at == '[';
}

static bool is_null(struct str value) {
    return value.bytes == 0 || *value.at == 'n';
}

/* True for a text that is not empty. */
static bool is_text(struct str value) {
    return json_span_is_string(value) && value.bytes > 2;
}

/* --- parts of a content --- */

/* The text of a part, which is a text itself or an object that has one. */
static struct str text_of_part(struct str part) {
    struct str text = json_span_is_object(part) ? json_span_get(part, "text") : part;
    return is_text(text) ? text : nothing;
}

static enum said_much much_of_content(struct str content) {
    struct json_span_iter iter;
    struct str part;
    if (!content.at) return SAID_ABSENT;
    if (!is_list(content)) return is_text(content) || *content.at != '"' ? SAID_FULL : SAID_EMPTY;
    bool is_inside = json_span_enter(&iter, content);
    while (is_inside && json_span_element(&iter, &part))
        if (text_of_part(part).at) return SAID_FULL;
    return SAID_EMPTY;
}

/* --- calls --- */

/* The arguments of a call of a function, or the input of a call of a custom tool. */
static struct str arguments_of_call(struct str call) {
    struct str function = json_span_get(call, "function"), found = nothing;
    if (json_span_is_object(function)) found = json_span_get(function, "arguments");
    if (is_null(found)) found = json_span_get(json_span_get(call, "custom"), "input");
    return is_null(found) ? nothing : found;
}

/* Finds the calls of a message in `tool_calls`, else in the older `function_call`, and the
 * arguments of the first one. */
static void read_calls(struct said *said, struct str list, struct str older,
                       struct str *ret_arguments) {
    struct json_span_iter iter;
    struct str call;
    *ret_arguments = nothing;
    if (is_list(list) && json_span_enter(&iter, list) && json_span_element(&iter, &call)) {
        said->calls = list;
        *ret_arguments = arguments_of_call(call);
    } else if (json_span_is_object(older) && json_span_enter(&iter, older) &&
               json_span_member(&iter, &call, &call)) {
        said->calls = older;
        *ret_arguments = json_span_get(older, "arguments");
        if (is_null(*ret_arguments)) *ret_arguments = nothing;
    }
}

/* --- choices --- */

enum { MESSAGE, DELTA, TEXT, FINISH_REASON, LOGPROBS, INDEX, CHOICE_MEMBERS };
static const struct str choice_names[CHOICE_MEMBERS] = {
    [MESSAGE] = {"message", 7},   [DELTA] = {"delta", 5},
    [TEXT] = {"text", 4},         [FINISH_REASON] = {"finish_reason", 13},
    [LOGPROBS] = {"logprobs", 8}, [INDEX] = {"index", 5},
};

enum { CONTENT, CALLS, REFUSAL, OLDER_CALL, REASONING_CONTENT, REASONING, THINKING, MEMBERS };
static const struct str message_names[MEMBERS] = {
    [CONTENT] = {"content", 7},
    [CALLS] = {"tool_calls", 10},
    [REFUSAL] = {"refusal", 7},
    [OLDER_CALL] = {"function_call", 13},
    [REASONING_CONTENT] = {"reasoning_content", 17},
    [REASONING] = {"reasoning", 9},
    [THINKING] = {"thinking", 8},
};

static enum said_much much_of(struct str value) {
    if (!json_span_is_string(value)) return SAID_ABSENT;
    return is_text(value) ? SAID_FULL : SAID_EMPTY;
}

void said_read(struct said *ret_said, struct str choice) {
    struct str own[CHOICE_MEMBERS], of[MEMBERS], arguments;
    members_find(choice, choice_names, CHOICE_MEMBERS, own);
    struct said said = {.message = json_span_is_object(own[MESSAGE]) ? own[MESSAGE] : own[DELTA],
                        .finish_reason = own[FINISH_REASON],
                        .logprobs = own[LOGPROBS],
                        .index = own[INDEX]};
    if (!json_span_is_object(said.message)) said.message = nothing;
    members_find(said.message, message_names, MEMBERS, of);
    for (size_t i = REASONING_CONTENT; i <= THINKING && !said.thought.at; i++)
        if (is_text(of[i])) said.thought = of[i];
    read_calls(&said, of[CALLS], of[OLDER_CALL], &arguments);
    struct said_members members = {.content = much_of_content(of[CONTENT]),
                                   .calls = said.calls.at ? SAID_FULL : SAID_ABSENT,
                                   .refusal = much_of(of[REFUSAL]),
                                   .text = much_of(own[TEXT])};
    said.count = (members.content == SAID_FULL) + (members.calls == SAID_FULL) +
                 (members.refusal == SAID_FULL) + (members.text == SAID_FULL);
    said.kind = said_kind_of(&members);
    switch (said.kind) {
    case SAID_NOTHING: break;
    case SAID_CONTENT: said.raw = of[CONTENT]; break;
    case SAID_CALL: said.raw = arguments; break;
    case SAID_REFUSAL: said.raw = of[REFUSAL]; break;
    case SAID_TEXT: said.raw = own[TEXT]; break;
    }
    *ret_said = said;
}

bool said_first(struct said *ret_said, struct str choices, uint64_t *ret_count) {
    struct by_index order = {0};
    struct json_span_iter iter;
    struct said said;
    struct str choice;
    *ret_said = (struct said){.kind = SAID_NOTHING};
    bool is_inside = is_list(choices) && json_span_enter(&iter, choices);
    while (is_inside && (ret_count || !by_index_is_settled(&order)) &&
           json_span_element(&iter, &choice)) {
        said_read(&said, choice);
        if (by_index_take(&order, said.index)) *ret_said = said;
    }
    if (ret_count) *ret_count = order.count;
    return order.count > 0;
}

void said_add_text(struct buf *buf, const struct said *said) {
    struct json_span_iter iter;
    struct str part;
    if (!said->raw.at) return;
    if (json_span_is_string(said->raw)) {
        json_span_decode(buf, said->raw);
    } else if (said->kind != SAID_CONTENT || !is_list(said->raw)) {
        buf_add_str(buf, said->raw);
    } else if (json_span_enter(&iter, said->raw)) {
        while (json_span_element(&iter, &part)) {
            struct str text = text_of_part(part);
            if (text.at) json_span_decode(buf, text);
        }
    }
}
