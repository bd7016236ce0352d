/* SPDX-License-Identifier: Apache-2.0 */
#include "json/span.h"

#include "base/utf8.h"
#include "json/json.h"

#include <string.h>

#define EVERY_BYTE(value) (0x0101010101010101u * (uint64_t)(value))
#define HIGH_BITS EVERY_BYTE(0x80)

static uint64_t load_word(const char *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* The high bit of each byte that is zero; a false alarm is possible above a true one only. */
static uint64_t zero_bytes(uint64_t word) {
    return (word - EVERY_BYTE(1)) & ~word & HIGH_BITS;
}

/* The index, in the order of memory, of the first byte of a word whose high bit is set. */
static size_t first_byte(uint64_t bits) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return (size_t)__builtin_ctzll(bits) / 8;
#else
    return 0;
#endif
}

bool json_span_is_utf8(struct str text) {
    size_t at = 0;
    for (; at + 8 <= text.bytes; at += 8)
        if (load_word(text.at + at) & HIGH_BITS) break;
    return utf8_is_valid(str_skip(text, at));
}

static size_t skip_space(struct str text, size_t at) {
    while (at < text.bytes) {
        char c = text.at[at];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r') break;
        at++;
    }
    return at;
}

struct str json_span_trim(struct str text) {
    text = str_skip(text, skip_space(text, 0));
    while (text.bytes > 0 && skip_space(text, text.bytes - 1) == text.bytes) text.bytes--;
    return text;
}

/* The four hexadecimal digits at `at`, or -1. */
static int32_t read_hex(struct str text, size_t at) {
    if (text.bytes - at < 4) return -1;
    int32_t value = 0;
    for (size_t i = at; i < at + 4; i++) {
        char c = text.at[i];
        if (c >= '0' && c <= '9')
            value = value * 16 + (c - '0');
        else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
            value = value * 16 + ((c | 0x20) - 'a' + 10);
        else
            return -1;
    }
    return value;
}

/* Steps over the escape whose backslash is at `at`. Returns its code point, or -1. */
static int32_t read_escape(struct str text, size_t at, size_t *ret_end) {
    if (at + 1 >= text.bytes) return -1;
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = text.at[at + 1];
    if (c != 'u') {
        const char *found = c ? strchr(from, c) : NULL;
        *ret_end = at + 2;
        return found ? to[found - from] : -1;
    }
    int32_t high = read_hex(text, at + 2);
    *ret_end = at + 6;
    if (high < 0xD800 || high > 0xDFFF) return high;
    if (high > 0xDBFF || text.bytes - at < 12 || text.at[at + 6] != '\\' || text.at[at + 7] != 'u')
        return -1;
    int32_t low = read_hex(text, at + 8);
    *ret_end = at + 12;
    if (low < 0xDC00 || low > 0xDFFF) return -1;
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

/* Returns the end of the string whose opening quote ends at `at`. */
static size_t string_end(struct str text, size_t at) {
    while (at < text.bytes) {
        if (at + 8 <= text.bytes) {
            uint64_t word = load_word(text.at + at);
            uint64_t special = (word - EVERY_BYTE(0x20)) & ~word & HIGH_BITS; /* controls */
            special |= zero_bytes(word ^ EVERY_BYTE('"')) | zero_bytes(word ^ EVERY_BYTE('\\'));
            if (!special) {
                at += 8;
                continue;
            }
            at += first_byte(special);
        }
        unsigned char c = (unsigned char)text.at[at];
        if (c == '"') return at + 1;
        if (c < 0x20) return SIZE_MAX;
        if (c != '\\') {
            at++;
            continue;
        }
        /* These escapes are common, as of JSON inside a string; read_escape checks the others. */
        char escaped = at + 1 < text.bytes ? text.at[at + 1] : 0;
        if (escaped == '"' || escaped == 'n' || escaped == '\\')
            at += 2;
        else if (read_escape(text, at, &at) < 0)
            return SIZE_MAX;
    }
    return SIZE_MAX;
}

static size_t digits_end(struct str text, size_t at) {
    size_t from = at;
    while (at < text.bytes && text.at[at] >= '0' && text.at[at] <= '9') at++;
    return at == from ? SIZE_MAX : at;
}

static size_t number_end(struct str text, size_t at) {
    if (text.at[at] == '-') at++;
    if (at < text.bytes && text.at[at] == '0')
        at++;
    else
        at = digits_end(text, at);
    if (at < text.bytes && text.at[at] == '.') at = digits_end(text, at + 1);
    if (at < text.bytes && (text.at[at] | 0x20) == 'e') {
        at++;
        if (at < text.bytes && (text.at[at] == '+' || text.at[at] == '-')) at++;
        at = digits_end(text, at);
    }
    return at;
}

static size_t word_end(struct str text, size_t at, struct str word) {
    return str_starts_with(str_skip(text, at), word) ? at + word.bytes : SIZE_MAX;
}

/* The end of the string, number or word at `at`, which is inside the text. */
static size_t scalar_end(struct str text, size_t at) {
    switch (text.at[at]) {
    case '"': return string_end(text, at + 1);
    case 't': return word_end(text, at, STR("true"));
    case 'f': return word_end(text, at, STR("false"));
    case 'n': return word_end(text, at, STR("null"));
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': return number_end(text, at);
    default: return SIZE_MAX;
    }
}

/* Steps over a key and its colon. Returns where the value may start. */
static size_t key_end(struct str text, size_t at) {
    if (at >= text.bytes || text.at[at] != '"') return SIZE_MAX;
    at = string_end(text, at + 1);
    if (at == SIZE_MAX) return SIZE_MAX;
    at = skip_space(text, at);
    return at < text.bytes && text.at[at] == ':' ? skip_space(text, at + 1) : SIZE_MAX;
}

/* The objects and arrays that are open at the current place. */
struct nesting {
    size_t depth;
    char closers[JSON_DEPTH_MAX];
};

/* Enters the object or array at `at`. Returns where its first value may start (after the key in an
 * object), or its end if it is empty (*ret_empty). */
static size_t open_nest(struct str text, size_t at, struct nesting *nesting, bool *ret_empty) {
    if (nesting->depth == JSON_DEPTH_MAX) return SIZE_MAX;
    char closer = text.at[at] == '{' ? '}' : ']';
    at = skip_space(text, at + 1);
    *ret_empty = at < text.bytes && text.at[at] == closer;
    if (*ret_empty) return at + 1;
    nesting->closers[nesting->depth++] = closer;
    return closer == '}' ? key_end(text, at) : at;
}

/* Closes the objects and arrays that end after a value. Returns where the next value may start, or,
 * with depth 0, the end of the outermost one. */
static size_t after_value(struct str text, size_t at, struct nesting *nesting) {
    while (nesting->depth > 0) {
        char closer = nesting->closers[nesting->depth - 1];
        at = skip_space(text, at);
        if (at >= text.bytes) return SIZE_MAX;
        if (text.at[at] == ',') {
            at = skip_space(text, at + 1);
            return closer == '}' ? key_end(text, at) : at;
        }
        if (text.at[at] != closer) return SIZE_MAX;
        at++;
        nesting->depth--;
    }
    return at;
}

size_t json_span_end(struct str text, size_t at) {
    struct nesting nesting = {.depth = 0};
    at = skip_space(text, at);
    do {
        if (at >= text.bytes) return SIZE_MAX;
        char c = text.at[at];
        bool ended = true;
        at = c == '{' || c == '[' ? open_nest(text, at, &nesting, &ended) : scalar_end(text, at);
        if (at != SIZE_MAX && ended) at = after_value(text, at, &nesting);
    } while (at != SIZE_MAX && nesting.depth > 0);
    return at;
}

bool json_span_read(struct str text, struct str *ret_value) {
    size_t from = skip_space(text, 0);
    size_t end = json_span_end(text, from);
    if (end == SIZE_MAX || skip_space(text, end) != text.bytes) return false;
    if (ret_value) *ret_value = (struct str){text.at + from, end - from};
    return true;
}

bool json_span_enter(struct json_span_iter *iter, struct str value) {
    *iter = (struct json_span_iter){.text = value, .at = 1};
    return value.bytes >= 2 && (*value.at == '{' || *value.at == '[');
}

/* Moves to the next item; SIZE_MAX at the end. */
static size_t next_item(struct json_span_iter *iter) {
    size_t at = skip_space(iter->text, iter->at);
    if (at >= iter->text.bytes) {
        iter->is_bad = true;
        return SIZE_MAX;
    }
    char c = iter->text.at[at];
    if (c == (*iter->text.at == '{' ? '}' : ']')) {
        iter->at = at + 1;
        return SIZE_MAX;
    }
    if (iter->started) {
        if (c != ',') {
            iter->is_bad = true;
            return SIZE_MAX;
        }
        at = skip_space(iter->text, at + 1);
    }
    iter->started = true;
    return at;
}

static bool take_value(struct json_span_iter *iter, size_t at, struct str *ret_value) {
    size_t end = at == SIZE_MAX ? SIZE_MAX : json_span_end(iter->text, at);
    if (end == SIZE_MAX) {
        iter->is_bad = true;
        return false;
    }
    *ret_value = (struct str){iter->text.at + at, end - at};
    iter->at = end;
    return true;
}

bool json_span_member(struct json_span_iter *iter, struct str *ret_key, struct str *ret_value) {
    size_t at = next_item(iter);
    if (at == SIZE_MAX) return false;
    size_t value_at = key_end(iter->text, at);
    if (value_at != SIZE_MAX)
        *ret_key = (struct str){iter->text.at + at, string_end(iter->text, at + 1) - at};
    return take_value(iter, value_at, ret_value);
}

bool json_span_element(struct json_span_iter *iter, struct str *ret_value) {
    size_t at = next_item(iter);
    return at != SIZE_MAX && take_value(iter, at, ret_value);
}

struct str json_span_get(struct str object, const char *name) {
    struct json_span_iter iter;
    struct str key, value, found = {NULL, 0};
    if (!json_span_is_object(object) || !json_span_enter(&iter, object)) return found;
    while (json_span_member(&iter, &key, &value))
        if (json_span_string_is(key, name)) found = value;
    return found;
}

bool json_span_is_string(struct str value) {
    return value.bytes > 0 && *value.at == '"';
}

struct str json_span_unfenced(struct str text) {
    const struct str fence = STR("```");
    text = str_trim(text);
    if (!str_starts_with(text, fence)) return text;
    size_t line = str_find_byte(text, '\n', 0);
    if (line == SIZE_MAX) return text;
    text = str_trim(str_skip(text, line + 1));
    if (str_ends_with(text, fence)) text.bytes -= fence.bytes;
    return str_trim(text);
}

bool json_span_is_object(struct str value) {
    return value.bytes > 0 && *value.at == '{';
}

bool json_span_string_is(struct str string, const char *text) {
    if (string.bytes < 2) return false;
    struct str inside = {string.at + 1, string.bytes - 2};
    size_t bytes = strlen(text);
    if (inside.bytes < bytes) return false; /* no escape is shorter than its meaning */
    if (inside.bytes == bytes && memcmp(inside.at, text, bytes) == 0) return true;
    if (str_find_byte(inside, '\\', 0) == SIZE_MAX) return false;
    struct buf decoded;
    buf_init(&decoded, BUF_UNLIMITED);
    json_span_decode(&decoded, string);
    bool same = str_is(buf_str(&decoded), text);
    buf_release(&decoded);
    return same;
}

void json_span_decode(struct buf *buf, struct str string) {
    struct str inside = {string.at + 1, string.bytes - 2};
    size_t at = 0;
    while (at < inside.bytes) {
        size_t escape = str_find_byte(inside, '\\', at);
        if (escape == SIZE_MAX) escape = inside.bytes;
        buf_add(buf, inside.at + at, escape - at);
        at = escape;
        if (at == inside.bytes) break;
        int32_t code_point = read_escape(inside, at, &at);
        if (code_point < 0) break;
        char bytes[4];
        buf_add(buf, bytes, utf8_encode((uint32_t)code_point, bytes));
    }
}

struct str json_span_text(struct str string, struct buf *scratch) {
    struct str inside = {string.at + 1, string.bytes - 2};
    if (str_find_byte(inside, '\\', 0) == SIZE_MAX) return inside;
    buf_clear(scratch);
    json_span_decode(scratch, string);
    return buf_str(scratch);
}

void json_span_add_ascii(struct buf *buf, struct str text) {
    size_t plain = 0, at = 0;
    while (at < text.bytes) {
        if (at + 8 <= text.bytes && !(load_word(text.at + at) & HIGH_BITS)) {
            at += 8;
            continue;
        }
        if ((unsigned char)text.at[at] < 0x80) {
            at++;
            continue;
        }
        buf_add(buf, text.at + plain, at - plain);
        uint32_t code_point;
        at += utf8_decode(text, at, &code_point);
        plain = at;
        if (code_point >= 0x10000) {
            buf_printf(buf, "\\u%04x", 0xD800 + ((code_point - 0x10000) >> 10));
            code_point = 0xDC00 + ((code_point - 0x10000) & 0x3FF);
        }
        buf_printf(buf, "\\u%04x", code_point);
    }
    buf_add(buf, text.at + plain, text.bytes - plain);
}
