/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"
#include "chat/call_text.h"
#include "json/json.h"
#include "json/span.h"

#include <stdlib.h>
#include <string.h>

/* Reads literals of Python and appends them as JSON. */
struct python {
    struct str text;
    size_t at;
    int depth;
    struct buf *out;
};

static char next(const struct python *python) {
    return python->at < python->text.bytes ? python->text.at[python->at] : '\0';
}

static void skip_space(struct python *python) {
    while (next(python) == ' ' || next(python) == '\n' || next(python) == '\t' ||
           next(python) == '\r')
        python->at++;
}

/* Takes a byte and the space before it. */
static bool take(struct python *python, char byte) {
    skip_space(python);
    if (next(python) != byte || byte == '\0') return false;
    python->at++;
    return true;
}

static bool is_name_byte(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || byte == '_' || byte == '-' || byte == '.';
}

static struct str take_name(struct python *python) {
    skip_space(python);
    size_t begin = python->at;
    while (is_name_byte(next(python))) python->at++;
    return (struct str){python->text.at + begin, python->at - begin};
}

/* The digits behind \x, \u or \U. False if they are no character. */
static bool read_code(struct python *python, size_t digits, struct buf *text) {
    char code[9] = "";
    if (python->text.bytes - python->at < digits) return false;
    memcpy(code, python->text.at + python->at, digits);
    if (strspn(code, "0123456789abcdefABCDEF") != digits) return false;
    unsigned long character = strtoul(code, NULL, 16);
    if (character > 0x10FFFF || (character >= 0xD800 && character < 0xE000)) return false;
    python->at += digits;
    char bytes[4];
    buf_add(text, bytes, utf8_encode((uint32_t)character, bytes));
    return true;
}

static bool read_escape(struct python *python, struct buf *text) {
    static const char from[] = "\\'\"nrtbfav0", to[] = "\\'\"\n\r\t\b\f\a\v";
    char byte = next(python);
    const char *found = byte ? strchr(from, byte) : NULL;
    if (python->at >= python->text.bytes) return false;
    python->at++;
    if (found) {
        buf_add_byte(text, to[found - from]);
        return true;
    }
    if (byte == '\n') return true; /* a line that goes on */
    if (byte == 'x') return read_code(python, 2, text);
    if (byte == 'u') return read_code(python, 4, text);
    if (byte == 'U') return read_code(python, 8, text);
    buf_add_byte(text, '\\'); /* as Python keeps an escape that it does not know */
    buf_add_byte(text, byte);
    return true;
}

static bool read_string(struct python *python) {
    char quote = next(python);
    struct buf text;
    bool is_good = true;
    buf_init(&text, BUF_UNLIMITED);
    python->at++;
    while (is_good && python->at < python->text.bytes && next(python) != quote) {
        char byte = python->text.at[python->at++];
        if (byte == '\\')
            is_good = read_escape(python, &text);
        else
            buf_add_byte(&text, byte);
    }
    is_good = is_good && take(python, quote);
    if (is_good) json_write_utf8_string(python->out, buf_str(&text));
    buf_release(&text);
    return is_good;
}

/* A number, or one of Python's names for true, false and null. */
static bool read_word(struct python *python) {
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    size_t begin = python->at;
    while (is_name_byte(next(python)) || next(python) == '+') python->at++;
    struct str word = {python->text.at + begin, python->at - begin};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (str_is(word, words[i][0])) {
            buf_add_text(python->out, words[i][1]);
            return true;
        }
    struct str value;
    if (word.bytes == 0 || !json_span_read(word, &value)) return false;
    buf_add_str(python->out, value);
    return true;
}

static bool read_value(struct python *python);

/* The elements of a list or a tuple, or the members of a dictionary, behind the opening bracket. */
static bool read_elements(struct python *python, char close) {
    bool is_object = close == '}';
    buf_add_byte(python->out, is_object ? '{' : '[');
    for (size_t count = 0; !take(python, close); count++) {
        if (count > 0) {
            if (!take(python, ',')) return false;
            if (take(python, close)) break;
            buf_add_byte(python->out, ',');
        }
        skip_space(python);
        if (is_object) {
            if ((next(python) != '"' && next(python) != '\'') || !read_string(python)) return false;
            if (!take(python, ':')) return false;
            buf_add_byte(python->out, ':');
        }
        if (!read_value(python)) return false;
    }
    buf_add_byte(python->out, is_object ? '}' : ']');
    return true;
}

static bool read_value(struct python *python) {
    skip_space(python);
    char byte = next(python);
    if (byte == '"' || byte == '\'') return read_string(python);
    if (byte != '[' && byte != '(' && byte != '{') return read_word(python);
    if (++python->depth >= JSON_DEPTH_MAX) return false;
    python->at++;
    bool is_good = read_elements(python, byte == '[' ? ']' : byte == '(' ? ')' : '}');
    python->depth--;
    return is_good;
}

/* "f(a=1, b='x')". */
static bool read_call(struct python *python, struct call_list *calls) {
    struct str name = take_name(python);
    if (name.bytes == 0 || !take(python, '(')) return false;
    struct tool_call *call = call_list_add(calls);
    buf_add_str(&call->name, name);
    python->out = &call->arguments;
    buf_add_byte(python->out, '{');
    for (size_t count = 0; !take(python, ')'); count++) {
        if (count > 0) {
            if (!take(python, ',')) return false;
            if (take(python, ')')) break;
            buf_add_byte(python->out, ',');
        }
        struct str key = take_name(python);
        if (key.bytes == 0 || !take(python, '=')) return false;
        json_write_utf8_string(python->out, key);
        buf_add_byte(python->out, ':');
        if (!read_value(python)) return false;
    }
    buf_add_byte(python->out, '}');
    struct str value;
    return json_span_read(buf_str(python->out), &value);
}

bool call_text_python(struct str text, struct call_list *calls) {
    struct python python = {.text = str_trim(text)};
    size_t before = calls->count;
    bool is_good = utf8_is_valid(text) && take(&python, '[');
    while (is_good) {
        is_good = read_call(&python, calls);
        if (is_good && take(&python, ',')) continue;
        is_good = is_good && take(&python, ']');
        break;
    }
    if (is_good && python.at == python.text.bytes) return true;
    call_list_cut(calls, before);
    return false;
}
