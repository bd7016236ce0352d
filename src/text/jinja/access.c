/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/access.h"

#include "jinja/arith.h"
#include "jinja/builtin.h"
#include "jinja/dict.h"
#include "jinja/eval.h"
#include "jinja/text.h"

#include <string.h>

/* Methods that would change a value; ImmutableSandboxedEnvironment hides them. */
static bool is_mutator(enum value_kind kind, struct str name) {
    static const char *const of_list[] = {"append", "clear", "pop",    "reverse",
                                          "insert", "sort",  "extend", "remove"};
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
    const char *const *names = kind == VALUE_LIST ? of_list : of_dict;
    size_t count = kind == VALUE_LIST   ? sizeof of_list / sizeof *of_list
                   : kind == VALUE_DICT ? sizeof of_dict / sizeof *of_dict
                                        : 0;
    for (size_t i = 0; i < count; i++)
        if (str_is(name, names[i])) return true;
    return false;
}

static bool is_dunder(struct str name) {
    return name.bytes > 4 && str_starts_with(name, STR("__")) && str_ends_with(name, STR("__"));
}

/* Attributes that are not methods: of loops, cyclers, macros and numbers. Absent when unknown. */
static enum err plain_attribute(struct render *render, struct value object, struct str name,
                                struct value *ret_value) {
    *ret_value = value_absent();
    switch (object.kind) {
    case VALUE_LOOP: return loop_attribute(render, object.loop, name, ret_value);
    case VALUE_MACRO: return macro_attribute(render, object.macro, name, ret_value);
    case VALUE_CYCLER:
        if (str_is(name, "current"))
            *ret_value = object.cycler->items->items[object.cycler->position];
        return OK;
    case VALUE_TUPLE:
        if (object.list->group && str_is(name, "grouper")) *ret_value = object.list->items[0];
        if (object.list->group && str_is(name, "list")) *ret_value = object.list->items[1];
        return OK;
    case VALUE_RANGE:
        if (str_is(name, "start")) *ret_value = value_int(object.range->start);
        if (str_is(name, "stop")) *ret_value = value_int(object.range->stop);
        if (str_is(name, "step")) *ret_value = value_int(object.range->step);
        return OK;
    case VALUE_BOOL:
    case VALUE_INT:
        if (str_is(name, "real") || str_is(name, "numerator"))
            *ret_value = value_int(value_integer(object));
        if (str_is(name, "imag")) *ret_value = value_int(0);
        if (str_is(name, "denominator")) *ret_value = value_int(1);
        return OK;
    case VALUE_FLOAT:
        if (str_is(name, "real")) *ret_value = object;
        if (str_is(name, "imag")) *ret_value = value_float(0.0);
        return OK;
    default: return OK;
    }
}

/* The result of getattr(); absent without one. */
static enum err attribute(struct render *render, struct value object, struct str name,
                          struct value *ret_value) {
    if (object.kind == VALUE_NAMESPACE && !str_is(name, "__class__")) {
        struct dict_entry *entry;
        enum err err = dict_find_str(render, object.dict, name, &entry);
        if (err) return err;
        bool hidden = entry && name.at[0] == '_';
        if (hidden) return value_undefined(render, UNDEFINED_UNSAFE, name, "Namespace", ret_value);
        *ret_value = entry ? entry->value : value_absent();
        return OK;
    }
    if (is_dunder(name) || is_mutator(object.kind, name))
        return value_undefined(render, UNDEFINED_UNSAFE, name, value_type(object), ret_value);
    const struct builtin *method = method_find(object.kind, name);
    if (method) return value_method(render, method, object, ret_value);
    return plain_attribute(render, object, name, ret_value);
}

static enum err missing(struct render *render, struct value object, struct str name,
                        struct value *ret_value) {
    return value_undefined(render, UNDEFINED_ATTRIBUTE, name, value_type(object), ret_value);
}

enum err access_attribute(struct render *render, struct value object, struct str name,
                          struct value *ret_value) {
    if (object.kind == VALUE_UNDEFINED) return arith_fail_undefined(render, object);
    enum err err = attribute(render, object, name, ret_value);
    if (err || ret_value->kind != VALUE_ABSENT) return err;
    if (object.kind == VALUE_DICT) {
        struct dict_entry *entry;
        err = dict_find_str(render, object.dict, name, &entry);
        if (err) return err;
        if (entry) {
            *ret_value = entry->value;
            return OK;
        }
    }
    return missing(render, object, name, ret_value);
}

/* An index as Python counts it, from the end when negative; false outside the items. */
static bool place_of(int64_t index, size_t count, size_t *ret_place) {
    if (index < 0) index += (int64_t)count;
    if (index < 0 || (uint64_t)index >= count) return false;
    *ret_place = (size_t)index;
    return true;
}

static enum err item_at(struct render *render, struct value object, size_t place,
                        struct value *ret_value) {
    if (object.kind == VALUE_RANGE) {
        *ret_value = value_int(object.range->start + (int64_t)place * object.range->step);
        return OK;
    }
    if (value_is_list(object)) {
        *ret_value = object.list->items[place];
        return OK;
    }
    size_t from = text_offset(object.text, place);
    size_t to = from + 1;
    while (to < object.text->bytes && ((unsigned char)object.text->at[to] & 0xC0) == 0x80) to++;
    enum err err = text_points(object.text) == object.text->bytes
                       ? OK
                       : render_charge(render, object.text->bytes / 4);
    return err ? err : text_part(render, object, from, to - from, ret_value);
}

enum err access_item(struct render *render, struct value object, struct value key,
                     struct value *ret_value) {
    size_t count, place;
    if (object.kind == VALUE_UNDEFINED) return arith_fail_undefined(render, object);
    *ret_value = value_absent();
    if (object.kind == VALUE_DICT) {
        struct dict_entry *entry = NULL;
        bool hashable;
        enum err err = dict_key_is_hashable(render, key, &hashable);
        if (!err && hashable) err = dict_find(render, object.dict, key, &entry);
        if (err) return err;
        if (entry) {
            *ret_value = entry->value;
            return OK;
        }
    } else if (value_is_text(object) || value_is_list(object) || object.kind == VALUE_RANGE) {
        if (value_is_integer(key) && value_length(object, &count) &&
            place_of(value_integer(key), count, &place))
            return item_at(render, object, place, ret_value);
    }
    if (value_is_text(key)) {
        enum err err = attribute(render, object, value_str(key), ret_value);
        if (err || ret_value->kind != VALUE_ABSENT) return err;
        return missing(render, object, value_str(key), ret_value);
    }
    struct value name;
    enum err err = text_of(render, key, &name);
    return err ? err : missing(render, object, value_str(name), ret_value);
}

/* A bound of a slice; `fallback` when it is absent or none. */
static enum err slice_bound(struct render *render, struct value bound, int64_t fallback,
                            int64_t *ret_bound) {
    if (bound.kind == VALUE_ABSENT || bound.kind == VALUE_NONE) {
        *ret_bound = fallback;
        return OK;
    }
    if (bound.kind == VALUE_UNDEFINED) return arith_fail_undefined(render, bound);
    if (!value_is_integer(bound))
        return render_fail(render, "a slice needs ints, not %s", value_type(bound));
    *ret_bound = value_integer(bound);
    return OK;
}

static int64_t clamp(int64_t bound, int64_t count, int64_t low, int64_t high) {
    if (bound < 0) bound += count;
    return bound < low ? low : bound > high ? high : bound;
}

static enum err slice_text(struct render *render, struct value object,
                           const struct value_range *range, struct value *ret_value) {
    size_t count = range_length(range);
    if (range->step == 1 || count == 0) {
        size_t from = text_offset(object.text, count ? (size_t)range->start : 0);
        size_t to = count ? text_offset(object.text, (size_t)range->stop) : from;
        enum err err = render_charge(render, to - from);
        return err ? err : text_part(render, object, from, to - from, ret_value);
    }
    size_t start = render->out->bytes;
    for (size_t i = 0; i < count; i++) {
        struct value point;
        enum err err =
            item_at(render, object, (size_t)(range->start + (int64_t)i * range->step), &point);
        if (err) return err;
        err = text_write(render, point);
        if (err) return err;
    }
    return text_take_like(render, start, object, ret_value);
}

/* text[::-1] and other steps: one walk over the text instead of a search per code point. */
static enum err reverse_text(struct render *render, struct value object, struct value *ret_value) {
    size_t end = object.text->bytes;
    char *at = render_alloc(render, end + 1);
    if (!at) return ERR_LIMIT;
    for (size_t from = 0; from < object.text->bytes;) {
        size_t to = from + 1;
        while (to < object.text->bytes && ((unsigned char)object.text->at[to] & 0xC0) == 0x80) to++;
        end -= to - from;
        memcpy(at + end, object.text->at + from, to - from);
        from = to;
    }
    enum err err = text_borrow(render, (struct str){at, object.text->bytes}, ret_value);
    if (err) return err;
    ret_value->text->markup = object.text->markup;
    if (text_is_given(object)) ret_value->text->origin = &origin_given;
    return OK;
}

static enum err slice_list(struct render *render, struct value object,
                           const struct value_range *range, struct value *ret_value) {
    size_t count = range_length(range);
    struct list *list;
    enum err err = list_new(render, count, &list);
    for (size_t i = 0; !err && i < count; i++)
        err = list_add(render, list, object.list->items[range->start + (int64_t)i * range->step]);
    if (!err) *ret_value = value_of_list(list, object.kind == VALUE_TUPLE);
    return err;
}

static enum err slice_range(struct render *render, struct value object,
                            const struct value_range *range, struct value *ret_value) {
    struct value_range *part = render_alloc(render, sizeof *part);
    if (!part) return ERR_LIMIT;
    const struct value_range *whole = object.range;
    *part =
        (struct value_range){whole->start + range->start * whole->step,
                             whole->start + range->stop * whole->step, whole->step * range->step};
    *ret_value = (struct value){.kind = VALUE_RANGE, .range = part};
    return OK;
}

enum err access_slice(struct render *render, struct value object, struct value start,
                      struct value stop, struct value step, struct value *ret_value) {
    size_t length;
    struct value_range range;
    if (object.kind == VALUE_UNDEFINED) return arith_fail_undefined(render, object);
    bool sliceable = value_is_text(object) || value_is_list(object) || object.kind == VALUE_RANGE;
    if (!sliceable || !value_length(object, &length))
        return render_fail(render, "a value of type %s cannot be sliced", value_type(object));
    enum err err = slice_bound(render, step, 1, &range.step);
    if (err) return err;
    if (range.step == 0) return render_fail(render, "the step of a slice is zero");
    int64_t count = (int64_t)length;
    /* Longer steps than the value is long all take one item. */
    if (range.step > count + 1) range.step = count + 1;
    if (range.step < -count - 1) range.step = -count - 1;
    bool back = range.step < 0;
    bool whole = (start.kind == VALUE_ABSENT || start.kind == VALUE_NONE) &&
                 (stop.kind == VALUE_ABSENT || stop.kind == VALUE_NONE);
    if (whole && range.step == -1 && value_is_text(object))
        return reverse_text(render, object, ret_value);
    err = slice_bound(render, start, back ? INT64_MAX : 0, &range.start);
    if (!err) err = slice_bound(render, stop, back ? -count - 1 : INT64_MAX, &range.stop);
    if (err) return err;
    range.start = clamp(range.start, count, back ? -1 : 0, back ? count - 1 : count);
    range.stop = clamp(range.stop, count, back ? -1 : 0, back ? count - 1 : count);
    if (value_is_text(object)) return slice_text(render, object, &range, ret_value);
    if (value_is_list(object)) return slice_list(render, object, &range, ret_value);
    return slice_range(render, object, &range, ret_value);
}

enum err access_path(struct render *render, struct value object, struct str path,
                     struct value *ret_value) {
    for (size_t at = 0; at <= path.bytes;) {
        size_t dot = str_find_byte(path, '.', at);
        if (dot == SIZE_MAX) dot = path.bytes;
        struct str part = {path.at + at, dot - at};
        struct value key;
        uint64_t index;
        enum err err = OK;
        if (part.bytes < 10 && str_to_u64(part, &index)) {
            key = value_int((int64_t)index);
        } else {
            err = text_borrow(render, part, &key);
        }
        if (!err) err = access_item(render, object, key, &object);
        if (err) return err;
        at = dot + 1;
    }
    *ret_value = object;
    return OK;
}
