/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/pretokenize.h"

#include "tokenizer/han.h"
#include "tokenizer/pre_deepseek.h"
#include "tokenizer/unicode.h"

#include <assert.h>
#include <string.h>
#include <utf8proc.h>

/* Names that share a row with another are those to which llama.cpp gives the same expression. */
#define LIKE_LLAMA(spelling)                                                                       \
    { .name = (spelling), .shape = PRE_SHAPE_LLAMA3, .digits_max = 3, .ignore_merges = true }
static const struct pre_rules known_rules[] = {
    {.name = "gpt-2", .shape = PRE_SHAPE_GPT2},
    {.name = "phi-2", .shape = PRE_SHAPE_GPT2},
    {.name = "mpt", .shape = PRE_SHAPE_GPT2},
    {.name = "falcon", .shape = PRE_SHAPE_GPT2, .signs_apart = true},
    {.name = "deepseek-coder", .shape = PRE_SHAPE_DEEPSEEK},
    {.name = "deepseek-llm", .shape = PRE_SHAPE_DEEPSEEK_LLM},
    {.name = "deepseek-v3", .shape = PRE_SHAPE_DEEPSEEK_3},
    {.name = "joyai-llm", .shape = PRE_SHAPE_DEEPSEEK_3},
    {.name = "smollm", .shape = PRE_SHAPE_GPT2, .digits_apart = true},
    {.name = "starcoder", .shape = PRE_SHAPE_GPT2, .digits_apart = true},
    {.name = "refact", .shape = PRE_SHAPE_GPT2, .digits_apart = true},
    {.name = "command-r", .shape = PRE_SHAPE_GPT2, .digits_apart = true},
    LIKE_LLAMA("llama-bpe"),
    LIKE_LLAMA("llama3"),
    LIKE_LLAMA("llama-v3"),
    LIKE_LLAMA("falcon3"),
    LIKE_LLAMA("falcon-h1"),
    LIKE_LLAMA("pixtral"),
    LIKE_LLAMA("midm-2.0"),
    LIKE_LLAMA("lfm2"),
    {.name = "dbrx", .shape = PRE_SHAPE_LLAMA3, .digits_max = 3},
    {.name = "smaug-bpe", .shape = PRE_SHAPE_LLAMA3, .digits_max = 3},
    {.name = "glm4", .shape = PRE_SHAPE_LLAMA3, .digits_max = 3},
    {.name = "chatglm-bpe", .shape = PRE_SHAPE_LLAMA3, .digits_max = 3},
    {.name = "tekken", .shape = PRE_SHAPE_CASED, .digits_max = 1, .ignore_merges = true},
    {.name = "kimi-k2",
     .shape = PRE_SHAPE_CASED,
     .digits_max = 3,
     .joins_endings = true,
     .han_apart = true,
     .ignore_merges = true},
    {.name = "gpt-4o", .shape = PRE_SHAPE_CASED, .digits_max = 3, .joins_endings = true},
    {.name = "llama4", .shape = PRE_SHAPE_CASED, .digits_max = 3, .joins_endings = true},
    {.name = "qwen2", .shape = PRE_SHAPE_LLAMA3, .digits_max = 1},
    {.name = "stablelm2", .shape = PRE_SHAPE_LLAMA3, .digits_max = 1},
    {.name = "deepseek-r1-qwen", .shape = PRE_SHAPE_LLAMA3, .digits_max = 1},
    {.name = "qwen35", .shape = PRE_SHAPE_LLAMA3, .digits_max = 1, .marks_as_letter = true},
};

const struct pre_rules *pre_rules_find(struct str name) {
    for (size_t i = 0; i < sizeof known_rules / sizeof *known_rules; i++)
        if (str_is(name, known_rules[i].name)) return &known_rules[i];
    return NULL;
}

/* A character as the matcher sees it. */
enum sight { OTHER, LETTER, NUMBER, SPACE, END };

struct view {
    const struct pre_rules *rules;
    struct str text;
};

static bool is_punctuation(uint32_t code_point) {
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code_point);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

/* [\p{P}$+<=>^~|`] */
static bool is_sign(uint32_t code_point) {
    if (code_point > 0 && code_point < 0x80 && strchr("$+<=>^~|`", (int)code_point)) return true;
    return is_punctuation(code_point);
}

/* The commonest characters, classified without a table. */
static inline bool is_ascii_letter(unsigned char byte) {
    return (unsigned char)((byte | 0x20) - 'a') < 26;
}

static inline bool is_ascii_digit(unsigned char byte) {
    return (unsigned char)(byte - '0') < 10;
}

static inline bool is_ascii_space(unsigned char byte) {
    return byte == ' ' || (unsigned char)(byte - '\t') < 5;
}

static enum sight look_by_table(const struct view *view, size_t at, size_t *ret_bytes) {
    uint32_t code_point;
    *ret_bytes = utf8_decode(view->text, at, &code_point);
    if (view->rules->signs_apart && is_sign(code_point)) return END;
    switch (unicode_class(code_point)) {
    case CHAR_LETTER: return LETTER;
    case CHAR_NUMBER: return view->rules->digits_apart ? END : NUMBER;
    case CHAR_MARK: return view->rules->marks_as_letter ? LETTER : OTHER;
    case CHAR_SPACE: return SPACE;
    case CHAR_OTHER: break;
    }
    return OTHER;
}

/* The character at `at`, its length in *ret_bytes (0 at the end). With digits_apart a number ends
 * the stretch, and with signs_apart a sign, so lookaheads stop there as they do in a text of its
 * own. */
static inline enum sight look(const struct view *view, size_t at, size_t *ret_bytes) {
    if (at >= view->text.bytes) {
        *ret_bytes = 0;
        return END;
    }
    unsigned char lead = (unsigned char)view->text.at[at];
    if (lead >= 0x80 || view->rules->signs_apart) return look_by_table(view, at, ret_bytes);
    *ret_bytes = 1;
    if (is_ascii_letter(lead)) return LETTER;
    if (is_ascii_space(lead)) return SPACE;
    if (is_ascii_digit(lead)) return view->rules->digits_apart ? END : NUMBER;
    return OTHER;
}

/* The end of the run of letters that begins at `at`. */
static size_t letters_end(const struct view *view, size_t at) {
    struct str text = view->text;
    size_t bytes;
    do {
        while (at < text.bytes && is_ascii_letter((unsigned char)text.at[at])) at++;
        if (at == text.bytes || (unsigned char)text.at[at] < 0x80) return at;
        if (look_by_table(view, at, &bytes) != LETTER) return at;
        at += bytes;
    } while (true);
}

/* The end of the run of `wanted` that begins at `at`, of at most `count_max` characters. */
static size_t run_end(const struct view *view, size_t at, enum sight wanted, size_t count_max) {
    size_t bytes;
    for (size_t count = 0; count < count_max && look(view, at, &bytes) == wanted; count++)
        at += bytes;
    return at;
}

static bool is_newline(char byte) {
    return byte == '\r' || byte == '\n';
}

static size_t newlines_end(struct str text, size_t at) {
    while (at < text.bytes && is_newline(text.at[at])) at++;
    return at;
}

/* The end of 's 't 're 've 'm 'll 'd at `at`, or 0. Any case also takes U+017F, which folds to s:
 * the regular expressions do. */
static size_t contraction_end(struct str text, size_t at, bool any_case) {
    if (text.at[at] != '\'' || at + 1 >= text.bytes) return 0;
    unsigned char fold = any_case ? 0x20 : 0;
    unsigned char first = (unsigned char)text.at[at + 1];
    unsigned char second = at + 2 < text.bytes ? (unsigned char)text.at[at + 2] : 0;
    if (any_case && first == 0xC5 && second == 0xBF) return at + 3;
    if (first >= 0x80) return 0;
    first |= fold;
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    second |= second < 0x80 ? fold : 0;
    if ((first == 'r' || first == 'v') && second == 'e') return at + 3;
    return first == 'l' && second == 'l' ? at + 3 : 0;
}

/* \s+(?!\S)|\s+ on the run of white space that begins at `at`. */
static size_t space_end(const struct view *view, size_t at) {
    size_t last = at; /* where the run's last character begins */
    size_t end = at;
    size_t bytes;
    enum sight sight;
    while ((sight = look(view, end, &bytes)) == SPACE) {
        last = end;
        end += bytes;
    }
    /* Before a character that is no space the lookahead gives back the last one, if any is left. */
    return sight == END || last == at ? end : last;
}

static size_t gpt2_end(const struct view *view, size_t at) {
    size_t end = contraction_end(view->text, at, false);
    if (end > 0) return end;
    size_t bytes;
    enum sight sight = look(view, at, &bytes);
    size_t start = at;
    if (view->text.at[at] == ' ') {
        start = at + 1;
        sight = look(view, start, &bytes);
    }
    if (sight == LETTER) return letters_end(view, start + bytes);
    if (sight == NUMBER || sight == OTHER) return run_end(view, start + bytes, sight, SIZE_MAX);
    return space_end(view, at);
}

/* The end of \s*[\r\n]+ at `at`: behind the last line end of the run of white space; 0 without
 * one. */
static size_t line_end(const struct view *view, size_t at) {
    size_t end = 0;
    size_t bytes;
    while (look(view, at, &bytes) == SPACE) {
        at += bytes;
        if (is_newline(view->text.at[at - 1])) end = at;
    }
    return end;
}

static size_t llama3_end(const struct view *view, size_t at) {
    struct str text = view->text;
    size_t end = contraction_end(text, at, true);
    if (end > 0) return end;
    size_t bytes;
    enum sight sight = look(view, at, &bytes);
    if (sight == LETTER) return letters_end(view, at + bytes);
    if (sight == NUMBER)
        return run_end(view, at + bytes, NUMBER, (size_t)view->rules->digits_max - 1);
    size_t next_bytes;
    enum sight next = look(view, at + bytes, &next_bytes);
    if (next == LETTER && !is_newline(text.at[at]))
        return letters_end(view, at + bytes + next_bytes);
    if (sight == OTHER || (text.at[at] == ' ' && next == OTHER))
        return newlines_end(text, run_end(view, at + bytes, OTHER, SIZE_MAX));
    end = line_end(view, at);
    return end > 0 ? end : space_end(view, at);
}

/* --- words that end where an upper letter follows a lower one --- */

/* The letters and marks of a word, as the expression has them in two sets: the first takes
 * CASE_UPPER and CASE_NONE, the second CASE_LOWER and CASE_NONE. */
enum letter_case { CASE_OUTSIDE, CASE_UPPER, CASE_LOWER, CASE_NONE };

static enum letter_case case_at(const struct view *view, size_t at, size_t *ret_bytes) {
    const struct str text = view->text;
    *ret_bytes = 0;
    if (at >= text.bytes) return CASE_OUTSIDE;
    unsigned char lead = (unsigned char)text.at[at];
    *ret_bytes = 1;
    if (lead < 0x80) {
        if (!is_ascii_letter(lead)) return CASE_OUTSIDE;
        return lead & 0x20 ? CASE_LOWER : CASE_UPPER;
    }
    uint32_t code_point;
    *ret_bytes = utf8_decode(text, at, &code_point);
    if (view->rules->han_apart && is_han(code_point)) return CASE_OUTSIDE;
    if (unicode_class(code_point) == CHAR_MARK) return CASE_NONE;
    if (unicode_class(code_point) != CHAR_LETTER) return CASE_OUTSIDE;
    switch (utf8proc_category((utf8proc_int32_t)code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return CASE_UPPER;
    case UTF8PROC_CATEGORY_LL: return CASE_LOWER;
    default: return CASE_NONE;
    }
}

/* The end of a word of the first line of the expression, whose letters begin at `at`; 0 without
 * one. Without a lower letter after the upper ones, these give back all up to the last that is in
 * both sets. */
static size_t lower_word_end(const struct view *view, size_t at) {
    size_t last_in_both = 0, bytes;
    enum letter_case now;
    while ((now = case_at(view, at, &bytes)) == CASE_UPPER || now == CASE_NONE) {
        at += bytes;
        if (now == CASE_NONE) last_in_both = at;
    }
    if (now != CASE_LOWER) return last_in_both;
    while ((now = case_at(view, at, &bytes)) == CASE_LOWER || now == CASE_NONE) at += bytes;
    return at;
}

/* The end of a word of the second line, where the first one found none; 0 without one. */
static size_t upper_word_end(const struct view *view, size_t at) {
    size_t start = at, bytes;
    while (case_at(view, at, &bytes) == CASE_UPPER) at += bytes;
    return at > start ? at : 0;
}

/* The end of a word that begins at `at`, with or without a character before its letters. */
static size_t cased_word_end(const struct view *view, size_t at) {
    struct str text = view->text;
    size_t bytes, end = 0;
    enum sight sight = look(view, at, &bytes);
    bool may_lead = sight != LETTER && sight != NUMBER && !is_newline(text.at[at]);
    if (may_lead) end = lower_word_end(view, at + bytes);
    if (end == 0) end = lower_word_end(view, at);
    if (end == 0 && may_lead) end = upper_word_end(view, at + bytes);
    if (end == 0) end = upper_word_end(view, at);
    if (end == 0 || end == text.bytes || !view->rules->joins_endings) return end;
    size_t joined = contraction_end(text, end, true);
    return joined > 0 ? joined : end;
}

static size_t han_end(const struct view *view, size_t at) {
    while (at < view->text.bytes) {
        uint32_t code_point;
        const size_t bytes = utf8_decode(view->text, at, &code_point);
        if (!is_han(code_point)) break;
        at += bytes;
    }
    return at;
}

static size_t cased_end(const struct view *view, size_t at) {
    struct str text = view->text;
    size_t end = view->rules->han_apart ? han_end(view, at) : at, bytes, next_bytes;
    if (end > at) return end;
    end = cased_word_end(view, at);
    if (end > 0) return end;
    enum sight sight = look(view, at, &bytes);
    if (sight == NUMBER)
        return run_end(view, at + bytes, NUMBER, (size_t)view->rules->digits_max - 1);
    if (sight == OTHER || (text.at[at] == ' ' && look(view, at + bytes, &next_bytes) == OTHER)) {
        end = run_end(view, at + bytes, OTHER, SIZE_MAX);
        const char slash = view->rules->han_apart ? '\n' : '/';
        while (end < text.bytes && (is_newline(text.at[end]) || text.at[end] == slash)) end++;
        return end;
    }
    end = line_end(view, at);
    return end > 0 ? end : space_end(view, at);
}

/* --- falcon --- */

static bool is_three_digits(struct str text, size_t at) {
    for (size_t i = 0; i < 3; i++)
        if (at + i >= text.bytes || text.at[at + i] < '0' || text.at[at + i] > '9') return false;
    return true;
}

static size_t signs_end(struct str text, size_t at) {
    while (at < text.bytes) {
        uint32_t code_point;
        size_t bytes = utf8_decode(text, at, &code_point);
        if (!is_sign(code_point)) break;
        at += bytes;
    }
    return at;
}

/* A run of numbers, with the space before it, up to three digits; or these. */
static size_t digits_end(const struct view *view, size_t at) {
    size_t end = at, bytes;
    if (view->text.at[at] == ' ') end++;
    while (look(view, end, &bytes) == NUMBER) {
        if (is_three_digits(view->text, end)) return end > at ? end : at + 3;
        end += bytes;
    }
    return end;
}

static size_t falcon_end(const struct view *view, size_t at) {
    size_t end = signs_end(view->text, at), bytes;
    if (end > at) return end;
    bool is_number = look(view, at, &bytes) == NUMBER;
    if (view->text.at[at] == ' ') is_number = look(view, at + 1, &bytes) == NUMBER;
    return is_number ? digits_end(view, at) : gpt2_end(view, at);
}

size_t pre_piece_end(const struct pre_rules *rules, struct str text, size_t from) {
    assert(from < text.bytes);
    struct view view = {rules, text};
    if (rules->digits_apart) {
        size_t bytes;
        if (look(&view, from, &bytes) == END) return from + bytes;
    }
    size_t end = 0;
    switch (rules->shape) {
    case PRE_SHAPE_GPT2:
        end = rules->signs_apart ? falcon_end(&view, from) : gpt2_end(&view, from);
        break;
    case PRE_SHAPE_LLAMA3: end = llama3_end(&view, from); break;
    case PRE_SHAPE_CASED: end = cased_end(&view, from); break;
    case PRE_SHAPE_DEEPSEEK:
    case PRE_SHAPE_DEEPSEEK_LLM:
    case PRE_SHAPE_DEEPSEEK_3: end = deepseek_piece_end(rules->shape, text, from); break;
    }
    assert(end > from);
    return end;
}
