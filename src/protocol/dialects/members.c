/* SPDX-License-Identifier: Apache-2.0 */
#include "dialects/members.h"

#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES_MAX 64 /* longer numbers have digits that no double keeps */

bool members_read(struct str object, const struct member *places, size_t count,
                  struct refusal *ret_refusal) {
    struct json_span_iter iter;
    struct str key, value;
    uint64_t seen = 0;
    for (size_t i = 0; i < count; i++) *places[i].value = (struct str){NULL, 0};
    if (!json_span_enter(&iter, object)) return true;
    while (json_span_member(&iter, &key, &value))
        for (size_t i = 0; i < count; i++) {
            if (!json_span_string_is(key, places[i].name)) continue;
            if (seen >> i & 1)
                return refuse(ret_refusal, "invalid_value", places[i].name,
                              "The key '%s' is given twice: it is not clear which one counts.",
                              places[i].name);
            seen |= (uint64_t)1 << i;
            if (!str_is(value, "null")) *places[i].value = value;
        }
    return true;
}

bool member_is_bool(struct str value) {
    return str_is(value, "true") || str_is(value, "false");
}

bool member_number(struct str value, double *ret_number) {
    char text[NUMBER_BYTES_MAX + 1];
    if (value.bytes == 0 || value.bytes > NUMBER_BYTES_MAX) return false;
    if (value.at[0] != '-' && (value.at[0] < '0' || value.at[0] > '9')) return false;
    memcpy(text, value.at, value.bytes);
    text[value.bytes] = '\0';
    *ret_number = strtod(text, NULL);
    return true;
}

bool member_is_empty(struct str value) {
    struct json_span_iter iter;
    struct str key, element;
    if (!value.at || str_is(value, "\"\"")) return true;
    if (!json_span_enter(&iter, value)) return false;
    return member_is_array(value) ? !json_span_element(&iter, &element)
                                  : !json_span_member(&iter, &key, &element);
}

const char *member_kind(struct str value) {
    if (!value.at) return "nothing";
    switch (value.at[0]) {
    case '{': return "an object";
    case '[': return "an array";
    case '"': return "a string";
    case 't':
    case 'f': return "a boolean";
    default: return "a number";
    }
}
