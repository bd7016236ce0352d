/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/upstream/messages.h"

#include "chat/tool_calls.h"
#include "json/json.h"
#include "json/span.h"

#define ANSWER_MEMORY_MAX ((size_t)64 << 20) /* limit for the answer's tree */

/* What the request says about calls. */
struct asked {
    json_t *tools; /* NULL: no call is asked for */
    bool only_one, is_named;
};

static void read_asked(struct str request, struct asked *ret_asked) {
    struct str body, tools, choice;
    struct error error;
    size_t memory = ANSWER_MEMORY_MAX;
    *ret_asked = (struct asked){.tools = NULL};
    if (!json_span_read(request, &body)) return;
    tools = json_span_get(body, "tools");
    choice = json_span_get(body, "tool_choice");
    bool is_none = json_span_is_string(choice) && json_span_string_is(choice, "none");
    if (!tools.at || is_none || json_read_within(&ret_asked->tools, tools, &memory, &error) != OK)
        return;
    ret_asked->is_named = json_span_get(choice, "function").at;
    ret_asked->only_one =
        ret_asked->is_named || str_is(json_span_get(body, "parallel_tool_calls"), "false");
}

static json_t *text_of(const struct buf *buf) {
    return json_stringn(buf->bytes ? buf->at : "", buf->bytes);
}

static json_t *calls_of(const struct call_list *calls) {
    json_t *list = json_array();
    for (size_t i = 0; i < calls->count; i++) {
        const struct tool_call *call = &calls->at[i];
        json_t *function = json_object(), *one = json_object();
        json_object_set_new(function, "name", text_of(&call->name));
        json_object_set_new(function, "arguments", text_of(&call->arguments));
        json_object_set_new(one, "id", json_string(call->id));
        json_object_set_new(one, "type", json_string("function"));
        json_object_set_new(one, "function", function);
        json_array_append_new(list, one);
    }
    return list;
}

/* Whether a text begins as the first message of an answer does. */
static bool has_messages(struct str text) {
    return str_starts_with(text, STR("<|channel|>")) || str_starts_with(text, STR(HARMONY_NEXT));
}

/* Puts the sorted messages into a choice. False if it has none. */
static bool sort_choice(json_t *choice, const struct asked *asked) {
    json_t *message = json_object_get(choice, "message");
    struct str text = str_trim(json_member_str(message, "content"));
    if (!has_messages(text) || json_array_size(json_object_get(message, "tool_calls")) > 0)
        return false;
    struct tool_reader reader;
    tool_reader_init(&reader, TOOL_FORMAT_HARMONY, asked->only_one, asked->tools);
    tool_reader_feed(&reader, text, true);
    size_t calls = reader.calls.count;
    bool is_null = reader.content.bytes == 0 && (calls > 0 || reader.thought.bytes > 0);
    bool is_cut = str_is(json_member_str(choice, "finish_reason"), "length");
    if (reader.thought.bytes > 0 && !json_member(message, "reasoning_content"))
        json_object_set_new(message, "reasoning_content", text_of(&reader.thought));
    json_object_set_new(message, "content", is_null ? json_null() : text_of(&reader.content));
    if (calls > 0) json_object_set_new(message, "tool_calls", calls_of(&reader.calls));
    if (calls > 0 && !is_cut)
        json_object_set_new(choice, "finish_reason",
                            json_string(asked->is_named ? "stop" : "tool_calls"));
    tool_reader_release(&reader);
    return true;
}

bool upstream_messages_sort(struct str request, struct str answer, struct buf *out) {
    json_t *body;
    struct error error;
    struct asked asked;
    size_t memory = ANSWER_MEMORY_MAX;
    /* Some servers write '<' and '>' as escapes. */
    if (str_find(answer, STR("|channel|"), 0) == SIZE_MAX ||
        json_read_within(&body, answer, &memory, &error) != OK)
        return false;
    json_t *choices = json_object_get(body, "choices");
    bool is_any = false;
    read_asked(request, &asked);
    for (size_t i = 0; i < json_array_size(choices); i++)
        if (sort_choice(json_array_get(choices, i), &asked)) is_any = true;
    if (is_any) json_write(out, body);
    json_decref(asked.tools);
    json_decref(body);
    return is_any;
}
