/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/messages.h"

#include "base/map.h"
#include "json/json.h"

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* What a turn has gathered until it is written: neighbours of one role are one message. */
struct turn {
    const char *role; /* NULL: no turn is open */
    struct buf parts; /* parts of content with commas between */
    struct buf thought, calls;
};

/* The conversation so far. */
struct conversation {
    struct dialect_call *call;
    struct refusal *refusal;
    struct turn turn;
    struct buf system;  /* inside of the system text */
    struct buf written; /* messages with commas between */
    struct map ids;     /* those of calls */
    size_t at, block;   /* indexes of the message and its block */
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

static void add_inside(struct buf *to, struct str string) {
    if (json_span_is_string(string)) buf_add(to, string.at + 1, string.bytes - 2);
}

static void begin_message(struct conversation *is, const char *role) {
    if (is->written.bytes > 0) buf_add_byte(&is->written, ',');
    buf_printf(&is->written, "{\"role\":\"%s\",\"content\":", role);
}

/* Writes the open turn. */
static void end_turn(struct conversation *is) {
    struct turn *turn = &is->turn;
    struct buf *to = &is->written;
    if (!turn->role) return;
    begin_message(is, turn->role);
    if (turn->parts.bytes > 0)
        buf_printf(to, "[%.*s]", STR_ARGS(buf_str(&turn->parts)));
    else
        buf_add_text(to, "\"\"");
    if (turn->thought.bytes > 0)
        buf_printf(to, ",\"reasoning_content\":\"%.*s\"", STR_ARGS(buf_str(&turn->thought)));
    if (turn->calls.bytes > 0)
        buf_printf(to, ",\"tool_calls\":[%.*s]", STR_ARGS(buf_str(&turn->calls)));
    buf_add_byte(to, '}');
    turn->role = NULL;
    buf_clear(&turn->parts);
    buf_clear(&turn->thought);
    buf_clear(&turn->calls);
}

static void open_turn(struct conversation *is, const char *role) {
    if (is->turn.role == role) return;
    end_turn(is);
    is->turn.role = role;
}

static void add_text(struct conversation *is, struct str text) {
    struct buf *parts = &is->turn.parts;
    buf_add_text(parts, parts->bytes > 0 ? ",{\"type\":\"text\",\"text\":"
                                         : "{\"type\":\"text\",\"text\":");
    buf_add_str(parts, text);
    buf_add_byte(parts, '}');
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
        add_inside(to, content);
        return true;
    }
    if (!member_is_array(content) || !json_span_enter(&iter, content)) return false;
    while (json_span_element(&iter, &block)) {
        if (!json_span_is_object(block) ||
            !members_read(block, places, COUNT(places), is->refusal) ||
            !json_span_is_string(type) || !json_span_string_is(type, "text") ||
            !json_span_is_string(text))
            return false;
        if (!drops_marks || !messages_is_mark(text)) add_inside(to, text);
    }
    return true;
}

/* A call of the assistant; its input becomes the text of its arguments. */
static bool add_use(struct conversation *is, struct str block) {
    struct str id, name, input;
    const struct member places[] = {{"id", &id}, {"name", &name}, {"input", &input}};
    struct buf *calls = &is->turn.calls;
    if (!members_read(block, places, COUNT(places), is->refusal)) return false;
    if (!json_span_is_string(id)) return refuse_block(is, ".id", "expected a string");
    if (!json_span_is_string(name)) return refuse_block(is, ".name", "expected a string");
    if (input.at && !json_span_is_object(input))
        return refuse_block(is, ".input", "expected an object");
    map_put(&is->ids, id, 0);
    buf_add_text(calls, calls->bytes > 0 ? ",{\"id\":" : "{\"id\":");
    buf_add_str(calls, id);
    buf_add_text(calls, ",\"type\":\"function\",\"function\":{\"name\":");
    buf_add_str(calls, name);
    buf_add_text(calls, ",\"arguments\":");
    json_write_utf8_string(calls, input.at ? input : STR("{}"));
    buf_add_text(calls, "}}");
    return true;
}

/* A result becomes a message of its own, before the text of the turn that brings it. */
static bool add_result(struct conversation *is, struct str block) {
    struct str id, content;
    const struct member places[] = {{"tool_use_id", &id}, {"content", &content}};
    if (!members_read(block, places, COUNT(places), is->refusal)) return false;
    if (!json_span_is_string(id)) return refuse_block(is, ".tool_use_id", "expected a string");
    if (!map_get(&is->ids, id, NULL))
        return refuse_block(is, ".tool_use_id", "there is no tool_use block with this id before");
    begin_message(is, "tool");
    buf_add_byte(&is->written, '"');
    if (!gather(is, content, false, &is->written))
        return refuse_block(is, ".content", "expected a text or text blocks");
    buf_add_text(&is->written, "\",\"tool_call_id\":");
    buf_add_str(&is->written, id);
    buf_add_byte(&is->written, '}');
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
    if (is_good) add_text(is, buf_str(&text));
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
        if (!member_is_empty(text)) add_text(is, text);
        return true;
    }
    if (is_assistant && json_span_string_is(type, "tool_use")) return add_use(is, block);
    if (is_assistant && json_span_string_is(type, "thinking")) {
        if (!add_string(is, block, "thinking", &text)) return false;
        add_inside(&is->turn.thought, text);
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
        end_turn(is);
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
        open_turn(is, is_assistant ? "assistant" : "user");
        if (has_text) add_text(is, content);
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
        if (!is_result) open_turn(is, is_assistant ? "assistant" : "user");
        if (!add_block(is, block, is_assistant)) return false;
    }
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
    /* Most templates take one system message, the first. */
    if (is->system.bytes > 0) buf_add_text(&is->system, "\\n\\n");
    return gather(is, content, true, &is->system) ||
           refuse_at(is, "content", "expected a text or text blocks");
}

static void write(struct conversation *is) {
    struct buf *body = &is->call->body;
    bool continues = is->turn.role && str_is(str_from(is->turn.role), "assistant");
    end_turn(is);
    buf_add_text(body, ",\"messages\":[");
    if (is->system.bytes > 0) {
        buf_printf(body, "{\"role\":\"system\",\"content\":\"%.*s\"}",
                   STR_ARGS(buf_str(&is->system)));
        if (is->written.bytes > 0) buf_add_byte(body, ',');
    }
    buf_add_str(body, buf_str(&is->written));
    buf_add_byte(body, ']');
    if (continues)
        buf_add_text(body, ",\"continue_final_message\":true,\"add_generation_prompt\":false");
}

static void init(struct conversation *is) {
    buf_init(&is->turn.parts, BUF_UNLIMITED);
    buf_init(&is->turn.thought, BUF_UNLIMITED);
    buf_init(&is->turn.calls, BUF_UNLIMITED);
    buf_init(&is->system, BUF_UNLIMITED);
    buf_init(&is->written, BUF_UNLIMITED);
    map_init(&is->ids);
}

static void release(struct conversation *is) {
    buf_release(&is->turn.parts);
    buf_release(&is->turn.thought);
    buf_release(&is->turn.calls);
    buf_release(&is->system);
    buf_release(&is->written);
    map_release(&is->ids);
}

bool messages_add_turns(struct dialect_call *call, struct str system, struct str messages,
                        struct refusal *refusal) {
    struct conversation is = {.call = call, .refusal = refusal};
    struct json_span_iter iter;
    struct str message;
    init(&is);
    bool is_good =
        gather(&is, system, true, &is.system) ||
        refuse(refusal, "invalid_type", "system", "system: expected a text or text blocks");
    if (json_span_enter(&iter, messages))
        for (; is_good && json_span_element(&iter, &message); is.at++)
            is_good = add_message(&is, message);
    if (is_good) write(&is);
    release(&is);
    return is_good;
}
