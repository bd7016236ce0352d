/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/compare.h"

#include "jinja/cursor.h"
#include "jinja/dict.h"
#include "jinja/text.h"
#include "jinja/unicode.h"

#include <string.h>

static enum err equal_at(struct render *render, struct value left, struct value right,
                         unsigned depth, bool *ret_equal);

static enum err lists_equal(struct render *render, const struct list *left,
                            const struct list *right, unsigned depth, bool *ret_equal) {
    *ret_equal = left->count == right->count;
    for (size_t i = 0; *ret_equal && i < left->count; i++) {
        enum err err = equal_at(render, left->items[i], right->items[i], depth + 1, ret_equal);
        if (err) return err;
    }
    return OK;
}

static enum err dicts_equal(struct render *render, struct dict *left, struct dict *right,
                            unsigned depth, bool *ret_equal) {
    *ret_equal = left->count == right->count;
    for (size_t i = 0; *ret_equal && i < left->count; i++) {
        struct dict_entry *other;
        enum err err = dict_find(render, right, left->entries[i].key, &other);
        if (err) return err;
        *ret_equal = other != NULL;
        if (other)
            err = equal_at(render, left->entries[i].value, other->value, depth + 1, ret_equal);
        if (err) return err;
    }
    return OK;
}

static bool numbers_equal(struct value left, struct value right) {
    if (value_is_integer(left) && value_is_integer(right))
        return value_integer(left) == value_integer(right);
    return value_real(left) == value_real(right);
}

static bool ranges_equal(const struct value_range *left, const struct value_range *right) {
    size_t count = range_length(left);
    return count == range_length(right) && (count == 0 || left->start == right->start) &&
           (count <= 1 || left->step == right->step);
}

static enum err equal_at(struct render *render, struct value left, struct value right,
                         unsigned depth, bool *ret_equal) {
    if (depth > JINJA_VALUE_DEPTH_MAX) return render_limit(render, "the nesting of a value");
    if (value_is_number(left) && value_is_number(right)) {
        *ret_equal = numbers_equal(left, right);
        return render_charge(render, 1);
    }
    *ret_equal = false;
    if (left.kind != right.kind) return OK;
    enum err err = render_charge(render, 8);
    if (err) return err;
    switch (left.kind) {
    case VALUE_NONE:
    case VALUE_UNDEFINED: *ret_equal = true; return OK;
    case VALUE_TEXT:
        err = render_charge(render, left.text->bytes / 8);
        *ret_equal = str_equals(value_str(left), value_str(right));
        return err;
    case VALUE_LIST:
    case VALUE_TUPLE: return lists_equal(render, left.list, right.list, depth, ret_equal);
    case VALUE_DICT: return dicts_equal(render, left.dict, right.dict, depth, ret_equal);
    case VALUE_RANGE: *ret_equal = ranges_equal(left.range, right.range); return OK;
    default: *ret_equal = left.list == right.list; return OK; /* the same object */
    }
}

enum err compare_equal(struct render *render, struct value left, struct value right,
                       bool *ret_equal) {
    return equal_at(render, left, right, 0, ret_equal);
}

static enum err order_at(struct render *render, struct value left, struct value right,
                         unsigned depth, int *ret_order);

static enum err lists_order(struct render *render, const struct list *left,
                            const struct list *right, unsigned depth, int *ret_order) {
    for (size_t i = 0; i < left->count && i < right->count; i++) {
        bool equal;
        enum err err = equal_at(render, left->items[i], right->items[i], depth + 1, &equal);
        if (err) return err;
        if (!equal) return order_at(render, left->items[i], right->items[i], depth + 1, ret_order);
    }
    *ret_order = (left->count > right->count) - (left->count < right->count);
    return OK;
}

static enum err order_at(struct render *render, struct value left, struct value right,
                         unsigned depth, int *ret_order) {
    if (depth > JINJA_VALUE_DEPTH_MAX) return render_limit(render, "the nesting of a value");
    if (value_is_number(left) && value_is_number(right)) {
        if (value_is_integer(left) && value_is_integer(right)) {
            int64_t a = value_integer(left), b = value_integer(right);
            *ret_order = (a > b) - (a < b);
        } else {
            double a = value_real(left), b = value_real(right);
            *ret_order = a < b ? -1 : a != b;
        }
        return render_charge(render, 1);
    }
    if (left.kind == VALUE_TEXT && right.kind == VALUE_TEXT) {
        *ret_order = str_compare(value_str(left), value_str(right));
        return render_charge(render, 8 + left.text->bytes / 8);
    }
    if (left.kind == right.kind && value_is_list(left))
        return lists_order(render, left.list, right.list, depth, ret_order);
    return render_fail(render, "values of type %s and %s have no order", value_type(left),
                       value_type(right));
}

enum err compare_order(struct render *render, struct value left, struct value right,
                       int *ret_order) {
    return order_at(render, left, right, 0, ret_order);
}

enum err compare_fold(struct render *render, struct value value, struct value *ret_value) {
    *ret_value = value;
    if (!value_is_text(value)) return OK;
    size_t start = render->out->bytes;
    unicode_add_text(render->out, value_str(value), CASE_LOWER);
    return text_take(render, start, ret_value);
}

enum err compare_contains(struct render *render, struct value whole, struct value item,
                          bool *ret_contains) {
    struct dict_entry *entry;
    if (whole.kind == VALUE_TEXT) {
        if (!value_is_text(item))
            return render_fail(render, "'in' of a str needs a str, not %s", value_type(item));
        *ret_contains =
            item.text->bytes == 0 || str_find(value_str(whole), value_str(item), 0) != SIZE_MAX;
        return render_charge(render, 1 + whole.text->bytes / 8);
    }
    if (whole.kind == VALUE_DICT || whole.kind == VALUE_KEYS) {
        enum err err = dict_find(render, whole.dict, item, &entry);
        if (!err) *ret_contains = entry != NULL;
        return err;
    }
    struct cursor cursor;
    enum err err = cursor_open(render, whole, &cursor);
    bool more = true, found = false;
    while (!err && more && !found) {
        struct value at = value_absent();
        err = cursor_next(render, &cursor, &more, &at);
        if (!err && more) err = compare_equal(render, at, item, &found);
    }
    if (!err) *ret_contains = found;
    return err;
}

/* Merges the sorted halves of `from` into `to`. */
static enum err merge(struct render *render, const struct sort_item *from, size_t middle,
                      size_t count, bool reverse, struct sort_item *to) {
    size_t left = 0, right = middle;
    for (size_t i = 0; i < count; i++) {
        bool take_left = right == count;
        if (!take_left && left < middle) {
            int order = 0;
            enum err err = compare_order(render, from[left].key, from[right].key, &order);
            if (err) return err;
            take_left = reverse ? order >= 0 : order <= 0;
        }
        to[i] = take_left ? from[left++] : from[right++];
    }
    return OK;
}

enum err compare_sort(struct render *render, struct sort_item *items, size_t count, bool reverse) {
    struct sort_item *spare = render_array(render, count, sizeof *spare);
    struct sort_item *from = items;
    if (!spare) return ERR_LIMIT;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t at = 0; at < count; at += 2 * width) {
            size_t both = count - at < 2 * width ? count - at : 2 * width;
            enum err err =
                merge(render, from + at, width < both ? width : both, both, reverse, spare + at);
            if (err) return err;
        }
        struct sort_item *swap = from;
        from = spare;
        spare = swap;
    }
    if (from != items) memcpy(items, from, count * sizeof *items);
    return OK;
}
