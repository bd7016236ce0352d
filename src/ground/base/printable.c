/* SPDX-License-Identifier: Apache-2.0 */
#include "base/printable.h"

#include "base/utf8.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ESCAPED_BYTES 16

static bool is_control(uint32_t c) {
    return c < 0x20 || (c >= 0x7F && c < 0xA0);
}

/* Characters that change the direction or the lines of the text around them. */
static bool is_direction(uint32_t c) {
    return c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) ||
           (c >= 0x2066 && c <= 0x2069);
}

/* Writes the character at `at` as it is shown, and moves behind it. */
static size_t show(struct str text, size_t *at, char ret_shown[ESCAPED_BYTES]) {
    struct str rest = str_skip(text, *at);
    uint32_t c;
    size_t valid = utf8_valid_prefix((struct str){rest.at, rest.bytes < 4 ? rest.bytes : 4});
    if (valid == 0) {
        ++*at;
        return (size_t)snprintf(ret_shown, ESCAPED_BYTES, "\\x%02x", (unsigned char)*rest.at);
    }
    size_t bytes = utf8_decode(rest, 0, &c);
    *at += bytes;
    if (c == '\n') return (size_t)snprintf(ret_shown, ESCAPED_BYTES, "\\n");
    if (c == '\t') return (size_t)snprintf(ret_shown, ESCAPED_BYTES, "\\t");
    if (is_control(c) && c < 0x80) return (size_t)snprintf(ret_shown, ESCAPED_BYTES, "\\x%02x", c);
    if (is_control(c) || is_direction(c))
        return (size_t)snprintf(ret_shown, ESCAPED_BYTES, "\\u%04x", c);
    memcpy(ret_shown, rest.at, bytes);
    return bytes;
}

struct printable printable(const char *text) {
    struct printable is = {.text = ""};
    struct str whole = str_from(text ? text : "");
    size_t used = 0;
    for (size_t at = 0; at < whole.bytes;) {
        char shown[ESCAPED_BYTES];
        size_t bytes = show(whole, &at, shown);
        if (used + bytes >= sizeof is.text) break;
        memcpy(is.text + used, shown, bytes);
        used += bytes;
    }
    is.text[used] = '\0';
    return is;
}

bool printable_has_control(struct str text) {
    uint32_t c;
    for (size_t at = 0; at < text.bytes;) {
        at += utf8_decode(text, at, &c);
        if (is_control(c)) return true;
    }
    return false;
}
