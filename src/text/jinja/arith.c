/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/arith.h"

#include "jinja/cursor.h"
#include "jinja/format.h"
#include "jinja/text.h"

#include <math.h>
#include <string.h>

static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "**"};

enum err(arith_fail_undefined)(struct render *render, struct value value) {
    const struct undefined *undefined = value.undefined;
    int bytes = undefined->name.bytes < 100 ? (int)undefined->name.bytes : 100;
    const char *name = undefined->name.at;
    switch (undefined->cause) {
    case UNDEFINED_NAME: return render_fail(render, "'%.*s' is undefined", bytes, name);
    case UNDEFINED_ATTRIBUTE:
        return render_fail(render, "'%s' has no attribute '%.*s'", undefined->owner, bytes, name);
    case UNDEFINED_UNSAFE:
        return render_fail(render, "access to attribute '%.*s' of '%s' is unsafe", bytes, name,
                           undefined->owner);
    case UNDEFINED_REASON: break;
    }
    return render_fail(render, "%.*s", bytes, name);
}

static enum err mismatch(struct render *render, enum operator operator, struct value left,
                         struct value right) {
    return render_fail(render, "operator %s does not take %s and %s", signs[operator],
                       value_type(left), value_type(right));
}

static enum err overflow(struct render *render) {
    return render_fail(render, "a number does not fit 64 bits");
}

static enum err integer_power(struct render *render, int64_t base, int64_t exponent,
                              struct value *ret_value) {
    if (exponent < 0) {
        if (base == 0) return render_fail(render, "division by zero");
        *ret_value = value_float(pow((double)base, (double)exponent));
        return OK;
    }
    int64_t power = 1;
    while (exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(power, base, &power)) return overflow(render);
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow(render);
    }
    *ret_value = value_int(power);
    return OK;
}

static enum err integer_divide(struct render *render, enum operator operator, int64_t left,
                               int64_t right, struct value *ret_value) {
    if (right == 0) return render_fail(render, "division by zero");
    if (operator== OPERATOR_DIVIDE) {
        *ret_value = value_float((double)left / (double)right);
        return OK;
    }
    if (right == -1) { /* the one division that can overflow */
        int64_t negated;
        if (operator== OPERATOR_REMAINDER) {
            *ret_value = value_int(0);
            return OK;
        }
        if (__builtin_sub_overflow((int64_t)0, left, &negated)) return overflow(render);
        *ret_value = value_int(negated);
        return OK;
    }
    int64_t quotient = left / right, remainder = left % right;
    if (remainder != 0 && (remainder < 0) != (right < 0)) { /* round towards minus infinity */
        quotient--;
        remainder += right;
    }
    *ret_value = value_int(operator== OPERATOR_REMAINDER ? remainder : quotient);
    return OK;
}

static enum err integers(struct render *render, enum operator operator, int64_t left, int64_t right,
                         struct value *ret_value) {
    int64_t result = 0;
    bool overflowed = false;
    switch (operator) {
    case OPERATOR_ADD: overflowed = __builtin_add_overflow(left, right, &result); break;
    case OPERATOR_SUBTRACT: overflowed = __builtin_sub_overflow(left, right, &result); break;
    case OPERATOR_MULTIPLY: overflowed = __builtin_mul_overflow(left, right, &result); break;
    case OPERATOR_POWER: return integer_power(render, left, right, ret_value);
    default: return integer_divide(render, operator, left, right, ret_value);
    }
    if (overflowed) return overflow(render);
    *ret_value = value_int(result);
    return OK;
}

static double float_remainder(double left, double right) {
    double remainder = fmod(left, right);
    if (remainder != 0 && (remainder < 0) != (right < 0)) return remainder + right;
    return remainder == 0 ? copysign(0.0, right) : remainder;
}

static enum err floats(struct render *render, enum operator operator, double left, double right,
                       struct value *ret_value) {
    double result = 0;
    bool divides = operator== OPERATOR_DIVIDE || operator== OPERATOR_FLOOR_DIVIDE || operator==
        OPERATOR_REMAINDER;
    if (divides && right == 0) return render_fail(render, "division by zero");
    switch (operator) {
    case OPERATOR_ADD: result = left + right; break;
    case OPERATOR_SUBTRACT: result = left - right; break;
    case OPERATOR_MULTIPLY: result = left * right; break;
    case OPERATOR_DIVIDE: result = left / right; break;
    case OPERATOR_FLOOR_DIVIDE:
        result = floor((left - float_remainder(left, right)) / right + 0.5);
        break;
    case OPERATOR_REMAINDER: result = float_remainder(left, right); break;
    case OPERATOR_POWER:
        if (left == 0 && right < 0) return render_fail(render, "division by zero");
        result = pow(left, right);
        if (isnan(result) && !isnan(left) && !isnan(right))
            return render_fail(render, "a power is not a real number");
        if (isinf(result) && isfinite(left) && isfinite(right))
            return render_fail(render, "a power is too large");
        break;
    }
    *ret_value = value_float(result);
    return OK;
}

/* text + text; markup on one side escapes the other. */
static enum err add_texts(struct render *render, struct value left, struct value right,
                          struct value *ret_value) {
    bool markup = left.text->markup || right.text->markup;
    if (left.text->markup != right.text->markup) {
        struct value *plain = left.text->markup ? &right : &left;
        enum err err = text_escape(render, *plain, plain);
        if (err) return err;
    }
    enum err err = text_concat(render, left, right, ret_value);
    if (!err) ret_value->text->markup = markup;
    return err;
}

static enum err repeat_text(struct render *render, struct value text, int64_t times,
                            struct value *ret_value) {
    size_t bytes;
    if (times < 0) times = 0;
    if (__builtin_mul_overflow(text.text->bytes, (size_t)times, &bytes) || bytes == SIZE_MAX)
        return render_limit(render, "its memory");
    char *at = render_alloc(render, bytes + 1);
    if (!at) return ERR_LIMIT;
    for (size_t i = 0; text.text->bytes > 0 && i < (size_t)times; i++)
        memcpy(at + i * text.text->bytes, text.text->at, text.text->bytes);
    enum err err = text_borrow(render, (struct str){at, bytes}, ret_value);
    if (err) return err;
    ret_value->text->markup = text.text->markup;
    if (text_is_given(text)) ret_value->text->origin = &origin_given;
    return OK;
}

static enum err repeat_list(struct render *render, struct value value, int64_t times,
                            struct value *ret_value) {
    size_t count;
    struct list *list;
    if (times < 0) times = 0;
    if (__builtin_mul_overflow(value.list->count, (size_t)times, &count))
        return render_limit(render, "its memory");
    enum err err = list_new(render, count, &list);
    if (err) return err;
    for (size_t i = 0; value.list->count > 0 && i < (size_t)times; i++)
        memcpy(list->items + i * value.list->count, value.list->items,
               value.list->count * sizeof *list->items);
    list->count = list->backing->used = count;
    *ret_value = value_of_list(list, value.kind == VALUE_TUPLE);
    return OK;
}

static enum err multiply(struct render *render, struct value left, struct value right,
                         struct value *ret_value) {
    if (value_is_integer(left)) {
        struct value swap = left;
        left = right;
        right = swap;
    }
    if (value_is_integer(right) && value_is_text(left))
        return repeat_text(render, left, value_integer(right), ret_value);
    if (value_is_integer(right) && value_is_list(left))
        return repeat_list(render, left, value_integer(right), ret_value);
    return mismatch(render, OPERATOR_MULTIPLY, left, right);
}

enum err arith_apply(struct render *render, enum operator operator, struct value left,
                     struct value right, struct value *ret_value) {
    if (value_is_number(left) && value_is_number(right)) {
        if (value_is_integer(left) && value_is_integer(right))
            return integers(render, operator, value_integer(left), value_integer(right), ret_value);
        return floats(render, operator, value_real(left), value_real(right), ret_value);
    }
    if (left.kind == VALUE_UNDEFINED) return arith_fail_undefined(render, left);
    if (operator== OPERATOR_REMAINDER && value_is_text(left))
        return format_percent(render, left, right, ret_value);
    if (right.kind == VALUE_UNDEFINED) return arith_fail_undefined(render, right);
    if (operator== OPERATOR_MULTIPLY) return multiply(render, left, right, ret_value);
    if (operator== OPERATOR_ADD && left.kind == right.kind) {
        if (value_is_text(left)) return add_texts(render, left, right, ret_value);
        if (value_is_list(left)) {
            struct list *list;
            enum err err = list_concat(render, left.list, right.list, &list);
            if (!err) *ret_value = value_of_list(list, left.kind == VALUE_TUPLE);
            return err;
        }
    }
    return mismatch(render, operator, left, right);
}

enum err arith_join(struct render *render, struct value left, struct value right,
                    struct value *ret_text) {
    enum err err = text_of(render, left, &left);
    if (!err) err = text_of(render, right, &right);
    if (err) return err;
    return text_concat(render, left, right, ret_text);
}

enum err arith_sign(struct render *render, struct value value, bool negate,
                    struct value *ret_value) {
    int64_t negated;
    if (value.kind == VALUE_UNDEFINED) return arith_fail_undefined(render, value);
    if (!value_is_number(value))
        return render_fail(render, "a value of type %s has no sign", value_type(value));
    if (value.kind == VALUE_FLOAT) {
        *ret_value = value_float(negate ? -value.real : value.real);
        return OK;
    }
    if (!negate) {
        *ret_value = value_int(value_integer(value));
        return OK;
    }
    if (__builtin_sub_overflow((int64_t)0, value_integer(value), &negated)) return overflow(render);
    *ret_value = value_int(negated);
    return OK;
}
