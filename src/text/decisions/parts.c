/* SPDX-License-Identifier: Apache-2.0 */
#include "decisions/parts.h"

#include "decisions/json_text.h"
#include "json/json.h"

#include <stdio.h>
#include <string.h>

const char *parts_path(char path[REFUSAL_PARAM_BYTES], const char *param, const char *name) {
    snprintf(path, REFUSAL_PARAM_BYTES, "%s.%s", param, name);
    return path;
}

const char *parts_index(char path[REFUSAL_PARAM_BYTES], const char *param, size_t index) {
    snprintf(path, REFUSAL_PARAM_BYTES, "%s[%zu]", param, index);
    return path;
}

bool parts_read_string(const json_t *object, const char *param, const char *name,
                       struct str *ret_text, struct refusal *refusal) {
    char path[REFUSAL_PARAM_BYTES];
    const json_t *value = json_member(object, name);
    parts_path(path, param, name);
    if (!value) return refuse_missing(refusal, path);
    if (!json_is_string(value)) return refuse_type(refusal, path, "a string", value);
    *ret_text = json_str(value);
    return true;
}

/* Appends `data` of an input_json: an object, or an array of objects. */
static bool read_json(const json_t *part, const char *param, struct buf *text,
                      struct refusal *refusal) {
    char path[REFUSAL_PARAM_BYTES];
    const json_t *data = json_member(part, "data");
    parts_path(path, param, "data");
    if (!data) return refuse_missing(refusal, path);
    bool is_good = json_is_object(data) || json_is_array(data);
    for (size_t i = 0; json_is_array(data) && i < json_array_size(data); i++)
        is_good = is_good && json_is_object(json_array_get(data, i));
    if (!is_good) return refuse_type(refusal, path, "an object or an array of objects", data);
    struct json_size size = json_size_of(data, PARTS_JSON_DEPTH_MAX);
    if (size.depth > PARTS_JSON_DEPTH_MAX)
        return refuse(refusal, "invalid_value", path,
                      "Invalid '%s': its containers nest deeper than %d levels.", path,
                      PARTS_JSON_DEPTH_MAX);
    if (size.values > PARTS_JSON_VALUES_MAX)
        return refuse(refusal, "invalid_value", path,
                      "Invalid '%s': it has %llu values; at most %d are allowed.", path,
                      (unsigned long long)size.values, PARTS_JSON_VALUES_MAX);
    size_t before = text->bytes;
    json_text_write(text, data);
    if (text->bytes - before > PARTS_JSON_BYTES_MAX)
        return refuse(refusal, "invalid_value", path,
                      "Invalid '%s': it is %zu bytes as compact JSON; at most %zu are allowed.",
                      path, text->bytes - before, PARTS_JSON_BYTES_MAX);
    return true;
}

/* The parts that are no pictures. `member` NULL: JSON. */
static const struct part_kind {
    const char *type, *member;
    unsigned bit;
} part_kinds[] = {
    {"input_text", "text", PARTS_INPUT_TEXT},
    {"input_json", NULL, PARTS_INPUT_JSON},
    {"output_text", "text", PARTS_OUTPUT_TEXT},
    {"refusal", "refusal", PARTS_REFUSAL},
};
#define PART_KINDS (sizeof part_kinds / sizeof *part_kinds)

static bool refuse_kind(struct refusal *refusal, const char *path, const json_t *type,
                        unsigned kinds) {
    char known[96] = "";
    if (str_is(json_str(type), "input_image"))
        return refuse(refusal, "unsupported_parameter", path,
                      "Unsupported content part in '%s': 'input_image'; decisions read text only.",
                      path);
    for (size_t i = 0; i < PART_KINDS; i++) {
        size_t used = strlen(known);
        if (kinds & part_kinds[i].bit)
            snprintf(known + used, sizeof known - used, "%s'%s'", used ? ", " : "",
                     part_kinds[i].type);
    }
    return refuse_value(refusal, path, type, known);
}

static bool read_part(const json_t *part, const char *param, unsigned kinds, struct buf *text,
                      struct refusal *refusal) {
    char path[REFUSAL_PARAM_BYTES];
    if (!json_is_object(part)) return refuse_type(refusal, param, "an object", part);
    struct str type = {NULL, 0}, value = {NULL, 0};
    if (!parts_read_string(part, param, "type", &type, refusal)) return false;
    parts_path(path, param, "type");
    for (size_t i = 0; i < PART_KINDS; i++) {
        const struct part_kind *kind = &part_kinds[i];
        if (!(kinds & kind->bit) || !str_is(type, kind->type)) continue;
        if (!kind->member) return read_json(part, param, text, refusal);
        if (!parts_read_string(part, param, kind->member, &value, refusal)) return false;
        buf_add_str(text, value);
        return true;
    }
    return refuse_kind(refusal, path, json_member(part, "type"), kinds);
}

bool parts_read(const json_t *content, const char *param, unsigned kinds, struct buf *text,
                struct refusal *ret_refusal) {
    if (!content) return refuse_missing(ret_refusal, param);
    if (json_is_string(content)) {
        buf_add_str(text, json_str(content));
        return true;
    }
    if (!json_is_array(content))
        return refuse_type(ret_refusal, param, "a string or an array of content parts", content);
    if (json_array_size(content) == 0)
        return refuse(ret_refusal, "array_below_min_length", param,
                      "Invalid '%s': an array of content parts must not be empty.", param);
    for (size_t i = 0; i < json_array_size(content); i++) {
        char path[REFUSAL_PARAM_BYTES];
        if (i > 0) buf_add_byte(text, '\n');
        if (!read_part(json_array_get(content, i), parts_index(path, param, i), kinds, text,
                       ret_refusal))
            return false;
    }
    return true;
}
