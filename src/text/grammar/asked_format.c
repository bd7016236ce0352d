/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/asked_format.h"

#include "grammar/asked_foreign.h"
#include "json/json.h"

#include <stdio.h>
#include <string.h>

#define INNER_BYTES 96
#define MEMBERS_MAX 4

typedef bool (*read_fn)(struct asked_shape *shape, const char *param, json_t *value,
                        struct refusal *refusal);

/* One of `members` has the source of a type. */
struct format_type {
    const char *name;
    read_fn read;
    const char *members[MEMBERS_MAX]; /* NULL at the end */
};

static const struct format_type types[] = {
    {"json_object", asked_shape_schema, {"schema"}},   /* may be without one */
    {"json_schema", asked_shape_schema, {"schema"}},   /* without the member json_schema */
    {"json", asked_shape_schema, {"value", "schema"}}, /* TGI's */
    {"regex", asked_shape_regex, {"regex", "pattern", "value"}},
    {"grammar", asked_shape_rules, {"grammar", "value"}},
};

/* Members of every type that hold nothing. */
static const char *const notes[] = {"type", "name", "description", "strict"};

/* Refuses members that the type does not have. */
static bool check_members(const json_t *format, const char *param, const char *const *members,
                          struct refusal *refusal) {
    const char *known[sizeof notes / sizeof *notes + MEMBERS_MAX + 1];
    size_t count = 0;
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) known[count++] = notes[i];
    for (size_t i = 0; i < MEMBERS_MAX && members[i]; i++) known[count++] = members[i];
    known[count] = NULL;
    return asked_foreign_check_members(format, param, known, true, refusal);
}

/* Reads a member; the whole field is what later errors name. */
static bool read_member(struct asked_shape *shape, const char *param, const char *key,
                        json_t *value, read_fn read, struct refusal *refusal) {
    char inner[INNER_BYTES];
    snprintf(inner, sizeof inner, "%s.%s", param, key);
    /* A second shape is refused under the field's name. */
    if (shape->source) return asked_shape_set(shape, param, GRAMMAR_SCHEMA, NULL, refusal);
    if (!read(shape, inner, value, refusal)) return false;
    shape->param = param;
    return true;
}

static bool read_type(struct asked_shape *shape, const char *param, json_t *format,
                      const struct format_type *type, struct refusal *refusal) {
    const char *found = NULL;
    if (!check_members(format, param, type->members, refusal)) return false;
    for (size_t i = 0; i < MEMBERS_MAX && type->members[i]; i++) {
        json_t *value = json_member(format, type->members[i]);
        if (!value) continue;
        if (!read_member(shape, param, type->members[i], value, type->read, refusal)) return false;
        found = type->members[i];
    }
    if (found) return true;
    if (strcmp(type->name, "json_object") == 0)
        return asked_shape_set(shape, param, GRAMMAR_SCHEMA, json_pack("{s:s}", "type", "object"),
                               refusal);
    char inner[INNER_BYTES];
    snprintf(inner, sizeof inner, "%s.%s", param, type->members[0]);
    return refuse_missing(refusal, inner);
}

/* OpenAI's form, in which an object of its own has the schema. */
static bool read_holder(struct asked_shape *shape, const char *param, json_t *format,
                        struct refusal *refusal) {
    static const char *const of_format[MEMBERS_MAX] = {"json_schema"};
    static const char *const of_holder[] = {"name", "description", "strict", "schema", NULL};
    char inner[INNER_BYTES];
    snprintf(inner, sizeof inner, "%s.json_schema", param);
    const json_t *holder = require_member(format, "json_schema", JSON_OBJECT, inner, refusal);
    if (!holder || !check_members(format, param, of_format, refusal) ||
        !asked_foreign_check_members(holder, inner, of_holder, false, refusal))
        return false;
    snprintf(inner, sizeof inner, "%s.json_schema.schema", param);
    json_t *schema = require_member(holder, "schema", JSON_OBJECT, inner, refusal);
    return schema && asked_shape_set(shape, param, GRAMMAR_SCHEMA, json_incref(schema), refusal);
}

bool asked_format_read(struct asked_shape *shape, const char *param, json_t *format,
                       struct refusal *refusal) {
    static const char *const of_text[MEMBERS_MAX] = {NULL};
    static const char *const of_tags[MEMBERS_MAX] = {"format", "structures", "triggers"};
    char inner[INNER_BYTES];
    if (!json_is_object(format)) return refuse_type(refusal, param, "an object", format);
    snprintf(inner, sizeof inner, "%s.type", param);
    const json_t *type = require_member(format, "type", JSON_STRING, inner, refusal);
    if (!type) return false;
    struct str name = json_str(type);
    if (str_is(name, "text")) return check_members(format, param, of_text, refusal);
    if (str_is(name, "structural_tag"))
        return check_members(format, param, of_tags, refusal) &&
               asked_shape_tags(shape, param, format, refusal);
    bool is_flat = json_member(format, "schema") && !json_member(format, "json_schema");
    if (str_is(name, "json_schema") && !is_flat) return read_holder(shape, param, format, refusal);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (str_is(name, types[i].name)) return read_type(shape, param, format, &types[i], refusal);
    return refuse_value(refusal, inner, type,
                        "'text', 'json_object', 'json_schema', 'structural_tag', 'regex', "
                        "'grammar'");
}
