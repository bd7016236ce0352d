/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* plain_schema: a validator of JSON Schema that looks at a whole value, keyword by keyword.
 *
 * It shares no code with src/text/grammar. It knows the keywords below and takes every other one
 * for kept, so a value that it refuses is not valid, and one that it takes may be invalid.
 *
 * Thread: any.
 * Memory: none is kept. */

#include "base/str.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PLAIN_DEPTH_MAX 40

static bool plain_is_kept(const json_t *root, const json_t *schema, const json_t *value, int depth);

/* jansson walks over members of what may be changed only. */
static json_t *plain_mutable(const json_t *value) {
    union {
        const json_t *is;
        json_t *may_be;
    } both = {value};
    return both.may_be;
}

static bool plain_has_type(const char *name, const json_t *value) {
    if (strcmp(name, "integer") == 0)
        return json_is_integer(value) ||
               (json_is_real(value) && floor(json_real_value(value)) == json_real_value(value));
    return (strcmp(name, "object") == 0 && json_is_object(value)) ||
           (strcmp(name, "array") == 0 && json_is_array(value)) ||
           (strcmp(name, "string") == 0 && json_is_string(value)) ||
           (strcmp(name, "number") == 0 && json_is_number(value)) ||
           (strcmp(name, "boolean") == 0 && json_is_boolean(value)) ||
           (strcmp(name, "null") == 0 && json_is_null(value));
}

static bool plain_keeps_type(const json_t *type, const json_t *value) {
    if (json_is_string(type)) return plain_has_type(json_string_value(type), value);
    bool is_any = !json_is_array(type);
    for (size_t i = 0; i < json_array_size(type) && !is_any; i++)
        is_any = plain_has_type(json_string_value(json_array_get(type, i)), value);
    return is_any;
}

/* Equal as JSON: 1 and 1.0 are. */
static bool plain_is_equal(const json_t *a, const json_t *b) {
    const char *name;
    json_t *member;
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    if (json_typeof(a) != json_typeof(b)) return false;
    if (json_is_array(a)) {
        bool is_equal = json_array_size(a) == json_array_size(b);
        for (size_t i = 0; is_equal && i < json_array_size(a); i++)
            is_equal = plain_is_equal(json_array_get(a, i), json_array_get(b, i));
        return is_equal;
    }
    if (!json_is_object(a)) return json_equal(a, b);
    if (json_object_size(a) != json_object_size(b)) return false;
    json_object_foreach(plain_mutable(a), name, member) {
        const json_t *other = json_object_get(b, name);
        if (!other || !plain_is_equal(member, other)) return false;
    }
    return true;
}

static bool plain_is_one_of(const json_t *values, const json_t *value) {
    bool is_found = false;
    for (size_t i = 0; i < json_array_size(values) && !is_found; i++)
        is_found = plain_is_equal(json_array_get(values, i), value);
    return is_found;
}

/* A count of the schema; `none` where it has none. */
static double plain_bound(const json_t *schema, const char *name, double none) {
    const json_t *bound = json_object_get(schema, name);
    return json_is_number(bound) ? json_number_value(bound) : none;
}

static bool plain_is_counted(const json_t *schema, const char *min, const char *max, size_t count) {
    return (double)count >= plain_bound(schema, min, 0) &&
           (double)count <= plain_bound(schema, max, INFINITY);
}

static bool plain_keeps_number(const json_t *schema, const json_t *value) {
    double number = json_number_value(value); /* rounded: bounds within it are not told apart */
    double slack = fabs(number) * 1e-12;
    return number >= plain_bound(schema, "minimum", -INFINITY) - slack &&
           number <= plain_bound(schema, "maximum", INFINITY) + slack &&
           number >= plain_bound(schema, "exclusiveMinimum", -INFINITY) - slack &&
           number <= plain_bound(schema, "exclusiveMaximum", INFINITY) + slack;
}

static bool plain_keeps_string(const json_t *schema, const json_t *value) {
    const char *text = json_string_value(value);
    size_t characters = 0;
    for (size_t i = 0; i < json_string_length(value); i++)
        characters += ((unsigned char)text[i] & 0xc0) != 0x80;
    return plain_is_counted(schema, "minLength", "maxLength", characters);
}

static bool plain_keeps_array(const json_t *root, const json_t *schema, const json_t *value,
                              int depth) {
    const json_t *prefix = json_object_get(schema, "prefixItems");
    const json_t *items = json_object_get(schema, "items");
    bool is_kept = plain_is_counted(schema, "minItems", "maxItems", json_array_size(value));
    for (size_t i = 0; i < json_array_size(value) && is_kept; i++) {
        const json_t *of_item = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        if (of_item) is_kept = plain_is_kept(root, of_item, json_array_get(value, i), depth + 1);
    }
    return is_kept;
}

static bool plain_keeps_object(const json_t *root, const json_t *schema, const json_t *value,
                               int depth) {
    const json_t *required = json_object_get(schema, "required");
    const json_t *properties = json_object_get(schema, "properties");
    const json_t *others = json_object_get(schema, "additionalProperties");
    bool has_patterns = json_object_get(schema, "patternProperties") != NULL;
    const char *name;
    json_t *member;
    if (!plain_is_counted(schema, "minProperties", "maxProperties", json_object_size(value)))
        return false;
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_object_get(value, json_string_value(json_array_get(required, i)))) return false;
    json_object_foreach(plain_mutable(value), name, member) {
        const json_t *of_member = json_object_get(properties, name);
        if (!of_member && !has_patterns) of_member = others;
        if (of_member && !plain_is_kept(root, of_member, member, depth + 1)) return false;
    }
    return true;
}

/* The part of the root that a reference such as "#/$defs/name" names; NULL: it is not looked for.
 */
static const json_t *plain_target(const json_t *root, const char *reference) {
    char part[64];
    if (*reference++ != '#') return NULL;
    while (root && *reference == '/') {
        size_t bytes = strcspn(++reference, "/");
        if (bytes >= sizeof part || memchr(reference, '~', bytes) || memchr(reference, '%', bytes))
            return NULL;
        memcpy(part, reference, bytes);
        part[bytes] = '\0';
        root = json_is_array(root) ? NULL : json_object_get(root, part);
        reference += bytes;
    }
    return *reference ? NULL : root;
}

static bool plain_keeps_branches(const json_t *root, const json_t *schema, const json_t *value,
                                 int depth) {
    const json_t *all = json_object_get(schema, "allOf"), *any = json_object_get(schema, "anyOf");
    const json_t *reference = json_object_get(schema, "$ref");
    const json_t *target =
        json_is_string(reference) ? plain_target(root, json_string_value(reference)) : NULL;
    bool is_any = json_array_size(any) == 0;
    if (target && !plain_is_kept(root, target, value, depth + 1)) return false;
    for (size_t i = 0; i < json_array_size(all); i++)
        if (!plain_is_kept(root, json_array_get(all, i), value, depth + 1)) return false;
    for (size_t i = 0; i < json_array_size(any) && !is_any; i++)
        is_any = plain_is_kept(root, json_array_get(any, i), value, depth + 1);
    return is_any;
}

/* False only if the value breaks a keyword of the schema. */
static bool plain_is_kept(const json_t *root, const json_t *schema, const json_t *value,
                          int depth) {
    if (json_is_false(schema)) return false;
    if (!json_is_object(schema) || depth > PLAIN_DEPTH_MAX) return true;
    const json_t *type = json_object_get(schema, "type"), *one = json_object_get(schema, "const");
    const json_t *values = json_object_get(schema, "enum");
    if (type && !plain_keeps_type(type, value)) return false;
    if (one && !plain_is_equal(one, value)) return false;
    if (json_is_array(values) && !plain_is_one_of(values, value)) return false;
    if (json_is_number(value) && !plain_keeps_number(schema, value)) return false;
    if (json_is_string(value) && !plain_keeps_string(schema, value)) return false;
    if (json_is_array(value) && !plain_keeps_array(root, schema, value, depth)) return false;
    if (json_is_object(value) && !plain_keeps_object(root, schema, value, depth)) return false;
    return plain_keeps_branches(root, schema, value, depth);
}
