/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/methods_text.h"

#include "base/utf8.h"
#include "jinja/access.h"
#include "jinja/cursor.h"
#include "jinja/format.h"
#include "jinja/print.h"
#include "jinja/text.h"
#include "jinja/unicode.h"

#include <string.h>

/* Takes off the output since `start`, made of `like`, as markup when `like` is. */
static enum err take_made(struct render *render, size_t start, struct value like,
                          struct value *ret_text) {
    enum err err = text_claim(render, start, like);
    return err ? err : text_take_like(render, start, like, ret_text);
}

enum err text_capitalize(struct render *render, struct value text, struct value *ret_text) {
    struct str whole = value_str(text);
    size_t start = render->out->bytes;
    for (size_t at = 0; at < whole.bytes;) {
        uint32_t point;
        bool first = at == 0;
        at += utf8_decode(whole, at, &point);
        unicode_add_cased(render->out, point, first ? CASE_TITLE : CASE_LOWER);
    }
    return take_made(render, start, text, ret_text);
}

/* Whether the character at text[at] is one of `chars`; its length goes to *ret_bytes. */
static bool is_one_of(struct str text, size_t at, struct str chars, size_t *ret_bytes) {
    uint32_t point;
    *ret_bytes = utf8_decode(text, at, &point);
    if (!chars.at) return unicode_is_space(point);
    return str_find(chars, (struct str){text.at + at, *ret_bytes}, 0) != SIZE_MAX;
}

enum err text_strip(struct render *render, struct value text, struct value chars, bool at_start,
                    bool at_end, struct value *ret_text) {
    struct str whole = value_str(text), set = {NULL, 0};
    size_t from = 0, to = whole.bytes, bytes;
    if (value_is_text(chars)) {
        set = chars.text->bytes > 0 ? value_str(chars) : STR("");
    } else if (chars.kind != VALUE_ABSENT && chars.kind != VALUE_NONE) {
        return render_fail(render, "the characters to strip are of type %s", value_type(chars));
    }
    enum err err = OK;
    size_t cost = 1 + set.bytes / 8;
    while (!err && at_start && from < to && is_one_of(whole, from, set, &bytes)) {
        from += bytes;
        err = render_charge(render, cost);
    }
    while (!err && at_end && to > from) {
        size_t at = to - 1;
        while (((unsigned char)whole.at[at] & 0xC0) == 0x80) at--;
        if (!is_one_of(whole, at, set, &bytes)) break;
        to = at;
        err = render_charge(render, cost);
    }
    return err ? err : text_part(render, text, from, to - from, ret_text);
}

/* str.replace with an empty `old`: `new` goes before every character and at the end. */
static enum err interleave(struct render *render, struct value text, struct value new,
                           int64_t count) {
    enum err err = OK;
    for (size_t at = 0; !err && at < text.text->bytes;) {
        uint32_t point;
        size_t bytes = utf8_decode(value_str(text), at, &point);
        if (count != 0) err = text_write(render, new);
        if (count > 0) count--;
        if (!err) err = text_write_part(render, text, at, bytes);
        at += bytes;
    }
    return err || count == 0 ? err : text_write(render, new);
}

enum err text_replace(struct render *render, struct value text, struct str old, struct value new,
                      int64_t count, struct value *ret_text) {
    struct str whole = value_str(text);
    size_t start = render->out->bytes, at = 0;
    enum err err = OK;
    if (old.bytes == 0) {
        err = interleave(render, text, new, count);
        return err ? err : text_take_like(render, start, text, ret_text);
    }
    while (!err && count != 0) {
        size_t found = str_find(whole, old, at);
        if (found == SIZE_MAX) break;
        err = text_write_part(render, text, at, found - at);
        if (!err) err = text_write(render, new);
        at = found + old.bytes;
        if (count > 0) count--;
    }
    if (!err) err = text_write_part(render, text, at, whole.bytes - at);
    if (!err) err = render_charge(render, whole.bytes);
    return err ? err : text_take_like(render, start, text, ret_text);
}

enum err text_pad(struct render *render, struct value text, int64_t width, struct value fill,
                  char align, struct value *ret_text) {
    int64_t missing = width - (int64_t)text_points(text.text);
    if (missing <= 0) {
        *ret_text = text;
        return OK;
    }
    /* str.center gives the odd blank to the left when the width is odd. */
    int64_t before = align == '<'   ? 0
                     : align == '>' ? missing
                                    : missing / 2 + (missing & width & 1);
    size_t start = render->out->bytes;
    enum err err = render_charge(render, (size_t)missing);
    if (err) return err;
    for (int64_t i = 0; !err && i < before; i++) err = text_write(render, fill);
    if (!err) err = text_write(render, text);
    for (int64_t i = before; !err && i < missing; i++) err = text_write(render, fill);
    return err ? err : text_take_like(render, start, text, ret_text);
}

enum err text_join(struct render *render, struct value separator, struct value items, bool convert,
                   struct value *ret_text) {
    struct cursor cursor;
    size_t start = render->out->bytes;
    enum err err = cursor_open(render, items, &cursor);
    for (bool first = true, more = true; !err; first = false) {
        struct value item = value_absent();
        err = cursor_next(render, &cursor, &more, &item);
        if (err || !more) break;
        if (!convert && !value_is_text(item))
            return render_fail(render, "join needs strings, not %s", value_type(item));
        if (!first) err = text_write(render, separator);
        if (!err) err = print_value(render, item);
    }
    return err ? err : text_take(render, start, ret_text);
}

/* Methods. */

#define CASE_METHOD(name, to)                                                                      \
    static enum err name(struct render *render, struct value self, const struct arguments *args,   \
                         struct value *ret_value) {                                                \
        (void)args;                                                                                \
        size_t start = render->out->bytes;                                                         \
        unicode_add_text(render->out, value_str(self), to);                                        \
        return take_made(render, start, self, ret_value);                                          \
    }

CASE_METHOD(method_upper, CASE_UPPER)
CASE_METHOD(method_lower, CASE_LOWER)
CASE_METHOD(method_swapcase, CASE_SWAP)
CASE_METHOD(method_casefold, CASE_FOLD)

static enum err method_capitalize(struct render *render, struct value self,
                                  const struct arguments *args, struct value *ret_value) {
    (void)args;
    return text_capitalize(render, self, ret_value);
}

/* str.title: a word begins where a letter follows a character that is no letter. */
static enum err method_title(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    (void)args;
    size_t start = render->out->bytes;
    bool inside = false;
    for (size_t at = 0; at < self.text->bytes;) {
        uint32_t point;
        at += utf8_decode(value_str(self), at, &point);
        unicode_add_cased(render->out, point, inside ? CASE_LOWER : CASE_TITLE);
        inside = unicode_is_upper(point) || unicode_is_lower(point) || unicode_is_title(point);
    }
    return take_made(render, start, self, ret_value);
}

static enum err method_strip(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    return text_strip(render, self, args->values[0], true, true, ret_value);
}

static enum err method_lstrip(struct render *render, struct value self,
                              const struct arguments *args, struct value *ret_value) {
    return text_strip(render, self, args->values[0], true, false, ret_value);
}

static enum err method_rstrip(struct render *render, struct value self,
                              const struct arguments *args, struct value *ret_value) {
    return text_strip(render, self, args->values[0], false, true, ret_value);
}

static enum err method_replace(struct render *render, struct value self,
                               const struct arguments *args, struct value *ret_value) {
    struct str old;
    struct value new;
    int64_t count;
    enum err err = arg_str(render, args, 0, "", &old);
    if (!err) err = arg_text(render, args, 1, "", &new);
    if (!err) err = arg_int(render, args, 2, -1, &count);
    return err ? err : text_replace(render, self, old, new, count, ret_value);
}

static enum err method_join(struct render *render, struct value self, const struct arguments *args,
                            struct value *ret_value) {
    if (!self.text->markup) return text_join(render, self, args->values[0], false, ret_value);
    /* Markup escapes the texts that it joins. */
    struct list *items, *escaped;
    enum err err = cursor_list(render, args->values[0], &items);
    if (!err) err = list_new(render, items->count, &escaped);
    for (size_t i = 0; !err && i < items->count; i++) {
        struct value item = items->items[i];
        if (value_is_text(item)) err = text_escape(render, item, &item);
        if (!err) err = list_add(render, escaped, item);
    }
    if (!err) err = text_join(render, self, value_of_list(escaped, false), false, ret_value);
    return err ? err : text_mark(render, *ret_value, true, ret_value);
}

static enum err method_format(struct render *render, struct value self,
                              const struct arguments *args, struct value *ret_value) {
    return format_braces(render, self, args, ret_value);
}

static enum err pad(struct render *render, struct value self, const struct arguments *args,
                    char align, struct value *ret_value) {
    int64_t width;
    struct value fill;
    enum err err = arg_int(render, args, 0, 0, &width);
    if (!err) err = arg_text(render, args, 1, " ", &fill);
    if (err) return err;
    if (text_points(fill.text) != 1) return render_fail(render, "the fill must be one character");
    return text_pad(render, self, width, fill, align, ret_value);
}

static enum err method_center(struct render *render, struct value self,
                              const struct arguments *args, struct value *ret_value) {
    return pad(render, self, args, '^', ret_value);
}

static enum err method_ljust(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    return pad(render, self, args, '<', ret_value);
}

static enum err method_rjust(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    return pad(render, self, args, '>', ret_value);
}

/* Zeros go after the sign. */
static enum err method_zfill(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    int64_t width;
    struct str text = value_str(self);
    enum err err = arg_int(render, args, 0, 0, &width);
    size_t points = text_points(self.text);
    if (err || width <= (int64_t)points) {
        *ret_value = self;
        return err;
    }
    size_t sign = text.bytes > 0 && (text.at[0] == '-' || text.at[0] == '+');
    size_t start = render->out->bytes;
    err = render_charge(render, (size_t)width);
    if (err) return err;
    buf_add(render->out, text.at, sign);
    for (int64_t i = (int64_t)points; i < width; i++) buf_add_byte(render->out, '0');
    buf_add_str(render->out, str_skip(text, sign));
    return take_made(render, start, self, ret_value);
}

static enum err method_expandtabs(struct render *render, struct value self,
                                  const struct arguments *args, struct value *ret_value) {
    int64_t width;
    enum err err = arg_int(render, args, 0, 8, &width);
    if (err) return err;
    size_t start = render->out->bytes;
    int64_t column = 0;
    for (size_t at = 0; at < self.text->bytes && !render->out->overflowed; at++) {
        char byte = self.text->at[at];
        if (byte == '\t') {
            int64_t blanks = width > 0 ? width - column % width : 0;
            err = render_charge(render, (size_t)blanks);
            if (err) return err;
            column += blanks;
            for (; blanks > 0; blanks--) buf_add_byte(render->out, ' ');
        } else {
            buf_add_byte(render->out, byte);
            if (((unsigned char)byte & 0xC0) != 0x80) column++;
            if (byte == '\n' || byte == '\r') column = 0;
        }
    }
    return take_made(render, start, self, ret_value);
}

static const struct builtin methods[] = {
    {"strip", method_strip, 0, false, {"chars"}},
    {"lstrip", method_lstrip, 0, false, {"chars"}},
    {"rstrip", method_rstrip, 0, false, {"chars"}},
    {"replace", method_replace, 2, false, {"old", "new", "count"}},
    {"upper", method_upper, 0, false, {NULL}},
    {"lower", method_lower, 0, false, {NULL}},
    {"casefold", method_casefold, 0, false, {NULL}},
    {"title", method_title, 0, false, {NULL}},
    {"capitalize", method_capitalize, 0, false, {NULL}},
    {"swapcase", method_swapcase, 0, false, {NULL}},
    {"format", method_format, 0, true, {NULL}},
    {"join", method_join, 1, false, {"iterable"}},
    {"center", method_center, 1, false, {"width", "fillchar"}},
    {"ljust", method_ljust, 1, false, {"width", "fillchar"}},
    {"rjust", method_rjust, 1, false, {"width", "fillchar"}},
    {"zfill", method_zfill, 1, false, {"width"}},
    {"expandtabs", method_expandtabs, 0, false, {"tabsize"}},
};
const struct builtin_table method_table_text = {methods, sizeof methods / sizeof *methods};
