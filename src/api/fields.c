/* SPDX-License-Identifier: Apache-2.0 */
#include "api/fields.h"

#include "api/errors.h"

#include <inttypes.h>
#include <string.h>

#define SHOWN_BYTES 100 /* of a value of the client's in a message */

static struct str shown(struct str text) {
    return (struct str){text.at, text.bytes < SHOWN_BYTES ? text.bytes : SHOWN_BYTES};
}

static bool fail_type(struct http_request *request, const char *name, const char *wanted) {
    api_fail_param(request, "invalid_type", name, "Invalid type for '%s': expected %s.", name,
                   wanted);
    return false;
}

static bool check_range(struct http_request *request, const char *name, int64_t value, int64_t min,
                        int64_t max) {
    if (value >= min && value <= max) return true;
    api_fail_param(
        request, value < min ? "integer_below_min_value" : "integer_above_max_value", name,
        "Invalid '%s': expected a value from %" PRId64 " to %" PRId64 ", got %" PRId64 ".", name,
        min, max, value);
    return false;
}

static bool read_text(struct http_request *request, const struct api_field *field,
                      const json_t *value, struct str *ret_text) {
    if (!json_is_string(value)) return fail_type(request, field->name, "a string");
    struct str text = json_str(value);
    if (text.bytes > 0 && memchr(text.at, '\0', text.bytes)) {
        api_fail_param(request, "invalid_value", field->name, "Invalid '%s': it holds a NUL.",
                       field->name);
        return false;
    }
    *ret_text = text;
    if (text.bytes >= (uint64_t)field->min && text.bytes <= (uint64_t)field->max) return true;
    api_fail_param(
        request,
        text.bytes < (uint64_t)field->min ? "string_below_min_length" : "string_above_max_length",
        field->name, "Invalid '%s': it has %zu bytes; expected %" PRId64 " to %" PRId64 ".",
        field->name, text.bytes, field->min, field->max);
    return false;
}

static bool read_choice(struct http_request *request, const struct api_field *field,
                        const json_t *value, struct str *ret_text) {
    if (!json_is_string(value)) return fail_type(request, field->name, "a string");
    struct buf known;
    buf_init(&known, 4096);
    for (const char *const *choice = field->choices; *choice; choice++) {
        if (str_is(json_str(value), *choice)) {
            buf_release(&known);
            *ret_text = json_str(value);
            return true;
        }
        buf_printf(&known, "%s'%s'", known.bytes ? ", " : "", *choice);
    }
    api_fail_param(request, "invalid_value", field->name,
                   "Invalid value for '%s': '%.*s'. Supported values are: %s.", field->name,
                   STR_ARGS(shown(json_str(value))), known.at);
    buf_release(&known);
    return false;
}

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool read_md5(struct http_request *request, const struct api_field *field,
                     const json_t *value, struct str *ret_text) {
    if (!json_is_string(value)) return fail_type(request, field->name, "a string");
    struct str text = json_str(value);
    bool good = text.bytes == 32;
    for (size_t i = 0; i < text.bytes && good; i++) good = is_hex(text.at[i]);
    *ret_text = text;
    if (good) return true;
    api_fail_param(request, "invalid_value", field->name,
                   "Invalid value for '%s': '%.*s' is not 32 hexadecimal digits.", field->name,
                   STR_ARGS(shown(text)));
    return false;
}

static bool read_texts(struct http_request *request, const struct api_field *field,
                       const json_t *value) {
    size_t index;
    json_t *item;
    if (!json_is_array(value)) return fail_type(request, field->name, "an array of strings");
    size_t count = json_array_size(value);
    if (count < (uint64_t)field->min || count > (uint64_t)field->max) {
        api_fail_param(
            request,
            count < (uint64_t)field->min ? "array_below_min_length" : "array_above_max_length",
            field->name, "Invalid '%s': it has %zu items; expected %" PRId64 " to %" PRId64 ".",
            field->name, count, field->min, field->max);
        return false;
    }
    json_array_foreach(value, index, item) {
        if (!json_is_string(item)) return fail_type(request, field->name, "an array of strings");
    }
    return true;
}

static bool read_expiry(struct http_request *request, const struct api_field *field,
                        const json_t *value, int64_t *ret_seconds) {
    char name[80];
    if (!json_is_object(value)) return fail_type(request, field->name, "an object");
    const json_t *anchor = json_member(value, "anchor"), *seconds = json_member(value, "seconds");
    snprintf(name, sizeof name, "%s.%s", field->name, anchor ? "seconds" : "anchor");
    if (!anchor || !seconds) {
        api_fail_param(request, "missing_required_parameter", name,
                       "Missing required parameter: '%s'.", name);
        return false;
    }
    if (!json_is_integer(seconds)) return fail_type(request, name, "an integer");
    if (!check_range(request, name, json_integer_value(seconds), field->min, field->max))
        return false;
    snprintf(name, sizeof name, "%s.anchor", field->name);
    if (!json_is_string(anchor)) return fail_type(request, name, "a string");
    *ret_seconds = json_integer_value(seconds);
    if (str_is(json_str(anchor), "created_at")) return true;
    api_fail_param(request, "invalid_value", name,
                   "Invalid value for '%s': '%.*s'. Supported values are: 'created_at'.", name,
                   STR_ARGS(shown(json_str(anchor))));
    return false;
}

static bool read_number(struct http_request *request, const struct api_field *field,
                        const json_t *value, double *ret_number) {
    if (!json_is_number(value)) return fail_type(request, field->name, "a number");
    double number = json_number_value(value);
    *ret_number = number;
    if (number >= (double)field->min && number <= (double)field->max) return true;
    api_fail_param(
        request,
        number < (double)field->min ? "decimal_below_min_value" : "decimal_above_max_value",
        field->name, "Invalid '%s': expected a value from %" PRId64 " to %" PRId64 ", got %g.",
        field->name, field->min, field->max, number);
    return false;
}

static bool read_one(struct http_request *request, const struct api_field *field,
                     const json_t *value, struct api_value *ret_value) {
    ret_value->given = true;
    switch (field->kind) {
    case API_FIELD_TEXT: return read_text(request, field, value, &ret_value->text);
    case API_FIELD_CHOICE: return read_choice(request, field, value, &ret_value->text);
    case API_FIELD_MD5: return read_md5(request, field, value, &ret_value->text);
    case API_FIELD_TEXTS: ret_value->array = value; return read_texts(request, field, value);
    case API_FIELD_EXPIRY: return read_expiry(request, field, value, &ret_value->integer);
    case API_FIELD_NUMBER: return read_number(request, field, value, &ret_value->number);
    case API_FIELD_INTEGER: break;
    }
    if (!json_is_integer(value)) return fail_type(request, field->name, "an integer");
    ret_value->integer = json_integer_value(value);
    return check_range(request, field->name, ret_value->integer, field->min, field->max);
}

bool api_fields_read(struct http_request *request, const json_t *body,
                     const struct api_field *fields, size_t field_count,
                     struct api_value *ret_values) {
    for (size_t i = 0; i < field_count; i++) {
        const json_t *value = json_member(body, fields[i].name);
        ret_values[i] = (struct api_value){0};
        if (value) {
            if (!read_one(request, &fields[i], value, &ret_values[i])) return false;
        } else if (fields[i].required) {
            api_fail_param(request, "missing_required_parameter", fields[i].name,
                           "Missing required parameter: '%s'.", fields[i].name);
            return false;
        }
    }
    return true;
}

/* --- the schema --- */

static void write_kind(struct buf *buf, const struct api_field *field) {
    switch (field->kind) {
    case API_FIELD_TEXT:
        buf_printf(buf, "\"minLength\":%" PRId64 ",\"maxLength\":%" PRId64, field->min, field->max);
        break;
    case API_FIELD_INTEGER:
    case API_FIELD_NUMBER:
        buf_printf(buf, "\"minimum\":%" PRId64 ",\"maximum\":%" PRId64, field->min, field->max);
        break;
    case API_FIELD_CHOICE:
        buf_add_text(buf, "\"enum\":[");
        for (const char *const *choice = field->choices; *choice; choice++)
            buf_printf(buf, "%s\"%s\"", choice == field->choices ? "" : ",", *choice);
        buf_add_text(buf, field->required ? "]" : ",null]");
        break;
    case API_FIELD_MD5: buf_add_text(buf, "\"pattern\":\"^[0-9a-fA-F]{32}$\""); break;
    case API_FIELD_TEXTS:
        buf_printf(buf,
                   "\"items\":{\"type\":\"string\"},\"minItems\":%" PRId64 ",\"maxItems\":%" PRId64,
                   field->min, field->max);
        break;
    case API_FIELD_EXPIRY:
        buf_printf(buf,
                   "\"required\":[\"anchor\",\"seconds\"],\"properties\":{\"anchor\":{\"type\":"
                   "\"string\",\"enum\":[\"created_at\"]},\"seconds\":{\"type\":\"integer\","
                   "\"minimum\":%" PRId64 ",\"maximum\":%" PRId64 "}}",
                   field->min, field->max);
        break;
    }
}

void api_fields_write_schema(struct buf *buf, const struct api_field *fields, size_t field_count) {
    static const char *const types[] = {"string", "integer", "string", "string",
                                        "array",  "object",  "number"};
    const char *comma = "";
    buf_add_text(buf, "{\"type\":\"object\",\"required\":[");
    for (size_t i = 0; i < field_count; i++) {
        if (!fields[i].required) continue;
        buf_printf(buf, "%s\"%s\"", comma, fields[i].name);
        comma = ",";
    }
    buf_add_text(buf, "],\"properties\":{");
    for (size_t i = 0; i < field_count; i++) {
        buf_printf(buf, "%s\"%s\":{\"type\":", i ? "," : "", fields[i].name);
        buf_printf(buf, fields[i].required ? "\"%s\"," : "[\"%s\",\"null\"],",
                   types[fields[i].kind]);
        write_kind(buf, &fields[i]);
        buf_printf(buf, ",\"description\":\"%s\"}", fields[i].description);
    }
    buf_add_text(buf, "}}");
}
