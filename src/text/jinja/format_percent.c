/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/access.h"
#include "jinja/dict.h"
#include "jinja/format.h"
#include "jinja/number.h"
#include "jinja/print.h"
#include "jinja/text.h"

#include <string.h>

/* The values that the directives take, one after the other or by name. */
struct operands {
    struct value values;
    size_t taken;
};

static enum err next_operand(struct render *render, struct operands *operands,
                             struct value *ret_value) {
    bool tuple = operands->values.kind == VALUE_TUPLE;
    size_t count = tuple ? operands->values.list->count : 1;
    if (operands->taken >= count) return render_fail(render, "not enough arguments for the format");
    *ret_value = tuple ? operands->values.list->items[operands->taken] : operands->values;
    operands->taken++;
    return OK;
}

static enum err named_operand(struct render *render, struct operands *operands, struct str name,
                              struct value *ret_value) {
    struct dict_entry *entry;
    if (operands->values.kind != VALUE_DICT)
        return render_fail(render, "a format with names needs a mapping");
    enum err err = dict_find_str(render, operands->values.dict, name, &entry);
    if (err) return err;
    if (!entry)
        return render_fail(render, "the format names '%.*s', which is not given",
                           (int)(name.bytes < 100 ? name.bytes : 100), name.at);
    operands->taken = 1;
    *ret_value = entry->value;
    return OK;
}

/* A number, or * for one from the operands. */
static enum err read_star(struct render *render, struct str text, size_t *at,
                          struct operands *operands, size_t *ret_count) {
    if (*at >= text.bytes || text.at[*at] != '*')
        return format_read_count(render, text, at, ret_count);
    struct value value;
    (*at)++;
    enum err err = next_operand(render, operands, &value);
    if (err) return err;
    if (!value_is_integer(value) || value_integer(value) < 0 || value_integer(value) > 1000000)
        return render_fail(render, "* of a format needs an int from 0 to a million");
    *ret_count = (size_t)value_integer(value);
    return OK;
}

static void read_flags(struct str text, size_t *at, struct format_spec *spec) {
    for (; *at < text.bytes; (*at)++) {
        switch (text.at[*at]) {
        case '-': spec->align = '<'; break;
        case '+': spec->sign = '+'; break;
        case ' ':
            if (!spec->sign) spec->sign = ' ';
            break;
        case '#': spec->alternate = true; break;
        case '0':
            if (spec->align) break;
            spec->align = '=';
            spec->fill = STR("0");
            break;
        default: return;
        }
    }
    if (spec->align == '<') spec->fill = (struct str){NULL, 0};
}

static enum err convert_text(struct render *render, struct value value, char letter,
                             struct format_spec *spec) {
    size_t start = render->out->bytes;
    enum err err = letter == 's' ? print_value(render, value) : print_repr(render, value);
    if (!err) err = text_take(render, start, &value);
    if (err) return err;
    if (spec->align != '<') spec->align = '>';
    spec->fill = (struct str){NULL, 0};
    spec->sign = 0;
    spec->alternate = false;
    spec->type = 's';
    return format_value(render, value, spec);
}

static enum err convert(struct render *render, struct value value, char letter,
                        struct format_spec *spec) {
    switch (letter) {
    case 's':
    case 'r':
    case 'a': return convert_text(render, value, letter, spec);
    case 'c':
        if (value_is_text(value) && text_points(value.text) == 1)
            return convert_text(render, value, 's', spec);
        break;
    default: break;
    }
    bool integral = strchr("diuoxXc", letter) != NULL;
    if (!integral && !strchr("eEfFgG", letter))
        return render_fail(render, "unsupported format character '%c'", letter);
    if (!value_is_number(value) ||
        (value.kind == VALUE_FLOAT && integral && !strchr("diu", letter)))
        return render_fail(render, "%%%c format: a number is required, not %s", letter,
                           value_type(value));
    if (integral && value.kind == VALUE_FLOAT) {
        int64_t integer;
        if (!number_truncate(value.real, &integer))
            return render_fail(render, "a number does not fit 64 bits");
        value = value_int(integer);
    }
    spec->type = strchr("iu", letter) ? 'd' : letter;
    if (integral) spec->has_precision = false;
    return format_value(render, value, spec);
}

/* The directive after a % at text[*at - 1]; moves *at behind it. */
static enum err directive(struct render *render, struct str text, size_t *at,
                          struct operands *operands) {
    struct format_spec spec = {0};
    struct value value = value_absent();
    if (*at < text.bytes && text.at[*at] == '(') {
        size_t end = str_find_byte(text, ')', *at);
        if (end == SIZE_MAX) return render_fail(render, "the format has an incomplete name");
        struct str name = {text.at + *at + 1, end - *at - 1};
        enum err err = named_operand(render, operands, name, &value);
        if (err) return err;
        *at = end + 1;
    }
    read_flags(text, at, &spec);
    enum err err = read_star(render, text, at, operands, &spec.width);
    if (!err && *at < text.bytes && text.at[*at] == '.') {
        (*at)++;
        spec.has_precision = true;
        err = read_star(render, text, at, operands, &spec.precision);
    }
    if (err) return err;
    while (*at < text.bytes && strchr("hlL", text.at[*at]) && text.at[*at]) (*at)++;
    if (*at >= text.bytes || text.at[*at] == '\0')
        return render_fail(render, "the format is incomplete");
    char letter = text.at[(*at)++];
    if (letter == '%') {
        buf_add_byte(render->out, '%');
        return OK;
    }
    if (value.kind == VALUE_ABSENT) err = next_operand(render, operands, &value);
    return err ? err : convert(render, value, letter, &spec);
}

enum err format_percent(struct render *render, struct value template, struct value values,
                        struct value *ret_text) {
    struct str text = value_str(template);
    struct operands operands = {.values = values};
    size_t start = render->out->bytes;
    for (size_t at = 0; at < text.bytes;) {
        char byte = text.at[at++];
        if (byte != '%') {
            buf_add_byte(render->out, byte);
            continue;
        }
        enum err err = directive(render, text, &at, &operands);
        if (err) return err;
    }
    /* Python allows unused values if they can be subscripted, except a tuple or a str. */
    bool subscripted = values.kind == VALUE_DICT || values.kind == VALUE_LIST ||
                       values.kind == VALUE_RANGE || values.kind == VALUE_UNDEFINED;
    size_t count = values.kind == VALUE_TUPLE ? values.list->count : !subscripted;
    if (operands.taken < count)
        return render_fail(render, "not all arguments were converted by the format");
    enum err err = text_claim(render, start, template);
    return err ? err : text_take(render, start, ret_text);
}
