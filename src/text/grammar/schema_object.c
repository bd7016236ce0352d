/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of a schema.
 *
 * The listed names come first, in the order of their lists; then names that no list has, which each
 * belong to a group: the patterns of patternProperties that they match. What may follow the first
 * `i` listed names, when `count` members have been written, is a rule of its own. */
#include "base/mem.h"
#include "grammar/regex.h"
#include "grammar/schema_internal.h"
#include "json/json.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PATTERNS_MAX 4    /* different patterns: 16 groups of names */
#define OPTIONAL_MAX 1000 /* listed names that are not required, because of the depth of rules */
#define RULES_MAX 20000   /* places in an object, times numbers of members */
#define FUEL_OF_NAME 20
#define NAMES_OF_RULE 4 /* names that a rule has before it refers to the next rule */

struct name {
    struct str text; /* borrowed */
    bool is_required;
    uint32_t value; /* EXPR_NEVER: it cannot be there */
    uint32_t pair;  /* name, colon and value */
};

struct pattern {
    struct str text;
    uint32_t key; /* quoted names that match */
};

struct object {
    struct compiler *compiler;
    const struct atoms *atoms;
    struct name *names; /* (name_count) listed */
    size_t name_count, name_capacity, required_count;
    struct pattern patterns[PATTERNS_MAX];
    size_t pattern_count;
    struct atoms key_atoms; /* atoms from propertyNames */
    bool has_order;         /* a name is one of properties or required */
    uint32_t keys;          /* quoted names that propertyNames allows */
    uint32_t other_pair;    /* a member whose name is not listed */
    uint32_t min, max;
    uint32_t counted; /* members that are told apart; more count as this many */
    uint32_t *rules;  /* by place and count */
};

/* --- names --- */

static struct name *add_name(struct object *object, struct str text) {
    object->names =
        vec_grow(object->names, object->name_count, &object->name_capacity, sizeof *object->names);
    object->names[object->name_count] = (struct name){.text = text};
    return &object->names[object->name_count++];
}

/* Takes the fuel of the names that list_names will look at. */
static bool burn_names(const struct object *object) {
    size_t count = 0;
    const json_t *schema;
    for (size_t at = 0; (schema = schema_next_base(object->atoms, &at));)
        count += json_object_size(json_object_get(schema, "properties")) +
                 json_array_size(json_object_get(schema, "required"));
    return exprs_use_fuel(object->compiler->exprs, FUEL_OF_NAME * count);
}

/* The names that propertyNames lists; NULL: it does not list them. */
static const json_t *listed_names(const struct object *object, const json_t **ret_one) {
    const json_t *schema, *list = NULL;
    *ret_one = NULL;
    for (size_t at = 0;
         !list && !*ret_one && (schema = schema_next_base(&object->key_atoms, &at));) {
        list = json_object_get(schema, "enum");
        *ret_one = list ? NULL : json_object_get(schema, "const");
    }
    return list;
}

/* Lists the names of propertyNames that are no properties, so that each comes once at most. Which
 * of them are allowed, compile_names asks. */
static void list_property_names(struct object *object, struct map *known) {
    const json_t *one, *list = listed_names(object, &one);
    size_t count = one ? 1 : json_array_size(list);
    if (!exprs_use_fuel(object->compiler->exprs, FUEL_OF_NAME * count)) return;
    for (size_t i = 0; i < count; i++) {
        const json_t *name = one ? one : json_array_get(list, i);
        if (json_is_string(name) && map_put_new(known, json_str(name), object->name_count, NULL))
            add_name(object, json_str(name));
    }
}

/* Lists the names of all properties, then other required ones, then those of propertyNames. */
static void list_names(struct object *object) {
    const json_t *schema;
    if (!burn_names(object)) return;
    struct map known;
    uint64_t at_name;
    map_init(&known);
    for (size_t at = 0; (schema = schema_next_base(object->atoms, &at));) {
        void *iter = json_object_iter(json_object_get(schema, "properties"));
        json_t *properties = json_object_get(schema, "properties");
        for (; iter; iter = json_object_iter_next(properties, iter)) {
            struct str text = {json_object_iter_key(iter), json_object_iter_key_len(iter)};
            if (map_put_new(&known, text, object->name_count, NULL)) add_name(object, text);
        }
    }
    for (size_t at = 0; (schema = schema_next_base(object->atoms, &at));) {
        const json_t *required = json_object_get(schema, "required");
        for (size_t i = 0; i < json_array_size(required); i++) {
            struct str text = json_str(json_array_get(required, i));
            bool is_new = map_put_new(&known, text, object->name_count, &at_name);
            struct name *name = is_new ? add_name(object, text) : &object->names[at_name];
            assert(name);
            object->required_count += !name->is_required;
            name->is_required = true;
        }
    }
    object->has_order = object->name_count > 0;
    list_property_names(object, &known);
    map_release(&known);
}

/* --- patterns --- */

static enum err list_patterns(struct object *object) {
    struct compiler *compiler = object->compiler;
    const json_t *schema;
    const char *key;
    json_t *ignored;
    for (size_t at = 0; (schema = schema_next_base(object->atoms, &at));) {
        json_object_foreach(json_object_get(schema, "patternProperties"), key, ignored) {
            struct str text = str_from(key);
            size_t i = 0;
            while (i < object->pattern_count && !str_equals(object->patterns[i].text, text)) i++;
            if (i < object->pattern_count) continue;
            if (i == PATTERNS_MAX)
                return schema_refuse(compiler, schema, "patternProperties",
                                     "more than %d patterns are not supported", PATTERNS_MAX);
            uint32_t content;
            enum err err = schema_pattern(compiler, schema, "patternProperties", text, &content);
            if (err != OK) return err;
            object->patterns[object->pattern_count++] =
                (struct pattern){text, schema_quoted(compiler, content)};
        }
    }
    return OK;
}

/* The quoted names that every propertyNames allows. */
static enum err list_keys(struct object *object) {
    struct compiler *compiler = object->compiler;
    struct atoms *names = &object->key_atoms;
    const json_t *schema;
    bool has_rule = false;
    object->keys = compiler->any_name;
    for (size_t at = 0; (schema = schema_next_base(object->atoms, &at));) {
        const json_t *own = json_object_get(schema, "propertyNames");
        enum err err = own ? schema_add(compiler, names, own) : OK;
        if (err != OK) return err;
        has_rule = has_rule || own;
    }
    if (!has_rule) return OK;
    enum err err = schema_add_atom(compiler, names, (struct atom){ATOM_TYPES, TYPE_STRING});
    compiler->level++;
    if (err == OK) err = schema_compile(compiler, names, &object->keys);
    compiler->level--;
    return err;
}

/* --- values --- */

static bool matches(const struct object *object, size_t pattern, struct str name) {
    struct compiler *compiler = object->compiler;
    uint32_t both =
        expr_and2(compiler->exprs, object->patterns[pattern].key, schema_literal(compiler, name));
    return both != EXPR_NEVER && expr_is_alive(compiler->exprs, both);
}

/* The patterns that a name matches, as bits. */
static unsigned group_of(const struct object *object, struct str name) {
    unsigned group = 0;
    for (size_t i = 0; i < object->pattern_count; i++)
        if (matches(object, i, name)) group |= 1u << i;
    return group;
}

/* Adds what a schema asks of a member of the group; `name` has no text for names not listed. */
static enum err add_member(struct object *object, const json_t *schema, struct str name,
                           unsigned group, struct atoms *child) {
    struct compiler *compiler = object->compiler;
    json_t *own = NULL, *patterns = json_object_get(schema, "patternProperties");
    json_t *others = json_object_get(schema, "additionalProperties");
    if (name.at) own = json_object_getn(json_object_get(schema, "properties"), name.at, name.bytes);
    bool is_known = own;
    enum err err = own ? schema_add(compiler, child, own) : OK;
    for (size_t i = 0; i < object->pattern_count && err == OK; i++) {
        struct str text = object->patterns[i].text;
        const json_t *schema_of = json_object_getn(patterns, text.at, text.bytes);
        if (!schema_of || !(group >> i & 1)) continue;
        is_known = true;
        err = schema_add(compiler, child, schema_of);
    }
    return err == OK && !is_known && others ? schema_add(compiler, child, others) : err;
}

static enum err compile_member(struct object *object, struct str name, unsigned group,
                               uint32_t *ret_expr) {
    struct compiler *compiler = object->compiler;
    struct atoms child = {.count = 0};
    const json_t *schema;
    enum err err = OK;
    for (size_t at = 0; err == OK && (schema = schema_next_base(object->atoms, &at));)
        err = add_member(object, schema, name, group, &child);
    compiler->level++;
    if (err == OK) err = schema_compile(compiler, &child, ret_expr);
    compiler->level--;
    return err;
}

static uint32_t make_pair(struct object *object, uint32_t key, uint32_t value) {
    struct exprs *exprs = object->compiler->exprs;
    return expr_cat(exprs, key, expr_cat(exprs, schema_mark(object->compiler, ':'), value));
}

static enum err compile_names(struct object *object) {
    struct exprs *exprs = object->compiler->exprs;
    size_t optional = 0;
    for (size_t i = 0; i < object->name_count; i++) {
        struct name *name = &object->names[i];
        uint32_t key = schema_literal(object->compiler, name->text);
        bool is_free = object->keys == object->compiler->any_name;
        uint32_t allowed = is_free ? key : expr_and2(exprs, key, object->keys);
        enum err err =
            compile_member(object, name->text, group_of(object, name->text), &name->value);
        if (err != OK) return err;
        if (!is_free && (allowed == EXPR_NEVER || !expr_is_alive(exprs, allowed)))
            name->value = EXPR_NEVER;
        name->pair = make_pair(object, key, name->value);
        optional += !name->is_required;
        if (optional > OPTIONAL_MAX)
            return err_set(object->compiler->error, ERR_LIMIT,
                           "an object has more than %d properties that are not required",
                           OPTIONAL_MAX);
    }
    return OK;
}

/* Members whose names are not listed, of every group. */
static enum err compile_others(struct object *object) {
    struct exprs *exprs = object->compiler->exprs;
    uint32_t *literals = mem_new(object->name_count + 1, sizeof *literals);
    for (size_t i = 0; i < object->name_count; i++)
        literals[i] = schema_literal(object->compiler, object->names[i].text);
    uint32_t listed = expr_alt(exprs, literals, object->name_count);
    free(literals);
    uint32_t pairs[1u << PATTERNS_MAX] = {0};
    for (unsigned group = 0; group < 1u << object->pattern_count; group++) {
        uint32_t value, key = object->keys;
        enum err err = compile_member(object, (struct str){NULL, 0}, group, &value);
        if (err != OK) return err;
        if (value == EXPR_NEVER) continue;
        if (listed != EXPR_NEVER) key = expr_and2(exprs, key, expr_not(exprs, listed));
        for (size_t i = 0; i < object->pattern_count; i++) {
            uint32_t own = object->patterns[i].key;
            key = expr_and2(exprs, key, group >> i & 1 ? own : expr_not(exprs, own));
        }
        if (key != EXPR_NEVER && expr_is_alive(exprs, key))
            pairs[group] = make_pair(object, key, value);
    }
    object->other_pair = expr_alt(exprs, pairs, 1u << object->pattern_count);
    return OK;
}

/* --- members in their order --- */

static uint32_t *rule_at(struct object *object, size_t place, uint32_t count) {
    if (count > object->counted) count = object->counted;
    return &object->rules[place * (object->counted + 1) + count];
}

/* One more member and what may follow it; nothing past the maximum. */
static uint32_t more(struct object *object, uint32_t pair, size_t place, uint32_t count) {
    struct exprs *exprs = object->compiler->exprs;
    if (count >= object->max) return EXPR_NEVER;
    uint32_t member = expr_cat(exprs, pair, *rule_at(object, place, count + 1));
    return count == 0 ? member : expr_cat(exprs, schema_mark(object->compiler, ','), member);
}

/* What may stand from `place` on. */
static uint32_t from_place(struct object *object, size_t place, uint32_t count) {
    struct exprs *exprs = object->compiler->exprs;
    uint32_t parts[NAMES_OF_RULE + 2];
    size_t parts_count = 0;
    for (size_t i = place; i < object->name_count; i++) {
        if (i == place + NAMES_OF_RULE) {
            parts[parts_count++] = *rule_at(object, i, count);
            return expr_alt(exprs, parts, parts_count);
        }
        parts[parts_count++] = more(object, object->names[i].pair, i + 1, count);
        if (object->names[i].is_required) return expr_alt(exprs, parts, parts_count);
    }
    parts[parts_count++] = more(object, object->other_pair, object->name_count, count);
    if (count >= object->min) parts[parts_count++] = expr_byte(exprs, '}');
    return expr_alt(exprs, parts, parts_count);
}

static enum err make_rules(struct object *object) {
    struct exprs *exprs = object->compiler->exprs;
    uint32_t counted = object->max == EXPR_NO_MAX ? object->min : object->max;
    object->counted = counted > 0 ? counted : 1;
    size_t places = object->name_count + 1, columns = (size_t)object->counted + 1;
    if (places * columns > RULES_MAX)
        return err_set(object->compiler->error, ERR_LIMIT,
                       "an object with too many properties for its minProperties or maxProperties");
    object->rules = mem_new(places * columns, sizeof *object->rules);
    for (size_t i = 0; i < places * columns; i++) object->rules[i] = expr_rule(exprs, false);
    /* From the end on: exprs_seal is quick when bodies refer to earlier ones. */
    for (size_t place = places; place-- > 0 && !exprs->overflowed;)
        for (uint32_t count = (uint32_t)columns; count-- > 0;)
            expr_rule_body(exprs, *rule_at(object, place, count), from_place(object, place, count));
    return OK;
}

/* Whether the counts can be held: of names that are not listed, one may come twice. */
static enum err check_counts(struct object *object) {
    const json_t *schema;
    if (object->min < object->required_count + 2 || object->other_pair == EXPR_NEVER) return OK;
    for (size_t at = 0; (schema = schema_next_base(object->atoms, &at));)
        if (json_object_get(schema, "minProperties"))
            return schema_refuse(object->compiler, schema, "minProperties",
                                 "names that are not listed cannot be counted beyond one");
    return OK;
}

/* A few names of propertyNames have no order that a reader would know. */
static bool may_have_any_order(const struct object *object) {
    return !object->has_order && object->other_pair == EXPR_NEVER && object->name_count > 0 &&
           object->name_count <= SCHEMA_ANY_ORDER_MAX;
}

static enum err any_order(struct object *object, uint32_t *ret_expr) {
    uint32_t pairs[SCHEMA_ANY_ORDER_MAX];
    size_t count = 0;
    for (size_t i = 0; i < object->name_count; i++)
        if (object->names[i].pair != EXPR_NEVER) pairs[count++] = object->names[i].pair;
    return schema_unique(object->compiler, "{}", pairs, count, object->min, object->max, ret_expr);
}

static enum err compile_object(struct object *object, uint32_t *ret_expr) {
    struct compiler *compiler = object->compiler;
    enum err err = schema_counts(compiler, object->atoms, "minProperties", "maxProperties",
                                 &object->min, &object->max);
    if (err == OK) err = list_patterns(object);
    if (err == OK) err = list_keys(object);
    if (err == OK) list_names(object);
    if (err == OK) err = compile_names(object);
    if (err != OK) return err;
    *ret_expr = EXPR_NEVER;
    if (object->min > object->max || object->required_count > object->max) return OK;
    for (size_t i = 0; i < object->name_count; i++)
        if (object->names[i].is_required && object->names[i].value == EXPR_NEVER) return OK;
    err = compile_others(object);
    if (err == OK) err = check_counts(object);
    if (err != OK) return err;
    if (may_have_any_order(object)) return any_order(object, ret_expr);
    err = make_rules(object);
    if (err != OK) return err;
    *ret_expr = expr_cat(compiler->exprs, expr_byte(compiler->exprs, '{'), object->rules[0]);
    return OK;
}

enum err schema_object(struct compiler *compiler, const struct atoms *atoms, uint32_t *ret_expr) {
    struct object object = {.compiler = compiler, .atoms = atoms};
    enum err err = compile_object(&object, ret_expr);
    free(object.names);
    free(object.rules);
    return err;
}
