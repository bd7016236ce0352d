/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/pre_deepseek.h"

#include "tokenizer/unicode.h"

#include <utf8proc.h>

static bool is_newline(char byte) {
    return byte == '\r' || byte == '\n';
}

static bool is_ascii_letter(uint32_t code_point) {
    return (code_point | 0x20) >= 'a' && (code_point | 0x20) <= 'z';
}

static bool is_punctuation(uint32_t code_point) {
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code_point);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

static bool is_number(uint32_t code_point) {
    return unicode_class(code_point) == CHAR_NUMBER;
}

/* [一-龥ࠀ-一가-퟿] */
static bool is_eastern(uint32_t code_point) {
    return (code_point >= 0x0800 && code_point <= 0x9FA5) ||
           (code_point >= 0xAC00 && code_point <= 0xD7FF);
}

/* ---- deepseek-coder, deepseek-llm ---- */

static bool is_cased(uint32_t code_point) {
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code_point);
    if ((code_point >= 0x0560 && code_point <= 0x0588) ||
        (code_point >= 0x10D0 && code_point <= 0x10FF))
        return false;
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LT;
}

/* [!-/:-~！-／：-～‘-‟　-。] without the letters, which belong to words. */
static bool is_western_mark(uint32_t c) {
    if (is_ascii_letter(c)) return false;
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '~') || (c >= 0xFF01 && c <= 0xFF0F) ||
           (c >= 0xFF1A && c <= 0xFF5E) || (c >= 0x2018 && c <= 0x201F) ||
           (c >= 0x3000 && c <= 0x3002);
}

/* A character as the second and third expression see it. */
enum stretch { PLAIN, WORD, MARKS, LINE, NOTHING };

struct view {
    struct str text;
    bool is_llm;
};

static enum stretch stretch_at(const struct view *view, size_t at, uint32_t *ret_code_point,
                               size_t *ret_bytes) {
    *ret_bytes = 0;
    if (at >= view->text.bytes) return NOTHING;
    *ret_bytes = utf8_decode(view->text, at, ret_code_point);
    const uint32_t c = *ret_code_point;
    if (is_newline(view->text.at[at])) return LINE;
    if (view->is_llm ? is_cased(c) : unicode_class(c) == CHAR_LETTER) return WORD;
    return (view->is_llm ? is_western_mark(c) : is_punctuation(c)) ? MARKS : PLAIN;
}

/* The kind of stretch that begins at `at`; white space belongs to the word or marks after it. */
static enum stretch stretch_from(const struct view *view, size_t at) {
    uint32_t code_point, next_point;
    size_t bytes, next_bytes;
    enum stretch stretch = stretch_at(view, at, &code_point, &bytes);
    const bool is_space = bytes > 0 && unicode_class(code_point) == CHAR_SPACE;
    if (!is_space || stretch == LINE || stretch == NOTHING) return stretch;
    enum stretch next = stretch_at(view, at + bytes, &next_point, &next_bytes);
    return next == WORD || next == MARKS ? next : stretch;
}

/* Whether white space goes on from `at` to where its stretch of PLAIN ends: \s+$ */
static bool is_at_last_space(const struct view *view, size_t at) {
    uint32_t code_point;
    size_t bytes;
    while (stretch_from(view, at) == PLAIN) {
        (void)stretch_at(view, at, &code_point, &bytes);
        if (unicode_class(code_point) != CHAR_SPACE) return false;
        at += bytes;
    }
    return true;
}

/* What the third expression also cuts in a word: its letters of ASCII from the others. */
static bool cuts_word(const struct view *view, uint32_t before, uint32_t now) {
    if (!view->is_llm || unicode_class(before) == CHAR_SPACE) return false;
    return is_ascii_letter(before) != is_ascii_letter(now);
}

static size_t coder_end(const struct view *view, size_t at) {
    uint32_t code_point = 0, before;
    size_t bytes, end = at;
    const enum stretch stretch = stretch_from(view, at);
    bool eastern = false, begins_with_space = false;
    do {
        enum stretch now = stretch_at(view, end, &code_point, &bytes);
        if (end > at && is_eastern(code_point) != eastern) break;
        if (is_number(code_point) || now == LINE) return end > at ? end : end + bytes;
        if (view->is_llm && stretch == PLAIN && unicode_class(code_point) == CHAR_SPACE) {
            if (end > at && !begins_with_space && is_at_last_space(view, end)) break;
        }
        if (end == at)
            begins_with_space =
                unicode_class(code_point) == CHAR_SPACE && is_at_last_space(view, at);
        eastern = is_eastern(code_point);
        before = code_point;
        end += bytes;
        now = stretch_at(view, end, &code_point, &bytes);
        if (stretch != PLAIN && now != stretch) break;
        if (stretch == WORD && cuts_word(view, before, code_point)) break;
    } while (end < view->text.bytes && (stretch != PLAIN || stretch_from(view, end) == PLAIN));
    return end;
}

/* ---- deepseek-v3 ---- */

/* [一-龥぀-ゟ゠-ヿ] */
static bool is_kana_or_han(uint32_t code_point) {
    return (code_point >= 0x3040 && code_point <= 0x30FF) ||
           (code_point >= 0x4E00 && code_point <= 0x9FA5);
}

/* [\p{P}\p{S}] */
static bool is_sign(uint32_t code_point) {
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code_point);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_SO;
}

/* [\p{L}\p{M}] */
static bool is_of_word(uint32_t code_point) {
    const enum char_class kind = unicode_class(code_point);
    return kind == CHAR_LETTER || kind == CHAR_MARK;
}

static bool is_space(uint32_t code_point) {
    return unicode_class(code_point) == CHAR_SPACE;
}

typedef bool (*class_fn)(uint32_t code_point);

/* The end of the run of a class at `at`, of at most `most` characters. */
static size_t class_end(struct str text, size_t at, class_fn is_in, size_t most) {
    uint32_t code_point;
    while (most-- > 0 && at < text.bytes) {
        const size_t bytes = utf8_decode(text, at, &code_point);
        if (!is_in(code_point)) break;
        at += bytes;
    }
    return at;
}

/* The run of white space at `at`: to its last line end, if it has one, else without the character
 * that a word may take. */
static size_t white_end(struct str text, size_t at) {
    size_t end = at, last = at, line = 0;
    uint32_t code_point;
    while (end < text.bytes) {
        const size_t bytes = utf8_decode(text, end, &code_point);
        if (!is_space(code_point)) break;
        last = end;
        end += bytes;
        if (is_newline(text.at[last])) line = end;
    }
    if (line > 0) return line;
    return end == text.bytes || last == at ? end : last;
}

/* The end of a match of the third expression at `at`, or 0. */
static size_t third_end(struct str text, size_t at) {
    uint32_t first, next = 0;
    const size_t bytes = utf8_decode(text, at, &first);
    const bool has_next = at + bytes < text.bytes;
    if (has_next) (void)utf8_decode(text, at + bytes, &next);
    if (first < 0x80 && is_sign(first) && has_next && is_ascii_letter(next))
        return class_end(text, at + bytes, is_ascii_letter, SIZE_MAX);
    if (is_of_word(first)) return class_end(text, at, is_of_word, SIZE_MAX);
    if (!is_newline(text.at[at]) && !is_sign(first) && has_next && is_of_word(next))
        return class_end(text, at + bytes, is_of_word, SIZE_MAX);
    if (is_sign(first) || (first == ' ' && has_next && is_sign(next))) {
        size_t end = class_end(text, at + (is_sign(first) ? 0 : 1), is_sign, SIZE_MAX);
        while (end < text.bytes && is_newline(text.at[end])) end++;
        return end;
    }
    return is_space(first) ? white_end(text, at) : 0;
}

static bool is_other(uint32_t code_point) {
    return !is_number(code_point) && !is_kana_or_han(code_point);
}

static size_t third_version_end(struct str text, size_t from) {
    uint32_t first;
    (void)utf8_decode(text, from, &first);
    if (is_number(first)) return class_end(text, from, is_number, 3);
    text.bytes = class_end(text, from, is_kana_or_han(first) ? is_kana_or_han : is_other, SIZE_MAX);
    size_t end = third_end(text, from);
    if (end > 0) return end;
    /* What nothing matches, up to the next match. */
    for (end = from; end < text.bytes; end += utf8_decode(text, end, &first))
        if (end > from && third_end(text, end) > 0) break;
    return end;
}

size_t deepseek_piece_end(enum pre_shape shape, struct str text, size_t from) {
    const struct view view = {text, shape == PRE_SHAPE_DEEPSEEK_LLM};
    return shape == PRE_SHAPE_DEEPSEEK_3 ? third_version_end(text, from) : coder_end(&view, from);
}
