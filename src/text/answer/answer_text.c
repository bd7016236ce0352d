/* SPDX-License-Identifier: Apache-2.0 */
#include "answer/answer_text.h"

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

static enum member_fill much_of_content(struct str content) {
    struct json_span_iter iter;
    struct str part;
    if (!content.at) return MEMBER_ABSENT;
    if (!is_list(content))
        return is_text(content) || *content.at != '"' ? MEMBER_FULL : MEMBER_EMPTY;
    bool is_inside = json_span_enter(&iter, content);
    while (is_inside && json_span_element(&iter, &part))
        if (text_of_part(part).at) return MEMBER_FULL;
    return MEMBER_EMPTY;
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
static void read_calls(struct answer_text *found, struct str list, struct str older,
                       struct str *ret_arguments) {
    struct json_span_iter iter;
    struct str call;
    *ret_arguments = nothing;
    if (is_list(list) && json_span_enter(&iter, list) && json_span_element(&iter, &call)) {
        found->calls = list;
        *ret_arguments = arguments_of_call(call);
    } else if (json_span_is_object(older) && json_span_enter(&iter, older) &&
               json_span_member(&iter, &call, &call)) {
        found->calls = older;
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

static enum member_fill much_of(struct str value) {
    if (!json_span_is_string(value)) return MEMBER_ABSENT;
    return is_text(value) ? MEMBER_FULL : MEMBER_EMPTY;
}

void answer_text_read(struct answer_text *ret_answer, struct str choice) {
    struct str own[CHOICE_MEMBERS], of[MEMBERS], arguments;
    members_find(choice, choice_names, CHOICE_MEMBERS, own);
    struct answer_text found = {.message =
                                    json_span_is_object(own[MESSAGE]) ? own[MESSAGE] : own[DELTA],
                                .finish_reason = own[FINISH_REASON],
                                .logprobs = own[LOGPROBS],
                                .index = own[INDEX]};
    if (!json_span_is_object(found.message)) found.message = nothing;
    members_find(found.message, message_names, MEMBERS, of);
    for (size_t i = REASONING_CONTENT; i <= THINKING && !found.thought.at; i++)
        if (is_text(of[i])) found.thought = of[i];
    read_calls(&found, of[CALLS], of[OLDER_CALL], &arguments);
    struct answer_members members = {.content = much_of_content(of[CONTENT]),
                                     .calls = found.calls.at ? MEMBER_FULL : MEMBER_ABSENT,
                                     .refusal = much_of(of[REFUSAL]),
                                     .text = much_of(own[TEXT])};
    found.count = (members.content == MEMBER_FULL) + (members.calls == MEMBER_FULL) +
                  (members.refusal == MEMBER_FULL) + (members.text == MEMBER_FULL);
    found.kind = answer_member_of(&members);
    switch (found.kind) {
    case ANSWER_IS_NOTHING: break;
    case ANSWER_IS_CONTENT: found.raw = of[CONTENT]; break;
    case ANSWER_IS_CALL: found.raw = arguments; break;
    case ANSWER_IS_REFUSAL: found.raw = of[REFUSAL]; break;
    case ANSWER_IS_TEXT: found.raw = own[TEXT]; break;
    }
    *ret_answer = found;
}

bool answer_text_first(struct answer_text *ret_answer, struct str choices, uint64_t *ret_count) {
    struct by_index order = {0};
    struct json_span_iter iter;
    struct answer_text found;
    struct str choice;
    *ret_answer = (struct answer_text){.kind = ANSWER_IS_NOTHING};
    bool is_inside = is_list(choices) && json_span_enter(&iter, choices);
    while (is_inside && (ret_count || !by_index_is_settled(&order)) &&
           json_span_element(&iter, &choice)) {
        answer_text_read(&found, choice);
        if (by_index_take(&order, found.index)) *ret_answer = found;
    }
    if (ret_count) *ret_count = order.count;
    return order.count > 0;
}

void answer_text_add(struct buf *buf, const struct answer_text *found) {
    struct json_span_iter iter;
    struct str part;
    if (!found->raw.at) return;
    if (json_span_is_string(found->raw)) {
        json_span_decode(buf, found->raw);
    } else if (found->kind != ANSWER_IS_CONTENT || !is_list(found->raw)) {
        buf_add_str(buf, found->raw);
    } else if (json_span_enter(&iter, found->raw)) {
        while (json_span_element(&iter, &part)) {
            struct str text = text_of_part(part);
            if (text.at) json_span_decode(buf, text);
        }
    }
}
