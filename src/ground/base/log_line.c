/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log_line.h"

#include "base/utf8.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define VALUE_BYTES 1024
#define VALUE_ROOM                                                                                 \
    1000 /* bytes of one value when it is escaped: less, so that a cut one shows it */
#define HEAD_ROOM 200
#define CUT "…"

/* Bytes with an end; what does not fit is left out. */
struct out {
    char *at;
    size_t bytes, bytes_max;
};

struct line {
    va_list args;
    bool is_json;
    struct out fields; /* room for text: the whole line */
    char value[VALUE_BYTES];
    size_t value_bytes;
    bool has_text; /* a text was printed into the value */
    char words[VALUE_BYTES];
    size_t words_bytes;
    char event[64];
};

/* --- bytes --- */

static bool put(struct out *out, const char *bytes, size_t count) {
    if (count > out->bytes_max - out->bytes) return false;
    memcpy(out->at + out->bytes, bytes, count);
    out->bytes += count;
    return true;
}

/* True for characters that a terminal acts on, that end a line somewhere, or that turn the order of
 * the others around. */
static bool is_unsafe(uint32_t c) {
    return c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0x061C || (c >= 0x200E && c <= 0x200F) ||
           (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF;
}

/* One character as it stands in the line: at most 8 bytes. Quotes are escaped inside quotes only.
 */
static size_t escape(struct str text, size_t at, bool is_quoted, bool is_json, char ret_bytes[16],
                     size_t *ret_read) {
    uint32_t c;
    size_t most = text.bytes - at < 4 ? text.bytes - at : 4, count = 1;
    while (count <= most && !utf8_is_valid((struct str){text.at + at, count})) count++;
    *ret_read = count <= most ? count : 1;
    if (count > most) {
        if (is_json) return (size_t)snprintf(ret_bytes, 16, "\\ufffd");
        return (size_t)snprintf(ret_bytes, 16, "\\x%02x", (unsigned char)text.at[at]);
    }
    utf8_decode(text, at, &c);
    if (is_unsafe(c)) return (size_t)snprintf(ret_bytes, 16, "\\u%04x", c);
    size_t bytes = 0;
    if (is_quoted && (c == '"' || c == '\\')) ret_bytes[bytes++] = '\\';
    memcpy(ret_bytes + bytes, text.at + at, count);
    return bytes + count;
}

/* Appends a text, escaped, in at most `room` bytes; a cut text ends with CUT. */
static void put_escaped(struct out *out, struct str text, bool is_quoted, bool is_json,
                        size_t room) {
    size_t left = out->bytes_max - out->bytes, read;
    if (room > left) room = left;
    struct out one = {out->at + out->bytes, 0, room};
    size_t whole = 0; /* bytes after which CUT still fits */
    for (size_t at = 0; at < text.bytes; at += read) {
        char bytes[16];
        size_t count = escape(text, at, is_quoted, is_json, bytes, &read);
        if (one.bytes + sizeof CUT - 1 <= room) whole = one.bytes;
        if (put(&one, bytes, count)) continue;
        one.bytes = whole;
        put(&one, CUT, sizeof CUT - 1);
        break;
    }
    out->bytes += one.bytes;
}

/* Keeps bytes of a value or of words, up to the end of `at`. */
static void keep(char *at, size_t *bytes, const char *more, size_t count) {
    size_t room = VALUE_BYTES - *bytes;
    if (count > room) count = room;
    if (count == 0) return;
    memcpy(at + *bytes, more, count);
    *bytes += count;
}

/* --- conversions --- */

struct conversion {
    bool is_zero_padded;
    int width, precision; /* precision -1: none */
    int longs;            /* 1: long or size_t, 2: long long */
    char kind;
};

/* Reads a width or a precision, or takes it from the arguments. */
static const char *read_size(struct line *line, const char *at, int *ret_size) {
    if (*at == '*') {
        *ret_size = va_arg(line->args, int);
        return at + 1;
    }
    for (; *at >= '0' && *at <= '9'; at++) *ret_size = *ret_size * 10 + (*at - '0');
    return at;
}

/* Reads a conversion after its '%'; returns what follows it. */
static const char *read_conversion(struct line *line, const char *at, struct conversion *ret) {
    *ret = (struct conversion){.precision = -1};
    ret->is_zero_padded = *at == '0';
    at = read_size(line, at, &ret->width);
    if (*at == '.') {
        ret->precision = 0;
        at = read_size(line, at + 1, &ret->precision);
    }
    while (*at == 'h') at++;
    for (; *at == 'l' || *at == 'z'; at++) ret->longs++;
    ret->kind = *at;
    return at + 1;
}

static unsigned long long take_unsigned(struct line *line, int longs) {
    if (longs == 0) return va_arg(line->args, unsigned);
    if (longs == 1) return va_arg(line->args, unsigned long);
    return va_arg(line->args, unsigned long long);
}

static long long take_signed(struct line *line, int longs) {
    if (longs == 0) return va_arg(line->args, int);
    if (longs == 1) return va_arg(line->args, long);
    return va_arg(line->args, long long);
}

/* Prints a number. Returns its bytes. */
static size_t print_number(struct line *line, const struct conversion *is, char text[64]) {
    int width = is->width > 40 ? 40 : is->width,
        precision = is->precision > 17 ? 17 : is->precision;
    bool zeros = is->is_zero_padded;
    int bytes = 0;
    switch (is->kind) {
    case 'd':
    case 'i': {
        long long value = take_signed(line, is->longs);
        bytes = snprintf(text, 64, zeros ? "%0*lld" : "%*lld", width, value);
        break;
    }
    case 'f': bytes = snprintf(text, 64, "%.*f", precision, va_arg(line->args, double)); break;
    case 'g': bytes = snprintf(text, 64, "%.*g", precision, va_arg(line->args, double)); break;
    case 'c': bytes = snprintf(text, 64, "%c", va_arg(line->args, int)); break;
    default: {
        unsigned long long value = take_unsigned(line, is->longs);
        assert(is->kind == 'u' || is->kind == 'x' || is->kind == 'o');
        if (is->kind == 'u')
            bytes = snprintf(text, 64, zeros ? "%0*llu" : "%*llu", width, value);
        else if (is->kind == 'x')
            bytes = snprintf(text, 64, zeros ? "%0*llx" : "%*llx", width, value);
        else
            bytes = snprintf(text, 64, zeros ? "%0*llo" : "%*llo", width, value);
    }
    }
    return bytes < 0 ? 0 : bytes > 63 ? 63 : (size_t)bytes;
}

/* Appends one byte of the format, or the argument of a conversion. Returns what follows it. */
static const char *take(struct line *line, const char *at, char *to, size_t *bytes) {
    if (at[0] != '%' || at[1] == '%') {
        keep(to, bytes, at, 1);
        return at + 1 + (at[0] == '%');
    }
    struct conversion is;
    char number[64];
    at = read_conversion(line, at + 1, &is);
    if (is.kind == 's') {
        const char *text = va_arg(line->args, const char *);
        size_t most = is.precision < 0 ? VALUE_BYTES + 1 : (size_t)is.precision;
        if (most > 0)
            keep(to, bytes, text ? text : "(null)", strnlen(text ? text : "(null)", most));
    } else {
        keep(to, bytes, number, print_number(line, &is, number));
    }
    if (strchr("scxo", is.kind)) line->has_text = true;
    return at;
}

/* --- fields and words --- */

/* The bytes of a key that `=` follows; 0: the word is no `key=value`. */
static size_t key_bytes(const char *word) {
    size_t bytes = strspn(word, "abcdefghijklmnopqrstuvwxyz_0123456789");
    return bytes > 0 && word[bytes] == '=' ? bytes : 0;
}

/* True for a number as JSON spells it. */
static bool is_number(struct str text) {
    size_t at = 0, digits = 0;
    if (text.bytes > 0 && text.at[0] == '-') at++;
    if (at + 1 < text.bytes && text.at[at] == '0' && text.at[at + 1] != '.') return false;
    for (; at < text.bytes && text.at[at] >= '0' && text.at[at] <= '9'; at++) digits++;
    if (digits == 0 || digits > 20) return false;
    if (at == text.bytes) return true;
    if (text.at[at++] != '.' || at == text.bytes) return false;
    while (at < text.bytes && text.at[at] >= '0' && text.at[at] <= '9') at++;
    return at == text.bytes;
}

/* True if a value of the text form cannot stand without quotes. */
static bool needs_quotes(struct str value) {
    if (value.bytes == 0) return true;
    for (size_t i = 0; i < value.bytes; i++)
        if ((unsigned char)value.at[i] <= ' ' || strchr("\"\\=", value.at[i])) return true;
    return !utf8_is_valid(value);
}

/* Appends a whole field, with its value cut, or nothing of it. */
static void put_field(struct line *line, struct str key, bool is_quoted) {
    struct out *out = &line->fields;
    struct str value = {line->value, line->value_bytes};
    size_t before = out->bytes;
    bool is_good;
    if (str_is(key, "event")) snprintf(line->event, sizeof line->event, "%.*s", STR_ARGS(value));
    if (line->is_json) {
        is_quoted |= line->has_text || !is_number(value);
        is_good = put(out, ",\"", 2) && put(out, key.at, key.bytes) &&
                  put(out, is_quoted ? "\":\"" : "\":", is_quoted ? 3 : 2);
    } else {
        is_quoted |= needs_quotes(value);
        is_good = put(out, key.at, key.bytes) && put(out, "=\"", is_quoted ? 2 : 1);
    }
    size_t room = out->bytes_max - out->bytes;
    if (!is_good || room < 16) {
        out->bytes = before;
        out->bytes_max = before; /* a later field would stand out of its place */
        return;
    }
    put_escaped(out, value, is_quoted, line->is_json,
                room - 1 < VALUE_ROOM ? room - 1 : VALUE_ROOM);
    if (is_quoted) put(out, "\"", 1);
}

/* Reads one field of the format, from its key to the end of its value. */
static const char *take_field(struct line *line, const char *at, size_t key) {
    struct str name = {at, key};
    at += key + 1;
    bool is_quoted = *at == '"';
    at += is_quoted;
    line->value_bytes = 0;
    line->has_text = is_quoted;
    while (*at && (is_quoted ? *at != '"' : !strchr(" ,;", *at)))
        at = take(line, at, line->value, &line->value_bytes);
    put_field(line, name, is_quoted);
    return is_quoted && *at ? at + 1 : at;
}

/* Reads the format up to its next field. The text form has the words where they stand; the JSON
 * form gathers them. */
static const char *take_words(struct line *line, const char *at) {
    size_t begin = line->words_bytes;
    bool may_begin = false;
    do {
        may_begin = *at == ' ';
        at = take(line, at, line->words, &line->words_bytes);
    } while (*at && !(may_begin && key_bytes(at) > 0));
    if (line->is_json) return at;
    put_escaped(&line->fields, (struct str){line->words + begin, line->words_bytes - begin}, false,
                false, VALUE_ROOM);
    return at;
}

static void read_format(struct line *line, const char *format) {
    for (const char *at = format; *at;) {
        size_t key = at == format || at[-1] == ' ' ? key_bytes(at) : 0;
        at = key > 0 ? take_field(line, at, key) : take_words(line, at);
    }
}

/* --- whole lines --- */

static size_t finish_text(struct line *line, struct out *whole) {
    /* A value of the last field may have taken all room but the newline's. */
    whole->bytes = line->fields.bytes;
    whole->bytes_max = LOG_LINE_BYTES;
    put(whole, "\n", 1);
    return whole->bytes;
}

/* The words without the commas and spaces around them. */
static struct str message_of(struct line *line) {
    struct str words = {line->words, line->words_bytes};
    while (words.bytes > 0 && strchr(" ,;", words.at[0])) words = str_skip(words, 1);
    while (words.bytes > 0 && strchr(" ,;", words.at[words.bytes - 1])) words.bytes--;
    return words.bytes > 0 ? words : str_from(line->event);
}

static void put_member(struct out *out, const char *before, const char *value) {
    put(out, before, strlen(before));
    put_escaped(out, str_from(value), true, true, 48);
    put(out, "\"", 1);
}

size_t log_line_write(char ret_line[LOG_LINE_BYTES], const struct log_head *head, bool is_json,
                      const char *format, va_list args) {
    char fields[LOG_LINE_BYTES - HEAD_ROOM - VALUE_ROOM - 8];
    struct out whole = {ret_line, 0, LOG_LINE_BYTES};
    struct line line;
    line.is_json = is_json;
    line.words_bytes = 0;
    line.event[0] = '\0';
    if (is_json) {
        line.fields = (struct out){fields, 0, sizeof fields};
    } else {
        whole.bytes = (size_t)snprintf(ret_line, HEAD_ROOM, "%.32s %.32s %.32s ", head->time,
                                       head->process, head->level);
        line.fields = (struct out){ret_line, whole.bytes, LOG_LINE_BYTES - 1};
    }
    va_copy(line.args, args);
    read_format(&line, format);
    va_end(line.args);
    if (!is_json) return finish_text(&line, &whole);
    put_member(&whole, "{\"ts\":\"", head->time);
    put_member(&whole, ",\"level\":\"", head->level);
    put_member(&whole, ",\"process\":\"", head->process);
    put(&whole, ",\"msg\":\"", 8);
    put_escaped(&whole, message_of(&line), true, true, VALUE_ROOM);
    put(&whole, "\"", 1);
    put(&whole, fields, line.fields.bytes);
    put(&whole, "}\n", 2);
    return whole.bytes;
}
