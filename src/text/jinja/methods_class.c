/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"
#include "jinja/builtin.h"
#include "jinja/unicode.h"

/* The questions about a str: isalpha, isupper, … */

/* Whether the text is not empty and every character is of the class. */
#define CLASS_METHOD(name, is_class, of_empty)                                                     \
    static enum err name(struct render *render, struct value self, const struct arguments *args,   \
                         struct value *ret_value) {                                                \
        (void)args;                                                                                \
        bool all = (of_empty) || self.text->bytes > 0;                                             \
        for (size_t at = 0; all && at < self.text->bytes;) {                                       \
            uint32_t point;                                                                        \
            at += utf8_decode(value_str(self), at, &point);                                        \
            all = is_class;                                                                        \
        }                                                                                          \
        *ret_value = value_bool(all);                                                              \
        return render_charge(render, 2 * self.text->bytes);                                        \
    }

CLASS_METHOD(method_isalpha, unicode_is_alpha(point), false)
CLASS_METHOD(method_isdigit, unicode_is_digit(point), false)
CLASS_METHOD(method_isdecimal, unicode_is_decimal(point), false)
CLASS_METHOD(method_isnumeric, unicode_is_numeric(point), false)
CLASS_METHOD(method_isalnum, unicode_is_alpha(point) || unicode_is_numeric(point), false)
CLASS_METHOD(method_isspace, unicode_is_space(point), false)
CLASS_METHOD(method_isascii, point < 0x80, true)
CLASS_METHOD(method_isprintable, unicode_is_printable(point), true)
static enum err method_isidentifier(struct render *render, struct value self,
                                    const struct arguments *args, struct value *ret_value) {
    (void)args;
    bool good = self.text->bytes > 0;
    for (size_t at = 0; good && at < self.text->bytes;) {
        uint32_t point;
        bool first = at == 0;
        at += utf8_decode(value_str(self), at, &point);
        good = first ? unicode_is_name_start(point) : unicode_is_name(point);
    }
    *ret_value = value_bool(good);
    return render_charge(render, 2 * self.text->bytes);
}

static enum err method_isupper(struct render *render, struct value self,
                               const struct arguments *args, struct value *ret_value) {
    return builtin_call(render, test_find(STR("upper")), self, args, ret_value);
}

static enum err method_islower(struct render *render, struct value self,
                               const struct arguments *args, struct value *ret_value) {
    return builtin_call(render, test_find(STR("lower")), self, args, ret_value);
}

static enum err method_istitle(struct render *render, struct value self,
                               const struct arguments *args, struct value *ret_value) {
    (void)args;
    bool some = false, good = true, inside = false;
    for (size_t at = 0; good && at < self.text->bytes;) {
        uint32_t point;
        at += utf8_decode(value_str(self), at, &point);
        bool upper = unicode_is_upper(point) || unicode_is_title(point);
        bool lower = unicode_is_lower(point);
        good = upper ? !inside : !lower || inside;
        inside = upper || lower;
        some |= inside;
    }
    *ret_value = value_bool(some && good);
    return render_charge(render, 2 * self.text->bytes);
}

static const struct builtin methods[] = {
    {"isalpha", method_isalpha, 0, false, {NULL}},
    {"isdigit", method_isdigit, 0, false, {NULL}},
    {"isdecimal", method_isdecimal, 0, false, {NULL}},
    {"isnumeric", method_isnumeric, 0, false, {NULL}},
    {"isalnum", method_isalnum, 0, false, {NULL}},
    {"isspace", method_isspace, 0, false, {NULL}},
    {"isascii", method_isascii, 0, false, {NULL}},
    {"isprintable", method_isprintable, 0, false, {NULL}},
    {"isidentifier", method_isidentifier, 0, false, {NULL}},
    {"isupper", method_isupper, 0, false, {NULL}},
    {"islower", method_islower, 0, false, {NULL}},
    {"istitle", method_istitle, 0, false, {NULL}},
};
const struct builtin_table method_table_class = {methods, sizeof methods / sizeof *methods};
