/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/arith.h"
#include "jinja/builtin.h"
#include "jinja/number.h"
#include "jinja/text.h"

#include <math.h>

static enum err filter_abs(struct render *render, struct value self, const struct arguments *args,
                           struct value *ret_value) {
    (void)args;
    bool negative = value_is_number(self) &&
                    (self.kind == VALUE_FLOAT ? signbit(self.real) != 0 : value_integer(self) < 0);
    return arith_sign(render, self, negative, ret_value);
}

static enum err filter_int(struct render *render, struct value self, const struct arguments *args,
                           struct value *ret_value) {
    int64_t base, integer;
    double real;
    if (self.kind == VALUE_UNDEFINED) return arith_fail_undefined(render, self);
    enum err err = arg_int(render, args, 1, 10, &base);
    if (err) return err;
    if (base != 0 && (base < 2 || base > 36))
        return render_fail(render, "the base of a number is not from 2 to 36");
    bool good = false, large = false;
    if (value_is_integer(self)) {
        integer = value_integer(self);
        good = true;
    } else if (self.kind == VALUE_FLOAT) {
        good = number_truncate(self.real, &integer);
        large = !good && !isnan(self.real);
    } else if (value_is_text(self)) {
        good = number_read_int(value_str(self), (unsigned)base, &integer);
        if (!good && number_read_float(value_str(self), &real)) {
            good = number_truncate(real, &integer);
            large = !good && isfinite(real);
        }
    }
    if (large) return render_fail(render, "int: the number does not fit 64 bits");
    if (good) {
        *ret_value = value_int(integer);
    } else {
        *ret_value = args->values[0].kind == VALUE_ABSENT ? value_int(0) : args->values[0];
    }
    return OK;
}

static enum err filter_float(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    double real;
    if (self.kind == VALUE_UNDEFINED) return arith_fail_undefined(render, self);
    if (value_is_number(self)) {
        *ret_value = value_float(value_real(self));
    } else if (value_is_text(self) && number_read_float(value_str(self), &real)) {
        *ret_value = value_float(real);
    } else {
        *ret_value = args->values[0].kind == VALUE_ABSENT ? value_float(0.0) : args->values[0];
    }
    return OK;
}

static enum err filter_round(struct render *render, struct value self, const struct arguments *args,
                             struct value *ret_value) {
    int64_t digits;
    struct str method;
    enum err err = arg_int(render, args, 0, 0, &digits);
    if (!err) err = arg_str(render, args, 1, "common", &method);
    if (err) return err;
    if (self.kind == VALUE_UNDEFINED) return arith_fail_undefined(render, self);
    if (!value_is_number(self))
        return render_fail(render, "round needs a number, not %s", value_type(self));
    if (str_is(method, "common")) {
        *ret_value = value_is_integer(self) && digits >= 0
                         ? value_int(value_integer(self))
                         : value_float(number_round(value_real(self), digits));
        int64_t integer;
        if (value_is_integer(self) && digits < 0 && number_truncate(ret_value->real, &integer))
            *ret_value = value_int(integer);
        return OK;
    }
    bool up = str_is(method, "ceil");
    if (!up && !str_is(method, "floor"))
        return render_fail(render, "the method of round must be common, ceil or floor");
    double power = pow(10.0, (double)digits);
    double scaled = value_real(self) * power;
    *ret_value = value_float((up ? ceil(scaled) : floor(scaled)) / power);
    return OK;
}

static enum err filter_filesizeformat(struct render *render, struct value self,
                                      const struct arguments *args, struct value *ret_value) {
    static const char decimal[] = "kMGTPEZY", binary[] = "KMGTPEZY";
    bool is_binary = arg_true(args, 0, false);
    double bytes, base = is_binary ? 1024 : 1000;
    if (value_is_number(self)) {
        bytes = value_real(self);
    } else if (!value_is_text(self) || !number_read_float(value_str(self), &bytes)) {
        return render_fail(render, "filesizeformat needs a number");
    }
    size_t start = render->out->bytes;
    if (bytes == 1) {
        buf_add_text(render->out, "1 Byte");
    } else if (bytes < base) {
        buf_printf(render->out, "%.0f Bytes", trunc(bytes));
    } else {
        double unit = base;
        size_t prefix = 0;
        for (; prefix + 1 < sizeof decimal - 1 && bytes >= unit * base; prefix++) unit *= base;
        buf_printf(render->out, "%.1f %c%sB", bytes / unit,
                   is_binary ? binary[prefix] : decimal[prefix], is_binary ? "i" : "");
    }
    return text_take(render, start, ret_value);
}

static const struct builtin filters[] = {
    {"abs", filter_abs, 0, false, {NULL}},
    {"int", filter_int, 0, false, {"default", "base"}},
    {"float", filter_float, 0, false, {"default"}},
    {"round", filter_round, 0, false, {"precision", "method"}},
    {"filesizeformat", filter_filesizeformat, 0, false, {"binary"}},
};
const struct builtin_table filter_table_number = {filters, sizeof filters / sizeof *filters};
