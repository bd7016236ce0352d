/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/tool_calls.h"

#include "base/id.h"
#include "chat/call_section.h"
#include "chat/call_text.h"

#include <assert.h>
#include <string.h>

#define LLAMA_BEGIN STR("<|python_tag|>")
/* A call of the form XML whose first mark the model left out, as Qwen's models do. Its last mark
 * may follow. */
#define BARE_BEGIN STR("<function=")
#define BARE_END STR("</function>")
#define BARE_STRAY_END STR("</tool_call>")
#define BARE_NAME_MAX ((size_t)512)
/* Most white space in a row that is looked at repeatedly; white space before it is text. */
#define HELD_SPACE_MAX ((size_t)256)

/* A text of calls begins. */
static void begin_calls(struct tool_reader *reader) {
    size_t calls_max = reader->only_one ? reader->calls.count == 0 : SIZE_MAX;
    reader->begun = (struct call_begun){
        .format = reader->format, .tools = reader->tools, .calls_max = calls_max};
}

void tool_reader_init(struct tool_reader *reader, enum tool_format format, bool only_one,
                      const json_t *tools) {
    assert(format >= TOOL_FORMAT_HERMES && format < TOOL_FORMAT_COUNT);
    *reader = (struct tool_reader){.format = format, .only_one = only_one, .tools = tools};
    buf_init(&reader->content, BUF_UNLIMITED);
    buf_init(&reader->thought, BUF_UNLIMITED);
    begin_calls(reader);
}

void tool_reader_release(struct tool_reader *reader) {
    call_list_release(&reader->calls);
    call_list_release(&reader->shown);
    buf_release(&reader->content);
    buf_release(&reader->thought);
    *reader = (struct tool_reader){.format = TOOL_FORMAT_NONE};
}

/* Reads a text that is calls and nothing else. */
static bool read_call_text(const struct tool_reader *reader, struct str text,
                           struct call_list *calls) {
    const json_t *tools = reader->tools;
    switch (reader->format) {
    case TOOL_FORMAT_HERMES: return call_text_json(text, tools, calls);
    case TOOL_FORMAT_XML: return call_text_xml(text, tools, calls);
    case TOOL_FORMAT_KEYS: return call_text_keys(text, tools, calls);
    case TOOL_FORMAT_MISTRAL:
    case TOOL_FORMAT_NAMED: return call_text_mistral(text, tools, calls);
    case TOOL_FORMAT_PYTHON:
        return call_text_python(text, calls) || call_text_sequence(text, tools, calls);
    case TOOL_FORMAT_LLAMA: return call_text_sequence(text, tools, calls);
    case TOOL_FORMAT_ACTION:
    case TOOL_FORMAT_PHI: return call_text_array(text, tools, calls);
    case TOOL_FORMAT_MEMBERS: return call_text_members(text, tools, calls);
    case TOOL_FORMAT_DEEPSEEK:
    case TOOL_FORMAT_DEEPSEEK_3:
    case TOOL_FORMAT_KIMI:
    case TOOL_FORMAT_HUNYUAN: return call_section_read(reader->format, text, tools, calls);
    case TOOL_FORMAT_GEMMA: return call_text_gemma(text, STR("<|\"|>"), tools, calls);
    case TOOL_FORMAT_FUNCTION: return call_text_gemma(text, STR("<escape>"), tools, calls);
    case TOOL_FORMAT_NONE:
    case TOOL_FORMAT_HARMONY:
    case TOOL_FORMAT_PLAIN:
    case TOOL_FORMAT_COUNT: break;
    }
    return false;
}

/* A name may stand before the JSON in both. */
static bool is_of_mistral(enum tool_format format) {
    return format == TOOL_FORMAT_MISTRAL || format == TOOL_FORMAT_NAMED;
}

static void give_id(const struct tool_reader *reader, struct tool_call *call) {
    if (is_of_mistral(reader->format))
        id_alnum(call->id, TOOL_CALL_ID_BYTES, "", 9);
    else
        id_hex(call->id, TOOL_CALL_ID_BYTES, "call_", 24);
}

/* Shows the calls that begin in a text of calls that goes on. */
static void show_begun(struct tool_reader *reader, struct str text) {
    size_t before = reader->shown.count;
    call_begun_feed(&reader->begun, text, &reader->shown);
    for (size_t i = before; i < reader->shown.count; i++) give_id(reader, &reader->shown.at[i]);
}

/* Shows call `index` of a text, which is complete; the rest of it if it has begun. Those that have
 * begun are the first of the text and the last of `shown`, until others are added behind them. */
static void show_whole(struct tool_reader *reader, struct tool_call *call, size_t index) {
    size_t begun = reader->begun.count;
    if (index >= begun) {
        give_id(reader, call);
        struct tool_call *copy = call_list_add(&reader->shown);
        memcpy(copy->id, call->id, sizeof copy->id);
        buf_add_str(&copy->name, buf_str(&call->name));
        buf_add_str(&copy->arguments, buf_str(&call->arguments));
        return;
    }
    struct tool_call *shown = &reader->shown.at[reader->shown.count - begun + index];
    struct str arguments = buf_str(&call->arguments), before = buf_str(&shown->arguments);
    memcpy(call->id, shown->id, sizeof call->id);
    if (str_starts_with(arguments, before))
        buf_add_str(&shown->arguments, str_skip(arguments, before.bytes));
}

/* Keeps the calls of a text, from number `before` on. */
static void keep_calls(struct tool_reader *reader, size_t before) {
    struct call_list *calls = &reader->calls;
    if (reader->only_one) call_list_cut(calls, 1);
    for (size_t i = before; i < calls->count; i++) show_whole(reader, &calls->at[i], i - before);
}

/* Takes the calls of a text. False if it is no call. */
static bool take_calls(struct tool_reader *reader, struct str text) {
    size_t before = reader->calls.count;
    if (!read_call_text(reader, text, &reader->calls)) return false;
    keep_calls(reader, before);
    return true;
}

/* --- the text around the calls --- */

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static void add_content(struct tool_reader *reader, struct str text, size_t end) {
    if (end <= reader->at) return;
    buf_add(&reader->content, text.at + reader->at, end - reader->at);
    reader->at = end;
    reader->is_after_call = reader->is_after_bare = false;
}

/* The start of the white space before `end`. It is held back until the text behind it is known. */
static size_t skip_space_back(struct str text, size_t from, size_t end) {
    size_t least = end - from > HELD_SPACE_MAX ? end - HELD_SPACE_MAX : from;
    while (end > least && is_space(text.at[end - 1])) end--;
    return end;
}

static void skip_space(struct tool_reader *reader, struct str text) {
    while (reader->searched < text.bytes && is_space(text.at[reader->searched])) reader->searched++;
}

/* Where the next call begins at or after `from`, with its mark or, in the form XML, without;
 * SIZE_MAX without one. *ret_held: bytes at the end of the text that may yet begin one. */
static size_t find_call(const struct tool_reader *reader, struct str text, size_t from,
                        struct str mark, bool *ret_is_bare, size_t *ret_held) {
    size_t found = str_find(text, mark, from);
    *ret_is_bare = false;
    *ret_held = found == SIZE_MAX ? str_begun(str_skip(text, from), mark) : 0;
    if (reader->format != TOOL_FORMAT_XML) return found;
    for (size_t at = from; (at = str_find(text, BARE_BEGIN, at)) < found; at++) {
        size_t name_at = at + BARE_BEGIN.bytes, end = str_find_byte(text, '>', name_at);
        bool is_open = end == SIZE_MAX && text.bytes - name_at <= BARE_NAME_MAX;
        if (is_open && text.bytes - at > *ret_held) *ret_held = text.bytes - at;
        if (end == SIZE_MAX) return found;
        struct str name = str_trim((struct str){text.at + name_at, end - name_at});
        if (end - name_at > BARE_NAME_MAX || !call_is_of_tool(reader->tools, name)) continue;
        *ret_is_bare = true;
        return at;
    }
    size_t begun = found == SIZE_MAX ? str_begun(str_skip(text, from), BARE_BEGIN) : 0;
    if (begun > *ret_held) *ret_held = begun;
    return found;
}

/* Passes over the end mark of a call that had none at its beginning. False if more text may become
 * it. */
static bool skip_stray_end(struct tool_reader *reader, struct str text, bool is_end) {
    struct str rest = str_skip(text, reader->searched), mark = BARE_STRAY_END;
    bool is_begun = rest.bytes < mark.bytes && str_starts_with(mark, rest);
    if (str_starts_with(rest, mark)) {
        reader->at = reader->searched += mark.bytes;
        reader->is_after_bare = false;
    }
    return is_end || !is_begun;
}

/* Content up to the next mark. True when a call begins there. White space before a call and between
 * calls is left out; that between a call and text is not. */
static bool read_text(struct tool_reader *reader, struct str text, bool is_end, struct str mark) {
    size_t from = reader->at;
    if (reader->is_after_call) {
        skip_space(reader, text);
        if (reader->is_after_bare && !skip_stray_end(reader, text, is_end)) return false;
        skip_space(reader, text);
        from = reader->searched;
    }
    size_t held, found = find_call(reader, text, from, mark, &reader->is_bare, &held), end = found;
    if (found == SIZE_MAX) end = text.bytes - (is_end ? 0 : held);
    if (found != SIZE_MAX || !is_end) end = skip_space_back(text, from, end);
    if (end > from) {
        if (reader->content.bytes == 0) reader->at = from;
        add_content(reader, text, end);
    }
    if (found == SIZE_MAX) return false;
    reader->call_at = reader->at;
    reader->at = reader->searched = found + (reader->is_bare ? 0 : mark.bytes);
    reader->state = TOOL_CALL;
    begin_calls(reader);
    return true;
}

/* The text of a call becomes content. A stream that shows the call as far as it came does not show
 * it again. */
static void cut_call(struct tool_reader *reader) {
    if (!call_begun_is_open(&reader->begun) || reader->is_cut) return;
    reader->is_cut = true;
    reader->content_shown = reader->content.bytes;
}

/* The call ends at `end`, and its mark, if it has one, at `after`. `is_cut`: the text ends in the
 * call, or in its mark. */
static void end_call(struct tool_reader *reader, struct str text, size_t end, size_t after,
                     bool is_cut) {
    struct str call = {text.at + reader->at, end - reader->at};
    reader->state = TOOL_TEXT;
    if (take_calls(reader, call)) {
        reader->at = reader->searched = after;
        reader->is_after_call = true;
        reader->is_after_bare = reader->is_bare;
    } else {
        if (is_cut) cut_call(reader);
        reader->at = reader->call_at;
        add_content(reader, text, after);
    }
}

/* Whether `end` lies in a string of a call that is JSON: a mark there is part of the string. Each
 * byte is scanned once. */
static bool is_in_string(struct tool_reader *reader, struct str text, size_t end) {
    if (reader->scanned < reader->at) {
        size_t at = reader->at;
        while (at < end && is_space(text.at[at])) at++;
        reader->is_json = (at < end && (text.at[at] == '{' || text.at[at] == '[')) ||
                          is_of_mistral(reader->format) || call_section_has(reader->format);
        reader->is_in_string = reader->is_escaped = false;
        reader->scanned = reader->at;
    }
    for (; reader->is_json && reader->scanned < end; reader->scanned++) {
        char byte = text.at[reader->scanned];
        if (reader->is_escaped)
            reader->is_escaped = false;
        else if (byte == '\\' && reader->is_in_string)
            reader->is_escaped = true;
        else if (byte == '"')
            reader->is_in_string = !reader->is_in_string;
    }
    return reader->is_in_string;
}

/* Looks for the end of a call. True when it was found. */
static bool read_to_end(struct tool_reader *reader, struct str text, bool is_end,
                        struct tool_marks marks) {
    struct str mark = str_from(marks.end ? marks.end : marks.begin);
    if (reader->is_bare) mark = BARE_END;
    struct str call = str_skip(text, reader->at);
    size_t end = str_find(text, mark, reader->searched);
    while (end != SIZE_MAX && is_in_string(reader, text, end)) {
        reader->searched = end + 1;
        end = str_find(text, mark, reader->searched);
    }
    call.bytes = end != SIZE_MAX ? end - reader->at : call.bytes - str_begun(call, mark);
    show_begun(reader, call);
    if (end != SIZE_MAX) /* Without an end of its own, a call ends where the next one begins. */
        end_call(reader, text, end, marks.end ? end + mark.bytes : end, false);
    else if (is_end)
        end_call(reader, text, reader->at + call.bytes, text.bytes, true);
    else if (text.bytes >= mark.bytes && text.bytes - mark.bytes + 1 > reader->searched)
        reader->searched = text.bytes - mark.bytes + 1;
    return end != SIZE_MAX;
}

/* Reads a form without marks: the whole text is calls, or no part of it is. */
static void feed_whole(struct tool_reader *reader, struct str text, bool is_end) {
    if (reader->state == TOOL_TEXT) skip_space(reader, text);
    struct str rest = str_skip(text, reader->searched);
    bool has_mark = str_starts_with(rest, LLAMA_BEGIN);
    bool takes_list = reader->format == TOOL_FORMAT_PYTHON;
    bool may_be = rest.bytes == 0 || rest.at[0] == '{' || (takes_list && rest.at[0] == '[') ||
                  has_mark ||
                  (rest.bytes < LLAMA_BEGIN.bytes && str_starts_with(LLAMA_BEGIN, rest));
    struct str calls = has_mark ? str_skip(rest, LLAMA_BEGIN.bytes) : rest;
    if (reader->state != TOOL_REST && may_be && (has_mark || !str_starts_with(rest, STR("<"))))
        show_begun(reader, calls);
    if (reader->state == TOOL_REST || !may_be) {
        reader->state = TOOL_REST;
        add_content(reader, text, text.bytes);
    } else if (is_end) {
        if (take_calls(reader, calls)) return;
        cut_call(reader);
        add_content(reader, text, text.bytes);
    }
}

/* --- messages --- */

/* Appends bytes of a message. */
static void add_bytes(struct buf *to, const struct harmony_piece *piece, struct str bytes) {
    if (piece->is_first && to->bytes > 0) buf_add_byte(to, '\n');
    buf_add_str(to, bytes);
}

/* Takes a message that is a call when it is complete; until then a stream shows it. */
static void feed_call(struct tool_reader *reader, struct harmony_piece *piece) {
    struct str body = piece->body;
    size_t before = reader->calls.count;
    if (piece->is_first) {
        begin_calls(reader);
        reader->is_named = false;
        reader->space = 0;
    }
    while (reader->space < body.bytes && is_space(body.at[reader->space])) reader->space++;
    body = str_skip(body, reader->space);
    if (body.bytes > 0 && !reader->is_named) {
        size_t shown = reader->shown.count;
        call_begun_named(&reader->begun, piece->name, body, &reader->shown);
        if (reader->shown.count > shown) give_id(reader, &reader->shown.at[shown]);
        reader->is_named = true;
    }
    if (reader->is_named) show_begun(reader, body);
    if (!piece->is_last) return;
    if (call_text_arguments(piece->name, body, reader->tools, &reader->calls)) {
        keep_calls(reader, before);
        return;
    }
    if (piece->is_cut) cut_call(reader);
    piece->is_first = true;
    add_bytes(&reader->content, piece, piece->body);
}

static void feed_messages(struct tool_reader *reader, struct str text, bool is_end) {
    struct harmony_piece piece;
    while (harmony_next(&reader->messages, text, is_end, &piece)) {
        if (piece.kind == HARMONY_CALL && reader->tools)
            feed_call(reader, &piece);
        else if (piece.kind == HARMONY_THOUGHT)
            add_bytes(&reader->thought, &piece, piece.bytes);
        else
            add_bytes(&reader->content, &piece, piece.bytes);
    }
}

void tool_reader_feed(struct tool_reader *reader, struct str text, bool is_end) {
    struct tool_marks marks = tool_format_marks(reader->format);
    bool has_messages = reader->format == TOOL_FORMAT_HARMONY;
    if (has_messages)
        feed_messages(reader, text, is_end);
    else if (!marks.begin)
        feed_whole(reader, text, is_end);
    while (marks.begin &&
           (reader->state == TOOL_TEXT ? read_text(reader, text, is_end, str_from(marks.begin))
                                       : read_to_end(reader, text, is_end, marks))) {
    }
    if (!reader->is_cut) reader->content_shown = reader->content.bytes;
}
