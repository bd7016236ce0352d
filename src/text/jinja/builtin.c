/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/builtin.h"

#include "jinja/arith.h"
#include "jinja/text.h"

#include <string.h>

static const struct builtin *find_in(const struct builtin_table *table, struct str name) {
    for (size_t i = 0; i < table->count; i++)
        if (str_is(name, table->items[i].name)) return &table->items[i];
    return NULL;
}

const struct builtin *filter_find(struct str name) {
    const struct builtin_table *const tables[] = {&filter_table_text, &filter_table_list,
                                                  &filter_table_number, &filter_table_other};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        const struct builtin *found = find_in(tables[i], name);
        if (found) return found;
    }
    return NULL;
}

const struct builtin *test_find(struct str name) {
    return find_in(&test_table, name);
}

const struct builtin *function_find(struct str name) {
    return find_in(&function_table, name);
}

const struct builtin *method_find(enum value_kind kind, struct str name) {
    switch (kind) {
    case VALUE_TEXT: {
        const struct builtin *found = find_in(&method_table_text, name);
        if (!found) found = find_in(&method_table_search, name);
        return found ? found : find_in(&method_table_class, name);
    }
    case VALUE_LIST:
    case VALUE_TUPLE: {
        const struct builtin *found = find_in(&method_table_list, name);
        bool copy = found && str_is(name, "copy"); /* which tuples do not have */
        return copy && kind == VALUE_TUPLE ? NULL : found;
    }
    case VALUE_DICT: return find_in(&method_table_dict, name);
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_FLOAT: return find_in(&method_table_number, name);
    case VALUE_LOOP: return find_in(&method_table_loop, name);
    case VALUE_CYCLER: return find_in(&method_table_cycler, name);
    default: return NULL;
    }
}

static size_t param_count(const struct builtin *builtin) {
    size_t count = 0;
    while (count < BUILTIN_PARAMS_MAX && builtin->params[count]) count++;
    return count;
}

static enum err bind_named(struct render *render, const struct builtin *builtin,
                           const struct named *named, struct value *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (!str_is(named->name, builtin->params[i])) continue;
        if (values[i].kind != VALUE_ABSENT)
            return render_fail(render, "%s: argument '%s' is given twice", builtin->name,
                               builtin->params[i]);
        values[i] = named->value;
        return OK;
    }
    return render_fail(render, "%s: there is no argument '%.*s'", builtin->name,
                       (int)(named->name.bytes < 60 ? named->name.bytes : 60), named->name.at);
}

enum err builtin_call(struct render *render, const struct builtin *builtin, struct value self,
                      const struct arguments *args, struct value *ret_value) {
    if (builtin->variadic) return builtin->call(render, self, args, ret_value);
    struct value values[BUILTIN_PARAMS_MAX] = {0};
    size_t count = param_count(builtin);
    if (args->count > count)
        return render_fail(render, "%s: takes at most %zu arguments, %zu are given", builtin->name,
                           count, args->count);
    if (args->count > 0) memcpy(values, args->values, args->count * sizeof *values);
    for (size_t i = 0; i < args->named_count; i++) {
        enum err err = bind_named(render, builtin, &args->named[i], values, count);
        if (err) return err;
    }
    for (size_t i = 0; i < builtin->required; i++)
        if (values[i].kind == VALUE_ABSENT)
            return render_fail(render, "%s: argument '%s' is missing", builtin->name,
                               builtin->params[i]);
    const struct arguments bound = {.values = values, .count = count};
    return builtin->call(render, self, &bound, ret_value);
}

enum err arg_int(struct render *render, const struct arguments *args, size_t index,
                 int64_t fallback, int64_t *ret_value) {
    struct value value = args->values[index];
    if (value.kind == VALUE_ABSENT) {
        *ret_value = fallback;
        return OK;
    }
    if (value.kind == VALUE_UNDEFINED) return arith_fail_undefined(render, value);
    if (!value_is_integer(value))
        return render_fail(render, "argument %zu must be an int, not %s", index + 1,
                           value_type(value));
    *ret_value = value_integer(value);
    return OK;
}

enum err arg_int_or_none(struct render *render, const struct arguments *args, size_t index,
                         int64_t fallback, int64_t *ret_value) {
    if (args->values[index].kind == VALUE_NONE) {
        *ret_value = fallback;
        return OK;
    }
    return arg_int(render, args, index, fallback, ret_value);
}

bool arg_true(const struct arguments *args, size_t index, bool fallback) {
    struct value value = args->values[index];
    return value.kind == VALUE_ABSENT ? fallback : value_is_true(value);
}

enum err arg_text(struct render *render, const struct arguments *args, size_t index,
                  const char *fallback, struct value *ret_text) {
    struct value value = args->values[index];
    if (value.kind == VALUE_ABSENT) return text_borrow(render, str_from(fallback), ret_text);
    if (value.kind == VALUE_UNDEFINED) return arith_fail_undefined(render, value);
    if (!value_is_text(value))
        return render_fail(render, "argument %zu must be a str, not %s", index + 1,
                           value_type(value));
    *ret_text = value;
    return OK;
}

enum err arg_str(struct render *render, const struct arguments *args, size_t index,
                 const char *fallback, struct str *ret_text) {
    struct value value;
    enum err err = arg_text(render, args, index, fallback, &value);
    if (!err) *ret_text = value_str(value);
    return err;
}

enum err arg_text_of(struct render *render, const struct arguments *args, size_t index,
                     const char *fallback, struct value *ret_text) {
    struct value value = args->values[index];
    if (value.kind == VALUE_ABSENT) return text_borrow(render, str_from(fallback), ret_text);
    return text_of(render, value, ret_text);
}

enum err arg_name(struct render *render, const struct named *named, struct value *ret_text) {
    enum err err = text_borrow(render, named->name, ret_text);
    if (!err && named->given) ret_text->text->origin = &origin_given;
    return err;
}
