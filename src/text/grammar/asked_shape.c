/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/asked_shape.h"

#include "grammar/asked_foreign.h"
#include "grammar/asked_format.h"
#include "json/json.h"

#include <stdio.h>
#include <string.h>

#define TEXT_MEMORY_MAX ((size_t)16 << 20) /* limit for a schema that is given as a text */

bool asked_shape_set(struct asked_shape *shape, const char *param, enum grammar_kind kind,
                     json_t *source, struct refusal *refusal) {
    if (shape->source) {
        json_decref(source);
        return refuse(
            refusal, "invalid_value", param,
            "Invalid '%s': you can only use one kind of structured outputs constraint but "
            "multiple are specified; '%s' is one already.",
            param, shape->param);
    }
    *shape = (struct asked_shape){param, kind, source};
    return true;
}

static json_t *any_object(void) {
    return json_pack("{s:s}", "type", "object");
}

/* Other servers take an empty text for no constraint. */
static bool is_empty(const json_t *value) {
    return json_is_string(value) && json_string_length(value) == 0;
}

bool asked_shape_schema(struct asked_shape *shape, const char *param, json_t *value,
                        struct refusal *refusal) {
    struct error error;
    json_t *schema;
    if (json_is_object(value) || json_is_boolean(value))
        return asked_shape_set(shape, param, GRAMMAR_SCHEMA, json_incref(value), refusal);
    if (!json_is_string(value))
        return refuse_type(refusal, param, "an object, or a string with one", value);
    size_t memory = TEXT_MEMORY_MAX;
    if (json_read_once(&schema, json_str(value), &memory, &error) != OK)
        return refuse_json(refusal, param, &error);
    return asked_shape_set(shape, param, GRAMMAR_SCHEMA, schema, refusal);
}

bool asked_shape_regex(struct asked_shape *shape, const char *param, json_t *value,
                       struct refusal *refusal) {
    if (!json_is_string(value)) return refuse_type(refusal, param, "a string", value);
    return asked_shape_set(shape, param, GRAMMAR_REGEX, json_incref(value), refusal);
}

bool asked_shape_rules(struct asked_shape *shape, const char *param, json_t *value,
                       struct refusal *refusal) {
    if (!json_is_string(value)) return refuse_type(refusal, param, "a string", value);
    return asked_shape_set(shape, param, GRAMMAR_EBNF, json_incref(value), refusal);
}

static bool read_choice(struct asked_shape *shape, const char *param, json_t *value,
                        struct refusal *refusal) {
    if (!json_is_array(value)) return refuse_type(refusal, param, "an array of strings", value);
    if (json_array_size(value) == 0)
        return refuse(refusal, "invalid_value", param,
                      "Invalid '%s': an array of choices must not be empty.", param);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *one = json_array_get(value, i);
        if (!json_is_string(one)) return refuse_type(refusal, param, "an array of strings", one);
    }
    return asked_shape_set(shape, param, GRAMMAR_CHOICE, json_incref(value), refusal);
}

/* `false` asks for nothing in the older field, and is wrong in the newer one. */
static bool read_any_object(struct asked_shape *shape, const char *param, json_t *value,
                            struct refusal *refusal) {
    bool is_old = strncmp(param, "guided", 6) == 0;
    if (!json_is_boolean(value)) return refuse_type(refusal, param, "a boolean", value);
    if (json_is_true(value))
        return asked_shape_set(shape, param, GRAMMAR_SCHEMA, any_object(), refusal);
    return is_old || refuse_value(refusal, param, value, "true");
}

/* The older form: triggers, and structures of begin, schema and end. */
static bool read_old_tags(struct asked_shape *shape, const char *param, const json_t *tag,
                          struct refusal *refusal) {
    json_t *structures = json_member(tag, "structures"), *triggers = json_member(tag, "triggers");
    if (!json_is_array(structures))
        return refuse_type(refusal, param, "an array of structures", structures);
    if (!json_is_array(triggers))
        return refuse_type(refusal, param, "an array of triggers", triggers);
    json_t *tags = json_array();
    for (size_t i = 0; i < json_array_size(structures); i++) {
        json_t *one = json_array_get(structures, i), *schema = json_member(one, "schema");
        json_t *made = json_pack("{s:O?,s:O?,s:{s:s,s:O?}}", "begin", json_member(one, "begin"),
                                 "end", json_member(one, "end"), "content", "type", "json_schema",
                                 "json_schema", schema);
        json_array_append_new(tags, made ? made : json_null());
    }
    return asked_shape_set(
        shape, param, GRAMMAR_TAGS,
        json_pack("{s:s,s:O,s:o}", "type", "triggered_tags", "triggers", triggers, "tags", tags),
        refusal);
}

bool asked_shape_tags(struct asked_shape *shape, const char *param, json_t *tag,
                      struct refusal *refusal) {
    json_t *format = json_member(tag, "format");
    if (!json_is_object(tag)) return refuse_type(refusal, param, "an object", tag);
    if (!format && json_member(tag, "structures")) return read_old_tags(shape, param, tag, refusal);
    if (!json_is_object(format))
        return refuse_type(refusal, param, "an object with a format", format);
    return asked_shape_set(shape, param, GRAMMAR_TAGS, json_incref(format), refusal);
}

/* A structural tag, or the text of one. */
static bool read_structural_tag(struct asked_shape *shape, const char *param, json_t *value,
                                struct refusal *refusal) {
    struct error error;
    json_t *tag;
    size_t memory = TEXT_MEMORY_MAX;
    if (!json_is_string(value)) return asked_shape_tags(shape, param, value, refusal);
    if (json_read_once(&tag, json_str(value), &memory, &error) != OK)
        return refuse_json(refusal, param, &error);
    bool is_read = asked_shape_tags(shape, param, tag, refusal);
    json_decref(tag);
    return is_read;
}

static bool read_unsupported(struct asked_shape *shape, const char *param, json_t *value,
                             struct refusal *refusal) {
    (void)shape;
    (void)value;
    return refuse_unsupported(refusal, param,
                              "the schema itself says which properties an object has");
}

/* --- spellings of other servers --- */

/* llama.cpp's and SGLang's. */
static bool read_other_schema(struct asked_shape *shape, const char *param, json_t *value,
                              struct refusal *refusal) {
    return is_empty(value) || asked_shape_schema(shape, param, value, refusal);
}

static bool read_other_regex(struct asked_shape *shape, const char *param, json_t *value,
                             struct refusal *refusal) {
    return is_empty(value) || asked_shape_regex(shape, param, value, refusal);
}

/* llama.cpp's text of rules, or TGI's object of a type and a value. */
static bool read_other_grammar(struct asked_shape *shape, const char *param, json_t *value,
                               struct refusal *refusal) {
    if (json_is_object(value)) return asked_format_read(shape, param, value, refusal);
    return is_empty(value) || asked_shape_rules(shape, param, value, refusal);
}

/* Ollama's: "json", or a schema. */
static bool read_ollama_format(struct asked_shape *shape, const char *param, json_t *value,
                               struct refusal *refusal) {
    if (is_empty(value)) return true;
    if (json_is_object(value)) return asked_shape_schema(shape, param, value, refusal);
    if (!json_is_string(value)) return refuse_type(refusal, param, "'json' or a schema", value);
    if (!str_is(json_str(value), "json")) return refuse_value(refusal, param, value, "'json'");
    return asked_shape_set(shape, param, GRAMMAR_SCHEMA, any_object(), refusal);
}

/* The member `format` of OpenAI's `text` and Anthropic's `output_config`; `param` names it. */
static bool read_inner_format(struct asked_shape *shape, const char *param, json_t *value,
                              struct refusal *refusal) {
    static const char *const known[] = {"format", NULL};
    char outer[24];
    json_t *format = json_member(value, "format");
    snprintf(outer, sizeof outer, "%.*s", (int)strcspn(param, "."), param);
    return asked_foreign_check_members(value, outer, known, false, refusal) &&
           (!format || asked_format_read(shape, param, format, refusal));
}

/* Ways to ask for other space; the answer's space is quern's own. */
static bool read_space(struct asked_shape *shape, const char *param, json_t *value,
                       struct refusal *refusal) {
    (void)shape;
    return json_is_false(value) ||
           refuse_unsupported(refusal, param,
                              "JSON is written with at most one space after a "
                              "comma or a colon");
}

typedef bool (*read_fn)(struct asked_shape *shape, const char *param, json_t *value,
                        struct refusal *refusal);

/* The fields of the body, and of its structured_outputs. */
static const struct {
    const char *name;
    read_fn read;
    const char *key; /* in structured_outputs; NULL: the body has the name up to its point */
} rows[] = {
    {"response_format", asked_format_read, NULL},
    {"guided_json", asked_shape_schema, NULL},
    {"guided_regex", asked_shape_regex, NULL},
    {"guided_choice", read_choice, NULL},
    {"guided_json_object", read_any_object, NULL},
    {"guided_grammar", asked_shape_rules, NULL},
    {"guided_whitespace_pattern", read_space, NULL},
    {"json_schema", read_other_schema, NULL},
    {"regex", read_other_regex, NULL},
    {"grammar", read_other_grammar, NULL},
    {"ebnf", read_other_grammar, NULL},
    {"structural_tag", read_structural_tag, NULL},
    {"format", read_ollama_format, NULL},
    {"output_format", asked_format_read, NULL},
    {"text.format", read_inner_format, NULL},
    {"output_config.format", read_inner_format, NULL},
    {"structured_outputs.json", asked_shape_schema, "json"},
    {"structured_outputs.regex", asked_shape_regex, "regex"},
    {"structured_outputs.choice", read_choice, "choice"},
    {"structured_outputs.json_object", read_any_object, "json_object"},
    {"structured_outputs.grammar", asked_shape_rules, "grammar"},
    {"structured_outputs.structural_tag", read_structural_tag, "structural_tag"},
    {"structured_outputs.whitespace_pattern", read_space, "whitespace_pattern"},
    {"structured_outputs.disable_any_whitespace", read_space, "disable_any_whitespace"},
    {"structured_outputs.disable_additional_properties", read_unsupported,
     "disable_additional_properties"},
};

static bool read_rows(struct asked_shape *shape, const json_t *object, bool is_inside,
                      struct refusal *refusal) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *name = rows[i].name, *key = rows[i].key;
        if (is_inside != (key != NULL)) continue;
        json_t *value = is_inside ? json_member(object, key)
                                  : json_object_getn(object, name, strcspn(name, "."));
        bool is_off =
            json_is_null(value) || (rows[i].read == read_unsupported && json_is_false(value));
        if (value && !is_off && !rows[i].read(shape, name, value, refusal)) return false;
    }
    return true;
}

static bool parse_structured_outputs(struct asked_shape *shape, const json_t *body,
                                     struct refusal *refusal) {
    const char *param = "structured_outputs", *key;
    json_t *options = json_member(body, param), *value;
    if (!options) return true;
    if (!json_is_object(options)) return refuse_type(refusal, param, "an object", options);
    json_object_foreach(options, key, value) {
        bool is_known = json_is_null(value);
        for (size_t i = 0; i < sizeof rows / sizeof *rows && !is_known; i++)
            is_known = rows[i].key && strcmp(rows[i].key, key) == 0;
        if (!is_known)
            return refuse(refusal, "unsupported_parameter", param,
                          "Unsupported parameter: '%s' has no member '%.60s'.", param, key);
    }
    if (!read_rows(shape, options, true, refusal)) return false;
    return shape->source ||
           refuse(
               refusal, "invalid_value", param,
               "Invalid '%s': you must use one kind of structured outputs constraint but none are "
               "specified.",
               param);
}

bool asked_shape_read(const json_t *body, struct asked_shape *ret_shape,
                      struct refusal *ret_refusal) {
    struct asked_shape shape = {NULL, GRAMMAR_SCHEMA, NULL};
    if (asked_foreign_check(body, ret_refusal) && read_rows(&shape, body, false, ret_refusal) &&
        parse_structured_outputs(&shape, body, ret_refusal)) {
        *ret_shape = shape;
        return true;
    }
    json_decref(shape.source);
    return false;
}

/* Any one of the texts of an array. */
static json_t *choice_format(json_t *source) {
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(source); i++)
        json_array_append_new(list, json_pack("{s:s,s:O}", "type", "const_string", "value",
                                              json_array_get(source, i)));
    json_decref(source);
    return json_pack("{s:s,s:o}", "type", "or", "elements", list);
}

json_t *asked_shape_take_format(struct asked_shape *shape, const char *place) {
    static const char *const types[][2] = {[GRAMMAR_SCHEMA] = {"json_schema", "json_schema"},
                                           [GRAMMAR_REGEX] = {"regex", "pattern"},
                                           [GRAMMAR_EBNF] = {"grammar", "grammar"}};
    json_t *source = shape->source;
    shape->source = NULL;
    if (!source || shape->kind == GRAMMAR_TAGS) return source;
    if (shape->kind == GRAMMAR_CHOICE) return choice_format(source);
    return json_pack("{s:s,s:o,s:s}", "type", types[shape->kind][0], types[shape->kind][1], source,
                     "place", place);
}

bool asked_shape_refuse(const struct asked_shape *shape, const struct error *error,
                        struct refusal *ret_refusal) {
    return refuse(ret_refusal, "invalid_value", shape->param, "Invalid '%s': %s.", shape->param,
                  error->text);
}
