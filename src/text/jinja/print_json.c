/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"
#include "jinja/compare.h"
#include "jinja/number.h"
#include "jinja/print.h"
#include "jinja/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static enum err json_at(struct render *render, struct value value, const struct json_style *style,
                        unsigned depth);

static void add_escaped_point(struct buf *buf, uint32_t point) {
    static const char short_form[32] = {
        ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
    if (point == '"' || point == '\\') {
        buf_add_byte(buf, '\\');
        buf_add_byte(buf, (char)point);
    } else if (point < 32 && short_form[point]) {
        buf_add_byte(buf, '\\');
        buf_add_byte(buf, short_form[point]);
    } else if (point >= 0x10000) {
        uint32_t high = 0xD800 + ((point - 0x10000) >> 10);
        uint32_t low = 0xDC00 + ((point - 0x10000) & 0x3FF);
        buf_printf(buf, "\\u%04" PRIx32 "\\u%04" PRIx32, high, low);
    } else {
        buf_printf(buf, "\\u%04" PRIx32, point);
    }
}

static void add_string(struct buf *buf, struct str text, bool ensure_ascii) {
    buf_add_byte(buf, '"');
    size_t written = 0, at = 0;
    while (at < text.bytes) {
        unsigned char byte = (unsigned char)text.at[at];
        bool escape = byte < 0x20 || byte == '"' || byte == '\\' || (ensure_ascii && byte >= 0x80);
        if (!escape) {
            at++;
            continue;
        }
        uint32_t point;
        buf_add(buf, text.at + written, at - written);
        at += utf8_decode(text, at, &point);
        add_escaped_point(buf, point);
        written = at;
    }
    if (at > written) buf_add(buf, text.at + written, at - written);
    buf_add_byte(buf, '"');
}

static void add_float(struct buf *buf, double real) {
    char text[NUMBER_TEXT_BYTES];
    if (isnan(real)) {
        buf_add_text(buf, "NaN");
    } else if (isinf(real)) {
        buf_add_text(buf, real < 0 ? "-Infinity" : "Infinity");
    } else {
        buf_add(buf, text, number_write_float(real, text));
    }
}

static void add_line(struct buf *buf, const struct json_style *style, unsigned depth) {
    if (!style->indented) return;
    buf_add_byte(buf, '\n');
    for (unsigned i = 0; i < depth; i++) buf_add_str(buf, style->indent);
}

static enum err add_list(struct render *render, const struct list *list,
                         const struct json_style *style, unsigned depth) {
    struct buf *out = render->out;
    buf_add_byte(out, '[');
    for (size_t i = 0; i < list->count; i++) {
        if (i > 0) buf_add_str(out, style->item_separator);
        add_line(out, style, depth + 1);
        enum err err = json_at(render, list->items[i], style, depth + 1);
        if (err) return err;
    }
    if (list->count > 0) add_line(out, style, depth);
    buf_add_byte(out, ']');
    return OK;
}

static enum err add_key(struct render *render, struct value key, const struct json_style *style) {
    struct buf *out = render->out;
    if (value_is_text(key)) {
        size_t start = out->bytes;
        add_string(out, value_str(key), style->ensure_ascii);
        return text_claim(render, start, key);
    }
    if (!value_is_number(key) && key.kind != VALUE_NONE)
        return render_fail(render, "JSON has no keys of type %s", value_type(key));
    buf_add_byte(out, '"');
    enum err err = json_at(render, key, style, 0);
    buf_add_byte(out, '"');
    return err;
}

/* The entries in the order of their keys. */
static enum err sorted_entries(struct render *render, const struct dict *dict,
                               const struct dict_entry **ret_entries) {
    struct sort_item *items = render_array(render, dict->count, sizeof *items);
    struct dict_entry *entries = render_array(render, dict->count, sizeof *entries);
    if (!items || !entries) return ERR_LIMIT;
    for (size_t i = 0; i < dict->count; i++)
        items[i] = (struct sort_item){dict->entries[i].key, value_size(i)};
    enum err err = compare_sort(render, items, dict->count, false);
    if (err) return err;
    for (size_t i = 0; i < dict->count; i++) entries[i] = dict->entries[items[i].item.integer];
    *ret_entries = entries;
    return OK;
}

static enum err add_dict(struct render *render, const struct dict *dict,
                         const struct json_style *style, unsigned depth) {
    struct buf *out = render->out;
    const struct dict_entry *entries = dict->entries;
    if (style->sort_keys && dict->count > 0) {
        enum err err = sorted_entries(render, dict, &entries);
        if (err) return err;
    }
    buf_add_byte(out, '{');
    for (size_t i = 0; i < dict->count; i++) {
        if (i > 0) buf_add_str(out, style->item_separator);
        add_line(out, style, depth + 1);
        enum err err = add_key(render, entries[i].key, style);
        if (err) return err;
        buf_add_str(out, style->key_separator);
        err = json_at(render, entries[i].value, style, depth + 1);
        if (err) return err;
    }
    if (dict->count > 0) add_line(out, style, depth);
    buf_add_byte(out, '}');
    return OK;
}

static enum err json_at(struct render *render, struct value value, const struct json_style *style,
                        unsigned depth) {
    char text[NUMBER_TEXT_BYTES];
    struct buf *out = render->out;
    size_t start = out->bytes;
    if (depth > JINJA_VALUE_DEPTH_MAX) return render_limit(render, "the nesting of a value");
    enum err err = render_charge(render, 16);
    if (!err) err = render_check(render);
    if (err) return err;
    switch (value.kind) {
    case VALUE_NONE: buf_add_text(out, "null"); return OK;
    case VALUE_BOOL: buf_add_text(out, value.boolean ? "true" : "false"); return OK;
    case VALUE_INT: buf_add(out, text, number_write_int(value.integer, text)); return OK;
    case VALUE_FLOAT: add_float(out, value.real); return OK;
    case VALUE_TEXT:
        add_string(out, value_str(value), style->ensure_ascii);
        err = text_claim(render, start, value);
        return err ? err : render_charge(render, value.text->bytes);
    case VALUE_LIST:
    case VALUE_TUPLE: return add_list(render, value.list, style, depth);
    case VALUE_DICT: return add_dict(render, value.dict, style, depth);
    default:
        return render_fail(render, "an object of type %s is not JSON serializable",
                           value_type(value));
    }
}

enum err print_json(struct render *render, struct value value, const struct json_style *style) {
    return json_at(render, value, style, 0);
}
