/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/text.h"

#include "base/utf8.h"
#include "chat/print.h"

#include <string.h>

static enum err text_new(struct render *render, struct str bytes, struct value *ret_text) {
    struct text *text = render_alloc(render, sizeof *text);
    if (!text) return ERR_LIMIT;
    *text = (struct text){.at = bytes.at, .bytes = bytes.bytes, .points = POINTS_UNKNOWN};
    *ret_text = (struct value){.kind = VALUE_TEXT, .text = text};
    return OK;
}

enum err text_copy(struct render *render, struct str bytes, struct value *ret_text) {
    char *copy = render_alloc(render, bytes.bytes + 1);
    if (!copy) return ERR_LIMIT;
    if (bytes.bytes > 0) memcpy(copy, bytes.at, bytes.bytes);
    return text_new(render, (struct str){copy, bytes.bytes}, ret_text);
}

enum err text_borrow(struct render *render, struct str bytes, struct value *ret_text) {
    return text_new(render, bytes, ret_text);
}

enum err text_part(struct render *render, struct value whole, size_t from, size_t bytes,
                   struct value *ret_text) {
    if (from == 0 && bytes == whole.text->bytes) {
        *ret_text = whole;
        return OK;
    }
    struct str part = {whole.text->at + from, bytes};
    enum err err = text_new(render, part, ret_text);
    if (!err) ret_text->text->markup = whole.text->markup;
    return err;
}

enum err text_take(struct render *render, size_t start, struct value *ret_text) {
    enum err err = render_check(render);
    if (err) return err;
    struct str written = str_skip(buf_str(render->out), start);
    err = text_copy(render, written, ret_text);
    if (!err) buf_truncate(render->out, start);
    return err;
}

enum err text_concat(struct render *render, struct str left, struct backing *left_backing,
                     struct str right, struct value *ret_text) {
    size_t bytes = left.bytes + right.bytes;
    struct backing *backing = left_backing;
    char *at = NULL;
    if (backing && backing->used == left.bytes && backing->capacity >= bytes) {
        /* Nobody sees the bytes after `used`, and a backing is only ever made below, over memory
         * of the arena: writing there is safe. */
        enum err err = render_charge(render, right.bytes);
        if (err) return err;
        at = (char *)(uintptr_t)left.at;
    } else {
        size_t capacity = left_backing ? bytes * 2 : bytes;
        at = render_alloc(render, capacity + 1);
        backing = render_alloc(render, sizeof *backing);
        if (!at || !backing) return ERR_LIMIT;
        backing->capacity = capacity;
        if (left.bytes > 0) memcpy(at, left.at, left.bytes);
    }
    if (right.bytes > 0) memcpy(at + left.bytes, right.at, right.bytes);
    backing->used = bytes;
    enum err err = text_new(render, (struct str){at, bytes}, ret_text);
    if (!err) ret_text->text->backing = backing;
    return err;
}

enum err text_from_point(struct render *render, uint32_t point, struct value *ret_text) {
    char bytes[4];
    size_t count = utf8_encode(point, bytes);
    return text_copy(render, (struct str){bytes, count}, ret_text);
}

enum err text_of(struct render *render, struct value value, struct value *ret_text) {
    if (value_is_text(value)) {
        *ret_text = value;
        return OK;
    }
    size_t start = render->out->bytes;
    enum err err = print_value(render, value);
    if (err) return err;
    return text_take(render, start, ret_text);
}

enum err text_mark(struct render *render, struct value text, bool markup, struct value *ret_text) {
    if (text.text->markup == markup) {
        *ret_text = text;
        return OK;
    }
    struct text *marked = render_alloc(render, sizeof *marked);
    if (!marked) return ERR_LIMIT;
    *marked = *text.text;
    marked->markup = markup;
    *ret_text = (struct value){.kind = VALUE_TEXT, .text = marked};
    return OK;
}

size_t text_points(struct text *text) {
    if (text->points == POINTS_UNKNOWN)
        text->points = utf8_count((struct str){text->at, text->bytes});
    return text->points;
}

size_t text_offset(struct text *text, size_t index) {
    size_t points = text_points(text);
    if (points == text->bytes) return index;
    size_t at = 0;
    if (index <= points / 2) {
        for (; index > 0; index--) {
            at++;
            while (at < text->bytes && ((unsigned char)text->at[at] & 0xC0) == 0x80) at++;
        }
        return at;
    }
    at = text->bytes;
    for (; index < points; index++) {
        at--;
        while (((unsigned char)text->at[at] & 0xC0) == 0x80) at--;
    }
    return at;
}

size_t text_index(struct text *text, size_t bytes) {
    if (text_points(text) == text->bytes) return bytes;
    return utf8_count((struct str){text->at, bytes});
}

void text_add_escaped(struct buf *buf, struct str text) {
    for (size_t i = 0; i < text.bytes; i++) {
        switch (text.at[i]) {
        case '&': buf_add_text(buf, "&amp;"); break;
        case '<': buf_add_text(buf, "&lt;"); break;
        case '>': buf_add_text(buf, "&gt;"); break;
        case '\'': buf_add_text(buf, "&#39;"); break;
        case '"': buf_add_text(buf, "&#34;"); break;
        default: buf_add_byte(buf, text.at[i]);
        }
    }
}
