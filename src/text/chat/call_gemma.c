/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"
#include "chat/call_text.h"
#include "json/json.h"
#include "json/span.h"

/* Reads values of Gemma's notation and appends them as JSON. */
struct gemma {
    struct str text, quote;
    size_t at;
    int depth;
    struct buf *out;
};

static void skip_space(struct gemma *gemma) {
    while (gemma->at < gemma->text.bytes &&
           (gemma->text.at[gemma->at] == ' ' || gemma->text.at[gemma->at] == '\n'))
        gemma->at++;
}

static bool take(struct gemma *gemma, struct str word) {
    if (!str_starts_with(str_skip(gemma->text, gemma->at), word)) return false;
    gemma->at += word.bytes;
    return true;
}

static char next(const struct gemma *gemma) {
    return gemma->at < gemma->text.bytes ? gemma->text.at[gemma->at] : '\0';
}

static bool is_quoted(const struct gemma *gemma) {
    return next(gemma) == '"' || str_starts_with(str_skip(gemma->text, gemma->at), gemma->quote);
}

/* A text between two quotes of the family, or in JSON's. */
static bool read_string(struct gemma *gemma) {
    if (take(gemma, gemma->quote)) {
        size_t end = str_find(gemma->text, gemma->quote, gemma->at);
        if (end == SIZE_MAX) return false;
        json_write_utf8_string(gemma->out,
                               (struct str){gemma->text.at + gemma->at, end - gemma->at});
        gemma->at = end + gemma->quote.bytes;
        return true;
    }
    size_t end = json_span_end(gemma->text, gemma->at);
    if (end == SIZE_MAX) return false;
    buf_add(gemma->out, gemma->text.at + gemma->at, end - gemma->at);
    gemma->at = end;
    return true;
}

/* Whether a word without quotes ends before the byte. Values may have colons in them. */
static bool is_bare_end(char byte, bool is_key) {
    return is_key ? byte == ':' : byte == ',' || byte == '}' || byte == ']';
}

/* A number, true, false or null; other bare words are texts. */
static bool read_bare(struct gemma *gemma, bool is_key) {
    size_t begin = gemma->at;
    while (gemma->at < gemma->text.bytes && !is_bare_end(next(gemma), is_key)) gemma->at++;
    struct str word = str_trim((struct str){gemma->text.at + begin, gemma->at - begin}), value;
    if (word.bytes == 0) return false;
    if (!is_key && json_span_read(word, &value))
        buf_add_str(gemma->out, value);
    else
        json_write_utf8_string(gemma->out, word);
    return true;
}

static bool read_value(struct gemma *gemma);

/* The members of an object or the elements of an array, behind the opening bracket. */
static bool read_members(struct gemma *gemma, bool is_object) {
    char close = is_object ? '}' : ']';
    buf_add_byte(gemma->out, is_object ? '{' : '[');
    for (size_t count = 0;; count++) {
        skip_space(gemma);
        if (next(gemma) == close && count == 0) break;
        if (count > 0) buf_add_byte(gemma->out, ',');
        if (is_object) {
            if (is_quoted(gemma) ? !read_string(gemma) : !read_bare(gemma, true)) return false;
            skip_space(gemma);
            if (!take(gemma, STR(":"))) return false;
            buf_add_byte(gemma->out, ':');
        }
        if (!read_value(gemma)) return false;
        skip_space(gemma);
        if (!take(gemma, STR(","))) break;
    }
    if (next(gemma) != close) return false;
    gemma->at++;
    buf_add_byte(gemma->out, close);
    return true;
}

static bool read_value(struct gemma *gemma) {
    bool is_good;
    skip_space(gemma);
    if (next(gemma) != '{' && next(gemma) != '[')
        return is_quoted(gemma) ? read_string(gemma) : read_bare(gemma, false);
    if (++gemma->depth > JSON_DEPTH_MAX) return false;
    gemma->at++;
    is_good = read_members(gemma, gemma->text.at[gemma->at - 1] == '{');
    gemma->depth--;
    return is_good;
}

bool call_text_gemma(struct str text, struct str quote, const json_t *tools,
                     struct call_list *calls) {
    text = str_trim(text);
    size_t brace = str_find_byte(text, '{', 0);
    if (!utf8_is_valid(text) || !str_starts_with(text, STR("call:"))) return false;
    if (brace == SIZE_MAX)
        return call_text_arguments(str_trim(str_skip(text, 5)), STR(""), tools, calls);
    struct str name = str_trim((struct str){text.at + 5, brace - 5}), value;
    if (name.bytes == 0) return false;
    struct tool_call *call = call_list_add(calls);
    struct gemma gemma = {.text = text, .quote = quote, .at = brace, .out = &call->arguments};
    buf_add_str(&call->name, name);
    if (json_span_read(str_skip(text, brace), &value)) {
        buf_add_str(&call->arguments, value);
        return true;
    }
    if (read_value(&gemma) && gemma.at == text.bytes &&
        json_span_read(buf_str(&call->arguments), &value))
        return true;
    call_list_cut(calls, calls->count - 1);
    return false;
}
