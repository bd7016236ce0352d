/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/builtin.h"
#include "jinja/cursor.h"
#include "jinja/format.h"
#include "jinja/methods_text.h"
#include "jinja/print.h"
#include "jinja/text.h"
#include "jinja/unicode.h"

#include "base/utf8.h"

#include <string.h>

/* Takes off the output since `start`, made of `like`, as markup when `like` is. */
static enum err take_made(struct render *render, size_t start, struct value like,
                          struct value *ret_text) {
    enum err err = text_claim(render, start, like);
    return err ? err : text_take_like(render, start, like, ret_text);
}

static enum err change_case(struct render *render, struct value self, enum letter_case to,
                            struct value *ret_text) {
    enum err err = text_of(render, self, &self);
    if (err) return err;
    size_t start = render->out->bytes;
    unicode_add_text(render->out, value_str(self), to);
    return take_made(render, start, self, ret_text);
}

static enum err filter_upper(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    (void)args;
    return change_case(render, self, CASE_UPPER, ret_value);
}

static enum err filter_lower(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    (void)args;
    return change_case(render, self, CASE_LOWER, ret_value);
}

static enum err filter_capitalize(struct render *render, struct value self,
                                  const struct arguments *args, struct value *ret_value) {
    (void)args;
    enum err err = text_of(render, self, &self);
    return err ? err : text_capitalize(render, self, ret_value);
}

/* Words as this filter sees them begin after white space, - ( { [ and <. */
static enum err filter_title(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    (void)args;
    enum err err = text_of(render, self, &self);
    if (err) return err;
    struct str text = value_str(self);
    size_t start = render->out->bytes;
    bool begins = true;
    for (size_t at = 0; at < text.bytes;) {
        uint32_t point;
        at += utf8_decode(text, at, &point);
        bool separates = unicode_is_space(point) || (point < 0x80 && strchr("-({[<", (int)point));
        unicode_add_cased(render->out, point, begins ? CASE_UPPER : CASE_LOWER);
        begins = separates;
    }
    return take_made(render, start, self, ret_value);
}

static enum err filter_string(struct render *render, struct value self,
                              const struct arguments *args, struct value *ret_value) {
    (void)args;
    return text_of(render, self, ret_value);
}

static enum err filter_trim(struct render *render, struct value self, const struct arguments *args,
                            struct value *ret_value) {
    enum err err = text_of(render, self, &self);
    return err ? err : text_strip(render, self, args->values[0], true, true, ret_value);
}

static enum err filter_replace(struct render *render, struct value self,
                               const struct arguments *args, struct value *ret_value) {
    struct value old, new;
    int64_t count;
    enum err err = text_of(render, self, &self);
    if (!err) err = arg_text_of(render, args, 0, "", &old);
    if (!err) err = arg_text_of(render, args, 1, "", &new);
    if (!err) err = arg_int_or_none(render, args, 2, -1, &count);
    if (!err) err = text_replace(render, self, value_str(old), new, count, ret_value);
    return err ? err : text_mark(render, *ret_value, false, ret_value);
}

static enum err filter_escape(struct render *render, struct value self,
                              const struct arguments *args, struct value *ret_value) {
    (void)args;
    enum err err = text_of(render, self, &self);
    return err ? err : text_escape(render, self, ret_value);
}

static enum err filter_forceescape(struct render *render, struct value self,
                                   const struct arguments *args, struct value *ret_value) {
    enum err err = text_of(render, self, &self);
    if (!err) err = text_mark(render, self, false, &self);
    return err ? err : filter_escape(render, self, args, ret_value);
}

static enum err filter_safe(struct render *render, struct value self, const struct arguments *args,
                            struct value *ret_value) {
    (void)args;
    enum err err = text_of(render, self, &self);
    return err ? err : text_mark(render, self, true, ret_value);
}

/* A line with its own break left off; moves *at behind the break. */
static struct str next_line(struct str text, size_t *at) {
    size_t begin = *at;
    while (*at < text.bytes) {
        uint32_t point;
        size_t end = *at, bytes = utf8_decode(text, *at, &point);
        *at += bytes;
        if (!unicode_is_line_break(point)) continue;
        if (point == '\r' && *at < text.bytes && text.at[*at] == '\n') (*at)++;
        return (struct str){text.at + begin, end - begin};
    }
    return str_skip(text, begin);
}

static enum err filter_indent(struct render *render, struct value self,
                              const struct arguments *args, struct value *ret_value) {
    static const char blanks[] = "                ";
    struct str indent = STR("    ");
    bool first = arg_true(args, 1, false), blank = arg_true(args, 2, false);
    enum err err = OK;
    struct value width = args->values[0];
    if (!value_is_text(self))
        return render_fail(render, "indent needs a str, not %s", value_type(self));
    if (value_is_text(width)) {
        indent = value_str(width);
    } else if (width.kind != VALUE_ABSENT) {
        int64_t count;
        struct value one, many;
        err = arg_int(render, args, 0, 4, &count);
        if (err) return err;
        indent = (struct str){blanks, count < 0 ? 0 : (size_t)count};
        if (count > (int64_t)sizeof blanks - 1) {
            err = text_borrow(render, STR(" "), &one);
            if (!err) err = arith_apply(render, OPERATOR_MULTIPLY, one, width, &many);
            if (err) return err;
            indent = value_str(many);
        }
    }
    struct str text = value_str(self);
    size_t start = render->out->bytes, at = 0;
    bool ended = text.bytes == 0;
    for (size_t line = 0; !ended; line++) {
        size_t begin = at;
        struct str here = next_line(text, &at);
        if (line > 0) buf_add_byte(render->out, '\n');
        if (line == 0 ? first : (blank || here.bytes > 0)) buf_add_str(render->out, indent);
        err = text_write_part(render, self, begin, here.bytes);
        if (err) return err;
        /* A text that ends in a break has one more line, an empty one. */
        ended = at == text.bytes && here.bytes == at - begin;
    }
    if (text.bytes == 0 && first) buf_add_str(render->out, indent);
    return text_take_like(render, start, self, ret_value);
}

static enum err filter_truncate(struct render *render, struct value self,
                                const struct arguments *args, struct value *ret_value) {
    int64_t length, leeway;
    struct value end, kept;
    size_t count;
    if (!value_length(self, &count))
        return render_fail(render, "truncate needs a str, not %s", value_type(self));
    enum err err = arg_int(render, args, 0, 255, &length);
    if (!err) err = arg_text(render, args, 2, "...", &end);
    if (!err) err = arg_int_or_none(render, args, 3, 5, &leeway);
    if (err) return err;
    int64_t end_points = (int64_t)text_points(end.text);
    if (length < end_points || leeway < 0)
        return render_fail(render, "truncate: the length is smaller than the end");
    if ((int64_t)count - leeway <= length) {
        *ret_value = self;
        return OK;
    }
    if (!value_is_text(self))
        return render_fail(render, "truncate cannot cut a value of type %s", value_type(self));
    size_t bytes = text_offset(self.text, (size_t)(length - end_points));
    if (!arg_true(args, 1, false)) {
        size_t blank = bytes;
        while (blank > 0 && self.text->at[blank - 1] != ' ') blank--;
        if (blank > 0) bytes = blank - 1;
    }
    err = text_part(render, self, 0, bytes, &kept);
    if (!err) err = text_mark(render, kept, false, &kept);
    return err ? err : text_concat(render, kept, end, ret_value);
}

static enum err filter_wordcount(struct render *render, struct value self,
                                 const struct arguments *args, struct value *ret_value) {
    (void)args;
    enum err err = text_of(render, self, &self);
    if (err) return err;
    int64_t words = 0;
    bool inside = false;
    for (size_t at = 0; at < self.text->bytes;) {
        uint32_t point;
        at += utf8_decode(value_str(self), at, &point);
        bool is_word = unicode_is_name(point) || unicode_is_numeric(point);
        words += is_word && !inside;
        inside = is_word;
    }
    *ret_value = value_int(words);
    return render_charge(render, 2 * self.text->bytes);
}

static enum err filter_center(struct render *render, struct value self,
                              const struct arguments *args, struct value *ret_value) {
    int64_t width;
    enum err err = text_of(render, self, &self);
    if (!err) err = arg_int(render, args, 0, 80, &width);
    struct value fill;
    if (!err) err = text_borrow(render, STR(" "), &fill);
    return err ? err : text_pad(render, self, width, fill, '^', ret_value);
}

/* "…%s…"|format(values) or |format(name=value) */
static enum err filter_format(struct render *render, struct value self,
                              const struct arguments *args, struct value *ret_value) {
    struct value operands;
    if (args->count > 0 && args->named_count > 0)
        return render_fail(render, "format takes positional or keyword arguments, not both");
    enum err err = text_of(render, self, &self);
    if (err) return err;
    if (args->named_count > 0) {
        const struct builtin *make = function_find(STR("dict"));
        err = builtin_call(render, make, value_absent(), args, &operands);
    } else {
        struct list *list;
        err = list_new(render, args->count, &list);
        for (size_t i = 0; !err && i < args->count; i++)
            err = list_add(render, list, args->values[i]);
        if (!err) operands = value_of_list(list, true);
    }
    return err ? err : format_percent(render, self, operands, ret_value);
}

static void add_quoted(struct buf *buf, struct str text, bool query) {
    for (size_t i = 0; i < text.bytes; i++) {
        char byte = text.at[i];
        bool plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                     (byte >= '0' && byte <= '9') || (byte && strchr("_.-~", byte)) ||
                     (byte == '/' && !query);
        if (plain) {
            buf_add_byte(buf, byte);
        } else if (byte == ' ' && query) {
            buf_add_byte(buf, '+');
        } else {
            buf_printf(buf, "%%%02X", (unsigned)(unsigned char)byte);
        }
    }
}

static enum err add_query_part(struct render *render, struct value value) {
    struct value text;
    size_t start = render->out->bytes;
    enum err err = text_of(render, value, &text);
    if (!err) add_quoted(render->out, value_str(text), true);
    return err ? err : text_claim(render, start, text);
}

static enum err filter_urlencode(struct render *render, struct value self,
                                 const struct arguments *args, struct value *ret_value) {
    (void)args;
    struct list *pairs, *pair;
    size_t start = render->out->bytes;
    if (value_is_text(self) || !cursor_can_walk(self)) {
        enum err err = text_of(render, self, &self);
        if (err) return err;
        add_quoted(render->out, value_str(self), false);
        err = text_claim(render, start, self);
        return err ? err : text_take(render, start, ret_value);
    }
    if (self.kind == VALUE_DICT) self.kind = VALUE_ITEMS;
    enum err err = cursor_list(render, self, &pairs);
    for (size_t i = 0; !err && i < pairs->count; i++) {
        err = cursor_list(render, pairs->items[i], &pair);
        if (!err && pair->count != 2) return render_fail(render, "urlencode needs pairs");
        if (!err && i > 0) buf_add_byte(render->out, '&');
        if (!err) err = add_query_part(render, pair->items[0]);
        buf_add_byte(render->out, '=');
        if (!err) err = add_query_part(render, pair->items[1]);
    }
    return err ? err : text_take(render, start, ret_value);
}

/* The bytes of a character reference at text[at], one of those that escape writes or a numbered
 * one; 0 without one. */
static size_t read_reference(struct str text, size_t at, uint32_t *ret_point) {
    static const struct {
        struct str name;
        char character;
    } names[] = {{{"&amp;", 5}, '&'},
                 {{"&lt;", 4}, '<'},
                 {{"&gt;", 4}, '>'},
                 {{"&quot;", 6}, '"'},
                 {{"&apos;", 6}, '\''}};
    struct str rest = str_skip(text, at);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_starts_with(rest, names[i].name)) {
            *ret_point = (uint32_t)names[i].character;
            return names[i].name.bytes;
        }
    uint64_t number;
    size_t end = rest.bytes < 12 ? str_find_byte(rest, ';', 0)
                                 : str_find_byte((struct str){rest.at, 12}, ';', 0);
    if (end == SIZE_MAX || end < 3 || !str_starts_with(rest, STR("&#")) ||
        !str_to_u64((struct str){rest.at + 2, end - 2}, &number) || number < 0x20 ||
        (number >= 0x7F && number < 0xA0) || number > 0x10FFFF ||
        (number >= 0xD800 && number < 0xE000))
        return 0;
    *ret_point = (uint32_t)number;
    return end + 1;
}

/* Drops comments and tags, joins the rest with single blanks, and reads references. */
static enum err filter_striptags(struct render *render, struct value self,
                                 const struct arguments *args, struct value *ret_value) {
    (void)args;
    enum err err = text_of(render, self, &self);
    if (err) return err;
    struct str text = value_str(self);
    size_t start = render->out->bytes;
    bool blank = false;
    for (size_t at = 0; at < text.bytes;) {
        bool comment = str_starts_with(str_skip(text, at), STR("<!--"));
        size_t end = comment              ? str_find(text, STR("-->"), at)
                     : text.at[at] == '<' ? str_find_byte(text, '>', at)
                                          : SIZE_MAX;
        if (end != SIZE_MAX) {
            at = end + (comment ? 3 : 1);
            continue;
        }
        if (text.at[at] == '<') { /* no tag ends any more */
            err = render_charge(render, text.bytes - at);
            if (err) return err;
        }
        uint32_t point;
        char character[4];
        size_t bytes = text.at[at] == '&' ? read_reference(text, at, &point) : 0;
        bool space = false;
        if (bytes == 0) {
            bytes = utf8_decode(text, at, &point);
            space = unicode_is_space(point);
        }
        if (!space && blank && render->out->bytes > start) buf_add_byte(render->out, ' ');
        if (!space) buf_add(render->out, character, utf8_encode(point, character));
        blank = space || (blank && space);
        at += bytes;
    }
    err = text_claim(render, start, self);
    return err ? err : text_take(render, start, ret_value);
}

static const struct builtin filters[] = {
    {"upper", filter_upper, 0, false, {NULL}},
    {"lower", filter_lower, 0, false, {NULL}},
    {"capitalize", filter_capitalize, 0, false, {NULL}},
    {"title", filter_title, 0, false, {NULL}},
    {"string", filter_string, 0, false, {NULL}},
    {"trim", filter_trim, 0, false, {"chars"}},
    {"replace", filter_replace, 2, false, {"old", "new", "count"}},
    {"e", filter_escape, 0, false, {NULL}},
    {"escape", filter_escape, 0, false, {NULL}},
    {"forceescape", filter_forceescape, 0, false, {NULL}},
    {"safe", filter_safe, 0, false, {NULL}},
    {"indent", filter_indent, 0, false, {"width", "first", "blank"}},
    {"truncate", filter_truncate, 0, false, {"length", "killwords", "end", "leeway"}},
    {"wordcount", filter_wordcount, 0, false, {NULL}},
    {"center", filter_center, 0, false, {"width"}},
    {"format", filter_format, 0, true, {NULL}},
    {"urlencode", filter_urlencode, 0, false, {NULL}},
    {"striptags", filter_striptags, 0, false, {NULL}},
};
const struct builtin_table filter_table_text = {filters, sizeof filters / sizeof *filters};
