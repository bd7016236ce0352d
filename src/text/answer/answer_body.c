/* SPDX-License-Identifier: Apache-2.0 */
#include "answer/answer_text.h"
#include "json/span.h"

/* What the items or blocks of a body have said. */
struct parts {
    struct str content;   /* a list whose parts have texts */
    struct str arguments; /* the first call's */
    struct str refusal, thought;
    bool has_text, has_call;
};

static struct str text_of(struct str part, const char *name) {
    struct str text = json_span_get(part, name);
    bool is_text = text.at && json_span_is_string(text) && text.bytes > 2;
    return is_text ? text : (struct str){NULL, 0};
}

static bool has_type(struct str value, const char *name) {
    if (!json_span_is_object(value)) return false;
    struct str type = json_span_get(value, "type");
    return type.at && json_span_is_string(type) && json_span_string_is(type, name);
}

static void take_call(struct parts *parts, struct str call, const char *name) {
    if (!parts->has_call) parts->arguments = json_span_get(call, name);
    parts->has_call = true;
}

/* A list of parts of content. */
static void take_content(struct parts *parts, struct str content) {
    struct json_span_iter iter;
    struct str part;
    if (!content.at || !json_span_enter(&iter, content)) return;
    if (!parts->content.at) parts->content = content;
    while (json_span_element(&iter, &part)) {
        if (!json_span_is_object(part)) continue;
        if (text_of(part, "text").at) {
            if (!parts->has_text) parts->content = content;
            parts->has_text = true;
        }
        if (!parts->refusal.at && has_type(part, "refusal"))
            parts->refusal = text_of(part, "refusal");
        if (has_type(part, "tool_use")) take_call(parts, part, "input");
        if (!parts->thought.at && has_type(part, "thinking"))
            parts->thought = text_of(part, "thinking");
    }
}

static void take_items(struct parts *parts, struct str output) {
    struct json_span_iter iter, inside;
    struct str item, part;
    if (!json_span_enter(&iter, output)) return;
    while (json_span_element(&iter, &item)) {
        if (!json_span_is_object(item)) continue;
        struct str content = json_span_get(item, "content");
        if (has_type(item, "function_call")) {
            take_call(parts, item, "arguments");
        } else if (has_type(item, "reasoning")) {
            bool is_inside = content.at && json_span_enter(&inside, content);
            while (is_inside && !parts->thought.at && json_span_element(&inside, &part))
                if (json_span_is_object(part)) parts->thought = text_of(part, "text");
        } else {
            take_content(parts, content);
        }
    }
}

static void write(struct answer_text *answer, const struct parts *parts, struct str calls) {
    struct answer_members members = {.content = parts->has_text     ? MEMBER_FULL
                                                : parts->content.at ? MEMBER_EMPTY
                                                                    : MEMBER_ABSENT,
                                     .calls = parts->has_call ? MEMBER_FULL : MEMBER_ABSENT,
                                     .refusal = parts->refusal.at ? MEMBER_FULL : MEMBER_ABSENT};
    answer->kind = answer_member_of(&members);
    answer->count = parts->has_text + parts->has_call + (parts->refusal.at != NULL);
    answer->thought = parts->thought;
    if (parts->has_call) answer->calls = calls;
    if (answer->kind == ANSWER_IS_CONTENT) answer->raw = parts->content;
    if (answer->kind == ANSWER_IS_CALL) answer->raw = parts->arguments;
    if (answer->kind == ANSWER_IS_REFUSAL) answer->raw = parts->refusal;
}

/* The end of an answer in the words of a chat. */
static struct str end_of(struct str body, bool has_call) {
    struct str reason = json_span_get(body, "stop_reason");
    if (!reason.at || !json_span_is_string(reason)) reason = json_span_get(body, "status");
    if (!reason.at || !json_span_is_string(reason)) return (struct str){NULL, 0};
    if (json_span_string_is(reason, "max_tokens") || json_span_string_is(reason, "incomplete"))
        return STR("\"length\"");
    if (json_span_string_is(reason, "refusal")) return STR("\"content_filter\"");
    return has_call ? STR("\"tool_calls\"") : STR("\"stop\"");
}

bool answer_text_of_body(struct answer_text *ret_answer, struct str body, uint64_t *ret_count) {
    struct parts parts = {.content = {NULL, 0}};
    *ret_answer = (struct answer_text){.kind = ANSWER_IS_NOTHING};
    if (ret_count) *ret_count = 0;
    if (!json_span_is_object(body)) return false;
    struct str choices = json_span_get(body, "choices");
    if (choices.at) return answer_text_first(ret_answer, choices, ret_count);
    struct str output = json_span_get(body, "output"), content = json_span_get(body, "content");
    bool has_items = output.at && *output.at == '[';
    bool has_blocks = !has_items && content.at && *content.at == '[';
    if (!has_items && !has_blocks) return false;
    if (has_items)
        take_items(&parts, output);
    else
        take_content(&parts, content);
    write(ret_answer, &parts, has_items ? output : content);
    ret_answer->finish_reason = end_of(body, parts.has_call);
    if (ret_count) *ret_count = 1;
    return true;
}
