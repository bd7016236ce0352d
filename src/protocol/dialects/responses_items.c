/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/responses.h"

#include "base/base64.h"
#include "dialects/chat_turns.h"
#include "json/json.h"

#include <string.h>

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))
#define SHOWN_BYTES 60 /* most of a client's value that a sentence repeats */

/* The conversation so far. */
struct conversation {
    struct refusal *refusal;
    struct chat_turns turns;
    size_t at; /* index of the item */
};

static bool refuse_at(struct conversation *is, const char *member, const char *sentence) {
    char param[REFUSAL_PARAM_BYTES];
    snprintf(param, sizeof param, "input[%zu]%s", is->at, member);
    return refuse(is->refusal, "invalid_value", param, "Invalid value for '%s': %s.", param,
                  sentence);
}

static bool refuse_kind_of(struct conversation *is, const char *member, struct str type,
                           const char *advice) {
    char param[REFUSAL_PARAM_BYTES];
    size_t shown = type.bytes < SHOWN_BYTES ? type.bytes : SHOWN_BYTES;
    snprintf(param, sizeof param, "input[%zu]%s.type", is->at, member);
    return refuse(is->refusal, "unsupported_value", param, "Unsupported value: '%s' is %.*s: %s.",
                  param, (int)shown, type.at, advice);
}

static void add_part(struct conversation *is, struct str text) {
    if (!member_is_empty(text)) chat_turns_add_text(&is->turns, text);
}

/* The text of a part of content; false for one that this server does not take. */
static bool read_part(struct conversation *is, const char *member, struct str part,
                      struct str *ret_text) {
    static const char *const types[] = {"input_text", "output_text", "text", "reasoning_text",
                                        "refusal"};
    char place[64];
    snprintf(place, sizeof place, ".%s", member);
    if (!json_span_is_object(part)) return refuse_at(is, place, "expected parts that are objects");
    struct str type = json_span_get(part, "type");
    if (!type.at || !json_span_is_string(type))
        return refuse_at(is, place, "each part needs a 'type'");
    for (size_t i = 0; i < COUNT(types); i++) {
        if (!json_span_string_is(type, types[i])) continue;
        bool is_refusal = strcmp(types[i], "refusal") == 0;
        *ret_text = json_span_get(part, is_refusal ? "refusal" : "text");
        return (ret_text->at && json_span_is_string(*ret_text)) ||
               refuse_at(is, place, "the text of a part must be a string");
    }
    return refuse_kind_of(is, place, type, "this server takes parts of text only");
}

/* Appends the texts of a content, a text or a list of parts: to the inside of a string, or (NULL)
 * to the open turn as parts. */
static bool gather(struct conversation *is, const char *member, struct str content,
                   struct buf *inside) {
    struct json_span_iter iter;
    struct str part, text = {0};
    char place[64];
    snprintf(place, sizeof place, ".%s", member);
    if (json_span_is_string(content)) {
        if (inside)
            chat_turns_add_inside(inside, content);
        else
            add_part(is, content);
        return true;
    }
    if (!member_is_array(content) || !json_span_enter(&iter, content))
        return refuse_at(is, place, "expected a text or a list of parts");
    while (json_span_element(&iter, &part)) {
        if (!read_part(is, member, part, &text)) return false;
        if (inside)
            chat_turns_add_inside(inside, text);
        else
            add_part(is, text);
    }
    return true;
}

static bool add_message(struct conversation *is, struct str item) {
    struct str role, content;
    const struct member places[] = {{"role", &role}, {"content", &content}};
    if (!members_read(item, places, COUNT(places), is->refusal)) return false;
    if (!role.at || !json_span_is_string(role))
        return refuse_at(is, ".role", "expected 'user', 'assistant', 'system' or 'developer'");
    if (!content.at) return refuse_at(is, ".content", "a message needs one");
    bool is_assistant = json_span_string_is(role, "assistant");
    if (is_assistant || json_span_string_is(role, "user")) {
        chat_turns_open(&is->turns, is_assistant ? CHAT_ASSISTANT : CHAT_USER);
        return gather(is, "content", content, NULL);
    }
    if (!json_span_string_is(role, "system") && !json_span_string_is(role, "developer"))
        return refuse_at(is, ".role", "expected 'user', 'assistant', 'system' or 'developer'");
    chat_turns_begin_system(&is->turns);
    return gather(is, "content", content, &is->turns.system);
}

static bool add_call(struct conversation *is, struct str item) {
    struct str id, name, arguments;
    const struct member places[] = {{"call_id", &id}, {"name", &name}, {"arguments", &arguments}};
    if (!members_read(item, places, COUNT(places), is->refusal)) return false;
    if (!json_span_is_string(id)) return refuse_at(is, ".call_id", "expected a string");
    if (!json_span_is_string(name)) return refuse_at(is, ".name", "expected a string");
    if (!json_span_is_string(arguments))
        return refuse_at(is, ".arguments", "expected the text of a JSON object");
    chat_turns_open(&is->turns, CHAT_ASSISTANT);
    chat_turns_add_call(&is->turns, id, name, arguments);
    return true;
}

static bool add_output(struct conversation *is, struct str item) {
    struct str id, output;
    const struct member places[] = {{"call_id", &id}, {"output", &output}};
    if (!members_read(item, places, COUNT(places), is->refusal)) return false;
    if (!json_span_is_string(id)) return refuse_at(is, ".call_id", "expected a string");
    if (!chat_turns_know(&is->turns, id))
        return refuse_at(is, ".call_id", "no function_call with this call_id stands before it");
    if (!output.at) return refuse_at(is, ".output", "expected a text or a list of parts");
    chat_turns_end(&is->turns);
    struct buf *text = chat_turns_begin_result(&is->turns);
    if (!gather(is, "output", output, text)) return false;
    chat_turns_end_result(&is->turns, id);
    return true;
}

/* The thought that this server gave its client to keep; that of another server means nothing. */
static void add_kept(struct conversation *is, struct str encrypted) {
    struct buf text, thought, string;
    const size_t mark = strlen(RESPONSES_THOUGHT_MARK);
    size_t bytes;
    buf_init(&text, BUF_UNLIMITED);
    buf_init(&thought, BUF_UNLIMITED);
    buf_init(&string, BUF_UNLIMITED);
    json_span_decode(&text, encrypted);
    if (str_starts_with(buf_str(&text), STR(RESPONSES_THOUGHT_MARK))) {
        struct str base64 = str_skip(buf_str(&text), mark);
        buf_reserve(&thought, base64.bytes + 1);
        if (base64_read(base64, thought.at, base64.bytes, &bytes) &&
            json_span_is_utf8((struct str){thought.at, bytes})) {
            json_write_utf8_string(&string, (struct str){thought.at, bytes});
            chat_turns_add_inside(&is->turns.thought, buf_str(&string));
        }
    }
    buf_release(&text);
    buf_release(&thought);
    buf_release(&string);
}

static bool add_thought(struct conversation *is, struct str item) {
    struct str content, encrypted;
    const struct member places[] = {{"content", &content}, {"encrypted_content", &encrypted}};
    if (!members_read(item, places, COUNT(places), is->refusal)) return false;
    chat_turns_open(&is->turns, CHAT_ASSISTANT);
    if (!member_is_empty(content)) return gather(is, "content", content, &is->turns.thought);
    if (encrypted.at && json_span_is_string(encrypted)) add_kept(is, encrypted);
    return true;
}

static bool add_item(struct conversation *is, struct str item) {
    if (!json_span_is_object(item)) return refuse_at(is, "", "expected an object");
    struct str type = json_span_get(item, "type");
    if (!type.at || str_is(type, "null")) return add_message(is, item);
    if (!json_span_is_string(type)) return refuse_at(is, ".type", "expected a string");
    if (json_span_string_is(type, "message")) return add_message(is, item);
    if (json_span_string_is(type, "function_call")) return add_call(is, item);
    if (json_span_string_is(type, "function_call_output")) return add_output(is, item);
    if (json_span_string_is(type, "reasoning")) return add_thought(is, item);
    if (json_span_string_is(type, "item_reference"))
        return refuse_kind_of(is, "", type,
                              "this server keeps no responses; send the earlier items in 'input'");
    return refuse_kind_of(
        is, "", type, "this server takes messages, function calls, their outputs, and reasoning");
}

static bool add_input(struct conversation *is, struct str input) {
    struct json_span_iter iter;
    struct str item;
    if (json_span_is_string(input)) {
        chat_turns_open(&is->turns, CHAT_USER);
        add_part(is, input);
        return true;
    }
    if (!member_is_array(input) || !json_span_enter(&iter, input))
        return responses_refuse_kind(is->refusal, "input", "a text or a list of items", input);
    for (; json_span_element(&iter, &item); is->at++)
        if (!add_item(is, item)) return false;
    return is->at > 0 || refuse(is->refusal, "invalid_value", "input",
                                "Invalid value for 'input': at least one item is needed.");
}

bool responses_add_items(struct dialect_call *call, struct str instructions, struct str input,
                         struct refusal *refusal) {
    struct conversation is = {.refusal = refusal};
    chat_turns_init(&is.turns, &call->body);
    is.turns.drops_empty = true; /* a thought that another server keeps says nothing */
    bool is_good = !instructions.at || json_span_is_string(instructions) ||
                   responses_refuse_kind(refusal, "instructions", "a string", instructions);
    if (is_good && instructions.at) chat_turns_add_inside(&is.turns.system, instructions);
    is_good = is_good && add_input(&is, input);
    if (is_good) chat_turns_finish(&is.turns);
    chat_turns_release(&is.turns);
    return is_good;
}
