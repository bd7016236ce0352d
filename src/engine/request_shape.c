/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/request_shape.h"

#include "json/json.h"

#include <stdio.h>
#include <string.h>

#define TEXT_MEMORY_MAX ((size_t)16 << 20) /* of a schema that is given as a text */
#define NO_SUCH_GRAMMAR "answers can be held to a JSON schema, a regular expression or choices"

static bool set_shape(struct request *request, const char *param, enum grammar_kind kind,
                      json_t *source, struct refusal *refusal) {
    struct request_shape *shape = &request->shape;
    if (shape->source) {
        json_decref(source);
        return refuse(
            refusal, "invalid_value", param,
            "Invalid '%s': you can only use one kind of structured outputs constraint but "
            "multiple are specified; '%s' is one already.",
            param, shape->param);
    }
    *shape = (struct request_shape){param, kind, source};
    return true;
}

static json_t *any_object(void) {
    return json_pack("{s:s}", "type", "object");
}

/* A schema, or the text of one. */
static bool read_schema(struct request *request, const char *param, json_t *value,
                        struct refusal *refusal) {
    struct error error;
    json_t *schema;
    if (json_is_object(value) || json_is_boolean(value))
        return set_shape(request, param, GRAMMAR_SCHEMA, json_incref(value), refusal);
    if (!json_is_string(value))
        return refuse_type(refusal, param, "an object, or a string with one", value);
    size_t memory = TEXT_MEMORY_MAX;
    if (json_read_within(&schema, json_str(value), &memory, &error) != OK)
        return refuse(refusal, "invalid_value", param, "Invalid '%s': it is not JSON: %s.", param,
                      error.text);
    return set_shape(request, param, GRAMMAR_SCHEMA, schema, refusal);
}

static bool read_regex(struct request *request, const char *param, json_t *value,
                       struct refusal *refusal) {
    if (!json_is_string(value)) return refuse_type(refusal, param, "a string", value);
    return set_shape(request, param, GRAMMAR_REGEX, json_incref(value), refusal);
}

static bool read_choice(struct request *request, const char *param, json_t *value,
                        struct refusal *refusal) {
    if (!json_is_array(value)) return refuse_type(refusal, param, "an array of strings", value);
    if (json_array_size(value) == 0)
        return refuse(refusal, "invalid_value", param,
                      "Invalid '%s': an array of choices must not be empty.", param);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *one = json_array_get(value, i);
        if (!json_is_string(one)) return refuse_type(refusal, param, "an array of strings", one);
    }
    return set_shape(request, param, GRAMMAR_CHOICE, json_incref(value), refusal);
}

/* `false` asks for nothing in the older field, and is wrong in the newer one. */
static bool read_any_object(struct request *request, const char *param, json_t *value,
                            struct refusal *refusal) {
    bool is_old = strncmp(param, "guided", 6) == 0;
    if (!json_is_boolean(value)) return refuse_type(refusal, param, "a boolean", value);
    if (json_is_true(value))
        return set_shape(request, param, GRAMMAR_SCHEMA, any_object(), refusal);
    return is_old || refuse_value(refusal, param, value, "true");
}

static bool read_unsupported(struct request *request, const char *param, json_t *value,
                             struct refusal *refusal) {
    (void)request;
    (void)value;
    return refuse_unsupported(refusal, param, NO_SUCH_GRAMMAR);
}

/* Ways to ask for other space; the answer's space is quern's own. */
static bool read_space(struct request *request, const char *param, json_t *value,
                       struct refusal *refusal) {
    (void)request;
    return json_is_false(value) ||
           refuse_unsupported(refusal, param,
                              "JSON is written with at most one space after a "
                              "comma or a colon");
}

typedef bool (*read_fn)(struct request *request, const char *param, json_t *value,
                        struct refusal *refusal);

/* The fields of the body, and of its structured_outputs. */
static const struct {
    const char *name;
    read_fn read;
    bool is_inside; /* structured_outputs */
} rows[] = {
    {"guided_json", read_schema, false},
    {"guided_regex", read_regex, false},
    {"guided_choice", read_choice, false},
    {"guided_json_object", read_any_object, false},
    {"guided_grammar", read_unsupported, false},
    {"guided_whitespace_pattern", read_space, false},
    {"structured_outputs.json", read_schema, true},
    {"structured_outputs.regex", read_regex, true},
    {"structured_outputs.choice", read_choice, true},
    {"structured_outputs.json_object", read_any_object, true},
    {"structured_outputs.grammar", read_unsupported, true},
    {"structured_outputs.structural_tag", read_unsupported, true},
    {"structured_outputs.whitespace_pattern", read_space, true},
    {"structured_outputs.disable_any_whitespace", read_space, true},
    {"structured_outputs.disable_additional_properties", read_unsupported, true},
};

#define INSIDE "structured_outputs."

static bool read_rows(struct request *request, const json_t *object, bool is_inside,
                      struct refusal *refusal) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *key = rows[i].name + (is_inside ? strlen(INSIDE) : 0);
        json_t *value = rows[i].is_inside == is_inside ? json_member(object, key) : NULL;
        bool is_off = rows[i].read == read_unsupported && json_is_false(value);
        if (value && !is_off && !rows[i].read(request, rows[i].name, value, refusal)) return false;
    }
    return true;
}

static bool parse_structured_outputs(struct request *request, struct refusal *refusal) {
    const char *param = "structured_outputs", *key;
    json_t *options = json_member(request->body, param), *value;
    if (!options) return true;
    if (!json_is_object(options)) return refuse_type(refusal, param, "an object", options);
    json_object_foreach(options, key, value) {
        bool is_known = json_is_null(value);
        for (size_t i = 0; i < sizeof rows / sizeof *rows && !is_known; i++)
            is_known = rows[i].is_inside && strcmp(rows[i].name + strlen(INSIDE), key) == 0;
        if (!is_known)
            return refuse(refusal, "unsupported_parameter", param,
                          "Unsupported parameter: '%s' has no member '%.60s'.", param, key);
    }
    if (!read_rows(request, options, true, refusal)) return false;
    return request->shape.source ||
           refuse(
               refusal, "invalid_value", param,
               "Invalid '%s': you must use one kind of structured outputs constraint but none are "
               "specified.",
               param);
}

static bool parse_response_format(struct request *request, struct refusal *refusal) {
    const char *param = "response_format";
    json_t *format = json_member(request->body, param);
    if (!format) return true;
    if (!json_is_object(format)) return refuse_type(refusal, param, "an object", format);
    const json_t *type = json_member(format, "type");
    if (!type) return refuse_missing(refusal, "response_format.type");
    if (!json_is_string(type))
        return refuse_type(refusal, "response_format.type", "a string", type);
    struct str name = json_str(type);
    if (str_is(name, "text")) return true;
    if (str_is(name, "json_object"))
        return set_shape(request, param, GRAMMAR_SCHEMA, any_object(), refusal);
    if (str_is(name, "structural_tag")) return refuse_unsupported(refusal, param, NO_SUCH_GRAMMAR);
    if (!str_is(name, "json_schema"))
        return refuse_value(refusal, "response_format.type", type,
                            "'text', 'json_object', 'json_schema'");
    json_t *holder = json_member(format, "json_schema");
    if (!holder) return refuse_missing(refusal, "response_format.json_schema");
    if (!json_is_object(holder))
        return refuse_type(refusal, "response_format.json_schema", "an object", holder);
    json_t *schema = json_member(holder, "schema");
    if (!schema) return refuse_missing(refusal, "response_format.json_schema.schema");
    if (!json_is_object(schema))
        return refuse_type(refusal, "response_format.json_schema.schema", "an object", schema);
    return set_shape(request, param, GRAMMAR_SCHEMA, json_incref(schema), refusal);
}

bool request_parse_shape(struct request *request, struct refusal *refusal) {
    return parse_response_format(request, refusal) &&
           read_rows(request, request->body, false, refusal) &&
           parse_structured_outputs(request, refusal);
}
