/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/tool_calls.h"

#include "base/id.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "jinja/template.h"
#include "json/span.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define HERMES_BEGIN STR("<tool_call>")
#define HERMES_END STR("</tool_call>")
#define MISTRAL_BEGIN STR("[TOOL_CALLS]")
#define MISTRAL_ARGUMENTS STR("[ARGS]")
#define LLAMA_BEGIN STR("<|python_tag|>")
/* Most white space in a row that is looked at repeatedly; white space before it is text. */
#define HELD_SPACE_MAX ((size_t)256)

/* ---- which form ---- */

static bool is_word_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Whether the source uses the variable `tools`. */
static bool takes_tools(struct str source) {
    struct str name = STR("tools");
    for (size_t at = 0; (at = str_find(source, name, at)) != SIZE_MAX; at++) {
        size_t end = at + name.bytes;
        bool begins = at == 0 || !is_word_byte(source.at[at - 1]);
        if (begins && (end == source.bytes || !is_word_byte(source.at[end]))) return true;
    }
    return false;
}

enum tool_format tool_format_of(const struct jinja_template *template) {
    if (!template || !takes_tools(template->source)) return TOOL_FORMAT_NONE;
    struct str source = template->source;
    /* Calls as XML, in the marks of Hermes or of Llama. */
    if (str_find(source, STR("<function="), 0) != SIZE_MAX ||
        str_find(source, STR("<arg_key>"), 0) != SIZE_MAX)
        return TOOL_FORMAT_PLAIN;
    if (str_find(source, MISTRAL_BEGIN, 0) != SIZE_MAX) return TOOL_FORMAT_MISTRAL;
    if (str_find(source, HERMES_BEGIN, 0) != SIZE_MAX) return TOOL_FORMAT_HERMES;
    if (str_find(source, LLAMA_BEGIN, 0) != SIZE_MAX ||
        str_find(source, STR("\"parameters\": dictionary of argument name"), 0) != SIZE_MAX)
        return TOOL_FORMAT_LLAMA;
    return TOOL_FORMAT_PLAIN;
}

const char *const *tool_format_marks(enum tool_format format) {
    static const char *const none[] = {NULL};
    static const char *const hermes[] = {"<tool_call>", "</tool_call>", NULL};
    static const char *const mistral[] = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", NULL};
    static const char *const llama[] = {"<|python_tag|>", NULL};
    switch (format) {
    case TOOL_FORMAT_HERMES: return hermes;
    case TOOL_FORMAT_MISTRAL: return mistral;
    case TOOL_FORMAT_LLAMA: return llama;
    case TOOL_FORMAT_NONE:
    case TOOL_FORMAT_PLAIN: break;
    }
    return none;
}

/* ---- the calls ---- */

void tool_reader_init(struct tool_reader *reader, enum tool_format format, bool only_one) {
    assert(format >= TOOL_FORMAT_HERMES);
    *reader = (struct tool_reader){.format = format, .only_one = only_one};
    buf_init(&reader->content, BUF_UNLIMITED);
}

static void release_call(struct tool_call *call) {
    buf_release(&call->name);
    buf_release(&call->arguments);
}

void tool_reader_release(struct tool_reader *reader) {
    for (size_t i = 0; i < reader->call_count; i++) release_call(&reader->calls[i]);
    free(reader->calls);
    buf_release(&reader->content);
    *reader = (struct tool_reader){.format = TOOL_FORMAT_NONE};
}

/* Takes over name and arguments. */
static void add_call(struct tool_reader *reader, struct tool_call *call) {
    if (reader->only_one && reader->call_count > 0) {
        release_call(call);
        return;
    }
    if (reader->call_count == reader->call_capacity) {
        reader->call_capacity = reader->call_capacity ? reader->call_capacity * 2 : 4;
        reader->calls = mem_resize(reader->calls, reader->call_capacity, sizeof *reader->calls);
    }
    if (reader->format == TOOL_FORMAT_MISTRAL)
        id_alnum(call->id, sizeof call->id, "", 9);
    else
        id_hex(call->id, sizeof call->id, "call_", 24);
    reader->calls[reader->call_count++] = *call;
}

static void drop_calls(struct tool_reader *reader, size_t from) {
    while (reader->call_count > from) release_call(&reader->calls[--reader->call_count]);
}

/* Arguments are an object, or a string that holds one, as some models write it. */
static bool read_arguments(struct str value, struct buf *arguments) {
    if (json_span_is_object(value)) {
        buf_add_str(arguments, value);
        return true;
    }
    if (!json_span_is_string(value)) return false;
    json_span_decode(arguments, value);
    struct str object;
    return json_span_read(buf_str(arguments), &object) && json_span_is_object(object);
}

/* A valid JSON value that is a call. */
static bool read_call(struct tool_reader *reader, struct str value) {
    if (!json_span_is_object(value)) return false;
    struct str name = json_span_get(value, "name");
    struct str arguments = json_span_get(value, "arguments");
    if (!arguments.at) arguments = json_span_get(value, "parameters");
    if (!name.at || !json_span_is_string(name) || !arguments.at) return false;
    struct tool_call call = {.id = ""};
    buf_init(&call.name, BUF_UNLIMITED);
    buf_init(&call.arguments, BUF_UNLIMITED);
    json_span_decode(&call.name, name);
    if (call.name.bytes == 0 || !read_arguments(arguments, &call.arguments)) {
        release_call(&call);
        return false;
    }
    add_call(reader, &call);
    return true;
}

/* One call and nothing else. */
static bool read_only_call(struct tool_reader *reader, struct str text) {
    struct str value;
    return utf8_is_valid(text) && json_span_read(text, &value) && read_call(reader, value);
}

/* "f[ARGS]{…}" or "f[CALL_ID]…[ARGS]{…}" or "f{…}". */
static bool read_named_call(struct tool_reader *reader, struct str text) {
    size_t name_end = 0;
    while (name_end < text.bytes && text.at[name_end] != '[' && text.at[name_end] != '{')
        name_end++;
    struct str name = str_trim((struct str){text.at, name_end});
    size_t at = str_find(text, MISTRAL_ARGUMENTS, name_end);
    at = at == SIZE_MAX ? name_end : at + MISTRAL_ARGUMENTS.bytes;
    struct str value, rest = str_skip(text, at);
    if (name.bytes == 0 || !utf8_is_valid(text) || !json_span_read(rest, &value) ||
        !json_span_is_object(value))
        return false;
    struct tool_call call = {.id = ""};
    buf_init(&call.name, BUF_UNLIMITED);
    buf_init(&call.arguments, BUF_UNLIMITED);
    buf_add_str(&call.name, name);
    buf_add_str(&call.arguments, value);
    add_call(reader, &call);
    return true;
}

/* The text behind [TOOL_CALLS]: an array of calls, one call, or a named one. */
static bool read_mistral(struct tool_reader *reader, struct str text) {
    text = str_trim(text);
    if (text.bytes == 0) return false;
    if (text.at[0] == '{') return read_only_call(reader, text);
    if (text.at[0] != '[') return read_named_call(reader, text);
    struct str list, element;
    if (!utf8_is_valid(text) || !json_span_read(text, &list)) return false;
    struct json_span_iter iter;
    size_t before = reader->call_count, count = 0;
    if (!json_span_enter(&iter, list)) return false;
    while (json_span_element(&iter, &element)) {
        count++;
        if (read_call(reader, element)) continue;
        drop_calls(reader, before);
        return false;
    }
    return count > 0;
}

/* Calls with semicolons or white space between them, and nothing else. */
static bool read_llama(struct tool_reader *reader, struct str text) {
    if (!utf8_is_valid(text)) return false;
    size_t count = 0;
    for (text = str_trim(text); text.bytes > 0; count++) {
        size_t end = json_span_end(text, 0);
        struct str value;
        if (end == SIZE_MAX || !json_span_read((struct str){text.at, end}, &value) ||
            !read_call(reader, value)) {
            drop_calls(reader, 0);
            return false;
        }
        text = str_trim(str_skip(text, end));
        if (text.bytes > 0 && text.at[0] == ';') text = str_trim(str_skip(text, 1));
    }
    return count > 0;
}

/* ---- the text around them ---- */

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* How many bytes at the end of `text` may be the start of `mark`. */
static size_t mark_tail(struct str text, struct str mark) {
    size_t longest = mark.bytes - 1 < text.bytes ? mark.bytes - 1 : text.bytes;
    for (size_t bytes = longest; bytes > 0; bytes--)
        if (memcmp(text.at + text.bytes - bytes, mark.at, bytes) == 0) return bytes;
    return 0;
}

static void add_content(struct tool_reader *reader, struct str text, size_t end) {
    if (end <= reader->at) return;
    buf_add(&reader->content, text.at + reader->at, end - reader->at);
    reader->at = end;
    reader->is_after_call = false;
}

/* The start of the white space before `end`. It is held back until the text behind it is known. */
static size_t skip_space_back(struct str text, size_t from, size_t end) {
    size_t least = end - from > HELD_SPACE_MAX ? end - HELD_SPACE_MAX : from;
    while (end > least && is_space(text.at[end - 1])) end--;
    return end;
}

/* Content up to the next mark. True when a call begins there. White space before a call and between
 * calls is left out; that between a call and text is not. */
static bool read_text(struct tool_reader *reader, struct str text, bool is_end, struct str mark) {
    size_t from = reader->at;
    if (reader->is_after_call) {
        while (reader->searched < text.bytes && is_space(text.at[reader->searched]))
            reader->searched++;
        from = reader->searched;
    }
    size_t found = str_find(text, mark, from), end = found;
    if (found == SIZE_MAX) end = text.bytes - (is_end ? 0 : mark_tail(str_skip(text, from), mark));
    if (found != SIZE_MAX || !is_end) end = skip_space_back(text, from, end);
    if (end > from) {
        if (reader->content.bytes == 0) reader->at = from;
        add_content(reader, text, end);
    }
    if (found == SIZE_MAX) return false;
    reader->call_at = reader->at;
    reader->at = reader->searched = found + mark.bytes;
    reader->state = TOOL_CALL;
    return true;
}

/* The call ends at `end`, and its mark, if it has one, at `after`. */
static void end_call(struct tool_reader *reader, struct str text, size_t end, size_t after) {
    struct str call = {text.at + reader->at, end - reader->at};
    bool is_call = reader->format == TOOL_FORMAT_HERMES ? read_only_call(reader, call)
                                                        : read_mistral(reader, call);
    reader->state = TOOL_TEXT;
    if (is_call) {
        reader->at = reader->searched = after;
        reader->is_after_call = true;
    } else {
        reader->at = reader->call_at;
        add_content(reader, text, after);
    }
}

/* Looks for the end of a call. True when it was found. */
static bool read_to_end(struct tool_reader *reader, struct str text, bool is_end) {
    bool is_hermes = reader->format == TOOL_FORMAT_HERMES;
    struct str mark = is_hermes ? HERMES_END : MISTRAL_BEGIN;
    size_t end = str_find(text, mark, reader->searched);
    if (end != SIZE_MAX) /* Another [TOOL_CALLS] begins the next call. */
        end_call(reader, text, end, is_hermes ? end + mark.bytes : end);
    else if (is_end)
        end_call(reader, text, text.bytes, text.bytes);
    else if (text.bytes >= mark.bytes && text.bytes - mark.bytes + 1 > reader->searched)
        reader->searched = text.bytes - mark.bytes + 1;
    return end != SIZE_MAX;
}

/* Reads LLAMA's form: the whole text is calls, or no part of it is. */
static void feed_llama(struct tool_reader *reader, struct str text, bool is_end) {
    if (reader->state == TOOL_TEXT)
        while (reader->searched < text.bytes && is_space(text.at[reader->searched]))
            reader->searched++;
    struct str rest = str_skip(text, reader->searched);
    bool has_mark = str_starts_with(rest, LLAMA_BEGIN);
    bool may_be = rest.bytes == 0 || rest.at[0] == '{' || has_mark ||
                  (rest.bytes < LLAMA_BEGIN.bytes && str_starts_with(LLAMA_BEGIN, rest));
    if (reader->state == TOOL_REST || !may_be) {
        reader->state = TOOL_REST;
        add_content(reader, text, text.bytes);
    } else if (is_end) {
        if (!read_llama(reader, has_mark ? str_skip(rest, LLAMA_BEGIN.bytes) : rest))
            add_content(reader, text, text.bytes);
    }
}

void tool_reader_feed(struct tool_reader *reader, struct str text, bool is_end) {
    if (reader->format == TOOL_FORMAT_LLAMA) {
        feed_llama(reader, text, is_end);
        return;
    }
    struct str mark = reader->format == TOOL_FORMAT_HERMES ? HERMES_BEGIN : MISTRAL_BEGIN;
    while (reader->state == TOOL_TEXT ? read_text(reader, text, is_end, mark)
                                      : read_to_end(reader, text, is_end)) {
    }
}
