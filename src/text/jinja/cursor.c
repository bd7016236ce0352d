/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/cursor.h"

#include "base/utf8.h"
#include "jinja/text.h"

bool cursor_can_walk(struct value value) {
    size_t length;
    return value.kind == VALUE_ITERATOR || value_length(value, &length);
}

enum err cursor_open(struct render *render, struct value over, struct cursor *ret_cursor) {
    if (!cursor_can_walk(over))
        return render_fail(render, "a value of type %s cannot be iterated", value_type(over));
    *ret_cursor = (struct cursor){over, 0};
    return OK;
}

static enum err next_of_text(struct render *render, struct cursor *cursor, bool *ret_more,
                             struct value *ret_item) {
    struct text *text = cursor->over.text;
    *ret_more = cursor->position < text->bytes;
    if (!*ret_more) return OK;
    uint32_t point;
    size_t at = cursor->position;
    size_t bytes = utf8_decode((struct str){text->at, text->bytes}, at, &point);
    cursor->position += bytes;
    /* The characters of markup are plain texts, as in Python. */
    enum err err = text_part(render, cursor->over, at, bytes, ret_item);
    return err ? err : text_mark(render, *ret_item, false, ret_item);
}

static enum err next_of_dict(struct render *render, struct cursor *cursor, bool *ret_more,
                             struct value *ret_item) {
    const struct dict *dict = cursor->over.dict;
    *ret_more = cursor->position < dict->count;
    if (!*ret_more) return OK;
    const struct dict_entry *entry = &dict->entries[cursor->position++];
    if (cursor->over.kind == VALUE_ITEMS)
        return list_pair(render, entry->key, entry->value, ret_item);
    *ret_item = cursor->over.kind == VALUE_VALUES ? entry->value : entry->key;
    return OK;
}

static bool next_of_list(const struct list *list, size_t *position, struct value *ret_item) {
    if (*position >= list->count) return false;
    *ret_item = list->items[(*position)++];
    return true;
}

enum err cursor_next(struct render *render, struct cursor *cursor, bool *ret_more,
                     struct value *ret_item) {
    struct value over = cursor->over;
    enum err err = render_charge(render, 8);
    if (err) return err;
    switch (over.kind) {
    case VALUE_TEXT: return next_of_text(render, cursor, ret_more, ret_item);
    case VALUE_LIST:
    case VALUE_TUPLE: *ret_more = next_of_list(over.list, &cursor->position, ret_item); return OK;
    case VALUE_ITERATOR:
        *ret_more = next_of_list(over.iterator->list, &over.iterator->next, ret_item);
        return OK;
    case VALUE_DICT:
    case VALUE_KEYS:
    case VALUE_VALUES:
    case VALUE_ITEMS: return next_of_dict(render, cursor, ret_more, ret_item);
    case VALUE_RANGE:
        *ret_more = cursor->position < range_length(over.range);
        if (*ret_more)
            *ret_item =
                value_int(over.range->start + (int64_t)cursor->position++ * over.range->step);
        return OK;
    default: *ret_more = false; return OK;
    }
}

enum err cursor_list(struct render *render, struct value over, struct list **ret_list) {
    if (value_is_list(over)) {
        *ret_list = over.list;
        return OK;
    }
    struct cursor cursor;
    enum err err = cursor_open(render, over, &cursor);
    if (err) return err;
    size_t length = 0;
    struct list *list;
    (void)value_length(over, &length);
    err = list_new(render, length, &list);
    for (bool more = true; !err && more;) {
        struct value item = value_absent();
        err = cursor_next(render, &cursor, &more, &item);
        if (!err && more) err = list_add(render, list, item);
    }
    if (!err) *ret_list = list;
    return err;
}
