/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/text.h"

#include "base/utf8.h"
#include "jinja/print.h"

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
    if (err) return err;
    ret_text->text->markup = whole.text->markup;
    ret_text->text->origin = whole.text->origin;
    ret_text->text->origin_from = whole.text->origin_from + from;
    return OK;
}

enum err text_take(struct render *render, size_t start, struct value *ret_text) {
    enum err err = render_check(render);
    if (err) return err;
    struct str written = str_skip(buf_str(render->out), start);
    err = text_copy(render, written, ret_text);
    if (!err && origin_has(&render->origin, start, written.bytes)) {
        struct origin *origin = render_alloc(render, sizeof *origin);
        if (!origin) return ERR_LIMIT;
        err = origin_add_part(render, origin, 0, &render->origin, start, written.bytes);
        ret_text->text->origin = origin;
    }
    origin_truncate(&render->origin, start);
    if (!err) buf_truncate(render->out, start);
    return err;
}

enum err text_take_like(struct render *render, size_t start, struct value like,
                        struct value *ret_text) {
    enum err err = text_take(render, start, ret_text);
    if (!err) ret_text->text->markup = like.text->markup;
    return err;
}

/* The origin of left and right together; that of `left` grows when its memory does. */
static enum err origin_concat(struct render *render, const struct text *left,
                              const struct text *right, bool grows, const struct origin **ret) {
    bool right_given = origin_has(right->origin, right->origin_from, right->bytes);
    *ret = grows ? left->origin : NULL;
    if (!right_given && (grows || !origin_has(left->origin, left->origin_from, left->bytes)))
        return OK;
    /* An origin of a text with a backing was made here, and begins where the text does. */
    struct origin *origin = grows ? (struct origin *)(uintptr_t)left->origin : NULL;
    if (!origin) origin = render_alloc(render, sizeof *origin);
    if (!origin) return ERR_LIMIT;
    enum err err =
        grows ? OK
              : origin_add_part(render, origin, 0, left->origin, left->origin_from, left->bytes);
    if (!err)
        err = origin_add_part(render, origin, left->bytes, right->origin, right->origin_from,
                              right->bytes);
    *ret = origin;
    return err;
}

enum err text_concat(struct render *render, struct value left_text, struct value right_text,
                     struct value *ret_text) {
    struct str left = value_str(left_text), right = value_str(right_text);
    struct backing *left_backing = left_text.text->backing;
    size_t bytes = left.bytes + right.bytes;
    struct backing *backing = left_backing;
    const struct origin *origin;
    char *at = NULL;
    if (backing && backing->used == left.bytes && backing->capacity >= bytes) {
        /* No value sees the bytes after `used`, and a backing is only made below, over memory of
         * the arena. So writing there is safe. */
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
    enum err err =
        origin_concat(render, left_text.text, right_text.text, backing == left_backing, &origin);
    if (!err) err = text_new(render, (struct str){at, bytes}, ret_text);
    if (err) return err;
    backing->used = bytes;
    ret_text->text->backing = backing;
    ret_text->text->origin = origin;
    return OK;
}

bool text_is_given(struct value text) {
    return origin_has(text.text->origin, text.text->origin_from, text.text->bytes);
}

enum err text_write_part(struct render *render, struct value text, size_t from, size_t bytes) {
    size_t start = render->out->bytes;
    if (bytes > 0) buf_add(render->out, text.text->at + from, bytes);
    if (render->out->overflowed) return render_check(render);
    return origin_add_part(render, &render->origin, start, text.text->origin,
                           text.text->origin_from + from, bytes);
}

enum err text_write(struct render *render, struct value text) {
    return text_write_part(render, text, 0, text.text->bytes);
}

enum err text_claim(struct render *render, size_t start, struct value text) {
    if (!text_is_given(text)) return OK;
    if (render->out->overflowed) return render_check(render);
    origin_truncate(&render->origin, start);
    return origin_add(render, &render->origin, start, render->out->bytes);
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

static void add_escaped(struct buf *buf, struct str text) {
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

enum err text_escape(struct render *render, struct value text, struct value *ret_text) {
    if (text.text->markup) {
        *ret_text = text;
        return OK;
    }
    size_t start = render->out->bytes;
    add_escaped(render->out, value_str(text));
    enum err err = text_claim(render, start, text);
    if (!err) err = text_take(render, start, ret_text);
    if (!err) ret_text->text->markup = true;
    return err;
}
