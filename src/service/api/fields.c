/* SPDX-License-Identifier: Apache-2.0 */
#include "api/fields.h"

#include "api/errors.h"
#include "json/json.h"

#include <inttypes.h>
#include <string.h>

#define SHOWN_BYTES 100 /* bytes of a client's value that a message shows */

static struct str shown(const json_t *value) {
    struct str text = json_str(value);
    return (struct str){text.at, text.bytes < SHOWN_BYTES ? text.bytes : SHOWN_BYTES};
}

static bool refuse_range(struct refusal *refusal, const struct field_fault *fault) {
    const struct field *field = fault->field;
    bool is_below = fault->trouble == FIELD_BELOW;
    int64_t min = (int64_t)field->min, max = (int64_t)field->max;
    if (field->kind == FIELD_TEXT)
        return refuse(refusal, is_below ? "string_below_min_length" : "string_above_max_length",
                      field->name,
                      "Invalid '%s': it has %zu bytes; expected %" PRId64 " to %" PRId64 ".",
                      field->name, json_string_length(fault->got), min, max);
    if (field->kind == FIELD_TEXTS)
        return refuse(refusal, is_below ? "array_below_min_length" : "array_above_max_length",
                      field->name,
                      "Invalid '%s': it has %zu items; expected %" PRId64 " to %" PRId64 ".",
                      field->name, json_array_size(fault->got), min, max);
    if (field->kind == FIELD_NUMBER)
        return refuse(refusal, is_below ? "decimal_below_min_value" : "decimal_above_max_value",
                      field->name,
                      "Invalid '%s': expected a value from %" PRId64 " to %" PRId64 ", got %g.",
                      field->name, min, max, json_number_value(fault->got));
    return refuse(
        refusal, is_below ? "integer_below_min_value" : "integer_above_max_value", field->name,
        "Invalid '%s': expected a value from %" PRId64 " to %" PRId64 ", got %" PRId64 ".",
        field->name, min, max, (int64_t)json_integer_value(fault->got));
}

static bool refuse_choice(struct refusal *refusal, const struct field_fault *fault) {
    struct buf known;
    buf_init(&known, 4096);
    field_list_choices(&known, fault->field);
    refuse(refusal, "invalid_value", fault->field->name,
           "Invalid value for '%s': '%.*s'. Supported values are: %s.", fault->field->name,
           STR_ARGS(shown(fault->got)), known.at);
    buf_release(&known);
    return false;
}

bool api_field_refuse(struct refusal *refusal, const struct field_fault *fault) {
    const char *name = fault->field->name;
    switch (fault->trouble) {
    case FIELD_MISSING: return refuse_missing(refusal, name);
    case FIELD_WRONG_TYPE:
        return refuse(refusal, "invalid_type", name, "Invalid type for '%s': expected %s.", name,
                      field_expected(fault->field->kind));
    case FIELD_BELOW:
    case FIELD_ABOVE: return refuse_range(refusal, fault);
    case FIELD_NO_CHOICE: return refuse_choice(refusal, fault);
    case FIELD_HAS_NUL:
        return refuse(refusal, "invalid_value", name, "Invalid '%s': it holds a NUL.", name);
    case FIELD_NO_MD5:
        return refuse(refusal, "invalid_value", name,
                      "Invalid value for '%s': '%.*s' is not 32 hexadecimal digits.", name,
                      STR_ARGS(shown(fault->got)));
    }
    return false;
}

bool api_fields_read(struct http_request *request, const struct fields *fields, const json_t *body,
                     void *ret_struct) {
    struct refusal refusal;
    if (fields_read(fields, FIELD_ANY, body, ret_struct, &refusal)) return true;
    api_refuse(request, &refusal);
    return false;
}

static bool is_known(const struct fields *fields, const char *name) {
    for (size_t i = 0; i < fields->count; i++)
        if (strcmp(name, fields->rows[i].name) == 0) return true;
    return false;
}

bool api_fields_read_all(struct http_request *request, const struct fields *fields,
                         const json_t *body, void *ret_struct) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)body, name, value) {
        if (is_known(fields, name)) continue;
        api_fail_param(request, "unknown_parameter", NULL, "Unknown parameter: '%.100s'.", name);
        return false;
    }
    return api_fields_read(request, fields, body, ret_struct);
}
