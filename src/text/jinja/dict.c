/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/dict.h"

#include "jinja/compare.h"

#include <string.h>

/* Up to this many entries are searched one by one. */
#define LINEAR_MAX 8

enum err dict_new(struct render *render, size_t capacity, struct dict **ret_dict) {
    struct dict *dict = render_alloc(render, sizeof *dict);
    if (!dict) return ERR_LIMIT;
    if (capacity > 0) {
        dict->entries = render_array(render, capacity, sizeof *dict->entries);
        if (!dict->entries) return ERR_LIMIT;
        dict->capacity = capacity;
    }
    *ret_dict = dict;
    return OK;
}

static enum err check_key(struct render *render, struct value key, unsigned depth,
                          bool *ret_hashable) {
    *ret_hashable = key.kind != VALUE_LIST && key.kind != VALUE_DICT;
    if (key.kind != VALUE_TUPLE) return OK;
    if (depth > JINJA_VALUE_DEPTH_MAX) return render_limit(render, "the nesting of a value");
    enum err err = render_charge(render, key.list->count);
    for (size_t i = 0; !err && *ret_hashable && i < key.list->count; i++)
        err = check_key(render, key.list->items[i], depth + 1, ret_hashable);
    return err;
}

enum err dict_key_is_hashable(struct render *render, struct value key, bool *ret_hashable) {
    return check_key(render, key, 0, ret_hashable);
}

static struct str key_of(const struct dict *dict, uint32_t entry) {
    return value_str(dict->entries[entry].key);
}

/* Where in `sorted` the key is or would go. */
static size_t sorted_place(const struct dict *dict, size_t count, struct str key, bool *ret_found) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = str_compare(key_of(dict, dict->sorted[middle]), key);
        if (order == 0) {
            *ret_found = true;
            return middle;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *ret_found = false;
    return low;
}

/* Merges the sorted halves of `from` into `to`. */
static void merge(const struct dict *dict, const uint32_t *from, size_t middle, size_t count,
                  uint32_t *to) {
    size_t left = 0, right = middle;
    for (size_t i = 0; i < count; i++) {
        bool take_left = right == count ||
                         (left < middle &&
                          str_compare(key_of(dict, from[left]), key_of(dict, from[right])) <= 0);
        to[i] = take_left ? from[left++] : from[right++];
    }
}

static enum err build_index(struct render *render, struct dict *dict) {
    uint32_t *index = render_array(render, dict->capacity, sizeof *index);
    uint32_t *spare = render_array(render, dict->capacity, sizeof *spare);
    if (!index || !spare) return ERR_LIMIT;
    enum err err = OK;
    for (size_t i = 0; i < dict->count && !err; i++) {
        index[i] = (uint32_t)i;
        err = render_charge(render, 16 + key_of(dict, index[i]).bytes / 4);
    }
    if (err) return err;
    for (size_t width = 1; width < dict->count; width *= 2) {
        for (size_t at = 0; at < dict->count; at += 2 * width) {
            size_t left = dict->count - at;
            size_t count = left < 2 * width ? left : 2 * width;
            merge(dict, index + at, width < count ? width : count, count, spare + at);
        }
        uint32_t *swap = index;
        index = spare;
        spare = swap;
    }
    dict->sorted = index;
    return OK;
}

static enum err grow(struct render *render, struct dict *dict) {
    size_t capacity = dict->capacity ? dict->capacity * 2 : 4;
    struct dict_entry *entries = render_array(render, capacity, sizeof *entries);
    if (!entries) return ERR_LIMIT;
    if (dict->count > 0) memcpy(entries, dict->entries, dict->count * sizeof *entries);
    if (dict->sorted) {
        uint32_t *sorted = render_array(render, capacity, sizeof *sorted);
        if (!sorted) return ERR_LIMIT;
        memcpy(sorted, dict->sorted, dict->count * sizeof *sorted);
        dict->sorted = sorted;
    }
    dict->entries = entries;
    dict->capacity = capacity;
    return OK;
}

enum err dict_add(struct render *render, struct dict *dict, struct value key, struct value value) {
    if (dict->count == dict->capacity) {
        enum err err = grow(render, dict);
        if (err) return err;
    }
    if (!value_is_text(key)) {
        dict->other_keys = true;
        dict->sorted = NULL;
    }
    dict->entries[dict->count] = (struct dict_entry){key, value};
    if (dict->sorted) {
        bool found;
        size_t place = sorted_place(dict, dict->count, value_str(key), &found);
        enum err err = render_charge(render, dict->count - place + key.text->bytes / 4);
        if (err) return err;
        memmove(dict->sorted + place + 1, dict->sorted + place,
                (dict->count - place) * sizeof *dict->sorted);
        dict->sorted[place] = (uint32_t)dict->count;
    }
    dict->count++;
    return OK;
}

static enum err find_any(struct render *render, struct dict *dict, struct value key,
                         struct dict_entry **ret_entry) {
    enum err err = render_charge(render, dict->count * 4);
    if (err) return err;
    *ret_entry = NULL;
    for (size_t i = 0; i < dict->count; i++) {
        bool equal;
        err = compare_equal(render, dict->entries[i].key, key, &equal);
        if (err) return err;
        if (equal) {
            *ret_entry = &dict->entries[i];
            return OK;
        }
    }
    return OK;
}

enum err dict_find_str(struct render *render, struct dict *dict, struct str key,
                       struct dict_entry **ret_entry) {
    *ret_entry = NULL;
    if (dict->count <= LINEAR_MAX || dict->other_keys) {
        enum err err = render_charge(render, dict->count * (1 + key.bytes / 64));
        if (err) return err;
        for (size_t i = 0; i < dict->count; i++) {
            struct value at = dict->entries[i].key;
            if (!value_is_text(at) || !str_equals(value_str(at), key)) continue;
            *ret_entry = &dict->entries[i];
            break;
        }
        return OK;
    }
    if (!dict->sorted) {
        enum err err = build_index(render, dict);
        if (err) return err;
    }
    bool found;
    enum err err = render_charge(render, key.bytes / 4);
    if (err) return err;
    size_t place = sorted_place(dict, dict->count, key, &found);
    if (found) *ret_entry = &dict->entries[dict->sorted[place]];
    return OK;
}

enum err dict_find(struct render *render, struct dict *dict, struct value key,
                   struct dict_entry **ret_entry) {
    bool hashable;
    enum err err = dict_key_is_hashable(render, key, &hashable);
    if (err) return err;
    if (!hashable)
        return render_fail(render, "a value of type %s cannot be a key", value_type(key));
    if (value_is_text(key)) return dict_find_str(render, dict, value_str(key), ret_entry);
    return find_any(render, dict, key, ret_entry);
}

enum err dict_put(struct render *render, struct dict *dict, struct value key, struct value value) {
    struct dict_entry *entry;
    enum err err = dict_find(render, dict, key, &entry);
    if (err) return err;
    if (!entry) return dict_add(render, dict, key, value);
    entry->value = value;
    return OK;
}
