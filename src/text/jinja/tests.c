/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/arith.h"
#include "jinja/builtin.h"
#include "jinja/compare.h"
#include "jinja/cursor.h"
#include "jinja/dict.h"
#include "jinja/text.h"
#include "jinja/unicode.h"

#include "base/utf8.h"

#include <math.h>

/* A test that looks only at its value. */
#define SIMPLE_TEST(name, condition)                                                               \
    static enum err name(struct render *render, struct value self, const struct arguments *args,   \
                         struct value *ret_value) {                                                \
        (void)render;                                                                              \
        (void)args;                                                                                \
        *ret_value = value_bool(condition);                                                        \
        return OK;                                                                                 \
    }

SIMPLE_TEST(is_defined, self.kind != VALUE_UNDEFINED)
SIMPLE_TEST(is_undefined, self.kind == VALUE_UNDEFINED)
SIMPLE_TEST(is_none, self.kind == VALUE_NONE)
SIMPLE_TEST(is_boolean, self.kind == VALUE_BOOL)
SIMPLE_TEST(is_true, self.kind == VALUE_BOOL && self.boolean)
SIMPLE_TEST(is_false, self.kind == VALUE_BOOL && !self.boolean)
SIMPLE_TEST(is_integer, self.kind == VALUE_INT)
SIMPLE_TEST(is_float, self.kind == VALUE_FLOAT)
SIMPLE_TEST(is_number, value_is_number(self))
SIMPLE_TEST(is_string, value_is_text(self))
SIMPLE_TEST(is_mapping, self.kind == VALUE_DICT)
SIMPLE_TEST(is_iterable, cursor_can_walk(self) || self.kind == VALUE_LOOP)
SIMPLE_TEST(is_sequence, self.kind == VALUE_UNDEFINED || value_is_text(self) ||
                             value_is_list(self) || self.kind == VALUE_DICT ||
                             self.kind == VALUE_RANGE)
SIMPLE_TEST(is_escaped, value_is_text(self) && self.text->markup)

/* The name of a filter or a test is looked up in a dict of them, so that a value that is no key is
 * an error. */
#define NAME_TEST(name, find)                                                                      \
    static enum err name(struct render *render, struct value self, const struct arguments *args,   \
                         struct value *ret_value) {                                                \
        (void)args;                                                                                \
        bool hashable;                                                                             \
        enum err err = dict_key_is_hashable(render, self, &hashable);                              \
        if (!err && !hashable)                                                                     \
            return render_fail(render, "a value of type %s is no name", value_type(self));         \
        *ret_value = value_bool(value_is_text(self) && find(value_str(self)));                     \
        return err;                                                                                \
    }

NAME_TEST(is_filter, filter_find)
NAME_TEST(is_test, test_find)
SIMPLE_TEST(is_callable, self.kind == VALUE_UNDEFINED || self.kind == VALUE_MACRO ||
                             self.kind == VALUE_METHOD || self.kind == VALUE_FUNCTION ||
                             self.kind == VALUE_JOINER || self.kind == VALUE_LOOP)

static enum err remainder_is(struct render *render, struct value self, struct value divisor,
                             int64_t wanted, struct value *ret_value) {
    struct value remainder;
    enum err err = arith_apply(render, OPERATOR_REMAINDER, self, divisor, &remainder);
    if (err) return err;
    *ret_value = value_bool(value_is_number(remainder) && value_real(remainder) == (double)wanted);
    return OK;
}

static enum err is_odd(struct render *render, struct value self, const struct arguments *args,
                       struct value *ret_value) {
    (void)args;
    return remainder_is(render, self, value_int(2), 1, ret_value);
}

static enum err is_even(struct render *render, struct value self, const struct arguments *args,
                        struct value *ret_value) {
    (void)args;
    return remainder_is(render, self, value_int(2), 0, ret_value);
}

static enum err is_divisible(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    return remainder_is(render, self, args->values[0], 0, ret_value);
}

static enum err is_equal(struct render *render, struct value self, const struct arguments *args,
                         struct value *ret_value) {
    bool equal;
    enum err err = compare_equal(render, self, args->values[0], &equal);
    if (!err) *ret_value = value_bool(equal);
    return err;
}

static enum err is_unequal(struct render *render, struct value self, const struct arguments *args,
                           struct value *ret_value) {
    bool equal;
    enum err err = compare_equal(render, self, args->values[0], &equal);
    if (!err) *ret_value = value_bool(!equal);
    return err;
}

static enum err order_of(struct render *render, struct value self, const struct arguments *args,
                         int *ret_order) {
    if (self.kind == VALUE_UNDEFINED) return arith_fail_undefined(render, self);
    if (args->values[0].kind == VALUE_UNDEFINED)
        return arith_fail_undefined(render, args->values[0]);
    return compare_order(render, self, args->values[0], ret_order);
}

#define ORDER_TEST(name, condition)                                                                \
    static enum err name(struct render *render, struct value self, const struct arguments *args,   \
                         struct value *ret_value) {                                                \
        int order;                                                                                 \
        enum err err = order_of(render, self, args, &order);                                       \
        if (!err) *ret_value = value_bool(condition);                                              \
        return err;                                                                                \
    }

ORDER_TEST(is_less, order < 0)
ORDER_TEST(is_less_equal, order <= 0)
ORDER_TEST(is_greater, order > 0)
ORDER_TEST(is_greater_equal, order >= 0)

static enum err is_in(struct render *render, struct value self, const struct arguments *args,
                      struct value *ret_value) {
    bool contains;
    enum err err = compare_contains(render, args->values[0], self, &contains);
    if (!err) *ret_value = value_bool(contains);
    return err;
}

/* Python's `is`, where small numbers and constants are one object each. */
static enum err is_same(struct render *render, struct value self, const struct arguments *args,
                        struct value *ret_value) {
    struct value other = args->values[0];
    bool same = self.kind == other.kind;
    if (same && self.kind == VALUE_FLOAT) {
        same = self.real == other.real;
    } else if (same && self.kind == VALUE_TEXT) {
        enum err err = render_charge(render, self.text->bytes / 8);
        if (err) return err;
        same = str_equals(value_str(self), value_str(other));
    } else if (same && (self.kind == VALUE_INT || self.kind == VALUE_BOOL)) {
        same = value_integer(self) == value_integer(other);
    } else if (same && self.kind != VALUE_NONE) {
        same = self.list == other.list;
    }
    *ret_value = value_bool(same);
    return OK;
}

/* str(value).isupper() or .islower(): at least one letter with case, and no letter in the other
 * case. */
static enum err has_case(struct render *render, struct value self, bool upper,
                         struct value *ret_value) {
    struct value text;
    enum err err = text_of(render, self, &text);
    if (err) return err;
    bool some = false, other = false;
    for (size_t at = 0; at < text.text->bytes;) {
        uint32_t point;
        at += utf8_decode(value_str(text), at, &point);
        some |= upper ? unicode_is_upper(point) : unicode_is_lower(point);
        other |=
            unicode_is_title(point) || (upper ? unicode_is_lower(point) : unicode_is_upper(point));
    }
    *ret_value = value_bool(some && !other);
    return render_charge(render, 2 * text.text->bytes);
}

static enum err is_upper(struct render *render, struct value self, const struct arguments *args,
                         struct value *ret_value) {
    (void)args;
    return has_case(render, self, true, ret_value);
}

static enum err is_lower(struct render *render, struct value self, const struct arguments *args,
                         struct value *ret_value) {
    (void)args;
    return has_case(render, self, false, ret_value);
}

static const struct builtin tests[] = {
    {"defined", is_defined, 0, false, {NULL}},
    {"undefined", is_undefined, 0, false, {NULL}},
    {"none", is_none, 0, false, {NULL}},
    {"boolean", is_boolean, 0, false, {NULL}},
    {"true", is_true, 0, false, {NULL}},
    {"false", is_false, 0, false, {NULL}},
    {"integer", is_integer, 0, false, {NULL}},
    {"float", is_float, 0, false, {NULL}},
    {"number", is_number, 0, false, {NULL}},
    {"string", is_string, 0, false, {NULL}},
    {"mapping", is_mapping, 0, false, {NULL}},
    {"iterable", is_iterable, 0, false, {NULL}},
    {"sequence", is_sequence, 0, false, {NULL}},
    {"callable", is_callable, 0, false, {NULL}},
    {"escaped", is_escaped, 0, false, {NULL}},
    {"filter", is_filter, 0, false, {NULL}},
    {"test", is_test, 0, false, {NULL}},
    {"odd", is_odd, 0, false, {NULL}},
    {"even", is_even, 0, false, {NULL}},
    {"divisibleby", is_divisible, 1, false, {"num"}},
    {"in", is_in, 1, false, {"seq"}},
    {"sameas", is_same, 1, false, {"other"}},
    {"upper", is_upper, 0, false, {NULL}},
    {"lower", is_lower, 0, false, {NULL}},
    {"eq", is_equal, 1, false, {"other"}},
    {"equalto", is_equal, 1, false, {"other"}},
    {"==", is_equal, 1, false, {"other"}},
    {"ne", is_unequal, 1, false, {"other"}},
    {"!=", is_unequal, 1, false, {"other"}},
    {"lt", is_less, 1, false, {"other"}},
    {"lessthan", is_less, 1, false, {"other"}},
    {"<", is_less, 1, false, {"other"}},
    {"le", is_less_equal, 1, false, {"other"}},
    {"<=", is_less_equal, 1, false, {"other"}},
    {"gt", is_greater, 1, false, {"other"}},
    {"greaterthan", is_greater, 1, false, {"other"}},
    {">", is_greater, 1, false, {"other"}},
    {"ge", is_greater_equal, 1, false, {"other"}},
    {">=", is_greater_equal, 1, false, {"other"}},
};
const struct builtin_table test_table = {tests, sizeof tests / sizeof *tests};
