/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "base/min_max.h"
#include "base/utf8.h"
#include "chat/call_text.h"
#include "json/json.h"
#include "json/span.h"

#include <stdlib.h>
#include <string.h>

#define FUNCTION STR("<function=")
#define FUNCTION_END STR("</function>")
#define PARAMETER STR("<parameter=")
#define PARAMETER_END STR("</parameter>")
#define KEY STR("<arg_key>")
#define KEY_END STR("</arg_key>")
#define VALUE STR("<arg_value>")
#define VALUE_END STR("</arg_value>")
#define SCHEMAS_MAX 200     /* schemas that are looked at for one value */
#define PARAMETERS_MAX 1000 /* most parameters in one call: each is compared with all before it */

/* The JSON types that a value may have. */
enum { TYPE_STRING = 1, TYPE_NUMBER = 2, TYPE_BOOLEAN = 4, TYPE_NULL = 8, TYPE_NESTED = 16 };

static unsigned type_of_value(const json_t *value) {
    if (json_is_string(value)) return TYPE_STRING;
    if (json_is_number(value)) return TYPE_NUMBER;
    if (json_is_boolean(value)) return TYPE_BOOLEAN;
    return json_is_null(value) ? TYPE_NULL : TYPE_NESTED;
}

static unsigned type_of_name(struct str name) {
    if (str_is(name, "integer") || str_is(name, "number")) return TYPE_NUMBER;
    if (str_is(name, "boolean")) return TYPE_BOOLEAN;
    if (str_is(name, "null")) return TYPE_NULL;
    if (str_is(name, "object") || str_is(name, "array")) return TYPE_NESTED;
    return TYPE_STRING;
}

/* The schema that "#/$defs/NAME" or "#/definitions/NAME" means in `root`. */
static const json_t *referred(const json_t *root, struct str reference) {
    static const char *const homes[][2] = {{"$defs", "#/$defs/"},
                                           {"definitions", "#/definitions/"}};
    for (size_t i = 0; i < sizeof homes / sizeof *homes; i++) {
        struct str prefix = str_from(homes[i][1]);
        if (!str_starts_with(reference, prefix)) continue;
        struct str name = str_skip(reference, prefix.bytes);
        return json_object_getn(json_object_get(root, homes[i][0]), name.at, name.bytes);
    }
    return NULL;
}

/* The types that a schema allows; 0 where it names none. `room`: schemas that may still be looked
 * at. */
static unsigned types_of(const json_t *root, const json_t *schema, int *room) {
    static const char *const lists[] = {"anyOf", "oneOf", "allOf"};
    const json_t *type = json_object_get(schema, "type"), *values = json_object_get(schema, "enum");
    unsigned types = json_is_string(type) ? type_of_name(json_str(type)) : 0;
    for (size_t i = 0; i < json_array_size(type); i++)
        types |= type_of_name(json_str(json_array_get(type, i)));
    if (types || --*room < 0) return types;
    for (size_t i = 0; i < json_array_size(values); i++)
        types |= type_of_value(json_array_get(values, i));
    if (json_object_get(schema, "const")) types |= type_of_value(json_object_get(schema, "const"));
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        const json_t *list = json_object_get(schema, lists[k]);
        for (size_t i = 0; i < json_array_size(list) && *room > 0; i++)
            types |= types_of(root, json_array_get(list, i), room);
    }
    const json_t *reference = json_object_get(schema, "$ref");
    if (json_is_string(reference))
        types |= types_of(root, referred(root, json_str(reference)), room);
    return types;
}

/* The parameters of the tool with this name. */
static const json_t *parameters_of(const json_t *tools, struct str name) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        if (str_equals(json_member_str(function, "name"), name))
            return json_object_get(function, "parameters");
    }
    return NULL;
}

static bool is_word(struct str text, const char *word) {
    return text.bytes == strlen(word) && strncasecmp(text.at, word, text.bytes) == 0;
}

/* Appends the JSON value that a text means for one of the types. */
static void add_value(struct buf *out, unsigned types, struct str text) {
    struct str trimmed = str_trim(text), value;
    if (types & TYPE_BOOLEAN && (is_word(trimmed, "true") || is_word(trimmed, "false"))) {
        buf_add_text(out, is_word(trimmed, "true") ? "true" : "false");
        return;
    }
    if (types & TYPE_NULL && (is_word(trimmed, "null") || is_word(trimmed, "none"))) {
        buf_add_text(out, "null");
        return;
    }
    if (types & (TYPE_NUMBER | TYPE_NESTED) && json_span_read(trimmed, &value)) {
        bool is_nested = value.at[0] == '{' || value.at[0] == '[';
        bool is_number = value.at[0] == '-' || (value.at[0] >= '0' && value.at[0] <= '9');
        if ((is_nested && types & TYPE_NESTED) || (is_number && types & TYPE_NUMBER)) {
            buf_add_str(out, value);
            return;
        }
    }
    json_write_utf8_string(out, text);
}

/* A parameter by name; a later one with the same name takes the place of an earlier one. */
struct parameter {
    struct str name, value;
};

struct parameters {
    struct parameter *at; /* (count) */
    size_t count, capacity;
};

static void put_parameter(struct parameters *list, struct str name, struct str value) {
    for (size_t i = 0; i < list->count; i++) {
        if (!str_equals(list->at[i].name, name)) continue;
        list->at[i].value = value;
        return;
    }
    list->at = vec_grow(list->at, list->count, &list->capacity, sizeof *list->at);
    list->at[list->count++] = (struct parameter){name, value};
}

/* The parameters in the text of a function. One newline at each end of a value is the form's. */
static bool read_parameters(struct str text, struct parameters *list) {
    size_t at = str_find(text, PARAMETER, 0);
    if (str_trim((struct str){text.at, min_size(at, text.bytes)}).bytes > 0) return false;
    while (at != SIZE_MAX) {
        size_t name_at = at + PARAMETER.bytes, name_end = str_find_byte(text, '>', name_at);
        if (name_end == SIZE_MAX || list->count > PARAMETERS_MAX) return false;
        size_t following = str_find(text, PARAMETER, name_end);
        size_t end = str_find(text, PARAMETER_END, name_end);
        end = min_size(min_size(end, following), text.bytes);
        struct str value = {text.at + name_end + 1, end - name_end - 1};
        if (value.bytes > 0 && value.at[0] == '\n') value = str_skip(value, 1);
        if (value.bytes > 0 && value.at[value.bytes - 1] == '\n') value.bytes--;
        struct str name = str_trim((struct str){text.at + name_at, name_end - name_at});
        if (name.bytes == 0) return false;
        put_parameter(list, name, value);
        at = following;
    }
    return true;
}

/* Adds a call with these parameters, as the JSON that their schemas mean. */
static void add_call(struct str name, const struct parameters *list, const json_t *tools,
                     struct call_list *calls) {
    struct tool_call *call = call_list_add(calls);
    const json_t *schema = parameters_of(tools, name);
    const json_t *properties = json_object_get(schema, "properties");
    buf_add_str(&call->name, name);
    buf_add_byte(&call->arguments, '{');
    for (size_t i = 0; i < list->count; i++) {
        struct str key = list->at[i].name;
        const json_t *property = json_object_getn(properties, key.at, key.bytes);
        if (i > 0) buf_add_text(&call->arguments, ", ");
        json_write_utf8_string(&call->arguments, key);
        buf_add_text(&call->arguments, ": ");
        int room = SCHEMAS_MAX;
        add_value(&call->arguments, types_of(schema, property, &room), list->at[i].value);
    }
    buf_add_byte(&call->arguments, '}');
}

static bool read_function(struct str text, const json_t *tools, struct call_list *calls) {
    struct parameters list = {.at = NULL};
    size_t name_end = str_find_byte(text, '>', 0);
    if (name_end == SIZE_MAX) return false;
    struct str name = str_trim((struct str){text.at, name_end});
    bool is_good = name.bytes > 0 && read_parameters(str_skip(text, name_end + 1), &list);
    if (is_good) add_call(name, &list, tools, calls);
    free(list.at);
    return is_good;
}

/* The text between two marks, the first of which is next in *text; *text moves behind the second.
 */
static bool cut_between(struct str *text, struct str begin, struct str end, struct str *ret_inner) {
    struct str rest = str_trim(*text);
    if (!str_starts_with(rest, begin)) return false;
    rest = str_skip(rest, begin.bytes);
    const size_t at = str_find(rest, end, 0);
    if (at == SIZE_MAX) return false;
    *ret_inner = (struct str){rest.at, at};
    *text = str_skip(rest, at + end.bytes);
    return true;
}

bool call_text_keys(struct str text, const json_t *tools, struct call_list *calls) {
    struct parameters list = {.at = NULL};
    struct str key, value;
    text = str_trim(text);
    if (text.bytes > 0 && text.at[0] == '{') return call_text_json(text, tools, calls);
    const size_t name_end = min_size(str_find(text, KEY, 0), text.bytes);
    struct str name = str_trim((struct str){text.at, name_end});
    bool is_good = utf8_is_valid(text) && name.bytes > 0 && str_find_byte(name, '<', 0) == SIZE_MAX;
    text = str_skip(text, name_end);
    while (is_good && str_trim(text).bytes > 0) {
        is_good = list.count <= PARAMETERS_MAX && cut_between(&text, KEY, KEY_END, &key) &&
                  cut_between(&text, VALUE, VALUE_END, &value) && str_trim(key).bytes > 0;
        if (is_good) put_parameter(&list, str_trim(key), value);
    }
    if (is_good) add_call(name, &list, tools, calls);
    free(list.at);
    return is_good;
}

bool call_text_xml(struct str text, const json_t *tools, struct call_list *calls) {
    size_t before = calls->count;
    text = str_trim(text);
    if (text.bytes > 0 && text.at[0] == '{') return call_text_json(text, tools, calls);
    if (!utf8_is_valid(text) || !str_starts_with(text, FUNCTION)) return false;
    while (text.bytes > 0) {
        if (!str_starts_with(text, FUNCTION)) break;
        text = str_skip(text, FUNCTION.bytes);
        size_t following = str_find(text, FUNCTION, 0), end = str_find(text, FUNCTION_END, 0);
        size_t after = min_size(following, text.bytes);
        if (end < after) after = end + FUNCTION_END.bytes;
        if (!read_function((struct str){text.at, min_size(end, after)}, tools, calls)) break;
        text = str_trim(str_skip(text, after));
        if (text.bytes == 0) return true;
    }
    call_list_cut(calls, before);
    return false;
}
