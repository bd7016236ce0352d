/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/messages.h"

#include "dialects/chat_turns.h"
#include "json/json.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* The conversation so far. */
struct conversation {
    struct refusal *refusal;
    struct chat_turns turns;
    size_t at, block; /* indexes of the message and its block */
};

static bool refuse_at(struct conversation *is, const char *member, const char *sentence) {
    char param[REFUSAL_PARAM_BYTES];
    snprintf(param, sizeof param, "messages.%zu.%s", is->at, member);
    return refuse(is->refusal, "invalid_value", param, "%s: %s", param, sentence);
}

static bool refuse_block(struct conversation *is, const char *member, const char *sentence) {
    char place[64];
    snprintf(place, sizeof place, "content.%zu%s", is->block, member);
    return refuse_at(is, place, sentence);
}

bool messages_is_mark(struct str text) {
    return str_starts_with(text, STR("\"x-anthropic-billing-header"));
}

/* Appends the texts of a content, a text or a list of text blocks, to the inside of a string. */
static bool gather(struct conversation *is, struct str content, bool drops_marks, struct buf *to) {
    struct json_span_iter iter;
    struct str block, type, text;
    const struct member places[] = {{"type", &type}, {"text", &text}};
    if (!content.at) return true;
    if (json_span_is_string(content)) {
        chat_turns_add_inside(to, content);
        return true;
    }
    if (!member_is_array(content) || !json_span_enter(&iter, content)) return false;
    while (json_span_element(&iter, &block)) {
        if (!json_span_is_object(block) ||
            !members_read(block, places, COUNT(places), is->refusal) ||
            !json_span_is_string(type) || !json_span_string_is(type, "text") ||
            !json_span_is_string(text))
            return false;
        if (!drops_marks || !messages_is_mark(text)) chat_turns_add_inside(to, text);
    }
    return true;
}

/* A call of the assistant; its input becomes the text of its arguments. */
static bool add_use(struct conversation *is, struct str block) {
    struct str id, name, input;
    const struct member places[] = {{"id", &id}, {"name", &name}, {"input", &input}};
    struct buf arguments;
    if (!members_read(block, places, COUNT(places), is->refusal)) return false;
    if (!json_span_is_string(id)) return refuse_block(is, ".id", "expected a string");
    if (!json_span_is_string(name)) return refuse_block(is, ".name", "expected a string");
    if (input.at && !json_span_is_object(input))
        return refuse_block(is, ".input", "expected an object");
    buf_init(&arguments, BUF_UNLIMITED);
    json_write_utf8_string(&arguments, input.at ? input : STR("{}"));
    chat_turns_add_call(&is->turns, id, name, buf_str(&arguments));
    buf_release(&arguments);
    return true;
}

/* A result becomes a message of its own, before the text of the turn that brings it. */
static bool add_result(struct conversation *is, struct str block) {
    struct str id, content;
    const struct member places[] = {{"tool_use_id", &id}, {"content", &content}};
    if (!members_read(block, places, COUNT(places), is->refusal)) return false;
    if (!json_span_is_string(id)) return refuse_block(is, ".tool_use_id", "expected a string");
    if (!chat_turns_know(&is->turns, id))
        return refuse_block(is, ".tool_use_id", "there is no tool_use block with this id before");
    struct buf *text = chat_turns_begin_result(&is->turns);
    if (!gather(is, content, false, text))
        return refuse_block(is, ".content", "expected a text or text blocks");
    chat_turns_end_result(&is->turns, id);
    return true;
}

static bool add_string(struct conversation *is, struct str block, const char *name,
                       struct str *ret_text) {
    char member[40];
    struct str text = json_span_get(block, name);
    snprintf(member, sizeof member, ".%s", name);
    if (!text.at || !json_span_is_string(text))
        return refuse_block(is, member, "expected a string");
    *ret_text = text;
    return true;
}

/* The texts of a search result that a client hands over. */
static bool add_search(struct conversation *is, struct str block) {
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    buf_add_byte(&text, '"');
    bool is_good = gather(is, json_span_get(block, "content"), false, &text);
    buf_add_byte(&text, '"');
    if (is_good) chat_turns_add_text(&is->turns, buf_str(&text));
    buf_release(&text);
    return is_good || refuse_block(is, ".content", "expected text blocks");
}

static bool add_block(struct conversation *is, struct str block, bool is_assistant) {
    struct str type = json_span_get(block, "type"), text = {NULL, 0};
    char sentence[160];
    if (!type.at || !json_span_is_string(type))
        return refuse_block(is, ".type", "expected a string");
    if (json_span_string_is(type, "text")) {
        if (!add_string(is, block, "text", &text)) return false;
        if (!member_is_empty(text)) chat_turns_add_text(&is->turns, text);
        return true;
    }
    if (is_assistant && json_span_string_is(type, "tool_use")) return add_use(is, block);
    if (is_assistant && json_span_string_is(type, "thinking")) {
        if (!add_string(is, block, "thinking", &text)) return false;
        chat_turns_add_inside(&is->turns.thought, text);
        return true;
    }
    if (is_assistant && json_span_string_is(type, "redacted_thinking")) return true;
    if (!is_assistant && json_span_string_is(type, "tool_result")) return true; /* is written */
    if (json_span_string_is(type, "search_result")) return add_search(is, block);
    snprintf(sentence, sizeof sentence, "this server does not take blocks of the type %.*s",
             (int)(type.bytes < 80 ? type.bytes : 80), type.at);
    return refuse_block(is, ".type", sentence);
}

/* Writes the results that a message of the user brings. */
static bool add_results(struct conversation *is, struct str content) {
    struct json_span_iter iter;
    struct str block;
    is->block = 0;
    if (!json_span_enter(&iter, content)) return true;
    for (; json_span_element(&iter, &block); is->block++) {
        if (!json_span_is_object(block)) return refuse_block(is, "", "expected an object");
        struct str type = json_span_get(block, "type");
        if (!type.at || !json_span_is_string(type) || !json_span_string_is(type, "tool_result"))
            continue;
        chat_turns_end(&is->turns);
        if (!add_result(is, block)) return false;
    }
    return true;
}

static bool add_content(struct conversation *is, struct str content, bool is_assistant) {
    struct json_span_iter iter;
    struct str block;
    if (!is_assistant && member_is_array(content) && !add_results(is, content)) return false;
    bool has_text = json_span_is_string(content) && !member_is_empty(content);
    if (json_span_is_string(content)) {
        chat_turns_open(&is->turns, is_assistant ? CHAT_ASSISTANT : CHAT_USER);
        if (has_text) chat_turns_add_text(&is->turns, content);
        return true;
    }
    if (!member_is_array(content) || !json_span_enter(&iter, content))
        return refuse_at(is, "content", "expected a text or an array of blocks");
    is->block = 0;
    for (; json_span_element(&iter, &block); is->block++) {
        if (!json_span_is_object(block)) return refuse_block(is, "", "expected an object");
        struct str type = json_span_get(block, "type");
        bool is_result =
            type.at && json_span_is_string(type) && json_span_string_is(type, "tool_result");
        if (!is_result) chat_turns_open(&is->turns, is_assistant ? CHAT_ASSISTANT : CHAT_USER);
        if (!add_block(is, block, is_assistant)) return false;
    }
    if (is->block == 0) chat_turns_open(&is->turns, is_assistant ? CHAT_ASSISTANT : CHAT_USER);
    return true;
}

static bool add_message(struct conversation *is, struct str message) {
    struct str role, content;
    const struct member places[] = {{"role", &role}, {"content", &content}};
    if (!json_span_is_object(message)) return refuse_at(is, "role", "expected a message");
    if (!members_read(message, places, COUNT(places), is->refusal)) return false;
    if (!json_span_is_string(role)) return refuse_at(is, "role", "Field required");
    if (!content.at) return refuse_at(is, "content", "Field required");
    if (json_span_string_is(role, "user")) return add_content(is, content, false);
    if (json_span_string_is(role, "assistant")) return add_content(is, content, true);
    if (!json_span_string_is(role, "system"))
        return refuse_at(is, "role", "expected 'user', 'assistant' or 'system'");
    chat_turns_begin_system(&is->turns);
    return gather(is, content, true, &is->turns.system) ||
           refuse_at(is, "content", "expected a text or text blocks");
}

bool messages_add_turns(struct dialect_call *call, struct str system, struct str messages,
                        struct refusal *refusal) {
    struct conversation is = {.refusal = refusal};
    struct json_span_iter iter;
    struct str message;
    chat_turns_init(&is.turns, &call->body);
    bool is_good =
        gather(&is, system, true, &is.turns.system) ||
        refuse(refusal, "invalid_type", "system", "system: expected a text or text blocks");
    if (json_span_enter(&iter, messages))
        for (; is_good && json_span_element(&iter, &message); is.at++)
            is_good = add_message(&is, message);
    bool continues = is.turns.role == CHAT_ASSISTANT;
    if (is_good) chat_turns_finish(&is.turns);
    if (is_good && continues)
        buf_add_text(&call->body,
                     ",\"continue_final_message\":true,\"add_generation_prompt\":false");
    chat_turns_release(&is.turns);
    return is_good;
}
