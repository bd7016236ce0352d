/* SPDX-License-Identifier: Apache-2.0 */
#include "answer/said_tree.h"

#include "json/json.h"

static struct str text_of_part(const json_t *part) {
    return json_is_object(part) ? json_member_str(part, "text") : json_str(part);
}

static enum said_much much_of(const json_t *text) {
    if (!json_is_string(text)) return SAID_ABSENT;
    return json_string_length(text) > 0 ? SAID_FULL : SAID_EMPTY;
}

static enum said_much much_of_content(const json_t *content) {
    const json_t *part;
    size_t place;
    if (!content || json_is_string(content)) return much_of(content);
    json_array_foreach(content, place, part) if (text_of_part(part).bytes > 0) return SAID_FULL;
    return json_is_array(content) ? SAID_EMPTY : SAID_FULL;
}

static void set(struct said_tree *said, json_t *place, const char *member) {
    said->place = place;
    said->member = member;
}

/* Finds the arguments of the first call. */
static void find_arguments(struct said_tree *said) {
    json_t *call = json_array_get(said->calls, 0), *function = json_member(call, "function");
    json_t *custom = json_member(call, "custom");
    if (!json_is_array(said->calls))
        set(said, (json_t *)(uintptr_t)said->calls, "arguments");
    else if (!json_member(function, "arguments") && json_member(custom, "input"))
        set(said, custom, "input");
    else
        set(said, function, "arguments");
}

void said_tree_find(struct said_tree *ret_said, const json_t *body) {
    struct said_tree said = {.choice = json_first_by_index(json_member(body, "choices"))};
    json_t *message = json_member(said.choice, "message");
    if (!json_is_object(message)) message = json_member(said.choice, "delta");
    const json_t *calls = json_member(message, "tool_calls");
    const json_t *older = json_member(message, "function_call");
    if (json_is_array(calls) && json_array_size(calls) > 0)
        said.calls = calls;
    else if (json_object_size(older) > 0)
        said.calls = older;
    struct said_members members = {.content = much_of_content(json_member(message, "content")),
                                   .calls = said.calls ? SAID_FULL : SAID_ABSENT,
                                   .refusal = much_of(json_member(message, "refusal")),
                                   .text = much_of(json_member(said.choice, "text"))};
    said.kind = said_kind_of(&members);
    switch (said.kind) {
    case SAID_NOTHING: break;
    case SAID_CONTENT: set(&said, message, "content"); break;
    case SAID_CALL: find_arguments(&said); break;
    case SAID_REFUSAL: set(&said, message, "refusal"); break;
    case SAID_TEXT: set(&said, said.choice, "text"); break;
    }
    *ret_said = said;
}

void said_tree_add_text(struct buf *buf, const struct said_tree *said) {
    const json_t *value = json_member(said->place, said->member), *part;
    size_t place;
    if (json_is_string(value)) {
        buf_add_str(buf, json_str(value));
    } else if (said->kind == SAID_CONTENT && json_is_array(value)) {
        json_array_foreach(value, place, part) buf_add_str(buf, text_of_part(part));
    } else if (value) {
        json_write(buf, value);
    }
}
