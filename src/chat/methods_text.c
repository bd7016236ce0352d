/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/methods_text.h"

#include "base/utf8.h"
#include "chat/access.h"
#include "chat/cursor.h"
#include "chat/format.h"
#include "chat/print.h"
#include "chat/text.h"
#include "chat/unicode.h"

#include <string.h>

/* Takes off what was made of `like` and written since `start`, as markup when that was. */
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

static enum err method_capitalize(struct render *render, struct value self,
                                  const struct arguments *args, struct value *ret_value) {
    (void)args;
    return text_capitalize(render, self, ret_value);
}

/* str.title: a word begins wherever a letter follows something that is none. */
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

static enum err affix_fits(struct render *render, struct str text, struct str affix, bool at_end,
                           bool *ret_fits) {
    *ret_fits = at_end ? str_ends_with(text, affix) : str_starts_with(text, affix);
    return render_charge(render, 1 + affix.bytes / 8);
}

/* startswith and endswith: an affix or a tuple of them, within text[start:end]. */
static enum err has_affix(struct render *render, struct value self, const struct arguments *args,
                          bool at_end, struct value *ret_value) {
    struct value affix = args->values[0], part = self;
    bool fits = false;
    enum err err = OK;
    if (args->values[1].kind != VALUE_ABSENT) {
        err = access_slice(render, self, args->values[1], args->values[2], value_absent(), &part);
        if (err) return err;
    }
    if (affix.kind == VALUE_UNDEFINED) return arith_fail_undefined(render, affix);
    if (value_is_text(affix)) {
        err = affix_fits(render, value_str(part), value_str(affix), at_end, &fits);
    } else if (affix.kind == VALUE_TUPLE) {
        for (size_t i = 0; i < affix.list->count && !fits && !err; i++) {
            struct value item = affix.list->items[i];
            if (!value_is_text(item)) return render_fail(render, "an affix is not a str");
            err = affix_fits(render, value_str(part), value_str(item), at_end, &fits);
        }
    } else {
        return render_fail(render, "an affix must be a str or a tuple of them, not %s",
                           value_type(affix));
    }
    *ret_value = value_bool(fits);
    return err;
}

static enum err method_startswith(struct render *render, struct value self,
                                  const struct arguments *args, struct value *ret_value) {
    return has_affix(render, self, args, false, ret_value);
}

static enum err method_endswith(struct render *render, struct value self,
                                const struct arguments *args, struct value *ret_value) {
    return has_affix(render, self, args, true, ret_value);
}

static enum err method_removeprefix(struct render *render, struct value self,
                                    const struct arguments *args, struct value *ret_value) {
    struct str affix;
    bool fits = false;
    enum err err = arg_str(render, args, 0, "", &affix);
    if (!err) err = affix_fits(render, value_str(self), affix, false, &fits);
    if (err) return err;
    size_t from = fits ? affix.bytes : 0;
    return text_part(render, self, from, self.text->bytes - from, ret_value);
}

static enum err method_removesuffix(struct render *render, struct value self,
                                    const struct arguments *args, struct value *ret_value) {
    struct str affix;
    bool fits = false;
    enum err err = arg_str(render, args, 0, "", &affix);
    if (!err) err = affix_fits(render, value_str(self), affix, true, &fits);
    if (err) return err;
    size_t less = fits ? affix.bytes : 0;
    return text_part(render, self, 0, self.text->bytes - less, ret_value);
}

static enum err add_part(struct render *render, struct list *list, struct value whole, size_t from,
                         size_t to) {
    struct value part;
    enum err err = text_part(render, whole, from, to - from, &part);
    return err ? err : list_add(render, list, part);
}

/* split without a separator: at runs of white space, none at the ends. */
static enum err split_space(struct render *render, struct value self, int64_t limit,
                            struct list *list) {
    struct str text = value_str(self);
    for (size_t at = unicode_space_run(text, 0); at < text.bytes;) {
        size_t from = at, bytes;
        if (limit-- == 0) {
            size_t end = unicode_trim_end(text).bytes;
            return add_part(render, list, self, from, end);
        }
        while (at < text.bytes && !is_one_of(text, at, (struct str){NULL, 0}, &bytes)) at += bytes;
        enum err err = add_part(render, list, self, from, at);
        if (err) return err;
        at += unicode_space_run(text, at);
    }
    return OK;
}

static enum err split_at(struct render *render, struct value self, struct str separator,
                         int64_t limit, struct list *list) {
    struct str text = value_str(self);
    size_t from = 0;
    for (;;) {
        size_t found = limit == 0 ? SIZE_MAX : str_find(text, separator, from);
        if (found == SIZE_MAX) return add_part(render, list, self, from, text.bytes);
        enum err err = add_part(render, list, self, from, found);
        if (err) return err;
        from = found + separator.bytes;
        if (limit > 0) limit--;
    }
}

static enum err method_split(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    struct list *list;
    struct str separator = {NULL, 0};
    int64_t limit;
    bool space = args->values[0].kind == VALUE_ABSENT || args->values[0].kind == VALUE_NONE;
    enum err err = arg_int(render, args, 1, -1, &limit);
    if (!err && !space) err = arg_str(render, args, 0, "", &separator);
    if (!err) err = list_new(render, 0, &list);
    if (!err) err = render_charge(render, self.text->bytes);
    if (err) return err;
    if (!space && separator.bytes == 0) return render_fail(render, "the separator is empty");
    err = space ? split_space(render, self, limit, list)
                : split_at(render, self, separator, limit, list);
    if (!err) *ret_value = value_of_list(list, false);
    return err;
}

/* For find_last, which compares anew at every place. */
static enum err charge_find(struct render *render, struct str text, struct str part) {
    return render_charge(render, text.bytes * (1 + part.bytes / 64));
}

/* Start of the last occurrence of `part` that ends at or before `to`, or SIZE_MAX. */
static size_t find_last(struct str text, struct str part, size_t to) {
    if (part.bytes > to) return SIZE_MAX;
    for (size_t at = to - part.bytes + 1; at-- > 0;)
        if (memcmp(text.at + at, part.at, part.bytes) == 0) return at;
    return SIZE_MAX;
}

/* Start of the last run of white space that ends at or before `to`, and in *ret_end its end. */
static size_t find_last_space(struct str text, size_t to, size_t *ret_end) {
    size_t bytes;
    while (to > 0) {
        size_t at = to - 1;
        while (((unsigned char)text.at[at] & 0xC0) == 0x80) at--;
        if (is_one_of(text, at, (struct str){NULL, 0}, &bytes)) {
            *ret_end = to;
            return unicode_trim_end((struct str){text.at, at}).bytes;
        }
        to = at;
    }
    return SIZE_MAX;
}

static void reverse_items(struct list *list) {
    for (size_t i = 0, j = list->count; i + 1 < j; i++) {
        struct value swap = list->items[i];
        list->items[i] = list->items[--j];
        list->items[j] = swap;
    }
}

static enum err method_rsplit(struct render *render, struct value self,
                              const struct arguments *args, struct value *ret_value) {
    struct list *list;
    struct str separator = {NULL, 0};
    int64_t limit;
    bool space = args->values[0].kind == VALUE_ABSENT || args->values[0].kind == VALUE_NONE;
    enum err err = arg_int(render, args, 1, -1, &limit);
    if (!err && !space) err = arg_str(render, args, 0, "", &separator);
    if (!err) err = list_new(render, 0, &list);
    if (!err) err = charge_find(render, value_str(self), separator);
    if (err) return err;
    if (!space && separator.bytes == 0) return render_fail(render, "the separator is empty");
    struct str text = space ? unicode_trim_end(value_str(self)) : value_str(self);
    size_t to = text.bytes;
    for (; !err; limit -= limit > 0) {
        size_t end = 0;
        size_t found = limit == 0 ? SIZE_MAX
                       : space    ? find_last_space(text, to, &end)
                                  : find_last(text, separator, to);
        if (!space) end = found + separator.bytes;
        if (found == SIZE_MAX) break;
        err = add_part(render, list, self, end, to);
        to = found;
    }
    size_t from = space ? unicode_space_run(text, 0) : 0;
    if (!err && (!space || to > from))
        err = add_part(render, list, self, from < to ? from : to, to);
    if (err) return err;
    reverse_items(list);
    *ret_value = value_of_list(list, false);
    return OK;
}

static enum err method_splitlines(struct render *render, struct value self,
                                  const struct arguments *args, struct value *ret_value) {
    struct str text = value_str(self);
    struct list *list;
    bool keep = arg_true(args, 0, false);
    enum err err = list_new(render, 0, &list);
    size_t from = 0, at = 0;
    while (!err && at < text.bytes) {
        uint32_t point;
        size_t end = at;
        at += utf8_decode(text, at, &point);
        if (!unicode_is_line_break(point)) continue;
        if (point == '\r' && at < text.bytes && text.at[at] == '\n') at++;
        err = add_part(render, list, self, from, keep ? at : end);
        from = at;
    }
    if (!err && from < text.bytes) err = add_part(render, list, self, from, text.bytes);
    if (!err) *ret_value = value_of_list(list, false);
    return err;
}

static enum err split_in_three(struct render *render, struct value self,
                               const struct arguments *args, bool last, struct value *ret_value) {
    struct str separator, text = value_str(self);
    struct list *list;
    enum err err = arg_str(render, args, 0, "", &separator);
    if (!err) err = list_new(render, 3, &list);
    if (!err) err = charge_find(render, text, separator);
    if (err) return err;
    if (separator.bytes == 0) return render_fail(render, "the separator is empty");
    size_t found = last ? find_last(text, separator, text.bytes) : str_find(text, separator, 0);
    size_t cuts[4] = {0, found, found + separator.bytes, text.bytes};
    if (found == SIZE_MAX) {
        cuts[1] = cuts[2] = last ? 0 : text.bytes;
    }
    for (size_t i = 0; !err && i < 3; i++) err = add_part(render, list, self, cuts[i], cuts[i + 1]);
    if (!err) *ret_value = value_of_list(list, true);
    return err;
}

static enum err method_partition(struct render *render, struct value self,
                                 const struct arguments *args, struct value *ret_value) {
    return split_in_three(render, self, args, false, ret_value);
}

static enum err method_rpartition(struct render *render, struct value self,
                                  const struct arguments *args, struct value *ret_value) {
    return split_in_three(render, self, args, true, ret_value);
}

/* find, index, rfind, rindex within text[start:end]; -1 when there is none. */
static enum err find_part(struct render *render, struct value self, const struct arguments *args,
                          bool last, bool must, struct value *ret_value) {
    struct str part;
    int64_t start, points = (int64_t)text_points(self.text);
    struct value within;
    enum err err = arg_str(render, args, 0, "", &part);
    if (!err) err = arg_int_or_none(render, args, 1, 0, &start);
    if (!err)
        err = access_slice(render, self, args->values[1], args->values[2], value_absent(), &within);
    if (!err) err = charge_find(render, value_str(self), part);
    if (err) return err;
    if (start < 0) start = start + points < 0 ? 0 : start + points;
    struct str text = value_str(within);
    size_t found = last ? find_last(text, part, text.bytes) : str_find(text, part, 0);
    if (part.bytes == 0) found = start > points ? SIZE_MAX : last ? text.bytes : 0;
    if (found == SIZE_MAX && must) return render_fail(render, "the substring is not found");
    *ret_value =
        value_int(found == SIZE_MAX ? -1 : start + (int64_t)text_index(within.text, found));
    return OK;
}

static enum err method_search(struct render *render, struct value self,
                              const struct arguments *args, struct value *ret_value) {
    return find_part(render, self, args, false, false, ret_value);
}

static enum err method_index(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    return find_part(render, self, args, false, true, ret_value);
}

static enum err method_rfind(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    return find_part(render, self, args, true, false, ret_value);
}

static enum err method_rindex(struct render *render, struct value self,
                              const struct arguments *args, struct value *ret_value) {
    return find_part(render, self, args, true, true, ret_value);
}

static enum err method_count(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    struct str part;
    struct value within;
    enum err err = arg_str(render, args, 0, "", &part);
    if (!err)
        err = access_slice(render, self, args->values[1], args->values[2], value_absent(), &within);
    if (!err) err = render_charge(render, self.text->bytes);
    if (err) return err;
    int64_t count = 0;
    struct str text = value_str(within);
    if (part.bytes == 0) count = (int64_t)text_points(within.text) + 1;
    for (size_t at = 0; part.bytes > 0; count++) {
        at = str_find(text, part, at);
        if (at == SIZE_MAX) break;
        at += part.bytes;
    }
    *ret_value = value_int(count);
    return OK;
}

static enum err method_join(struct render *render, struct value self, const struct arguments *args,
                            struct value *ret_value) {
    return text_join(render, self, args->values[0], false, ret_value);
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
    {"split", method_split, 0, false, {"sep", "maxsplit"}},
    {"strip", method_strip, 0, false, {"chars"}},
    {"lstrip", method_lstrip, 0, false, {"chars"}},
    {"rstrip", method_rstrip, 0, false, {"chars"}},
    {"startswith", method_startswith, 1, false, {"prefix", "start", "end"}},
    {"endswith", method_endswith, 1, false, {"suffix", "start", "end"}},
    {"replace", method_replace, 2, false, {"old", "new", "count"}},
    {"upper", method_upper, 0, false, {NULL}},
    {"lower", method_lower, 0, false, {NULL}},
    {"casefold", method_lower, 0, false, {NULL}},
    {"title", method_title, 0, false, {NULL}},
    {"capitalize", method_capitalize, 0, false, {NULL}},
    {"swapcase", method_swapcase, 0, false, {NULL}},
    {"format", method_format, 0, true, {NULL}},
    {"join", method_join, 1, false, {"iterable"}},
    {"find", method_search, 1, false, {"sub", "start", "end"}},
    {"rfind", method_rfind, 1, false, {"sub", "start", "end"}},
    {"index", method_index, 1, false, {"sub", "start", "end"}},
    {"rindex", method_rindex, 1, false, {"sub", "start", "end"}},
    {"count", method_count, 1, false, {"sub", "start", "end"}},
    {"rsplit", method_rsplit, 0, false, {"sep", "maxsplit"}},
    {"splitlines", method_splitlines, 0, false, {"keepends"}},
    {"partition", method_partition, 1, false, {"sep"}},
    {"rpartition", method_rpartition, 1, false, {"sep"}},
    {"removeprefix", method_removeprefix, 1, false, {"prefix"}},
    {"removesuffix", method_removesuffix, 1, false, {"suffix"}},
    {"center", method_center, 1, false, {"width", "fillchar"}},
    {"ljust", method_ljust, 1, false, {"width", "fillchar"}},
    {"rjust", method_rjust, 1, false, {"width", "fillchar"}},
    {"zfill", method_zfill, 1, false, {"width"}},
    {"expandtabs", method_expandtabs, 0, false, {"tabsize"}},
};
const struct builtin_table method_table_text = {methods, sizeof methods / sizeof *methods};
