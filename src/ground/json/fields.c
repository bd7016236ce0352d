/* SPDX-License-Identifier: Apache-2.0 */
#include "json/fields.h"

#include "json/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MD5_DIGITS 32
#define WHOLE_MAX ((double)(1ll << 53)) /* doubles carry every integer up to it */

static const struct {
    const char *expected, *schema_type;
} kinds[] = {
    [FIELD_BOOL] = {"a boolean", "boolean"},          [FIELD_INTEGER] = {"an integer", "integer"},
    [FIELD_NUMBER] = {"a number", "number"},          [FIELD_TEXT] = {"a string", "string"},
    [FIELD_CHOICE] = {"a string", "string"},          [FIELD_MD5] = {"a string", "string"},
    [FIELD_TEXTS] = {"an array of strings", "array"}, [FIELD_EXPIRY] = {"an object", "object"},
};

const char *field_expected(enum field_kind kind) {
    return kinds[kind].expected;
}

bool field_whole_number(const json_t *value, int64_t *ret_value) {
    if (json_is_integer(value)) {
        *ret_value = json_integer_value(value);
        return true;
    }
    if (!json_is_real(value)) return false;
    double real = json_real_value(value);
    if (!(fabs(real) <= WHOLE_MAX) || real != floor(real)) return false;
    *ret_value = (int64_t)real;
    return true;
}

/* --- reading --- */

/* The value to read, and the refusal for a fault of it. */
struct reading {
    const struct fields *fields;
    const struct field *field;
    const json_t *value;
    struct refusal *refusal;
};

static bool fault(const struct reading *is, enum field_trouble trouble) {
    const struct field_fault found = {trouble, is->field, is->value};
    return is->fields->refuse(is->refusal, &found);
}

static bool check_range(const struct reading *is, double value) {
    const struct field *field = is->field;
    if (value < field->min || (field->flags & FIELD_ABOVE_MIN && value <= field->min))
        return fault(is, FIELD_BELOW);
    return value <= field->max || fault(is, FIELD_ABOVE);
}

static bool read_integer(const struct reading *is, int64_t *ret_value) {
    int64_t value = 0;
    bool is_integer = is->fields->takes_whole_decimals ? field_whole_number(is->value, &value)
                                                       : json_is_integer(is->value);
    if (!is_integer) return fault(is, FIELD_WRONG_TYPE);
    if (!check_range(is, json_number_value(is->value))) return false;
    *ret_value = is->fields->takes_whole_decimals ? value : json_integer_value(is->value);
    return true;
}

static bool read_number(const struct reading *is, double *ret_value) {
    if (!json_is_number(is->value)) return fault(is, FIELD_WRONG_TYPE);
    *ret_value = json_number_value(is->value);
    return check_range(is, *ret_value);
}

static bool is_choice(const struct field *field, struct str text) {
    for (const char *const *choice = field->choices; *choice; choice++)
        if (str_is(text, *choice)) return true;
    return false;
}

static bool is_md5(struct str text) {
    return text.bytes == MD5_DIGITS && strspn(text.at, "0123456789abcdefABCDEF") == MD5_DIGITS;
}

static bool read_string(const struct reading *is, struct str *ret_text) {
    if (!json_is_string(is->value)) return fault(is, FIELD_WRONG_TYPE);
    struct str text = json_str(is->value);
    *ret_text = text;
    if (is->field->kind == FIELD_CHOICE)
        return is_choice(is->field, text) || fault(is, FIELD_NO_CHOICE);
    if (is->field->kind == FIELD_MD5) return is_md5(text) || fault(is, FIELD_NO_MD5);
    if (text.bytes > 0 && memchr(text.at, '\0', text.bytes)) return fault(is, FIELD_HAS_NUL);
    return check_range(is, (double)text.bytes);
}

static bool read_texts(const struct reading *is, const json_t **ret_array) {
    size_t index;
    json_t *item;
    if (!json_is_array(is->value)) return fault(is, FIELD_WRONG_TYPE);
    if (!check_range(is, (double)json_array_size(is->value))) return false;
    json_array_foreach(is->value, index, item) {
        if (!json_is_string(item)) return fault(is, FIELD_WRONG_TYPE);
    }
    *ret_array = is->value;
    return true;
}

static bool read_expiry(const struct reading *is, int64_t *ret_seconds) {
    static const char *const anchors[] = {"created_at", NULL};
    if (!json_is_object(is->value)) return fault(is, FIELD_WRONG_TYPE);
    char anchor_name[80], seconds_name[80];
    snprintf(anchor_name, sizeof anchor_name, "%s.anchor", is->field->name);
    snprintf(seconds_name, sizeof seconds_name, "%s.seconds", is->field->name);
    const struct field anchor_field = {.name = anchor_name, FIELD_CHOICE, .choices = anchors};
    const struct field seconds_field = {.name = seconds_name,
                                        FIELD_INTEGER, //
                                        .min = is->field->min,
                                        .max = is->field->max};
    struct reading anchor = *is, seconds = *is;
    anchor.field = &anchor_field;
    anchor.value = json_member(is->value, "anchor");
    seconds.field = &seconds_field;
    seconds.value = json_member(is->value, "seconds");
    struct str ignored;
    if (!anchor.value) return fault(&anchor, FIELD_MISSING);
    if (!seconds.value) return fault(&seconds, FIELD_MISSING);
    return read_integer(&seconds, ret_seconds) && read_string(&anchor, &ignored);
}

bool field_read(const struct fields *fields, const struct field *field, const json_t *value,
                void *ret_struct, struct refusal *ret_refusal) {
    const struct reading is = {fields, field, value, ret_refusal};
    void *member = (char *)ret_struct + field->offset;
    switch (field->kind) {
    case FIELD_BOOL:
        if (!json_is_boolean(value)) return fault(&is, FIELD_WRONG_TYPE);
        *(bool *)member = json_is_true(value);
        return true;
    case FIELD_INTEGER: return read_integer(&is, member);
    case FIELD_NUMBER: return read_number(&is, member);
    case FIELD_TEXT:
    case FIELD_CHOICE:
    case FIELD_MD5: return read_string(&is, member);
    case FIELD_TEXTS: return read_texts(&is, member);
    case FIELD_EXPIRY: return read_expiry(&is, member);
    }
    return false;
}

bool fields_read(const struct fields *fields, unsigned sets, const json_t *object, void *ret_struct,
                 struct refusal *ret_refusal) {
    for (size_t i = 0; i < fields->count; i++) {
        const struct field *field = &fields->rows[i];
        if (!(field->sets & sets)) continue;
        const json_t *value = json_member(object, field->name);
        const struct reading is = {fields, field, value, ret_refusal};
        if (!value && field->flags & FIELD_REQUIRED) return fault(&is, FIELD_MISSING);
        if (value && !field_read(fields, field, value, ret_struct, ret_refusal)) return false;
    }
    return true;
}

/* --- sentences and schemas --- */

void field_list_choices(struct buf *buf, const struct field *field) {
    for (const char *const *choice = field->choices; *choice; choice++)
        buf_printf(buf, "%s'%s'", choice == field->choices ? "" : ", ", *choice);
}

/* The constraints of a kind, each with a comma in front. */
static void write_constraints(struct buf *buf, const struct field *field) {
    switch (field->kind) {
    case FIELD_BOOL: break;
    case FIELD_TEXT:
        buf_printf(buf, ",\"minLength\":%.15g,\"maxLength\":%.15g", field->min, field->max);
        break;
    case FIELD_INTEGER:
    case FIELD_NUMBER:
        buf_printf(buf, ",\"%s\":%.15g,\"maximum\":%.15g",
                   field->flags & FIELD_ABOVE_MIN ? "exclusiveMinimum" : "minimum", field->min,
                   field->max);
        break;
    case FIELD_CHOICE:
        buf_add_text(buf, ",\"enum\":[");
        for (const char *const *choice = field->choices; *choice; choice++)
            buf_printf(buf, "%s\"%s\"", choice == field->choices ? "" : ",", *choice);
        buf_add_text(buf, field->flags & FIELD_REQUIRED ? "]" : ",null]");
        break;
    case FIELD_MD5: buf_add_text(buf, ",\"pattern\":\"^[0-9a-fA-F]{32}$\""); break;
    case FIELD_TEXTS:
        buf_printf(buf, ",\"items\":{\"type\":\"string\"},\"minItems\":%.15g,\"maxItems\":%.15g",
                   field->min, field->max);
        break;
    case FIELD_EXPIRY:
        buf_printf(buf,
                   ",\"required\":[\"anchor\",\"seconds\"],\"properties\":{\"anchor\":{\"type\":"
                   "\"string\",\"enum\":[\"created_at\"]},\"seconds\":{\"type\":\"integer\","
                   "\"minimum\":%.15g,\"maximum\":%.15g}}",
                   field->min, field->max);
        break;
    }
}

void fields_write_schema(struct buf *buf, const struct fields *fields) {
    const char *comma = "";
    buf_add_text(buf, "{\"type\":\"object\",\"required\":[");
    for (size_t i = 0; i < fields->count; i++) {
        if (!(fields->rows[i].flags & FIELD_REQUIRED)) continue;
        buf_printf(buf, "%s\"%s\"", comma, fields->rows[i].name);
        comma = ",";
    }
    buf_add_text(buf, "],\"properties\":{");
    for (size_t i = 0; i < fields->count; i++) {
        const struct field *field = &fields->rows[i];
        buf_printf(buf, "%s\"%s\":{\"type\":", i ? "," : "", field->name);
        buf_printf(buf, field->flags & FIELD_REQUIRED ? "\"%s\"" : "[\"%s\",\"null\"]",
                   kinds[field->kind].schema_type);
        write_constraints(buf, field);
        if (field->description) buf_printf(buf, ",\"description\":\"%s\"", field->description);
        buf_add_byte(buf, '}');
    }
    buf_add_text(buf, "}}");
}
