/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/call_section.h"

#include "base/utf8.h"
#include "chat/call_text.h"
#include "json/span.h"

#define FENCE STR("```json")
#define FENCE_END STR("```")
#define KIMI_PREFIX STR("functions.")

struct words {
    struct str call, separator, end;
};

static struct words words_of(enum tool_format format) {
    if (format == TOOL_FORMAT_KIMI)
        return (struct words){STR("<|tool_call_begin|>"), STR("<|tool_call_argument_begin|>"),
                              STR("<|tool_call_end|>")};
    if (format == TOOL_FORMAT_HUNYUAN)
        return (struct words){STR("<tool_call>"), FENCE, STR("</tool_call>")};
    return (struct words){STR("<｜tool▁call▁begin｜>"), STR("<｜tool▁sep｜>"),
                          STR("<｜tool▁call▁end｜>")};
}

bool call_section_has(enum tool_format format) {
    return format == TOOL_FORMAT_DEEPSEEK || format == TOOL_FORMAT_DEEPSEEK_3 ||
           format == TOOL_FORMAT_KIMI || format == TOOL_FORMAT_HUNYUAN;
}

static size_t skip_space(struct str text, size_t at) {
    while (at < text.bytes && (text.at[at] == ' ' || text.at[at] == '\n' || text.at[at] == '\r' ||
                               text.at[at] == '\t'))
        at++;
    return at;
}

/* Passes over a word if it is there, with the white space behind it. SECTION_OPEN: the text ends
 * where the word may begin. */
static enum section_head skip_word(struct str text, size_t *at, struct str word) {
    const struct str rest = str_skip(text, *at);
    if (rest.bytes < word.bytes && str_starts_with(word, rest)) return SECTION_OPEN;
    if (!str_starts_with(rest, word)) return SECTION_NONE;
    *at = skip_space(text, *at + word.bytes);
    return SECTION_CALL;
}

/* The name in "functions.NAME:3". */
static struct str kimi_name(struct str id) {
    if (str_starts_with(id, KIMI_PREFIX)) id = str_skip(id, KIMI_PREFIX.bytes);
    size_t end = id.bytes;
    while (end > 0 && id.at[end - 1] >= '0' && id.at[end - 1] <= '9') end--;
    if (end > 0 && end < id.bytes && id.at[end - 1] == ':') id.bytes = end - 1;
    return id;
}

/* DeepSeek V3 has "function" before the separator, and a name and a fence behind it. */
static enum section_head read_fenced_name(struct str text, size_t *at, struct str *ret_name) {
    const size_t fence = str_find(text, FENCE, *at);
    if (fence == SIZE_MAX) return SECTION_OPEN;
    *ret_name = str_trim((struct str){text.at + *at, fence - *at});
    *at = skip_space(text, fence + FENCE.bytes);
    return SECTION_CALL;
}

enum section_head call_section_head(enum tool_format format, struct str text, size_t at,
                                    struct str *ret_name, size_t *ret_arguments) {
    const struct words words = words_of(format);
    at = skip_space(text, at);
    const enum section_head fence = skip_word(text, &at, FENCE_END);
    if (fence == SECTION_OPEN) return SECTION_OPEN;
    if (skip_word(text, &at, words.end) == SECTION_OPEN) return SECTION_OPEN;
    const enum section_head begin = skip_word(text, &at, words.call);
    if (begin != SECTION_CALL) return begin;
    const size_t separator = str_find(text, words.separator, at);
    if (separator == SIZE_MAX) return SECTION_OPEN;
    struct str name = str_trim((struct str){text.at + at, separator - at});
    at = skip_space(text, separator + words.separator.bytes);
    if (at == text.bytes) return SECTION_OPEN;
    const bool is_deepseek = format == TOOL_FORMAT_DEEPSEEK || format == TOOL_FORMAT_DEEPSEEK_3;
    if (is_deepseek && text.at[at] != '{' && text.at[at] != '"' && str_is(name, "function") &&
        read_fenced_name(text, &at, &name) == SECTION_OPEN)
        return SECTION_OPEN;
    if (at == text.bytes) return SECTION_OPEN;
    *ret_name = format == TOOL_FORMAT_KIMI ? kimi_name(name) : name;
    *ret_arguments = at;
    return SECTION_CALL;
}

/* The arguments are an object, or a string that holds one. */
static bool add_call(struct str name, struct str value, const json_t *tools,
                     struct call_list *calls) {
    struct buf inside;
    if (!json_span_is_string(value)) return call_text_arguments(name, value, tools, calls);
    buf_init(&inside, BUF_UNLIMITED);
    json_span_decode(&inside, value);
    const bool is_call = call_text_arguments(name, buf_str(&inside), tools, calls);
    buf_release(&inside);
    return is_call;
}

/* Behind the arguments: the rest of the call. False if another text stands there. */
static bool read_end(enum tool_format format, struct str text, size_t *at) {
    *at = skip_space(text, *at);
    if (skip_word(text, at, FENCE_END) == SECTION_OPEN) *at = text.bytes;
    const enum section_head end = skip_word(text, at, words_of(format).end);
    if (end == SECTION_OPEN) *at = text.bytes;
    return end != SECTION_NONE;
}

bool call_section_read(enum tool_format format, struct str text, const json_t *tools,
                       struct call_list *calls) {
    const size_t before = calls->count;
    if (!utf8_is_valid(text)) return false;
    if (str_starts_with(str_trim(text), STR("["))) return call_text_array(text, tools, calls);
    for (size_t at = skip_space(text, 0); at < text.bytes;) {
        struct str name = {NULL, 0};
        size_t begin = 0;
        const enum section_head head = call_section_head(format, text, at, &name, &begin);
        const size_t end = head == SECTION_CALL ? json_span_end(text, begin) : SIZE_MAX;
        if (end == SIZE_MAX ||
            !add_call(name, (struct str){text.at + begin, end - begin}, tools, calls)) {
            call_list_cut(calls, before);
            return false;
        }
        at = end;
        if (!read_end(format, text, &at)) {
            call_list_cut(calls, before);
            return false;
        }
    }
    return calls->count > before;
}
