/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/access.h"
#include "jinja/arith.h"
#include "jinja/builtin.h"
#include "jinja/compare.h"
#include "jinja/cursor.h"
#include "jinja/dict.h"
#include "jinja/methods_text.h"
#include "jinja/text.h"

#include <string.h>

/* The item, or the value at `attribute` in it: a path, a number, absent or none. */
static enum err attribute_of(struct render *render, struct value item, struct value attribute,
                             struct value *ret_value) {
    if (attribute.kind == VALUE_ABSENT || attribute.kind == VALUE_NONE) {
        *ret_value = item;
        return OK;
    }
    if (value_is_text(attribute)) return access_path(render, item, value_str(attribute), ret_value);
    return access_item(render, item, attribute, ret_value);
}

static enum err filter_list(struct render *render, struct value self, const struct arguments *args,
                            struct value *ret_value) {
    (void)args;
    struct list *list;
    enum err err = cursor_list(render, self, &list);
    if (!err) *ret_value = value_of_list(list, false);
    return err;
}

static enum err none_of(struct render *render, const char *reason, struct value *ret_value) {
    return value_undefined(render, UNDEFINED_REASON, str_from(reason), NULL, ret_value);
}

static enum err filter_first(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    (void)args;
    struct cursor cursor;
    bool more = false;
    enum err err = cursor_open(render, self, &cursor);
    if (!err) err = cursor_next(render, &cursor, &more, ret_value);
    if (err || more) return err;
    return none_of(render, "no first item, the sequence was empty", ret_value);
}

static enum err filter_last(struct render *render, struct value self, const struct arguments *args,
                            struct value *ret_value) {
    (void)args;
    size_t length;
    struct list *list;
    if (!value_length(self, &length))
        return render_fail(render, "a value of type %s has no last item", value_type(self));
    if (length == 0) return none_of(render, "no last item, the sequence was empty", ret_value);
    if (value_is_text(self) || self.kind == VALUE_RANGE)
        return access_item(render, self, value_int(-1), ret_value);
    enum err err = cursor_list(render, self, &list);
    if (!err) *ret_value = list->items[list->count - 1];
    return err;
}

static enum err filter_reverse(struct render *render, struct value self,
                               const struct arguments *args, struct value *ret_value) {
    (void)args;
    if (value_is_text(self))
        return access_slice(render, self, value_none(), value_none(), value_int(-1), ret_value);
    struct list *list, *reversed;
    enum err err = cursor_list(render, self, &list);
    if (!err) err = list_new(render, list->count, &reversed);
    for (size_t i = 0; !err && i < list->count; i++)
        err = list_add(render, reversed, list->items[list->count - 1 - i]);
    if (err) return err;
    /* A value that cannot be walked backwards becomes a list first, as in Jinja. */
    if (self.kind == VALUE_ITERATOR) {
        *ret_value = value_of_list(reversed, false);
        return OK;
    }
    return value_iterator(render, reversed, ret_value);
}

static enum err filter_join(struct render *render, struct value self, const struct arguments *args,
                            struct value *ret_value) {
    struct value separator;
    enum err err = arg_text_of(render, args, 0, "", &separator);
    if (err || args->values[1].kind == VALUE_ABSENT || args->values[1].kind == VALUE_NONE)
        return err ? err : text_join(render, separator, self, true, ret_value);
    struct list *items, *parts;
    err = cursor_list(render, self, &items);
    if (!err) err = list_new(render, items->count, &parts);
    for (size_t i = 0; !err && i < items->count; i++) {
        struct value part;
        err = attribute_of(render, items->items[i], args->values[1], &part);
        if (!err) err = list_add(render, parts, part);
    }
    return err ? err : text_join(render, separator, value_of_list(parts, false), true, ret_value);
}

/* The items of a walk, each with the key that `attribute` gives, in lower case on request. */
static enum err keyed_items(struct render *render, struct value self, struct value attribute,
                            bool case_sensitive, struct sort_item **ret_items, size_t *ret_count) {
    struct list *list;
    enum err err = cursor_list(render, self, &list);
    if (err) return err;
    struct sort_item *items = render_array(render, list->count, sizeof *items);
    if (!items) return ERR_LIMIT;
    for (size_t i = 0; !err && i < list->count; i++) {
        items[i].item = list->items[i];
        err = attribute_of(render, list->items[i], attribute, &items[i].key);
        if (!err && !case_sensitive) err = compare_fold(render, items[i].key, &items[i].key);
    }
    *ret_items = items;
    *ret_count = list->count;
    return err;
}

/* The key of sort(attribute="a,b"): a list with the value of each path. */
static enum err several_keys(struct render *render, struct value item, struct str paths,
                             bool case_sensitive, struct value *ret_key) {
    struct list *keys;
    enum err err = list_new(render, 1, &keys);
    for (size_t at = 0; !err && at <= paths.bytes;) {
        size_t comma = str_find_byte(paths, ',', at);
        if (comma == SIZE_MAX) comma = paths.bytes;
        struct value key;
        err = access_path(render, item, (struct str){paths.at + at, comma - at}, &key);
        if (!err && !case_sensitive) err = compare_fold(render, key, &key);
        if (!err) err = list_add(render, keys, key);
        at = comma + 1;
    }
    if (!err) *ret_key = value_of_list(keys, false);
    return err;
}

/* The items as a new list. */
static enum err items_list(struct render *render, const struct sort_item *items, size_t count,
                           struct value *ret_list) {
    struct list *list;
    enum err err = list_new(render, count, &list);
    for (size_t i = 0; !err && i < count; i++) err = list_add(render, list, items[i].item);
    if (!err) *ret_list = value_of_list(list, false);
    return err;
}

static enum err filter_sort(struct render *render, struct value self, const struct arguments *args,
                            struct value *ret_value) {
    struct sort_item *items;
    size_t count;
    struct value attribute = args->values[2];
    bool paths = value_is_text(attribute), case_sensitive = arg_true(args, 1, false);
    enum err err =
        keyed_items(render, self, paths ? value_none() : attribute, case_sensitive, &items, &count);
    for (size_t i = 0; !err && paths && i < count; i++)
        err = several_keys(render, items[i].item, value_str(attribute), case_sensitive,
                           &items[i].key);
    if (!err) err = compare_sort(render, items, count, arg_true(args, 0, false));
    return err ? err : items_list(render, items, count, ret_value);
}

static enum err extreme(struct render *render, struct value self, const struct arguments *args,
                        bool largest, struct value *ret_value) {
    struct sort_item *items;
    size_t count, best = 0;
    enum err err =
        keyed_items(render, self, args->values[1], arg_true(args, 0, false), &items, &count);
    if (!err && count == 0)
        return none_of(render, "no aggregated item, the sequence was empty", ret_value);
    for (size_t i = 1; !err && i < count; i++) {
        int order;
        err = compare_order(render, items[i].key, items[best].key, &order);
        if (!err && (largest ? order > 0 : order < 0)) best = i;
    }
    if (!err) *ret_value = items[best].item;
    return err;
}

static enum err filter_min(struct render *render, struct value self, const struct arguments *args,
                           struct value *ret_value) {
    return extreme(render, self, args, false, ret_value);
}

static enum err filter_max(struct render *render, struct value self, const struct arguments *args,
                           struct value *ret_value) {
    return extreme(render, self, args, true, ret_value);
}

static enum err filter_sum(struct render *render, struct value self, const struct arguments *args,
                           struct value *ret_value) {
    struct sort_item *items;
    size_t count;
    struct value sum = args->values[1].kind == VALUE_ABSENT ? value_int(0) : args->values[1];
    enum err err = keyed_items(render, self, args->values[0], true, &items, &count);
    if (!err && value_is_text(sum)) return render_fail(render, "sum does not add strings");
    for (size_t i = 0; !err && i < count; i++)
        err = arith_apply(render, OPERATOR_ADD, sum, items[i].key, &sum);
    if (!err) *ret_value = sum;
    return err;
}

static enum err filter_unique(struct render *render, struct value self,
                              const struct arguments *args, struct value *ret_value) {
    struct sort_item *items;
    struct list *list;
    size_t count, kept = 0;
    enum err err =
        keyed_items(render, self, args->values[1], arg_true(args, 0, false), &items, &count);
    if (!err) err = list_new(render, 0, &list);
    for (size_t i = 0; !err && i < count; i++) {
        bool seen = false, hashable;
        err = dict_key_is_hashable(render, items[i].key, &hashable);
        if (!err && !hashable)
            return render_fail(render, "unique does not take values of type %s",
                               value_type(items[i].key));
        for (size_t j = 0; !err && !seen && j < kept; j++)
            err = compare_equal(render, items[j].key, items[i].key, &seen);
        if (err || seen) continue;
        items[kept++] = items[i];
        err = list_add(render, list, items[i].item);
    }
    return err ? err : value_iterator(render, list, ret_value);
}

/* The items of a walk. map, select and similar filters take none, 0 and false for an empty one. */
static enum err list_or_none(struct render *render, struct value value, struct list **ret_list) {
    return value_is_true(value) ? cursor_list(render, value, ret_list)
                                : list_new(render, 0, ret_list);
}

/* map('filter', …): the filter over every item. */
static enum err map_filter(struct render *render, const struct list *items,
                           const struct arguments *args, struct list *results) {
    if (args->count == 0 || !value_is_text(args->values[0]))
        return render_fail(render, "map needs the name of a filter");
    struct str name = value_str(args->values[0]);
    const struct builtin *filter = filter_find(name);
    if (!filter)
        return render_fail(render, "there is no filter named '%.*s'",
                           (int)(name.bytes < 60 ? name.bytes : 60), name.at);
    const struct arguments rest = {args->values + 1, args->count - 1, args->named,
                                   args->named_count};
    enum err err = OK;
    for (size_t i = 0; !err && i < items->count; i++) {
        struct value result;
        err = builtin_call(render, filter, items->items[i], &rest, &result);
        if (!err) err = list_add(render, results, result);
    }
    return err;
}

/* map(attribute=…, default=…) */
static enum err map_attribute(struct render *render, const struct list *items,
                              const struct arguments *args, struct list *results) {
    struct value attribute = value_none(), fallback = value_none();
    for (size_t i = 0; i < args->named_count; i++) {
        if (str_is(args->named[i].name, "attribute")) {
            attribute = args->named[i].value;
        } else if (str_is(args->named[i].name, "default")) {
            fallback = args->named[i].value;
        } else {
            return render_fail(render, "map takes attribute and default only");
        }
    }
    enum err err = OK;
    for (size_t i = 0; !err && i < items->count; i++) {
        struct value result;
        err = attribute_of(render, items->items[i], attribute, &result);
        if (!err && result.kind == VALUE_UNDEFINED && fallback.kind != VALUE_NONE)
            result = fallback;
        if (!err) err = list_add(render, results, result);
    }
    return err;
}

static enum err filter_map(struct render *render, struct value self, const struct arguments *args,
                           struct value *ret_value) {
    struct list *items, *results;
    bool by_attribute = false;
    for (size_t i = 0; i < args->named_count; i++)
        by_attribute |= args->count == 0 && str_is(args->named[i].name, "attribute");
    enum err err = list_or_none(render, self, &items);
    if (!err) err = list_new(render, items->count, &results);
    if (!err)
        err = by_attribute ? map_attribute(render, items, args, results)
                           : map_filter(render, items, args, results);
    return err ? err : value_iterator(render, results, ret_value);
}

/* select, reject, selectattr, rejectattr: the items for which a test gives `wanted`. */
static enum err pick(struct render *render, struct value self, const struct arguments *args,
                     bool by_attribute, bool wanted, struct value *ret_value) {
    struct list *items, *picked;
    const struct builtin *test = NULL;
    size_t skip = by_attribute;
    if (by_attribute && args->count == 0)
        return render_fail(render, "the name of an attribute is missing");
    if (args->count > skip) {
        struct value name = args->values[skip++];
        test = value_is_text(name) ? test_find(value_str(name)) : NULL;
        if (!test) return render_fail(render, "there is no such test");
    }
    const struct arguments rest = {args->count > skip ? args->values + skip : NULL,
                                   args->count - skip, args->named, args->named_count};
    enum err err = list_or_none(render, self, &items);
    if (!err) err = list_new(render, 0, &picked);
    for (size_t i = 0; !err && i < items->count; i++) {
        struct value item = items->items[i], result;
        if (by_attribute) err = attribute_of(render, item, args->values[0], &item);
        result = item;
        if (!err && test) err = builtin_call(render, test, item, &rest, &result);
        if (!err && value_is_true(result) == wanted)
            err = list_add(render, picked, items->items[i]);
    }
    return err ? err : value_iterator(render, picked, ret_value);
}

static enum err filter_select(struct render *render, struct value self,
                              const struct arguments *args, struct value *ret_value) {
    return pick(render, self, args, false, true, ret_value);
}

static enum err filter_reject(struct render *render, struct value self,
                              const struct arguments *args, struct value *ret_value) {
    return pick(render, self, args, false, false, ret_value);
}

static enum err filter_selectattr(struct render *render, struct value self,
                                  const struct arguments *args, struct value *ret_value) {
    return pick(render, self, args, true, true, ret_value);
}

static enum err filter_rejectattr(struct render *render, struct value self,
                                  const struct arguments *args, struct value *ret_value) {
    return pick(render, self, args, true, false, ret_value);
}

static enum err filter_items(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    (void)args;
    struct list *list;
    if (self.kind != VALUE_DICT && self.kind != VALUE_UNDEFINED)
        return render_fail(render, "items needs a mapping, not %s", value_type(self));
    if (self.kind == VALUE_DICT) self.kind = VALUE_ITEMS;
    enum err err = cursor_list(render, self, &list);
    return err ? err : value_iterator(render, list, ret_value);
}

static enum err filter_dictsort(struct render *render, struct value self,
                                const struct arguments *args, struct value *ret_value) {
    struct str by;
    struct sort_item *items;
    size_t count;
    enum err err = arg_str(render, args, 1, "key", &by);
    if (err) return err;
    if (!str_is(by, "key") && !str_is(by, "value"))
        return render_fail(render, "dictsort sorts by 'key' or 'value'");
    if (self.kind != VALUE_DICT)
        return render_fail(render, "dictsort needs a mapping, not %s", value_type(self));
    self.kind = VALUE_ITEMS;
    err = keyed_items(render, self, value_int(str_is(by, "value")), arg_true(args, 0, false),
                      &items, &count);
    if (!err) err = compare_sort(render, items, count, arg_true(args, 2, false));
    return err ? err : items_list(render, items, count, ret_value);
}

/* The key by which groupby groups an item, as it stands in the item. */
static enum err group_key(struct render *render, struct value item, const struct arguments *args,
                          struct value *ret_key) {
    enum err err = attribute_of(render, item, args->values[0], ret_key);
    if (!err && ret_key->kind == VALUE_UNDEFINED && args->values[1].kind != VALUE_ABSENT &&
        args->values[1].kind != VALUE_NONE)
        *ret_key = args->values[1];
    return err;
}

/* Pairs of a key and the items that have it, in order of the keys. */
static enum err filter_groupby(struct render *render, struct value self,
                               const struct arguments *args, struct value *ret_value) {
    struct sort_item *items;
    struct list *groups, *group = NULL;
    size_t count;
    struct value key, pair;
    enum err err = keyed_items(render, self, value_none(), true, &items, &count);
    for (size_t i = 0; !err && i < count; i++) {
        err = group_key(render, items[i].item, args, &items[i].key);
        if (!err && !arg_true(args, 2, false))
            err = compare_fold(render, items[i].key, &items[i].key);
    }
    if (!err) err = compare_sort(render, items, count, false);
    if (!err) err = list_new(render, 0, &groups);
    for (size_t i = 0; !err && i < count; i++) {
        bool same = false;
        if (i > 0) err = compare_equal(render, items[i - 1].key, items[i].key, &same);
        if (!err && !same) {
            err = list_new(render, 0, &group);
            if (!err) err = group_key(render, items[i].item, args, &key);
            if (!err) err = list_pair(render, key, value_of_list(group, false), &pair);
            if (!err) pair.list->group = true;
            if (!err) err = list_add(render, groups, pair);
        }
        if (!err) err = list_add(render, group, items[i].item);
    }
    if (!err) *ret_value = value_of_list(groups, false);
    return err;
}

static enum err filter_batch(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    int64_t size;
    struct list *items, *batches, *batch = NULL;
    struct value fill = args->values[1];
    bool fills = fill.kind != VALUE_ABSENT && fill.kind != VALUE_NONE;
    enum err err = arg_int(render, args, 0, 0, &size);
    if (!err) err = cursor_list(render, self, &items);
    if (!err) err = list_new(render, 0, &batches);
    for (size_t i = 0; !err && i < items->count; i++) {
        if (!batch || (int64_t)batch->count == size) {
            err = list_new(render, 0, &batch);
            if (!err) err = list_add(render, batches, value_of_list(batch, false));
        }
        if (!err) err = list_add(render, batch, items->items[i]);
    }
    while (!err && batch && fills && (int64_t)batch->count < size)
        err = list_add(render, batch, fill);
    return err ? err : value_iterator(render, batches, ret_value);
}

static enum err filter_slice(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    int64_t slices;
    struct list *items, *parts;
    struct value fill = args->values[1];
    bool fills = fill.kind != VALUE_ABSENT && fill.kind != VALUE_NONE;
    enum err err = arg_int(render, args, 0, 0, &slices);
    if (!err && slices <= 0) return render_fail(render, "the number of slices is not positive");
    if (!err) err = cursor_list(render, self, &items);
    if (!err) err = list_new(render, 0, &parts);
    size_t at = 0;
    for (int64_t i = 0; !err && i < slices; i++) {
        struct list *part;
        bool longer = i < (int64_t)(items->count % (size_t)slices);
        size_t count = items->count / (size_t)slices + longer;
        err = list_new(render, 0, &part);
        for (size_t j = 0; !err && j < count; j++) err = list_add(render, part, items->items[at++]);
        if (!err && fills && !longer && items->count % (size_t)slices > 0)
            err = list_add(render, part, fill);
        if (!err) err = list_add(render, parts, value_of_list(part, false));
    }
    return err ? err : value_iterator(render, parts, ret_value);
}

static const struct builtin filters[] = {
    {"list", filter_list, 0, false, {NULL}},
    {"first", filter_first, 0, false, {NULL}},
    {"last", filter_last, 0, false, {NULL}},
    {"reverse", filter_reverse, 0, false, {NULL}},
    {"join", filter_join, 0, false, {"d", "attribute"}},
    {"sort", filter_sort, 0, false, {"reverse", "case_sensitive", "attribute"}},
    {"min", filter_min, 0, false, {"case_sensitive", "attribute"}},
    {"max", filter_max, 0, false, {"case_sensitive", "attribute"}},
    {"sum", filter_sum, 0, false, {"attribute", "start"}},
    {"unique", filter_unique, 0, false, {"case_sensitive", "attribute"}},
    {"map", filter_map, 0, true, {NULL}},
    {"select", filter_select, 0, true, {NULL}},
    {"reject", filter_reject, 0, true, {NULL}},
    {"selectattr", filter_selectattr, 0, true, {NULL}},
    {"rejectattr", filter_rejectattr, 0, true, {NULL}},
    {"items", filter_items, 0, false, {NULL}},
    {"dictsort", filter_dictsort, 0, false, {"case_sensitive", "by", "reverse"}},
    {"groupby", filter_groupby, 1, false, {"attribute", "default", "case_sensitive"}},
    {"batch", filter_batch, 1, false, {"linecount", "fill_with"}},
    {"slice", filter_slice, 1, false, {"slices", "fill_with"}},
};
const struct builtin_table filter_table_list = {filters, sizeof filters / sizeof *filters};
