/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/regex_read.h"

#include <string.h>

#define CATEGORY_FUEL 200000u /* a category is looked for among all characters */

enum err regex_fail(struct regex_reader *reader, const char *what) {
    return err_set(reader->error, ERR_INVALID, "%s at byte %zu of the regular expression", what,
                   reader->at);
}

enum err regex_fail_unsupported(struct regex_reader *reader, const char *what) {
    return err_set(reader->error, ERR_INVALID,
                   "%s (at byte %zu of the regular expression) is not supported", what, reader->at);
}

bool regex_is_end(const struct regex_reader *reader) {
    return reader->at >= reader->text.bytes;
}

char regex_peek(const struct regex_reader *reader) {
    return regex_is_end(reader) ? '\0' : reader->text.at[reader->at];
}

bool regex_take(struct regex_reader *reader, const char *text) {
    if (!str_starts_with(str_skip(reader->text, reader->at), str_from(text))) return false;
    reader->at += strlen(text);
    return true;
}

uint32_t regex_next_char(struct regex_reader *reader) {
    unsigned char byte = (unsigned char)reader->text.at[reader->at++];
    if (byte < 0x80) return byte;
    int more = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
    uint32_t c = byte & (0x3fu >> more);
    for (int i = 0; i < more; i++)
        c = c << 6 | ((unsigned char)reader->text.at[reader->at++] & 0x3fu);
    return c;
}

/* --- escapes and classes --- */

static bool take_hex(struct regex_reader *reader, int digits, uint32_t *ret_value) {
    uint32_t value = 0;
    if (reader->text.bytes - reader->at < (size_t)digits) return false;
    for (int i = 0; i < digits; i++) {
        char c = reader->text.at[reader->at + (size_t)i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return false;
        value = value << 4 | (uint32_t)digit;
    }
    reader->at += (size_t)digits;
    *ret_value = value;
    return true;
}

/* The rest of \u: four digits, a pair of surrogates, or {…}. */
static enum err read_unicode(struct regex_reader *reader, uint32_t *ret_char) {
    uint32_t c, low;
    if (regex_take(reader, "{")) {
        size_t end = str_find_byte(reader->text, '}', reader->at);
        if (end == SIZE_MAX || end == reader->at || end - reader->at > 6 ||
            !take_hex(reader, (int)(end - reader->at), &c) || c > CHAR_LAST)
            return regex_fail(reader, "a bad \\u{…}");
        reader->at++;
    } else {
        if (!take_hex(reader, 4, &c)) return regex_fail(reader, "a bad \\u");
        if (c >= 0xd800 && c < 0xdc00) {
            if (!regex_take(reader, "\\u") || !take_hex(reader, 4, &low) || low < 0xdc00 ||
                low > 0xdfff)
                return regex_fail(reader, "half of a surrogate pair");
            c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    if (c >= 0xd800 && c < 0xe000) return regex_fail(reader, "half of a surrogate pair");
    *ret_char = c;
    return OK;
}

/* The rest of \p or \P. */
static enum err read_property(struct regex_reader *reader, struct charset *set, bool is_negated) {
    size_t end = str_find_byte(reader->text, '}', reader->at);
    if (regex_peek(reader) != '{' || end == SIZE_MAX) return regex_fail(reader, "a bad \\p{…}");
    struct str name = {reader->text.at + reader->at + 1, end - reader->at - 1};
    static const char *const prefixes[] = {"General_Category=", "gc="};
    for (size_t i = 0; i < 2; i++)
        if (str_starts_with(name, str_from(prefixes[i])))
            name = str_skip(name, strlen(prefixes[i]));
    struct charset own = {0};
    struct exprs *exprs = reader->exprs;
    exprs->fuel -= exprs->fuel < CATEGORY_FUEL ? exprs->fuel : CATEGORY_FUEL;
    if (!charset_add_category(&own, name)) return regex_fail_unsupported(reader, "this \\p{…}");
    if (is_negated) charset_negate(&own);
    charset_add_set(set, &own);
    charset_release(&own);
    reader->at = end + 1;
    return OK;
}

enum err regex_read_escape(struct regex_reader *reader, struct charset *set, bool in_class,
                           bool *ret_is_char, uint32_t *ret_char) {
    static const char controls[] = "tnrvf", values[] = "\t\n\r\v\f";
    if (regex_is_end(reader)) return regex_fail(reader, "a backslash");
    uint32_t c = regex_next_char(reader);
    *ret_is_char = false;
    if (c < 0x80 && charset_add_class(set, (char)c)) return OK;
    if (c == 'p' || c == 'P') return read_property(reader, set, c == 'P');
    if (c == 'u') {
        enum err err = read_unicode(reader, &c);
        if (err != OK) return err;
    } else if (c == 'x') {
        if (!take_hex(reader, 2, &c)) return regex_fail(reader, "a bad \\x");
    } else if (c == 'c') {
        char letter = regex_peek(reader);
        if (!((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z')))
            return regex_fail(reader, "a bad \\c");
        c = regex_next_char(reader) & 31;
    } else if (c == '0' && !(regex_peek(reader) >= '0' && regex_peek(reader) <= '9')) {
        c = 0;
    } else if (c == 'b' && in_class) {
        c = 8;
    } else if (c < 0x80 && c > 0 && strchr(controls, (int)c)) {
        c = (unsigned char)values[strchr(controls, (int)c) - controls];
    } else if ((c >= '0' && c <= '9') || c == 'k') {
        return regex_fail_unsupported(reader, "a reference to a group");
    } else if (c == 'b' || c == 'B' || c == 'A' || c == 'Z' || c == 'z' || c == 'G') {
        return regex_fail_unsupported(reader, "an anchor other than ^ and $");
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
        return regex_fail(reader, "an unknown escape");
    }
    charset_add(set, c, c);
    *ret_is_char = true;
    *ret_char = c;
    return OK;
}

/* One member of a class: a character, or a set that cannot be the end of a range. */
static enum err read_class_member(struct regex_reader *reader, struct charset *set,
                                  bool *ret_is_char, uint32_t *ret_char) {
    if (regex_is_end(reader)) return regex_fail(reader, "a class without its end");
    if (regex_take(reader, "\\"))
        return regex_read_escape(reader, set, true, ret_is_char, ret_char);
    uint32_t c = regex_next_char(reader);
    charset_add(set, c, c);
    *ret_is_char = true;
    *ret_char = c;
    return OK;
}

/* A class by its name, as POSIX has it inside of [ ]: [:alpha:], [:^alpha:]. ECMA-262 would read
 * characters, which nobody means. *ret_is_there is false if no such name begins here. */
static enum err read_posix_class(struct regex_reader *reader, struct charset *set,
                                 bool *ret_is_there) {
    char mark = reader->at + 1 < reader->text.bytes ? reader->text.at[reader->at + 1] : '\0';
    size_t from = reader->at + 2, end = from;
    *ret_is_there = false;
    if (regex_peek(reader) != '[' || !mark || !strchr(":.=", mark)) return OK;
    while (end < reader->text.bytes && reader->text.at[end] != mark && reader->text.at[end] != ']')
        end++;
    struct str name = {reader->text.at + from, end > from ? end - from : 0};
    if (end + 1 >= reader->text.bytes || reader->text.at[end] != mark ||
        reader->text.at[end + 1] != ']' || name.bytes == 0)
        return OK; /* characters */
    bool is_negated = *name.at == '^';
    if (is_negated) name = str_skip(name, 1);
    struct charset own = {0};
    bool is_known = mark == ':' && charset_add_posix(&own, name);
    if (is_known && is_negated) charset_negate(&own);
    charset_add_set(set, &own);
    charset_release(&own);
    if (!is_known) return regex_fail_unsupported(reader, "this class of POSIX");
    reader->at = end + 2;
    *ret_is_there = true;
    return OK;
}

enum err regex_read_class(struct regex_reader *reader, struct charset *set) {
    bool is_negated = regex_take(reader, "^");
    while (!regex_take(reader, "]")) {
        bool is_char, is_last_char;
        uint32_t first, last;
        enum err err = read_posix_class(reader, set, &is_char);
        if (err == OK && is_char) continue;
        if (err == OK) err = read_class_member(reader, set, &is_char, &first);
        if (err != OK) return err;
        if (regex_peek(reader) != '-' || reader->at + 1 >= reader->text.bytes ||
            reader->text.at[reader->at + 1] == ']')
            continue;
        reader->at++;
        err = read_class_member(reader, set, &is_last_char, &last);
        if (err != OK) return err;
        if (!is_char || !is_last_char || last < first) return regex_fail(reader, "a bad range");
        charset_add(set, first, last);
    }
    if (is_negated) charset_negate(set);
    return OK;
}
