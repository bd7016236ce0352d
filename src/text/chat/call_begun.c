/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/call_begun.h"

#include "chat/call_section.h"
#include "chat/call_text.h"
#include "json/span.h"

/* Bytes before the arguments that are read again with each feed; OpenAI's names have 64. */
#define HEAD_BYTES_MAX 512

#define FUNCTION STR("<function=")
#define GEMMA STR("call:")
#define ARGS STR("[ARGS]")

enum head {
    HEAD_OPEN,      /* the text goes on */
    HEAD_ARGUMENTS, /* the arguments begin */
    HEAD_NAME,      /* the name is known; the arguments are no JSON */
    HEAD_NONE,      /* another text */
};

struct parts {
    struct str name;
    size_t arguments; /* where they begin */
};

static bool is_space(char byte) {
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

static size_t skip_space(struct str text, size_t at) {
    while (at < text.bytes && is_space(text.at[at])) at++;
    return at;
}

/* Whether a text, from `at` on, begins with the word; HEAD_OPEN if it is too short to tell. */
static enum head begins(struct str text, size_t at, struct str word) {
    struct str rest = str_skip(text, at);
    if (str_starts_with(rest, word)) return HEAD_NAME;
    return rest.bytes < word.bytes && str_starts_with(word, rest) ? HEAD_OPEN : HEAD_NONE;
}

/* Takes a key and its colon; *at is then where the value begins. */
static enum head read_key(struct str text, size_t *at, struct str *ret_key) {
    size_t from = skip_space(text, *at), end = json_span_end(text, from);
    if (from < text.bytes && text.at[from] != '"') return HEAD_NONE;
    if (from == text.bytes || end == SIZE_MAX) return HEAD_OPEN;
    *ret_key = (struct str){text.at + from, end - from};
    *at = skip_space(text, end);
    if (*at == text.bytes) return HEAD_OPEN;
    if (text.at[*at] != ':') return HEAD_NONE;
    *at = skip_space(text, *at + 1);
    return *at == text.bytes ? HEAD_OPEN : HEAD_NAME;
}

/* {"f": {… */
static enum head read_member(struct str text, size_t at, struct parts *ret_parts) {
    struct str key;
    enum head head = read_key(text, &at, &key);
    if (head != HEAD_NAME) return head;
    ret_parts->name = (struct str){key.at + 1, key.bytes - 2};
    ret_parts->arguments = at;
    return text.at[at] == '{' ? HEAD_ARGUMENTS : HEAD_NONE;
}

/* Passes over "tool_call_id": "0", which the form ACTION has before the name. */
static enum head skip_id(struct str text, size_t *at, struct str *key) {
    if (!json_span_string_is(*key, "tool_call_id")) return HEAD_NAME;
    size_t end = json_span_end(text, *at);
    if (end == SIZE_MAX) return HEAD_OPEN;
    end = skip_space(text, end);
    if (end == text.bytes) return HEAD_OPEN;
    if (text.at[end] != ',') return HEAD_NONE;
    *at = end + 1;
    return read_key(text, at, key);
}

/* {"name": "f", "arguments": {…: the name first, as all templates write it. */
static enum head read_json(enum tool_format format, struct str text, size_t at,
                           struct parts *ret_parts) {
    struct str key;
    enum head head = read_key(text, &at, &key);
    const bool is_action = format == TOOL_FORMAT_ACTION;
    if (head == HEAD_NAME && is_action) head = skip_id(text, &at, &key);
    if (head != HEAD_NAME) return head;
    const bool is_name =
        json_span_string_is(key, "name") || (is_action && json_span_string_is(key, "tool_name"));
    if (!is_name || text.at[at] != '"') return HEAD_NONE;
    size_t end = json_span_end(text, at);
    if (end == SIZE_MAX) return HEAD_OPEN;
    ret_parts->name = (struct str){text.at + at + 1, end - at - 2};
    at = skip_space(text, end);
    if (at == text.bytes) return HEAD_OPEN;
    if (text.at[at] != ',') return HEAD_NONE;
    at++;
    head = read_key(text, &at, &key);
    if (head != HEAD_NAME) return head;
    bool is_known = json_span_string_is(key, "arguments") || json_span_string_is(key, "parameters");
    ret_parts->arguments = at;
    return is_known && text.at[at] == '{' ? HEAD_ARGUMENTS : HEAD_NONE;
}

/* f[ARGS]{…, f[CALL_ID]…[ARGS]{… or f{… */
static enum head read_named(struct str text, size_t at, struct parts *ret_parts) {
    size_t end = at;
    while (end < text.bytes && text.at[end] != '[' && text.at[end] != '{') end++;
    if (end == text.bytes) return HEAD_OPEN;
    ret_parts->name = str_trim((struct str){text.at + at, end - at});
    size_t mark = str_find(text, ARGS, end);
    if (text.at[end] == '{') mark = SIZE_MAX;
    if (text.at[end] == '[' && mark == SIZE_MAX) return HEAD_OPEN;
    if (mark != SIZE_MAX) end = skip_space(text, mark + ARGS.bytes);
    if (end == text.bytes) return HEAD_OPEN;
    ret_parts->arguments = end;
    return text.at[end] == '{' ? HEAD_ARGUMENTS : HEAD_NONE;
}

/* call:f{…, with JSON in it if a quote follows: the keys of Gemma's own notation have none. */
static enum head read_gemma(struct str text, size_t at, struct parts *ret_parts) {
    enum head head = begins(text, at, GEMMA);
    size_t brace = str_find_byte(text, '{', at);
    if (head != HEAD_NAME) return head;
    if (brace == SIZE_MAX) return HEAD_OPEN;
    ret_parts->name = str_trim((struct str){text.at + at + GEMMA.bytes, brace - at - GEMMA.bytes});
    ret_parts->arguments = brace;
    size_t next = skip_space(text, brace + 1);
    if (next == text.bytes) return HEAD_OPEN;
    return text.at[next] == '"' || text.at[next] == '}' ? HEAD_ARGUMENTS : HEAD_NAME;
}

/* <function=f>; the JSON types of its values are known from the complete text. */
static enum head read_xml(struct str text, size_t at, struct parts *ret_parts) {
    enum head head = begins(text, at, FUNCTION);
    if (head != HEAD_NAME) return head;
    size_t begin = at + FUNCTION.bytes, end = str_find_byte(text, '>', begin);
    if (end == SIZE_MAX) return HEAD_OPEN;
    ret_parts->name = str_trim((struct str){text.at + begin, end - begin});
    return HEAD_NAME;
}

/* A call of a section, and before it the end of the one before. */
static enum head read_section(enum tool_format format, struct str text, size_t at,
                              struct parts *ret_parts) {
    switch (call_section_head(format, text, at, &ret_parts->name, &ret_parts->arguments)) {
    case SECTION_OPEN: return HEAD_OPEN;
    case SECTION_NONE: return HEAD_NONE;
    case SECTION_CALL: break;
    }
    return text.at[ret_parts->arguments] == '{' ? HEAD_ARGUMENTS : HEAD_NONE;
}

static enum head read_head(const struct call_begun *begun, struct str text,
                           struct parts *ret_parts) {
    size_t at = begun->at;
    bool is_named = begun->format == TOOL_FORMAT_MISTRAL || begun->format == TOOL_FORMAT_NAMED;
    if (call_section_has(begun->format) && text.at[at] != '[' && !begun->is_list)
        return read_section(begun->format, text, at, ret_parts);
    if (text.at[at] == '{' && begun->format == TOOL_FORMAT_MEMBERS)
        return read_member(text, at + 1, ret_parts);
    if (text.at[at] == '{') return read_json(begun->format, text, at + 1, ret_parts);
    if (begun->is_list || begun->count > 0) return HEAD_NONE;
    if (is_named) return read_named(text, at, ret_parts);
    if (begun->format == TOOL_FORMAT_XML) return read_xml(text, at, ret_parts);
    if (begun->format == TOOL_FORMAT_GEMMA || begun->format == TOOL_FORMAT_FUNCTION)
        return read_gemma(text, at, ret_parts);
    return HEAD_NONE;
}

/* Whether a form has its calls in brackets, with commas between them. */
static bool has_list(enum tool_format format) {
    return format == TOOL_FORMAT_MISTRAL || format == TOOL_FORMAT_PHI ||
           format == TOOL_FORMAT_ACTION || format == TOOL_FORMAT_MEMBERS ||
           format == TOOL_FORMAT_HUNYUAN;
}

/* Reads up to the arguments of the next call. True if they have begun. */
static bool feed_head(struct call_begun *begun, struct str text, struct call_list *calls) {
    struct parts parts = {.arguments = 0};
    begun->at = skip_space(text, begun->at);
    if (begun->at < text.bytes && text.at[begun->at] == '[' && !begun->is_list &&
        begun->count == 0 && has_list(begun->format)) {
        begun->is_list = true;
        begun->at = skip_space(text, begun->at + 1);
    }
    if (begun->at == text.bytes) return false;
    enum head head = read_head(begun, text, &parts);
    begun->is_closed = text.at[begun->at] != '{';
    if (head == HEAD_OPEN && text.bytes - begun->at <= HEAD_BYTES_MAX) return false;
    bool is_call = (head == HEAD_NAME || head == HEAD_ARGUMENTS) &&
                   begun->count < begun->calls_max && call_is_of_tool(begun->tools, parts.name);
    begun->state = BEGUN_OFF;
    if (!is_call) return false;
    begun->state = head == HEAD_ARGUMENTS ? BEGUN_ARGUMENTS : BEGUN_NAME;
    buf_add_str(&call_list_add(calls)->name, parts.name);
    begun->count++;
    begun->at = parts.arguments;
    return head == HEAD_ARGUMENTS;
}

/* Appends the arguments up to the bracket that closes them. True if it was found. */
static bool feed_arguments(struct call_begun *begun, struct str text, struct buf *arguments) {
    size_t from = begun->at;
    bool is_whole = false;
    for (; begun->at < text.bytes && !is_whole; begun->at++) {
        char byte = text.at[begun->at];
        if (begun->is_escaped)
            begun->is_escaped = false;
        else if (begun->is_in_string && byte == '\\')
            begun->is_escaped = true;
        else if (byte == '"')
            begun->is_in_string = !begun->is_in_string;
        else if (!begun->is_in_string && (byte == '{' || byte == '['))
            begun->depth++;
        else if (!begun->is_in_string && (byte == '}' || byte == ']'))
            is_whole = --begun->depth == 0;
    }
    buf_add(arguments, text.at + from, begun->at - from);
    if (is_whole) begun->state = BEGUN_TAIL;
    return is_whole;
}

/* Reads from the arguments to the next call of the same text. True if one may follow. */
static bool feed_tail(struct call_begun *begun, struct str text) {
    bool is_sequence = begun->format == TOOL_FORMAT_LLAMA || begun->format == TOOL_FORMAT_PYTHON;
    if (call_section_has(begun->format) && !begun->is_list) {
        begun->state = BEGUN_HEAD;
        return true;
    }
    for (; begun->at < text.bytes; begun->at++) {
        char byte = text.at[begun->at];
        if (is_space(byte)) continue;
        bool is_between = (begun->is_list && byte == ',') || (is_sequence && byte == ';');
        if (byte == '}' && !begun->is_closed) {
            begun->is_closed = true;
            continue;
        }
        bool is_next = begun->is_closed && (is_between || (is_sequence && byte == '{'));
        begun->state = is_next ? BEGUN_HEAD : BEGUN_OFF;
        if (is_between) begun->at++;
        return is_next;
    }
    return false;
}

void call_begun_feed(struct call_begun *begun, struct str text, struct call_list *calls) {
    for (bool goes_on = true; goes_on && begun->at < text.bytes;) {
        switch (begun->state) {
        case BEGUN_HEAD: goes_on = feed_head(begun, text, calls); break;
        case BEGUN_ARGUMENTS:
            goes_on = feed_arguments(begun, text, &calls->at[calls->count - 1].arguments);
            break;
        case BEGUN_TAIL: goes_on = feed_tail(begun, text); break;
        case BEGUN_NAME:
        case BEGUN_OFF: goes_on = false; break;
        }
    }
}

void call_begun_named(struct call_begun *begun, struct str name, struct str text,
                      struct call_list *calls) {
    bool is_call =
        text.at[0] == '{' && begun->count < begun->calls_max && call_is_of_tool(begun->tools, name);
    begun->state = BEGUN_OFF;
    if (!is_call) return;
    begun->state = BEGUN_ARGUMENTS;
    begun->is_closed = true;
    begun->count++;
    buf_add_str(&call_list_add(calls)->name, name);
}

bool call_begun_is_open(const struct call_begun *begun) {
    return begun->count > 0 && begun->state != BEGUN_OFF;
}
