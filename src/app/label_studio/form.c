/* SPDX-License-Identifier: Apache-2.0 */
#include "label_studio/form.h"

#include "base/buf.h"
#include "base/mem.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 8
#define FIELD_BYTES_MAX 256
#define RATING_MAX 10

static const struct {
    const char *tag, *type;
} words[CONTROL_KINDS] = {
    [CONTROL_CHOICE] = {"Choices", "choices"}, [CONTROL_CHOICES] = {"Choices", "choices"},
    [CONTROL_NUMBER] = {"Number", "number"},   [CONTROL_RATING] = {"Rating", "rating"},
    [CONTROL_TEXT] = {"TextArea", "textarea"}, [CONTROL_TEXTS] = {"TextArea", "textarea"},
    [CONTROL_REMOVE] = {"Choices", "choices"},
};

const char *control_tag(const struct control *control) {
    return words[control->kind].tag;
}

const char *control_type(const struct control *control) {
    return words[control->kind].type;
}

char *control_option_text(const json_t *option) {
    struct buf text;
    if (json_is_string(option)) return mem_str(json_str(option));
    buf_init(&text, BUF_UNLIMITED);
    json_write(&text, option);
    return text.at;
}

const struct control *form_find(const struct form *form, struct str name) {
    for (size_t i = 0; i < form->count; i++)
        if (str_is(name, form->at[i].name)) return &form->at[i];
    return NULL;
}

static void release_control(struct control *control) {
    free(control->field);
    json_decref(control->options);
}

void form_drop(struct form *form, size_t index) {
    release_control(&form->at[index]);
    memmove(&form->at[index], &form->at[index + 1], (form->count - index - 1) * sizeof *form->at);
    form->count--;
}

void form_release(struct form *form) {
    for (size_t i = 0; i < form->count; i++) release_control(&form->at[i]);
    free(form->at);
    *form = (struct form){0};
}

/* --- names --- */

/* True if a field's name can be the name of its control. */
static bool is_plain(struct str field) {
    if (field.bytes == 0 || field.bytes > 60 || str_starts_with(field, STR("quern_"))) return false;
    for (size_t i = 0; i < field.bytes; i++) {
        char c = field.at[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_letter && (i == 0 || (!(c >= '0' && c <= '9') && !strchr("_-.", c)))) return false;
    }
    return true;
}

static bool has_field(const struct form *form, struct str field) {
    for (size_t i = 0; i < form->count; i++)
        if (str_is(field, form->at[i].field)) return true;
    return false;
}

/* Adds a control; its options become the form's. False if the form has the field, or is full. */
static bool add(struct form *form, struct str field, struct control control) {
    if (form->count == FORM_CONTROLS_MAX || has_field(form, field) ||
        memchr(field.at, '\0', field.bytes)) {
        json_decref(control.options);
        return false;
    }
    if (is_plain(field))
        snprintf(control.name, sizeof control.name, "%.*s", STR_ARGS(field));
    else
        snprintf(control.name, sizeof control.name, "quern_field_%zu", form->count + 1);
    control.field = mem_str(field);
    form->at = vec_grow(form->at, form->count, &form->capacity, sizeof *form->at);
    form->at[form->count++] = control;
    return true;
}

/* --- schemas --- */

/* The schema that "#/a/b" names; NULL: none. */
static const json_t *follow(const json_t *root, struct str name) {
    const json_t *at = root;
    if (!str_starts_with(name, STR("#"))) return NULL;
    for (size_t from = 1; from < name.bytes && at;) {
        size_t end = str_find_byte(name, '/', from + 1);
        if (end == SIZE_MAX) end = name.bytes;
        if (name.at[from] != '/') return NULL;
        at = json_object_getn(at, name.at + from + 1, end - from - 1);
        from = end;
    }
    return at;
}

/* The one member of an array of schemas that is not of type null; NULL if there are several. */
static const json_t *only_one(const json_t *schemas) {
    const json_t *found = NULL, *schema;
    size_t index;
    json_array_foreach(schemas, index, schema) {
        if (str_is(json_member_str(schema, "type"), "null")) continue;
        if (found) return NULL;
        found = schema;
    }
    return found;
}

/* The schema behind references and unions with null; NULL for a schema of an unknown form. */
static const json_t *resolve(const json_t *root, const json_t *schema) {
    static const char *const unions[] = {"anyOf", "oneOf", "allOf"};
    for (int step = 0; step < 2 * DEPTH_MAX && json_is_object(schema); step++) {
        const json_t *next = NULL;
        if (json_is_string(json_member(schema, "$ref")))
            next = follow(root, json_member_str(schema, "$ref"));
        else if (json_member(schema, "type") || json_member(schema, "enum") ||
                 json_member(schema, "const"))
            return schema;
        for (size_t i = 0; i < sizeof unions / sizeof *unions && !next; i++)
            next = only_one(json_member(schema, unions[i]));
        if (!next) return json_member(schema, "properties") ? schema : NULL;
        schema = next;
    }
    return NULL;
}

/* The values of an enum that a person may choose: all but null. NULL if there are
 * too many, or if one is an object. The caller owns the array. */
static json_t *read_options(const json_t *schema) {
    const json_t *given = json_member(schema, "enum"), *value;
    json_t *options = json_array();
    size_t index;
    if (json_member(schema, "const")) json_array_append(options, json_member(schema, "const"));
    bool is_good = json_array_size(given) <= FORM_OPTIONS_MAX;
    json_array_foreach(given, index, value) {
        if (json_is_object(value) || json_is_array(value)) is_good = false;
        if (is_good && !json_is_null(value)) json_array_append(options, (json_t *)(uintptr_t)value);
    }
    if (is_good && json_array_size(options) > 0) return options;
    json_decref(options);
    return NULL;
}

static json_t *booleans(void) {
    json_t *options = json_array();
    json_array_append_new(options, json_true());
    json_array_append_new(options, json_false());
    return options;
}

/* The type of a schema; of several, the first that is not null. */
static struct str read_type(const json_t *schema) {
    const json_t *type = json_member(schema, "type"), *one;
    size_t index;
    json_array_foreach(type, index, one) if (!str_is(json_str(one), "null")) return json_str(one);
    if (!type && json_member(schema, "properties")) return STR("object");
    return json_is_string(type) ? json_str(type) : STR("");
}

static struct control number_of(const json_t *schema, bool is_integer) {
    const json_t *min = json_member(schema, "minimum"), *max = json_member(schema, "maximum");
    struct control control = {.kind = CONTROL_NUMBER,
                              .is_integer = is_integer,
                              .has_min = json_is_number(min),
                              .has_max = json_is_number(max),
                              .min = json_number_value(min),
                              .max = json_number_value(max)};
    bool is_rated = is_integer && control.has_min && control.has_max && control.min >= 1 &&
                    control.min < 2 && control.max >= 2 && control.max <= RATING_MAX;
    if (is_rated) control.kind = CONTROL_RATING;
    return control;
}

/* What a walk over a schema carries. */
struct schema_walk {
    struct form *form;
    const json_t *root, *lengths;
    struct buf name;
    bool is_in_array;
};

static void add_properties(struct schema_walk *walk, const json_t *schema, int depth);

/* The choice that removes an object; its name is that of the object. */
static void add_remove(struct form *form, struct str field) {
    json_t *options = json_array();
    json_array_append_new(options, json_string(FORM_REMOVE));
    add(form, field, (struct control){.kind = CONTROL_REMOVE, .options = options});
}

/* The controls of each object of an array. */
static void add_objects(struct schema_walk *walk, const json_t *schema, const json_t *items,
                        int depth) {
    struct str field = buf_str(&walk->name);
    size_t bytes = walk->name.bytes;
    const json_t *most = json_member(schema, "maxItems");
    json_int_t count =
        json_integer_value(json_object_getn(walk->lengths, field.at, field.bytes)) + 1;
    if (json_is_integer(most) && count > json_integer_value(most)) count = json_integer_value(most);
    if (count > FORM_ELEMENTS_MAX) count = FORM_ELEMENTS_MAX;
    walk->is_in_array = true;
    for (json_int_t i = 0; i < count; i++) {
        buf_printf(&walk->name, ".%d", (int)i);
        if (!walk->name.overflowed) {
            size_t before = walk->form->count;
            add_properties(walk, items, depth + 1);
            if (walk->form->count > before) add_remove(walk->form, buf_str(&walk->name));
        }
        buf_truncate(&walk->name, bytes);
        walk->name.overflowed = false;
    }
    walk->is_in_array = false;
}

static void add_array(struct schema_walk *walk, const json_t *schema, int depth) {
    struct form *form = walk->form;
    struct str field = buf_str(&walk->name);
    const json_t *root = walk->root;
    const json_t *items = resolve(root, json_member(schema, "items"));
    json_t *options = items ? read_options(items) : NULL;
    if (options)
        add(form, field, (struct control){.kind = CONTROL_CHOICES, .options = options});
    else if (items && str_is(read_type(items), "string"))
        add(form, field, (struct control){.kind = CONTROL_TEXTS});
    else if (items && str_is(read_type(items), "object") && !walk->is_in_array)
        add_objects(walk, schema, items, depth);
}

static void add_field(struct schema_walk *walk, const json_t *given, int depth) {
    struct form *form = walk->form;
    struct buf *name = &walk->name;
    const json_t *schema = resolve(walk->root, given);
    struct str type = schema ? read_type(schema) : STR("");
    json_t *options = schema ? read_options(schema) : NULL;
    struct str field = buf_str(name);
    if (!schema) return;
    if (options)
        add(form, field, (struct control){.kind = CONTROL_CHOICE, .options = options});
    else if (str_is(type, "boolean"))
        add(form, field, (struct control){.kind = CONTROL_CHOICE, .options = booleans()});
    else if (str_is(type, "integer") || str_is(type, "number"))
        add(form, field, number_of(schema, str_is(type, "integer")));
    else if (str_is(type, "string"))
        add(form, field, (struct control){.kind = CONTROL_TEXT});
    else if (str_is(type, "array"))
        add_array(walk, schema, depth);
    else if (str_is(type, "object"))
        add_properties(walk, schema, depth + 1);
}

static void add_properties(struct schema_walk *walk, const json_t *schema, int depth) {
    struct buf *name = &walk->name;
    size_t bytes = name->bytes, key_bytes;
    const char *key;
    json_t *property;
    if (depth > DEPTH_MAX) return;
    json_object_keylen_foreach(json_member(schema, "properties"), key, key_bytes, property) {
        if (bytes > 0) buf_add_byte(name, '.');
        buf_add(name, key, key_bytes);
        if (!name->overflowed) add_field(walk, property, depth);
        buf_truncate(name, bytes);
        name->overflowed = false;
    }
}

void form_add_schema(struct form *form, const json_t *schema, const json_t *lengths) {
    const json_t *object = resolve(schema, schema);
    struct schema_walk walk = {.form = form, .root = schema, .lengths = lengths};
    buf_init(&walk.name, FIELD_BYTES_MAX);
    if (object) add_properties(&walk, object, 0);
    buf_release(&walk.name);
}

bool form_has_arrays(const json_t *schema) {
    struct form form = {0};
    bool has = false;
    form_add_schema(&form, schema, NULL);
    for (size_t i = 0; i < form.count; i++) has |= form.at[i].kind == CONTROL_REMOVE;
    form_release(&form);
    return has;
}

static void take_lengths(json_t *lengths, struct buf *name, const json_t *object, int depth) {
    size_t bytes = name->bytes, key_bytes;
    const char *key;
    json_t *value;
    if (depth > DEPTH_MAX) return;
    json_object_keylen_foreach((json_t *)(uintptr_t)object, key, key_bytes, value) {
        if (bytes > 0) buf_add_byte(name, '.');
        buf_add(name, key, key_bytes);
        struct str field = buf_str(name);
        json_int_t count = (json_int_t)json_array_size(value);
        if (!name->overflowed && json_is_object(json_array_get(value, 0)) &&
            count > json_integer_value(json_object_getn(lengths, field.at, field.bytes)))
            json_object_setn_new(lengths, field.at, field.bytes, json_integer(count));
        if (!name->overflowed && json_is_object(value))
            take_lengths(lengths, name, value, depth + 1);
        buf_truncate(name, bytes);
        name->overflowed = false;
    }
}

void form_add_lengths(json_t *lengths, const json_t *object) {
    struct buf name;
    buf_init(&name, FIELD_BYTES_MAX);
    take_lengths(lengths, &name, object, 0);
    buf_release(&name);
}

const json_t *form_find_schema(const json_t *body) {
    const json_t *format = json_member(body, "response_format");
    const json_t *schema = json_member(json_member(format, "json_schema"), "schema");
    if (!schema) schema = json_member(format, "schema");
    if (!schema) schema = json_member(json_member(body, "structured_outputs"), "json");
    if (!schema) schema = json_member(body, "guided_json");
    if (!schema) schema = json_member(body, "json_schema");
    return json_is_object(schema) ? schema : NULL;
}

/* --- values --- */

static void add_value(struct form *form, struct str field, const json_t *value) {
    struct control control = {.kind = CONTROL_TEXT};
    if (json_is_boolean(value))
        control = (struct control){.kind = CONTROL_CHOICE, .options = booleans()};
    else if (json_is_number(value))
        control.kind = CONTROL_NUMBER;
    else if (json_is_string(json_array_get(value, 0)))
        control.kind = CONTROL_TEXTS;
    else if (!json_is_string(value))
        return;
    add(form, field, control);
}

static void add_members(struct form *form, struct buf *name, const json_t *object, int depth);

/* The objects of an array; `name` is the array's. */
static void add_elements(struct form *form, struct buf *name, const json_t *array, int depth) {
    size_t bytes = name->bytes, index;
    const json_t *element;
    json_array_foreach(array, index, element) {
        if (index == FORM_ELEMENTS_MAX) break;
        buf_printf(name, ".%zu", index);
        if (!name->overflowed && json_is_object(element)) {
            size_t before = form->count;
            add_members(form, name, element, depth + 1);
            if (form->count > before) add_remove(form, buf_str(name));
        }
        buf_truncate(name, bytes);
        name->overflowed = false;
    }
}

static void add_members(struct form *form, struct buf *name, const json_t *object, int depth) {
    size_t bytes = name->bytes, key_bytes;
    const char *key;
    json_t *value;
    if (depth > DEPTH_MAX) return;
    json_object_keylen_foreach((json_t *)(uintptr_t)object, key, key_bytes, value) {
        if (bytes > 0) buf_add_byte(name, '.');
        buf_add(name, key, key_bytes);
        if (!name->overflowed && json_is_object(value))
            add_members(form, name, value, depth + 1);
        else if (!name->overflowed && json_is_object(json_array_get(value, 0)))
            add_elements(form, name, value, depth + 1);
        else if (!name->overflowed && name->bytes > 0 && !has_field(form, buf_str(name)))
            add_value(form, buf_str(name), value);
        buf_truncate(name, bytes);
        name->overflowed = false;
    }
}

void form_add_values(struct form *form, const json_t *object) {
    struct buf name;
    buf_init(&name, FIELD_BYTES_MAX);
    add_members(form, &name, object, 0);
    buf_release(&name);
}

/* --- the file's form --- */

json_t *form_to_json(const struct form *form) {
    json_t *array = json_array();
    for (size_t i = 0; i < form->count; i++) {
        const struct control *control = &form->at[i];
        json_t *object = json_object();
        json_object_set_new(object, "name", json_string(control->name));
        json_object_set_new(object, "field", json_string(control->field));
        json_object_set_new(object, "kind", json_integer(control->kind));
        json_object_set_new(object, "integer", json_boolean(control->is_integer));
        if (control->options) json_object_set(object, "options", control->options);
        if (control->has_min) json_object_set_new(object, "min", json_real(control->min));
        if (control->has_max) json_object_set_new(object, "max", json_real(control->max));
        json_array_append_new(array, object);
    }
    return array;
}

enum err form_from_json(struct form *ret_form, const json_t *array, struct error *error) {
    struct form form = {0};
    const json_t *object;
    size_t index;
    json_array_foreach(array, index, object) {
        struct str name = json_member_str(object, "name"), field = json_member_str(object, "field");
        const json_t *kind = json_member(object, "kind"), *options = json_member(object, "options");
        json_int_t number = json_is_integer(kind) ? json_integer_value(kind) : -1;
        if (!name.at || name.bytes >= FORM_NAME_BYTES || !field.at || number < 0 ||
            number >= CONTROL_KINDS || (options && !json_is_array(options))) {
            form_release(&form);
            return err_set(error, ERR_CORRUPT, "a control of the form is damaged");
        }
        struct control control = {.kind = (enum control_kind)number,
                                  .options = json_incref((json_t *)(uintptr_t)options),
                                  .is_integer = json_is_true(json_member(object, "integer")),
                                  .has_min = json_member(object, "min") != NULL,
                                  .has_max = json_member(object, "max") != NULL,
                                  .min = json_number_value(json_member(object, "min")),
                                  .max = json_number_value(json_member(object, "max"))};
        if (!add(&form, field, control)) continue;
        snprintf(form.at[form.count - 1].name, FORM_NAME_BYTES, "%.*s", STR_ARGS(name));
    }
    *ret_form = form;
    return OK;
}
