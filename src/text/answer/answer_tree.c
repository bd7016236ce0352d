/* SPDX-License-Identifier: Apache-2.0 */
#include "answer/answer_tree.h"

#include "json/json.h"

static struct str text_of_part(const json_t *part) {
    return json_is_object(part) ? json_member_str(part, "text") : json_str(part);
}

static enum member_fill much_of(const json_t *text) {
    if (!json_is_string(text)) return MEMBER_ABSENT;
    return json_string_length(text) > 0 ? MEMBER_FULL : MEMBER_EMPTY;
}

static enum member_fill much_of_content(const json_t *content) {
    const json_t *part;
    size_t place;
    if (!content || json_is_string(content)) return much_of(content);
    json_array_foreach(content, place, part) if (text_of_part(part).bytes > 0) return MEMBER_FULL;
    return json_is_array(content) ? MEMBER_EMPTY : MEMBER_FULL;
}

static void set(struct answer_tree *found, json_t *place, const char *member) {
    found->place = place;
    found->member = member;
}

/* Finds the arguments of the first call. */
static void find_arguments(struct answer_tree *found) {
    json_t *call = json_array_get(found->calls, 0), *function = json_member(call, "function");
    json_t *custom = json_member(call, "custom");
    if (!json_is_array(found->calls))
        set(found, (json_t *)(uintptr_t)found->calls, "arguments");
    else if (!json_member(function, "arguments") && json_member(custom, "input"))
        set(found, custom, "input");
    else
        set(found, function, "arguments");
}

/* Finds the answer in the blocks of a message, whose place has them as `content`. */
static void look_at_blocks(struct answer_tree *found, json_t *place, struct answer_members *is,
                           struct answer_tree *call, struct answer_tree *refusal) {
    json_t *content = json_member(place, "content"), *part;
    enum member_fill fill = json_is_array(content) ? much_of_content(content) : MEMBER_ABSENT;
    size_t index;
    if (fill > is->content) {
        is->content = fill;
        set(found, place, "content");
    }
    json_array_foreach(content, index, part) {
        struct str type = json_member_str(part, "type");
        if (str_is(type, "tool_use") && !call->place) set(call, part, "input");
        if (str_is(type, "refusal") && !refusal->place) set(refusal, part, "refusal");
    }
}

/* A body without choices: the items of OpenAI's Responses, or the blocks of Anthropic's Messages. */
static void find_in_parts(struct answer_tree *ret_answer, const json_t *body) {
    struct answer_tree found = {.place = NULL}, call = {.place = NULL}, refusal = {.place = NULL};
    struct answer_members is = {.content = MEMBER_ABSENT};
    const json_t *output = json_member(body, "output");
    json_t *item;
    size_t index;
    json_array_foreach(output, index, item) {
        struct str type = json_member_str(item, "type");
        if (str_is(type, "function_call") && !call.place) set(&call, item, "arguments");
        if (str_is(type, "message")) look_at_blocks(&found, item, &is, &call, &refusal);
    }
    if (!json_is_array(output))
        look_at_blocks(&found, (json_t *)(uintptr_t)body, &is, &call, &refusal);
    is.calls = call.place ? MEMBER_FULL : MEMBER_ABSENT;
    is.refusal = much_of(json_member(refusal.place, "refusal"));
    found.kind = answer_member_of(&is);
    if (call.place) found.calls = json_is_array(output) ? output : json_member(body, "content");
    if (found.kind == ANSWER_IS_CALL) set(&found, call.place, call.member);
    if (found.kind == ANSWER_IS_REFUSAL) set(&found, refusal.place, refusal.member);
    *ret_answer = found;
}

void answer_tree_find(struct answer_tree *ret_answer, const json_t *body) {
    struct answer_tree found = {.choice = json_first_by_index(json_member(body, "choices"))};
    if (!json_member(body, "choices")) {
        find_in_parts(ret_answer, body);
        return;
    }
    json_t *message = json_member(found.choice, "message");
    if (!json_is_object(message)) message = json_member(found.choice, "delta");
    const json_t *calls = json_member(message, "tool_calls");
    const json_t *older = json_member(message, "function_call");
    if (json_is_array(calls) && json_array_size(calls) > 0)
        found.calls = calls;
    else if (json_object_size(older) > 0)
        found.calls = older;
    struct answer_members members = {.content = much_of_content(json_member(message, "content")),
                                     .calls = found.calls ? MEMBER_FULL : MEMBER_ABSENT,
                                     .refusal = much_of(json_member(message, "refusal")),
                                     .text = much_of(json_member(found.choice, "text"))};
    found.kind = answer_member_of(&members);
    switch (found.kind) {
    case ANSWER_IS_NOTHING: break;
    case ANSWER_IS_CONTENT: set(&found, message, "content"); break;
    case ANSWER_IS_CALL: find_arguments(&found); break;
    case ANSWER_IS_REFUSAL: set(&found, message, "refusal"); break;
    case ANSWER_IS_TEXT: set(&found, found.choice, "text"); break;
    }
    *ret_answer = found;
}

void answer_tree_add_text(struct buf *buf, const struct answer_tree *found) {
    const json_t *value = json_member(found->place, found->member), *part;
    size_t place;
    if (json_is_string(value)) {
        buf_add_str(buf, json_str(value));
    } else if (found->kind == ANSWER_IS_CONTENT && json_is_array(value)) {
        json_array_foreach(value, place, part) buf_add_str(buf, text_of_part(part));
    } else if (value) {
        json_write(buf, value);
    }
}
