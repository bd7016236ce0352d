/* SPDX-License-Identifier: Apache-2.0 */
#include "workers/upstream/repair.h"

#include <stdint.h>

#define REPLACEMENT "\\ufffd"

static bool is_high(int32_t unit) {
    return unit >= 0xD800 && unit <= 0xDBFF;
}

static bool is_low(int32_t unit) {
    return unit >= 0xDC00 && unit <= 0xDFFF;
}

/* The code unit of the escape \uXXXX at `at`; -1: no such escape stands there. */
static int32_t read_escape(struct str text, size_t at) {
    if (text.bytes < 6 || at > text.bytes - 6 || text.at[at] != '\\' || text.at[at + 1] != 'u')
        return -1;
    int32_t unit = 0;
    for (size_t i = at + 2; i < at + 6; i++) {
        char c = text.at[i], low = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            unit = unit * 16 + (c - '0');
        else if (low >= 'a' && low <= 'f')
            unit = unit * 16 + (low - 'a' + 10);
        else
            return -1;
    }
    return unit;
}

/* The surrogate whose three bytes, which no UTF-8 has, stand at `at`; -1: none. */
static int32_t read_raw(struct str text, size_t at) {
    const unsigned char *bytes = (const unsigned char *)text.at + at;
    if (text.bytes < 3 || at > text.bytes - 3 || bytes[0] != 0xED || bytes[1] < 0xA0 ||
        bytes[1] > 0xBF || bytes[2] < 0x80 || bytes[2] > 0xBF)
        return -1;
    return 0xD000 | (bytes[1] & 0x3F) << 6 | (bytes[2] & 0x3F);
}

/* Appends the surrogate at `at`, or the pair that it begins; returns its end. */
static size_t add_surrogate(struct buf *buf, struct str text, size_t at, bool is_raw) {
    size_t bytes = is_raw ? 3 : 6;
    int32_t first = is_raw ? read_raw(text, at) : read_escape(text, at);
    int32_t second = is_raw ? read_raw(text, at + bytes) : read_escape(text, at + bytes);
    if (!is_high(first) || !is_low(second)) {
        buf_add_text(buf, REPLACEMENT);
        return at + bytes;
    }
    buf_printf(buf, "\\u%04x\\u%04x", (unsigned)first, (unsigned)second);
    return at + 2 * bytes;
}

/* Appends the string whose opening quote is at `at`; returns its end. */
static size_t add_string(struct buf *buf, struct str text, size_t at) {
    size_t from = at++;
    while (at < text.bytes && text.at[at] != '"') {
        bool is_escape = text.at[at] == '\\';
        int32_t unit = is_escape ? read_escape(text, at) : read_raw(text, at);
        if (is_high(unit) || is_low(unit)) {
            buf_add(buf, text.at + from, at - from);
            from = at = add_surrogate(buf, text, at, !is_escape);
        } else {
            at += is_escape ? 2 : 1;
        }
    }
    size_t end = at < text.bytes ? at + 1 : text.bytes;
    buf_add(buf, text.at + from, end - from);
    return end;
}

/* Appends what JSON has for the word of Python's that stands at `at`; returns the word's bytes, or
 * 0. */
static size_t add_word(struct buf *buf, struct str rest, bool has_logprobs, bool *is_lost) {
    static const struct str words[] = {{"-Infinity", 9}, {"Infinity", 8}, {"NaN", 3}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!str_starts_with(rest, words[i])) continue;
        bool is_impossible = i == 0 && has_logprobs;
        buf_add_text(buf, is_impossible ? "-9999.0" : "null");
        if (!is_impossible) *is_lost = true;
        return words[i].bytes;
    }
    return 0;
}

void upstream_repair(struct buf *buf, struct str text, bool has_logprobs, bool *ret_lost) {
    *ret_lost = false;
    if (str_starts_with(text, STR("\xEF\xBB\xBF"))) text = str_skip(text, 3);
    for (size_t at = 0; at < text.bytes;) {
        char c = text.at[at];
        size_t bytes = 0;
        if (c == '"') {
            at = add_string(buf, text, at);
            continue;
        }
        if (c == '-' || c == 'I' || c == 'N')
            bytes = add_word(buf, str_skip(text, at), has_logprobs, ret_lost);
        if (bytes == 0) buf_add_byte(buf, c);
        at += bytes ? bytes : 1;
    }
}
