/* SPDX-License-Identifier: Apache-2.0 */
#include "table/answer_schema.h"

#include "base/mem.h"
#include "json/span.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct property {
    char *name;
    struct str schema; /* raw, in the text */
};

struct answer_schema {
    struct buf text; /* the raw schema */
    struct property *properties;
    size_t count;
    struct str required; /* raw; `at` NULL: none */
    bool is_closed;      /* no other member may be */
};

static struct str find_schema(struct str request) {
    static const char *const path[] = {"body", "response_format", "json_schema", "schema"};
    struct str at = request;
    for (size_t i = 0; i < sizeof path / sizeof *path; i++) at = json_span_get(at, path[i]);
    return at;
}

struct answer_schema *answer_schema_open(struct str request) {
    return answer_schema_read(find_schema(request));
}

struct answer_schema *answer_schema_read(struct str whole) {
    struct str properties = json_span_get(whole, "properties");
    struct json_span_iter iter;
    struct str key, value;
    size_t capacity = 0;
    if (!json_span_is_object(properties)) return NULL;
    struct answer_schema *schema = mem_new(1, sizeof *schema);
    buf_init(&schema->text, BUF_UNLIMITED);
    buf_add_str(&schema->text, whole);
    whole = buf_str(&schema->text);
    schema->required = json_span_get(whole, "required");
    schema->is_closed = str_is(json_span_get(whole, "additionalProperties"), "false");
    json_span_enter(&iter, json_span_get(whole, "properties"));
    while (json_span_member(&iter, &key, &value)) {
        struct buf name;
        buf_init(&name, BUF_UNLIMITED);
        json_span_decode(&name, key);
        schema->properties =
            vec_grow(schema->properties, schema->count, &capacity, sizeof *schema->properties);
        schema->properties[schema->count++] = (struct property){mem_str(buf_str(&name)), value};
        buf_release(&name);
    }
    if (schema->count > 0) return schema;
    answer_schema_close(schema);
    return NULL;
}

void answer_schema_close(struct answer_schema *schema) {
    if (!schema) return;
    for (size_t i = 0; i < schema->count; i++) free(schema->properties[i].name);
    free(schema->properties);
    buf_release(&schema->text);
    free(schema);
}

size_t answer_schema_count(const struct answer_schema *schema) {
    return schema->count;
}

const char *answer_schema_name(const struct answer_schema *schema, size_t index) {
    return schema->properties[index].name;
}

/* --- comparing --- */

/* True for 7 and 7.0, which are integers of JSON Schema. */
static bool is_whole_number(struct str value) {
    char text[64];
    if (str_find_byte(value, '.', 0) == SIZE_MAX && str_find_byte(value, 'e', 0) == SIZE_MAX &&
        str_find_byte(value, 'E', 0) == SIZE_MAX)
        return true;
    if (value.bytes >= sizeof text) return false;
    memcpy(text, value.at, value.bytes);
    text[value.bytes] = '\0';
    double number = strtod(text, NULL);
    return floor(number) == number;
}

static const char *type_of(struct str value) {
    switch (value.at[0]) {
    case '"': return "string";
    case '{': return "object";
    case '[': return "array";
    case 't':
    case 'f': return "boolean";
    case 'n': return "null";
    default: return is_whole_number(value) ? "integer" : "number";
    }
}

/* `wanted` is a raw string: the name of a type. A name that JSON Schema does not have fits. */
static bool is_of_type(struct str wanted, const char *type) {
    static const char *const types[] = {"string", "object", "array",  "boolean",
                                        "null",   "number", "integer"};
    bool is_known = false;
    if (json_span_string_is(wanted, type)) return true;
    if (strcmp(type, "integer") == 0 && json_span_string_is(wanted, "number")) return true;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        is_known = is_known || json_span_string_is(wanted, types[i]);
    return !is_known;
}

static bool has_type(struct str schema, struct str value) {
    struct str wanted = json_span_get(schema, "type"), one;
    struct json_span_iter iter;
    const char *type = type_of(value);
    if (!wanted.at ||
        (strcmp(type, "null") == 0 && str_is(json_span_get(schema, "nullable"), "true")))
        return true;
    if (json_span_is_string(wanted)) return is_of_type(wanted, type);
    if (wanted.at[0] != '[' || !json_span_enter(&iter, wanted)) return true;
    while (json_span_element(&iter, &one))
        if (json_span_is_string(one) && is_of_type(one, type)) return true;
    return false;
}

/* True if the text is an option of the `enum`, or it has options that are no texts. */
static bool is_option(struct str schema, struct str value) {
    struct str options = json_span_get(schema, "enum"), one;
    struct json_span_iter iter;
    struct buf wanted, text;
    bool found = !json_span_is_string(value) || !options.at || options.at[0] != '[';
    if (found || !json_span_enter(&iter, options)) return true;
    buf_init(&wanted, BUF_UNLIMITED);
    buf_init(&text, BUF_UNLIMITED);
    json_span_decode(&text, value);
    while (!found && json_span_element(&iter, &one)) {
        buf_clear(&wanted);
        if (json_span_is_string(one)) json_span_decode(&wanted, one);
        found = json_span_is_string(one) && str_equals(buf_str(&wanted), buf_str(&text));
    }
    buf_release(&wanted);
    buf_release(&text);
    return found;
}

static bool fits(const struct property *property, struct str value, struct buf *why) {
    if (has_type(property->schema, value) && is_option(property->schema, value)) return true;
    buf_printf(why, "'%.60s' is %.*s", property->name, (int)(value.bytes < 60 ? value.bytes : 60),
               value.at);
    return false;
}

static bool has_required(const struct answer_schema *schema, struct str object, struct buf *why) {
    struct json_span_iter iter;
    struct str one;
    struct buf name;
    bool has_all = true;
    if (!schema->required.at || schema->required.at[0] != '[') return true;
    buf_init(&name, BUF_UNLIMITED);
    json_span_enter(&iter, schema->required);
    while (has_all && json_span_element(&iter, &one)) {
        if (!json_span_is_string(one)) continue;
        buf_clear(&name);
        json_span_decode(&name, one);
        has_all = json_span_get(object, name.bytes ? name.at : "").at != NULL;
        if (!has_all) buf_printf(why, "'%.60s' is missing", name.bytes ? name.at : "");
    }
    buf_release(&name);
    return has_all;
}

enum answer_fit answer_schema_compare(const struct answer_schema *schema, struct str object,
                                      struct buf *why) {
    struct json_span_iter iter;
    struct str key, value;
    size_t members = 0, shown = 0;
    if (!has_required(schema, object, why)) return ANSWER_FITS_NOT;
    for (size_t i = 0; i < schema->count; i++) {
        value = json_span_get(object, schema->properties[i].name);
        if (!value.at) continue;
        shown++;
        if (!fits(&schema->properties[i], value, why)) return ANSWER_FITS_NOT;
    }
    json_span_enter(&iter, object);
    while (json_span_member(&iter, &key, &value)) members++;
    if (members == shown) return ANSWER_FITS;
    if (!schema->is_closed) return ANSWER_HAS_MORE;
    buf_add_text(why, "it has a member that the schema does not have, or one twice");
    return ANSWER_FITS_NOT;
}
