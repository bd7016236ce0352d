/* SPDX-License-Identifier: Apache-2.0 */
#include "answer/members.h"

#include "json/span.h"

#include <string.h>

/* The place in `names` of a raw key, or `count`. Keys with escapes are rare, and slow. */
static size_t find_name(struct str key, const struct str *names, size_t count) {
    struct str inside = {key.at + 1, key.bytes - 2};
    size_t i = 0;
    while (i < count &&
           (inside.bytes != names[i].bytes || memcmp(inside.at, names[i].at, inside.bytes) != 0))
        i++;
    if (i < count || str_find_byte(inside, '\\', 0) == SIZE_MAX) return i;
    for (i = 0; i < count; i++)
        if (json_span_string_is(key, names[i].at)) break;
    return i;
}

void members_find(struct str object, const struct str *names, size_t count,
                  struct str *ret_values) {
    const struct str nothing = {NULL, 0};
    struct json_span_iter iter;
    struct str key, value;
    for (size_t i = 0; i < count; i++) ret_values[i] = nothing;
    if (!json_span_is_object(object) || !json_span_enter(&iter, object)) return;
    while (json_span_member(&iter, &key, &value)) {
        size_t place = find_name(key, names, count);
        if (place < count) ret_values[place] = str_is(value, "null") ? nothing : value;
    }
}
