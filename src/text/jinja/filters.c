/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/access.h"
#include "jinja/arith.h"
#include "jinja/builtin.h"
#include "jinja/cursor.h"
#include "jinja/print.h"
#include "jinja/text.h"
#include "json/json.h"

#include <string.h>

static enum err filter_default(struct render *render, struct value self,
                               const struct arguments *args, struct value *ret_value) {
    bool replace =
        self.kind == VALUE_UNDEFINED || (arg_true(args, 1, false) && !value_is_true(self));
    *ret_value = replace ? args->values[0] : self;
    if (ret_value->kind == VALUE_ABSENT) return text_copy(render, STR(""), ret_value);
    return OK;
}

static enum err filter_length(struct render *render, struct value self,
                              const struct arguments *args, struct value *ret_value) {
    (void)args;
    size_t length;
    if (!value_length(self, &length))
        return render_fail(render, "a value of type %s has no length", value_type(self));
    *ret_value = value_size(length);
    return OK;
}

static enum err filter_attr(struct render *render, struct value self, const struct arguments *args,
                            struct value *ret_value) {
    struct value text;
    enum err err = arg_text_of(render, args, 0, "", &text);
    if (err) return err;
    struct str name = value_str(text);
    if (self.kind == VALUE_UNDEFINED) return arith_fail_undefined(render, self);
    if (self.kind == VALUE_DICT) { /* attributes only, which items are not */
        const struct builtin *method = method_find(VALUE_DICT, name);
        if (method) return value_method(render, method, self, ret_value);
        return value_undefined(render, UNDEFINED_ATTRIBUTE, name, value_type(self), ret_value);
    }
    return access_attribute(render, self, name, ret_value);
}

/* The argument `indent`: none, a number of blanks, or a text. */
static enum err json_indent(struct render *render, const struct arguments *args,
                            struct json_style *style) {
    struct value indent = args->values[1], one, many;
    if (indent.kind == VALUE_ABSENT || indent.kind == VALUE_NONE) return OK;
    style->indented = true;
    style->item_separator = STR(",");
    if (value_is_text(indent)) {
        style->indent = value_str(indent);
        return OK;
    }
    if (!value_is_integer(indent))
        return render_fail(render, "the indent of tojson is of type %s", value_type(indent));
    enum err err = text_borrow(render, STR(" "), &one);
    if (!err) err = arith_apply(render, OPERATOR_MULTIPLY, one, indent, &many);
    if (!err) style->indent = value_str(many);
    return err;
}

static enum err json_separators(struct render *render, const struct arguments *args,
                                struct json_style *style) {
    struct list *pair;
    struct value separators = args->values[2];
    if (separators.kind == VALUE_ABSENT || separators.kind == VALUE_NONE) return OK;
    enum err err = cursor_list(render, separators, &pair);
    if (err) return err;
    if (pair->count != 2 || !value_is_text(pair->items[0]) || !value_is_text(pair->items[1]))
        return render_fail(render, "the separators of tojson must be two strings");
    style->item_separator = value_str(pair->items[0]);
    style->key_separator = value_str(pair->items[1]);
    return OK;
}

static enum err filter_tojson(struct render *render, struct value self,
                              const struct arguments *args, struct value *ret_value) {
    struct json_style style = {
        .ensure_ascii = arg_true(args, 0, false),
        .sort_keys = arg_true(args, 3, false),
        .item_separator = STR(", "),
        .key_separator = STR(": "),
    };
    size_t start = render->out->bytes;
    enum err err = json_indent(render, args, &style);
    if (!err) err = json_separators(render, args, &style);
    if (!err) err = print_json(render, self, &style);
    return err ? err : text_take(render, start, ret_value);
}

static enum err filter_from_json(struct render *render, struct value self,
                                 const struct arguments *args, struct value *ret_value) {
    (void)args;
    json_t *json;
    struct error error = {0};
    if (!value_is_text(self))
        return render_fail(render, "from_json needs a str, not %s", value_type(self));
    size_t room = render->arena.bytes_max - render->arena.bytes_used;
    enum err err = json_read_within(&json, value_str(self), &room, &error);
    if (err == ERR_LIMIT || err == ERR_UNAVAILABLE) return render_limit(render, "its memory");
    if (err) return render_fail(render, "from_json: the text is not JSON");
    err = value_from_json(render, json,
                          (struct json_origin){.copies = true, .given = text_is_given(self)},
                          ret_value);
    json_decref(json);
    return err;
}

static enum err write_escaped(struct render *render, struct value text) {
    enum err err = text_escape(render, text, &text);
    return err ? err : text_write(render, text);
}

static enum err add_attribute(struct render *render, const struct dict_entry *entry) {
    struct value name, value;
    if (entry->value.kind == VALUE_NONE || entry->value.kind == VALUE_UNDEFINED) return OK;
    enum err err = text_of(render, entry->key, &name);
    if (!err) err = text_of(render, entry->value, &value);
    if (err) return err;
    for (size_t i = 0; i < name.text->bytes; i++)
        if (strchr(" \t\n\f\r/>=", name.text->at[i]))
            return render_fail(render, "an attribute has a name that XML does not allow");
    buf_add_byte(render->out, ' ');
    err = write_escaped(render, name);
    buf_add_text(render->out, "=\"");
    if (!err) err = write_escaped(render, value);
    buf_add_byte(render->out, '"');
    return err;
}

static enum err filter_xmlattr(struct render *render, struct value self,
                               const struct arguments *args, struct value *ret_value) {
    if (self.kind != VALUE_DICT)
        return render_fail(render, "xmlattr needs a mapping, not %s", value_type(self));
    size_t start = render->out->bytes;
    enum err err = OK;
    for (size_t i = 0; !err && i < self.dict->count; i++)
        err = add_attribute(render, &self.dict->entries[i]);
    if (!err) err = text_take(render, start, ret_value);
    if (!err && ret_value->text->bytes > 0 && !arg_true(args, 0, true))
        err = text_part(render, *ret_value, 1, ret_value->text->bytes - 1, ret_value);
    return err;
}

static const struct builtin filters[] = {
    {"default", filter_default, 0, false, {"default_value", "boolean"}},
    {"d", filter_default, 0, false, {"default_value", "boolean"}},
    {"length", filter_length, 0, false, {NULL}},
    {"count", filter_length, 0, false, {NULL}},
    {"attr", filter_attr, 1, false, {"name"}},
    {"tojson", filter_tojson, 0, false, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"from_json", filter_from_json, 0, false, {NULL}},
    {"xmlattr", filter_xmlattr, 0, false, {"autospace"}},
};
const struct builtin_table filter_table_other = {filters, sizeof filters / sizeof *filters};
