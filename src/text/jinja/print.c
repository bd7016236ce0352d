/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/print.h"

#include "base/utf8.h"
#include "jinja/arith.h"
#include "jinja/builtin.h"
#include "jinja/eval.h"
#include "jinja/number.h"
#include "jinja/text.h"
#include "jinja/unicode.h"

#include <inttypes.h>

static enum err repr_at(struct render *render, struct value value, unsigned depth);

static void add_escape(struct buf *buf, uint32_t point, char quote) {
    if (point == '\\' || point == (uint32_t)quote) {
        buf_add_byte(buf, '\\');
        buf_add_byte(buf, (char)point);
    } else if (point == '\n') {
        buf_add_text(buf, "\\n");
    } else if (point == '\r') {
        buf_add_text(buf, "\\r");
    } else if (point == '\t') {
        buf_add_text(buf, "\\t");
    } else if (point < 0x100) {
        buf_printf(buf, "\\x%02" PRIx32, point);
    } else if (point < 0x10000) {
        buf_printf(buf, "\\u%04" PRIx32, point);
    } else {
        buf_printf(buf, "\\U%08" PRIx32, point);
    }
}

static void repr_text(struct buf *buf, struct str text) {
    bool single = str_find_byte(text, '\'', 0) != SIZE_MAX;
    bool both = single && str_find_byte(text, '"', 0) != SIZE_MAX;
    char quote = single && !both ? '"' : '\'';
    buf_add_byte(buf, quote);
    for (size_t at = 0; at < text.bytes;) {
        uint32_t point;
        size_t bytes = utf8_decode(text, at, &point);
        if (point == '\\' || point == (uint32_t)quote || !unicode_is_printable(point)) {
            add_escape(buf, point, quote);
        } else {
            buf_add(buf, text.at + at, bytes);
        }
        at += bytes;
    }
    buf_add_byte(buf, quote);
}

static enum err repr_list(struct render *render, struct value value, unsigned depth) {
    struct buf *out = render->out;
    bool tuple = value.kind == VALUE_TUPLE;
    buf_add_byte(out, tuple ? '(' : '[');
    for (size_t i = 0; i < value.list->count; i++) {
        if (i > 0) buf_add_text(out, ", ");
        enum err err = repr_at(render, value.list->items[i], depth + 1);
        if (err) return err;
    }
    if (tuple && value.list->count == 1) buf_add_byte(out, ',');
    buf_add_byte(out, tuple ? ')' : ']');
    return OK;
}

static enum err repr_entry(struct render *render, const struct dict_entry *entry,
                           enum value_kind kind, unsigned depth) {
    struct buf *out = render->out;
    if (kind == VALUE_KEYS) return repr_at(render, entry->key, depth);
    if (kind == VALUE_VALUES) return repr_at(render, entry->value, depth);
    if (kind == VALUE_ITEMS) buf_add_byte(out, '(');
    enum err err = repr_at(render, entry->key, depth);
    if (err) return err;
    buf_add_text(out, kind == VALUE_ITEMS ? ", " : ": ");
    err = repr_at(render, entry->value, depth);
    if (kind == VALUE_ITEMS) buf_add_byte(out, ')');
    return err;
}

static enum err repr_dict(struct render *render, struct value value, unsigned depth) {
    static const char *const opening[] = {[VALUE_DICT] = "{",
                                          [VALUE_NAMESPACE] = "<Namespace {",
                                          [VALUE_KEYS] = "dict_keys([",
                                          [VALUE_VALUES] = "dict_values([",
                                          [VALUE_ITEMS] = "dict_items(["};
    struct buf *out = render->out;
    buf_add_text(out, opening[value.kind]);
    for (size_t i = 0; i < value.dict->count; i++) {
        if (i > 0) buf_add_text(out, ", ");
        enum err err = repr_entry(render, &value.dict->entries[i], value.kind, depth + 1);
        if (err) return err;
    }
    buf_add_text(out, value.kind == VALUE_DICT ? "}" : value.kind == VALUE_NAMESPACE ? "}>" : "])");
    return OK;
}

static enum err repr_loop(struct render *render, struct loop *loop) {
    size_t length;
    enum err err = loop_length(render, loop, &length);
    if (!err) buf_printf(render->out, "<LoopContext %zu/%zu>", loop_index(loop) + 1, length);
    return err;
}

/* Integers, floats and the values that print as a word. */
static void repr_plain(struct buf *out, struct value value) {
    char text[NUMBER_TEXT_BYTES];
    switch (value.kind) {
    case VALUE_NONE: buf_add_text(out, "None"); break;
    case VALUE_BOOL: buf_add_text(out, value.boolean ? "True" : "False"); break;
    case VALUE_INT: buf_add(out, text, number_write_int(value.integer, text)); break;
    case VALUE_FLOAT: buf_add(out, text, number_write_float(value.real, text)); break;
    case VALUE_UNDEFINED: buf_add_text(out, "Undefined"); break;
    case VALUE_RANGE:
        buf_printf(out, "range(%" PRId64 ", %" PRId64, value.range->start, value.range->stop);
        if (value.range->step != 1) buf_printf(out, ", %" PRId64, value.range->step);
        buf_add_byte(out, ')');
        break;
    case VALUE_MACRO: {
        struct str name = macro_name(value.macro);
        buf_add_text(out, name.at ? "<Macro " : "<Macro anonymous");
        if (name.at) repr_text(out, name);
        buf_add_byte(out, '>');
        break;
    }
    case VALUE_METHOD:
        buf_printf(out, "<built-in method %s of %s object>", value.method->builtin->name,
                   value_type(value.method->self));
        break;
    case VALUE_FUNCTION: buf_printf(out, "<function %s>", value.function->name); break;
    default: buf_printf(out, "<%s object>", value_type(value)); break;
    }
}

static enum err repr_at(struct render *render, struct value value, unsigned depth) {
    if (depth > JINJA_VALUE_DEPTH_MAX) return render_limit(render, "the nesting of a value");
    size_t start = render->out->bytes;
    enum err err = render_charge(render, 16);
    if (!err) err = render_check(render);
    if (err) return err;
    switch (value.kind) {
    case VALUE_TEXT:
        if (value.text->markup) buf_add_text(render->out, "Markup(");
        repr_text(render->out, value_str(value));
        err = text_claim(render, start, value);
        if (value.text->markup) buf_add_byte(render->out, ')');
        return err ? err : render_charge(render, value.text->bytes);
    case VALUE_LIST:
    case VALUE_TUPLE: return repr_list(render, value, depth);
    case VALUE_DICT:
    case VALUE_NAMESPACE:
    case VALUE_KEYS:
    case VALUE_VALUES:
    case VALUE_ITEMS: return repr_dict(render, value, depth);
    case VALUE_LOOP: return repr_loop(render, value.loop);
    default: repr_plain(render->out, value); return OK;
    }
}

enum err print_repr(struct render *render, struct value value) {
    return repr_at(render, value, 0);
}

enum err print_value(struct render *render, struct value value) {
    if (value.kind == VALUE_UNDEFINED)
        return render->is_strict ? arith_fail_undefined(render, value) : OK;
    if (value.kind != VALUE_TEXT) return print_repr(render, value);
    enum err err = text_write(render, value);
    if (!err) err = render_charge(render, value.text->bytes / 4);
    return err ? err : render_check(render);
}
