/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/format.h"

#include "base/utf8.h"
#include "jinja/access.h"
#include "jinja/arith.h"
#include "jinja/number.h"
#include "jinja/print.h"
#include "jinja/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COUNT_MAX 1000000
#define PRECISION_MAX 400
/* The widest float: 309 digits, the precision, sign and point, and a comma for every three. */
#define FLOAT_BYTES 1200

enum err format_read_count(struct render *render, struct str text, size_t *at, size_t *ret_count) {
    size_t count = 0;
    for (; *at < text.bytes && text.at[*at] >= '0' && text.at[*at] <= '9'; (*at)++) {
        count = count * 10 + (size_t)(text.at[*at] - '0');
        if (count > COUNT_MAX) return render_limit(render, "a width or precision");
    }
    *ret_count = count;
    return OK;
}

static void add_fill(struct buf *out, const struct format_spec *spec, size_t count) {
    struct str fill = spec->fill.bytes > 0 ? spec->fill : STR(" ");
    for (; count > 0; count--) buf_add_str(out, fill);
}

static void add_padded(struct buf *out, const struct format_spec *spec, struct str body,
                       size_t head, char align_default) {
    char align = spec->align ? spec->align : align_default;
    size_t points = utf8_count(body);
    size_t missing = spec->width > points ? spec->width - points : 0;
    size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
    if (align == '=') {
        buf_add(out, body.at, head);
        body = str_skip(body, head);
    }
    add_fill(out, spec, before);
    buf_add_str(out, body);
    add_fill(out, spec, missing - before);
}

/* Puts the group separator into a run of digits. Returns the length. */
static size_t group_digits(const char *digits, size_t count, char group, size_t every,
                           char *ret_text) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        if (group && i > 0 && (count - i) % every == 0) ret_text[bytes++] = group;
        ret_text[bytes++] = digits[i];
    }
    return bytes;
}

/* Writes sign and, with '#', the prefix of the base. Returns the length. */
static size_t number_head(const struct format_spec *spec, bool negative, char *ret_text) {
    size_t bytes = 0;
    if (negative) {
        ret_text[bytes++] = '-';
    } else if (spec->sign) {
        ret_text[bytes++] = spec->sign;
    }
    if (spec->alternate && spec->type && strchr("xXob", spec->type)) {
        ret_text[bytes++] = '0';
        ret_text[bytes++] = spec->type;
    }
    return bytes;
}

static enum err format_integer(struct render *render, int64_t integer,
                               const struct format_spec *spec) {
    char digits[72], text[160];
    unsigned base = spec->type == 'b'                        ? 2
                    : spec->type == 'o'                      ? 8
                    : spec->type == 'x' || spec->type == 'X' ? 16
                                                             : 10;
    const char *alphabet = spec->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    uint64_t left = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    size_t at = sizeof digits;
    do {
        digits[--at] = alphabet[left % base];
        left /= base;
    } while (left > 0);
    size_t head = number_head(spec, integer < 0, text);
    size_t bytes = head + group_digits(digits + at, sizeof digits - at, spec->group,
                                       base == 10 ? 3 : 4, text + head);
    add_padded(render->out, spec, (struct str){text, bytes}, head, '>');
    return OK;
}

/* Writes the magnitude of a float by its type letter. */
static void write_float(double real, const struct format_spec *spec, char *ret_text) {
    int precision = spec->has_precision ? (int)spec->precision : 6;
    switch (spec->type) {
    case 'e': snprintf(ret_text, FLOAT_BYTES, "%.*e", precision, real); break;
    case 'E': snprintf(ret_text, FLOAT_BYTES, "%.*E", precision, real); break;
    case 'g':
    case 'n': snprintf(ret_text, FLOAT_BYTES, "%.*g", precision, real); break;
    case 'G': snprintf(ret_text, FLOAT_BYTES, "%.*G", precision, real); break;
    case '%': snprintf(ret_text, FLOAT_BYTES, "%.*f%%", precision, real * 100); break;
    case 'F':
    case 'f': snprintf(ret_text, FLOAT_BYTES, "%.*f", precision, real); break;
    default:
        if (spec->has_precision) {
            snprintf(ret_text, FLOAT_BYTES, "%.*g", precision, real);
            if (!strpbrk(ret_text, ".en")) memcpy(ret_text + strlen(ret_text), ".0", 3);
        } else {
            number_write_float(real, ret_text);
        }
    }
}

static enum err format_float(struct render *render, double real, const struct format_spec *spec) {
    char digits[FLOAT_BYTES], text[2 * FLOAT_BYTES];
    if (spec->has_precision && spec->precision > PRECISION_MAX)
        return render_limit(render, "a width or precision");
    write_float(fabs(real), spec, digits);
    size_t whole = strspn(digits, "0123456789");
    size_t head = number_head(spec, signbit(real) && !isnan(real), text);
    size_t bytes = head + group_digits(digits, whole, spec->group, 3, text + head);
    size_t rest = strlen(digits + whole);
    memcpy(text + bytes, digits + whole, rest);
    add_padded(render->out, spec, (struct str){text, bytes + rest}, head, '>');
    return OK;
}

static enum err format_text(struct render *render, struct value value,
                            const struct format_spec *spec) {
    struct value text;
    size_t start = render->out->bytes;
    enum err err = text_of(render, value, &text);
    if (err) return err;
    struct format_spec own = *spec;
    if (spec->group || spec->sign || spec->alternate || (spec->align == '=' && !spec->zeros))
        return render_fail(render, "a str takes no sign, '#', '=' or grouping in its format");
    if (spec->zeros) own.align = '<';
    struct str body = value_str(text);
    if (spec->has_precision && spec->precision < text_points(text.text))
        body.bytes = text_offset(text.text, spec->precision);
    add_padded(render->out, &own, body, 0, '<');
    err = text_claim(render, start, text);
    return err ? err : render_check(render);
}

enum err format_value(struct render *render, struct value value, const struct format_spec *spec) {
    static const char integer_types[] = "dbxXon", float_types[] = "eEfFgG%";
    char type = spec->type;
    bool plain = spec->width == 0 && !spec->has_precision && !type && !spec->sign && !spec->group &&
                 !spec->alternate;
    if (plain) return print_value(render, value);
    if (type == 'c' && value_is_integer(value)) {
        int64_t point = value_integer(value);
        if (point < 0 || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000))
            return render_fail(render, "%lld is not a character", (long long)point);
        char bytes[4];
        size_t count = utf8_encode((uint32_t)point, bytes);
        add_padded(render->out, spec, (struct str){bytes, count}, 0, '<');
        return OK;
    }
    if (value_is_integer(value) && (!type || strchr(integer_types, type)))
        return format_integer(render, value_integer(value), spec);
    if (value_is_number(value) && (!type || strchr(float_types, type) || type == 'n'))
        return format_float(render, value_real(value), spec);
    if (value_is_text(value) && (!type || type == 's')) return format_text(render, value, spec);
    if (type)
        return render_fail(render, "format code '%c' does not take %s", type, value_type(value));
    return render_fail(render, "a value of type %s takes no format", value_type(value));
}

/* [[fill]align][sign][#][0][width][group][.precision][type] */
static enum err read_spec(struct render *render, struct str text, struct format_spec *ret_spec) {
    struct format_spec spec = {0};
    size_t at = 0;
    uint32_t point;
    size_t first = text.bytes > 0 ? utf8_decode(text, 0, &point) : 0;
    if (first > 0 && first < text.bytes && strchr("<>^=", text.at[first])) {
        spec.fill = (struct str){text.at, first};
        spec.align = text.at[first];
        at = first + 1;
    } else if (text.bytes > 0 && text.at[0] && strchr("<>^=", text.at[0])) {
        spec.align = text.at[at++];
    }
    if (at < text.bytes && (text.at[at] == '+' || text.at[at] == ' ')) {
        spec.sign = text.at[at++];
    } else if (at < text.bytes && text.at[at] == '-') {
        at++;
    }
    if (at < text.bytes && text.at[at] == '#') {
        spec.alternate = true;
        at++;
    }
    if (at < text.bytes && text.at[at] == '0' && spec.fill.bytes == 0) {
        spec.fill = STR("0");
        spec.zeros = !spec.align;
        if (spec.zeros) spec.align = '=';
        at++;
    }
    enum err err = format_read_count(render, text, &at, &spec.width);
    if (err) return err;
    if (at < text.bytes && (text.at[at] == ',' || text.at[at] == '_')) spec.group = text.at[at++];
    if (at < text.bytes && text.at[at] == '.') {
        at++;
        spec.has_precision = true;
        err = format_read_count(render, text, &at, &spec.precision);
        if (err) return err;
    }
    if (at < text.bytes) spec.type = text.at[at++];
    if (at < text.bytes) return render_fail(render, "a format specification is not valid");
    *ret_spec = spec;
    return OK;
}

struct braces {
    const struct arguments *args;
    size_t automatic; /* number of the next {} */
};

static enum err field_root(struct render *render, struct braces *braces, struct str name,
                           struct value *ret_value) {
    const struct arguments *args = braces->args;
    uint64_t index;
    if (name.bytes == 0) {
        index = braces->automatic++;
    } else if (!str_to_u64(name, &index)) {
        for (size_t i = 0; i < args->named_count; i++) {
            if (!str_equals(args->named[i].name, name)) continue;
            *ret_value = args->named[i].value;
            return OK;
        }
        return render_fail(render, "format: no argument is named '%.*s'",
                           (int)(name.bytes < 100 ? name.bytes : 100), name.at);
    }
    if (index >= args->count)
        return render_fail(render, "format: there is no argument number %llu",
                           (unsigned long long)index);
    *ret_value = args->values[index];
    return OK;
}

/* name, then .attribute and [item] in any number. */
static enum err field_value(struct render *render, struct braces *braces, struct str field,
                            struct value *ret_value) {
    size_t at = 0;
    while (at < field.bytes && field.at[at] != '.' && field.at[at] != '[') at++;
    struct value value;
    enum err err = field_root(render, braces, (struct str){field.at, at}, &value);
    while (!err && at < field.bytes) {
        bool item = field.at[at++] == '[';
        size_t start = at;
        while (at < field.bytes &&
               (item ? field.at[at] != ']' : field.at[at] != '.' && field.at[at] != '['))
            at++;
        struct str name = {field.at + start, at - start};
        struct value key;
        int64_t index;
        if (item) at++;
        if (value.kind == VALUE_UNDEFINED) return arith_fail_undefined(render, value);
        if (item && str_to_i64(name, &index)) {
            err = access_item(render, value, value_int(index), &value);
        } else if (item) {
            err = text_borrow(render, name, &key);
            if (!err) err = access_item(render, value, key, &value);
        } else {
            err = access_attribute(render, value, name, &value);
        }
    }
    if (!err) *ret_value = value;
    return err;
}

/* The text between the braces: field[!conversion][:spec]. */
static enum err format_field(struct render *render, struct braces *braces, struct str field) {
    size_t colon = str_find_byte(field, ':', 0);
    struct str spec_text = {NULL, 0};
    if (colon != SIZE_MAX) {
        spec_text = str_skip(field, colon + 1);
        field.bytes = colon;
    }
    char conversion = 0;
    if (field.bytes >= 2 && field.at[field.bytes - 2] == '!') {
        conversion = field.at[field.bytes - 1];
        field.bytes -= 2;
    }
    struct format_spec spec;
    struct value value;
    enum err err = read_spec(render, spec_text, &spec);
    if (!err) err = field_value(render, braces, field, &value);
    if (err) return err;
    if (conversion == 'r' || conversion == 'a') {
        size_t start = render->out->bytes;
        err = print_repr(render, value);
        if (!err) err = text_take(render, start, &value);
    } else if (conversion == 's') {
        err = text_of(render, value, &value);
    } else if (conversion) {
        return render_fail(render, "format: unknown conversion '%c'", conversion);
    }
    return err ? err : format_value(render, value, &spec);
}

enum err format_braces(struct render *render, struct value template, const struct arguments *args,
                       struct value *ret_text) {
    struct str text = value_str(template);
    struct braces braces = {.args = args};
    size_t start = render->out->bytes;
    for (size_t at = 0; at < text.bytes; at++) {
        char byte = text.at[at];
        bool twice = at + 1 < text.bytes && text.at[at + 1] == byte;
        if (byte != '{' && byte != '}') {
            buf_add_byte(render->out, byte);
        } else if (twice) {
            buf_add_byte(render->out, byte);
            at++;
        } else {
            size_t end = byte == '{' ? str_find_byte(text, '}', at) : SIZE_MAX;
            if (end == SIZE_MAX) return render_fail(render, "format: a brace stands alone");
            enum err err =
                format_field(render, &braces, (struct str){text.at + at + 1, end - at - 1});
            if (err) return err;
            at = end;
        }
    }
    enum err err = text_claim(render, start, template);
    return err ? err : text_take(render, start, ret_text);
}
