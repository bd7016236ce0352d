/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/value.h"

#include "jinja/dict.h"
#include "jinja/text.h"

#include <string.h>

size_t range_length(const struct value_range *range) {
    if (range->step > 0)
        return range->start >= range->stop
                   ? 0
                   : ((size_t)range->stop - (size_t)range->start - 1) / (size_t)range->step + 1;
    return range->start <= range->stop ? 0
                                       : ((size_t)range->start - (size_t)range->stop - 1) /
                                                 ((size_t)0 - (size_t)range->step) +
                                             1;
}

bool value_length(struct value value, size_t *ret_length) {
    switch (value.kind) {
    case VALUE_UNDEFINED: *ret_length = 0; return true;
    case VALUE_TEXT: *ret_length = text_points(value.text); return true;
    case VALUE_LIST:
    case VALUE_TUPLE: *ret_length = value.list->count; return true;
    case VALUE_DICT:
    case VALUE_KEYS:
    case VALUE_VALUES:
    case VALUE_ITEMS: *ret_length = value.dict->count; return true;
    case VALUE_RANGE: *ret_length = range_length(value.range); return true;
    default: return false;
    }
}

bool value_is_true(struct value value) {
    size_t length;
    switch (value.kind) {
    case VALUE_ABSENT:
    case VALUE_NONE: return false;
    case VALUE_BOOL: return value.boolean;
    case VALUE_INT: return value.integer != 0;
    case VALUE_FLOAT: return value.real != 0;
    case VALUE_TEXT: return value.text->bytes > 0;
    default: return !value_length(value, &length) || length > 0;
    }
}

const char *value_type(struct value value) {
    switch (value.kind) {
    case VALUE_ABSENT:
    case VALUE_UNDEFINED: return "Undefined";
    case VALUE_NONE: return "NoneType";
    case VALUE_BOOL: return "bool";
    case VALUE_INT: return "int";
    case VALUE_FLOAT: return "float";
    case VALUE_TEXT: return "str";
    case VALUE_LIST: return "list";
    case VALUE_TUPLE: return "tuple";
    case VALUE_DICT: return "dict";
    case VALUE_RANGE: return "range";
    case VALUE_KEYS: return "dict_keys";
    case VALUE_VALUES: return "dict_values";
    case VALUE_ITEMS: return "dict_items";
    case VALUE_ITERATOR: return "generator";
    case VALUE_NAMESPACE: return "Namespace";
    case VALUE_LOOP: return "LoopContext";
    case VALUE_MACRO: return "Macro";
    case VALUE_METHOD: return "method";
    case VALUE_FUNCTION: return "function";
    case VALUE_CYCLER: return "Cycler";
    case VALUE_JOINER: return "Joiner";
    }
    return "object";
}

enum err value_undefined(struct render *render, enum undefined_cause cause, struct str name,
                         const char *owner, struct value *ret_value) {
    struct undefined *undefined = render_alloc(render, sizeof *undefined);
    if (!undefined) return ERR_LIMIT;
    *undefined = (struct undefined){cause, name, owner};
    *ret_value = (struct value){.kind = VALUE_UNDEFINED, .undefined = undefined};
    return OK;
}

enum err value_method(struct render *render, const struct builtin *builtin, struct value self,
                      struct value *ret_value) {
    struct method *method = render_alloc(render, sizeof *method);
    if (!method) return ERR_LIMIT;
    *method = (struct method){builtin, self};
    *ret_value = (struct value){.kind = VALUE_METHOD, .method = method};
    return OK;
}

enum err value_iterator(struct render *render, const struct list *list, struct value *ret_value) {
    struct iterator *iterator = render_alloc(render, sizeof *iterator);
    if (!iterator) return ERR_LIMIT;
    iterator->list = list;
    *ret_value = (struct value){.kind = VALUE_ITERATOR, .iterator = iterator};
    return OK;
}

enum err list_new(struct render *render, size_t capacity, struct list **ret_list) {
    struct list *list = render_alloc(render, sizeof *list);
    struct backing *backing = render_alloc(render, sizeof *backing);
    if (!list || !backing) return ERR_LIMIT;
    if (capacity > 0) {
        list->items = render_array(render, capacity, sizeof *list->items);
        if (!list->items) return ERR_LIMIT;
    }
    backing->capacity = capacity;
    list->backing = backing;
    *ret_list = list;
    return OK;
}

/* Moves the items to memory of their own with room for `capacity`. */
static enum err list_move(struct render *render, struct list *list, size_t capacity) {
    struct value *items = render_array(render, capacity, sizeof *items);
    struct backing *backing = render_alloc(render, sizeof *backing);
    if (!items || !backing) return ERR_LIMIT;
    if (list->count > 0) memcpy(items, list->items, list->count * sizeof *items);
    *backing = (struct backing){list->count, capacity};
    list->items = items;
    list->backing = backing;
    return OK;
}

enum err list_add(struct render *render, struct list *list, struct value item) {
    if (list->backing->used != list->count || list->count == list->backing->capacity) {
        enum err err = list_move(render, list, list->count < 4 ? 8 : list->count * 2);
        if (err) return err;
    }
    list->items[list->count++] = item;
    list->backing->used = list->count;
    return OK;
}

enum err list_concat(struct render *render, const struct list *left, const struct list *right,
                     struct list **ret_list) {
    struct list *list = render_alloc(render, sizeof *list);
    if (!list) return ERR_LIMIT;
    *list = (struct list){.items = left->items, .count = left->count, .backing = left->backing};
    size_t count = left->count + right->count;
    enum err err = render_charge(render, right->count);
    if (err) return err;
    if (!list->backing || list->backing->used != list->count || list->backing->capacity < count) {
        /* A list that has grown once is likely to grow again. */
        err = list_move(render, list, list->backing ? count * 2 : count);
        if (err) return err;
    }
    if (right->count > 0)
        memcpy(list->items + list->count, right->items, right->count * sizeof *right->items);
    list->count = list->backing->used = count;
    *ret_list = list;
    return OK;
}

enum err list_pair(struct render *render, struct value first, struct value second,
                   struct value *ret_tuple) {
    struct list *pair = render_alloc(render, sizeof *pair);
    struct value *items = render_array(render, 2, sizeof *items);
    if (!pair || !items) return ERR_LIMIT;
    items[0] = first;
    items[1] = second;
    pair->items = items;
    pair->count = 2;
    *ret_tuple = value_of_list(pair, true);
    return OK;
}

static enum err from_json(struct render *render, const json_t *json, struct json_origin origin,
                          unsigned depth, struct value *ret_value);

static enum err text_from_json(struct render *render, struct str text, struct json_origin origin,
                               struct value *ret_value) {
    enum err err =
        origin.copies ? text_copy(render, text, ret_value) : text_borrow(render, text, ret_value);
    if (!err && origin.given) ret_value->text->origin = &origin_given;
    return err;
}

static bool is_word(struct str text) {
    for (size_t i = 0; i < text.bytes; i++)
        if ((text.at[i] < 'a' || text.at[i] > 'z') && text.at[i] != '_') return false;
    return text.bytes > 0;
}

static enum err list_from_json(struct render *render, const json_t *json, struct json_origin origin,
                               unsigned depth, struct value *ret_value) {
    struct list *list;
    enum err err = list_new(render, json_array_size(json), &list);
    if (err) return err;
    for (size_t i = 0; i < json_array_size(json); i++) {
        struct value item;
        err = from_json(render, json_array_get(json, i), origin, depth + 1, &item);
        if (err) return err;
        err = list_add(render, list, item);
        if (err) return err;
    }
    *ret_value = value_of_list(list, false);
    return OK;
}

static enum err dict_from_json(struct render *render, json_t *json, struct json_origin origin,
                               unsigned depth, struct value *ret_value) {
    struct dict *dict;
    enum err err = dict_new(render, json_object_size(json), &dict);
    if (err) return err;
    for (void *at = json_object_iter(json); at; at = json_object_iter_next(json, at)) {
        struct str name = {json_object_iter_key(at), json_object_iter_key_len(at)};
        struct value key, value;
        err = text_from_json(render, name, origin, &key);
        if (err) return err;
        err = from_json(render, json_object_iter_value(at), origin, depth + 1, &value);
        if (err) return err;
        if (origin.messages && depth == 1 && value_is_text(value) && str_is(name, "role") &&
            is_word(value_str(value)))
            value.text->origin = NULL;
        err = dict_add(render, dict, key, value);
        if (err) return err;
    }
    *ret_value = value_of_dict(dict);
    return OK;
}

static enum err from_json(struct render *render, const json_t *json, struct json_origin origin,
                          unsigned depth, struct value *ret_value) {
    if (depth > JINJA_VALUE_DEPTH_MAX) return render_limit(render, "the nesting of a value");
    switch (json_typeof(json)) {
    case JSON_NULL: *ret_value = value_none(); return OK;
    case JSON_TRUE:
    case JSON_FALSE: *ret_value = value_bool(json_is_true(json)); return OK;
    case JSON_INTEGER: *ret_value = value_int(json_integer_value(json)); return OK;
    case JSON_REAL: *ret_value = value_float(json_real_value(json)); return OK;
    case JSON_STRING:
        return text_from_json(render,
                              (struct str){json_string_value(json), json_string_length(json)},
                              origin, ret_value);
    case JSON_ARRAY: return list_from_json(render, json, origin, depth, ret_value);
    case JSON_OBJECT:
        /* jansson's iteration takes no const object, and does not change it. */
        return dict_from_json(render, (json_t *)(uintptr_t)json, origin, depth, ret_value);
    }
    return render_fail(render, "a value of the context is of no known type");
}

enum err value_from_json(struct render *render, const json_t *json, struct json_origin origin,
                         struct value *ret_value) {
    return from_json(render, json, origin, 0, ret_value);
}
