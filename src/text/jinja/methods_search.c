/* SPDX-License-Identifier: Apache-2.0 */

/* The methods of str that look for something in it: finding, counting, splitting, affixes. */

#include "base/utf8.h"
#include "jinja/access.h"
#include "jinja/arith.h"
#include "jinja/builtin.h"
#include "jinja/text.h"
#include "jinja/unicode.h"

#include <string.h>

/* Whether the character at text[at] is white space; its length goes to *ret_bytes. */
static bool is_space_at(struct str text, size_t at, size_t *ret_bytes) {
    uint32_t point;
    *ret_bytes = utf8_decode(text, at, &point);
    return unicode_is_space(point);
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

/* split without a separator cuts at runs of white space, and gives no empty text at the ends. The
 * rest behind the last cut keeps the white space at its end. */
static enum err split_space(struct render *render, struct value self, int64_t limit,
                            struct list *list) {
    struct str text = value_str(self);
    for (size_t at = unicode_space_run(text, 0); at < text.bytes;) {
        size_t from = at, bytes;
        if (limit-- == 0) return add_part(render, list, self, from, text.bytes);
        while (at < text.bytes && !is_space_at(text, at, &bytes)) at += bytes;
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

/* The charge of find_last, which compares anew at every place. */
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
        if (is_space_at(text, at, &bytes)) {
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
    if (!err && (!space || to > 0)) err = add_part(render, list, self, 0, to);
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

/* find, index, rfind and rindex within text[start:end]; -1 when nothing is found. */
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

static const struct builtin methods[] = {
    {"split", method_split, 0, false, {"sep", "maxsplit"}},
    {"startswith", method_startswith, 1, false, {"prefix", "start", "end"}},
    {"endswith", method_endswith, 1, false, {"suffix", "start", "end"}},
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
};
const struct builtin_table method_table_search = {methods, sizeof methods / sizeof *methods};
