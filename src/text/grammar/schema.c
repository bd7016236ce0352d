/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/schema.h"

#include "base/mem.h"
#include "grammar/schema_internal.h"
#include "json/json.h"

#include <stdlib.h>
#include <string.h>

/* So that all fuel takes about as long as it takes for expressions. */
#define FUEL_OF_SCHEMA 10
#define FUEL_OF_KEYWORD 4

/* --- lists of atoms --- */

static bool has_atom(const struct atoms *atoms, struct atom atom) {
    for (size_t i = 0; i < atoms->count; i++)
        if (atoms->at[i].kind == atom.kind && atoms->at[i].what == atom.what) return true;
    return false;
}

static struct atom node_atom(enum atom_kind kind, const json_t *node) {
    return (struct atom){kind, (uint64_t)(uintptr_t)node};
}

static const json_t *node_of(struct atom atom) {
    return (const json_t *)(uintptr_t)atom.what;
}

enum err schema_add_atom(struct compiler *compiler, struct atoms *atoms, struct atom atom) {
    if (has_atom(atoms, atom)) return OK;
    if (atoms->count == ATOMS_MAX)
        return err_set(compiler->error, ERR_LIMIT, "more than %d schemas apply to one value",
                       ATOMS_MAX);
    atoms->at[atoms->count++] = atom;
    return OK;
}

const json_t *schema_next_base(const struct atoms *atoms, size_t *at) {
    while (*at < atoms->count) {
        struct atom atom = atoms->at[(*at)++];
        if (atom.kind == ATOM_BASE) return node_of(atom);
    }
    return NULL;
}

/* Adds the branches that apply together with a schema. */
static enum err add_branches(struct compiler *compiler, struct atoms *atoms, const json_t *schema,
                             const char *keyword, enum atom_kind kind) {
    const json_t *list = json_object_get(schema, keyword);
    if (!list) return OK;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return schema_refuse(compiler, schema, keyword, "it must be an array that is not empty");
    if (kind != ATOM_BASE) return schema_add_atom(compiler, atoms, node_atom(kind, list));
    enum err err = OK;
    for (size_t i = 0; i < json_array_size(list) && err == OK; i++)
        err = schema_add(compiler, atoms, json_array_get(list, i));
    return err;
}

enum err schema_add(struct compiler *compiler, struct atoms *atoms, const json_t *schema) {
    if (json_is_true(schema)) return OK;
    if (json_is_false(schema)) atoms->is_false = true;
    if (json_is_false(schema)) return OK;
    if (!json_is_object(schema))
        return schema_refuse(compiler, schema, NULL, "a schema must be an object or a boolean");
    if (has_atom(atoms, node_atom(ATOM_BASE, schema))) {
        const json_t *any = json_object_get(schema, "anyOf"),
                     *one = json_object_get(schema, "oneOf");
        if ((any && !has_atom(atoms, node_atom(ATOM_ANY, any))) ||
            (one && !has_atom(atoms, node_atom(ATOM_ONE, one))))
            return schema_refuse(compiler, schema, NULL, "it refers to itself within one value");
        return OK;
    }
    if (!exprs_use_fuel(compiler->exprs,
                        FUEL_OF_SCHEMA + FUEL_OF_KEYWORD * json_object_size(schema)))
        return err_set(compiler->error, ERR_LIMIT, "the schema is too large");
    enum err err = schema_check_keywords(compiler, schema);
    if (err != OK || !schema_has_keywords(schema)) return err;
    err = schema_add_atom(compiler, atoms, node_atom(ATOM_BASE, schema));
    if (err == OK && json_object_get(schema, "$ref")) {
        const json_t *target;
        err = schema_resolve(compiler, schema, &target);
        if (err == OK) err = schema_add(compiler, atoms, target);
    }
    if (err == OK) err = add_branches(compiler, atoms, schema, "allOf", ATOM_BASE);
    if (err == OK) err = add_branches(compiler, atoms, schema, "anyOf", ATOM_ANY);
    if (err == OK) err = add_branches(compiler, atoms, schema, "oneOf", ATOM_ONE);
    return err;
}

#define TYPE_NAMES 7

static unsigned type_of_name(struct str name) {
    static const struct {
        const char *name;
        unsigned types;
    } known[] = {{"null", TYPE_NULL},       {"boolean", TYPE_BOOLEAN},
                 {"integer", TYPE_INTEGER}, {"number", TYPE_INTEGER | TYPE_FRACTION},
                 {"string", TYPE_STRING},   {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (str_is(name, known[i].name)) return known[i].types;
    return 0;
}

/* The types of a schema; 0 where its `type` is wrong. */
static unsigned types_of(const json_t *schema) {
    const json_t *type = json_object_get(schema, "type");
    unsigned types = 0;
    /* OpenAPI's word for one more type; without a type it says nothing. */
    unsigned null = json_is_true(json_object_get(schema, "nullable")) ? TYPE_NULL : 0;
    if (!type) return TYPE_ALL;
    if (json_is_string(type)) {
        types = type_of_name(json_str(type));
        return types ? types | null : 0;
    }
    if (json_array_size(type) > TYPE_NAMES) return 0;
    for (size_t i = 0; i < json_array_size(type); i++) {
        const json_t *name = json_array_get(type, i);
        unsigned one = json_is_string(name) ? type_of_name(json_str(name)) : 0;
        if (one == 0) return 0;
        types |= one;
    }
    return types ? types | null : 0;
}

unsigned schema_types(const struct atoms *atoms) {
    unsigned types = TYPE_ALL, flags = 0;
    const json_t *schema;
    for (size_t at = 0; (schema = schema_next_base(atoms, &at));) types &= types_of(schema);
    for (size_t i = 0; i < atoms->count; i++) {
        if (atoms->at[i].kind != ATOM_TYPES) continue;
        types &= (unsigned)atoms->at[i].what;
        flags |= (unsigned)atoms->at[i].what & ~(unsigned)TYPE_ALL;
    }
    return types | flags;
}

static enum err check_types(struct compiler *compiler, const struct atoms *atoms) {
    const json_t *schema;
    for (size_t at = 0; (schema = schema_next_base(atoms, &at));)
        if (types_of(schema) == 0)
            return schema_refuse(compiler, schema, "type", "it must name types of JSON");
    return OK;
}

/* --- compiling --- */

/* The values of every type that keep all keywords. */
static enum err build_plain(struct compiler *compiler, const struct atoms *atoms,
                            uint32_t *ret_expr) {
    struct exprs *exprs = compiler->exprs;
    bool has_enum;
    enum err err = check_types(compiler, atoms);
    if (err == OK) err = schema_enum(compiler, atoms, &has_enum, ret_expr);
    if (err != OK || has_enum) return err;
    unsigned types = schema_types(atoms);
    uint32_t parts[6];
    size_t count = 0;
    if (types & TYPE_NULL) parts[count++] = expr_bytes(exprs, STR("null"));
    if (types & TYPE_BOOLEAN)
        parts[count++] =
            expr_alt2(exprs, expr_bytes(exprs, STR("true")), expr_bytes(exprs, STR("false")));
    if (types & (TYPE_INTEGER | TYPE_FRACTION))
        err = schema_number(compiler, atoms, types, &parts[count++]);
    if (err == OK && types & TYPE_STRING) err = schema_string(compiler, atoms, &parts[count++]);
    if (err == OK && types & TYPE_ARRAY) err = schema_array(compiler, atoms, &parts[count++]);
    if (err == OK && types & TYPE_OBJECT) err = schema_object(compiler, atoms, &parts[count++]);
    if (err == OK) *ret_expr = expr_alt(exprs, parts, count);
    return err;
}

/* Values that keep any of the branches, and all other atoms. */
static enum err build_any(struct compiler *compiler, const struct atoms *atoms,
                          const json_t *branches, uint32_t *ret_expr) {
    size_t count = json_array_size(branches);
    enum err err = schema_take_steps(compiler, count);
    if (err != OK) return err;
    uint32_t *parts = mem_new(count, sizeof *parts);
    for (size_t i = 0; i < count && err == OK; i++) {
        struct atoms branch = *atoms;
        err = schema_add(compiler, &branch, json_array_get(branches, i));
        if (err == OK) err = schema_compile(compiler, &branch, &parts[i]);
    }
    if (err == OK) *ret_expr = expr_alt(compiler->exprs, parts, count);
    free(parts);
    return err;
}

static enum err build(struct compiler *compiler, const struct atoms *atoms, uint32_t *ret_expr) {
    for (size_t i = 0; i < atoms->count; i++) {
        struct atom atom = atoms->at[i];
        if (atom.kind != ATOM_ANY && atom.kind != ATOM_ONE) continue;
        struct atoms others = *atoms;
        memmove(others.at + i, others.at + i + 1, (others.count - i - 1) * sizeof *others.at);
        others.count--;
        if (atom.kind == ATOM_ANY) return build_any(compiler, &others, node_of(atom), ret_expr);
        return schema_one_of(compiler, &others, node_of(atom), ret_expr);
    }
    return build_plain(compiler, atoms, ret_expr);
}

/* Takes a list from the memo. False if it is new. */
static bool find(struct compiler *compiler, struct str key, enum err *ret_err, uint32_t *ret_expr) {
    uint64_t index;
    if (!map_get(&compiler->memo, key, &index)) return false;
    struct compiled *found = &compiler->compiled[index];
    *ret_err = OK;
    if (found->is_under_way && found->level == compiler->level)
        *ret_err =
            err_set(compiler->error, ERR_INVALID, "a schema refers to itself within one value");
    found->is_used = true;
    *ret_expr = found->expr;
    return true;
}

enum err schema_take_steps(struct compiler *compiler, size_t count) {
    if (count > SCHEMA_STEPS_MAX - compiler->steps || compiler->exprs->overflowed)
        return err_set(compiler->error, ERR_LIMIT, "the schema is too large");
    compiler->steps += (uint32_t)count;
    return OK;
}

enum err schema_compile(struct compiler *compiler, const struct atoms *atoms, uint32_t *ret_expr) {
    struct exprs *exprs = compiler->exprs;
    struct str key = {(const char *)atoms->at, atoms->count * sizeof *atoms->at};
    enum err err;
    *ret_expr = EXPR_NEVER;
    if (atoms->is_false) return OK;
    if (find(compiler, key, &err, ret_expr)) return err;
    err = schema_take_steps(compiler, 1);
    if (err != OK) return err;
    if (compiler->depth >= SCHEMA_DEPTH_MAX)
        return err_set(compiler->error, ERR_LIMIT, "the schema is nested too deeply");
    compiler->compiled = vec_grow(compiler->compiled, compiler->compiled_count,
                                  &compiler->compiled_capacity, sizeof *compiler->compiled);
    size_t index = compiler->compiled_count++;
    uint32_t rule = expr_rule(exprs, false), body;
    compiler->compiled[index] = (struct compiled){rule, compiler->level, true, false};
    map_put(&compiler->memo, key, index);
    compiler->depth++;
    err = build(compiler, atoms, &body);
    compiler->depth--;
    if (err == OK && exprs->overflowed)
        err = err_set(compiler->error, ERR_LIMIT, "the schema is too large");
    if (err != OK) return err;
    struct compiled *own = &compiler->compiled[index];
    expr_rule_body(exprs, rule, body);
    own->is_under_way = false;
    if (!own->is_used) own->expr = body;
    *ret_expr = own->expr;
    return OK;
}

enum err schema_expr(struct exprs *exprs, const json_t *schema, uint32_t *ret_expr,
                     struct error *error) {
    struct compiler compiler = {.exprs = exprs, .root = schema, .error = error};
    struct atoms atoms = {.count = 0};
    uint32_t expr;
    map_init(&compiler.memo);
    compiler.any_char = charset_any(exprs, SPELLING_JSON);
    compiler.any_name =
        schema_quoted(&compiler, expr_repeat(exprs, compiler.any_char, 0, EXPR_NO_MAX));
    enum err err = schema_add(&compiler, &atoms, schema);
    if (err == OK) err = schema_compile(&compiler, &atoms, &expr);
    if (err == OK && expr == EXPR_NEVER) err = err_set(error, ERR_INVALID, "no value satisfies it");
    if (err == OK) *ret_expr = expr;
    map_release(&compiler.memo);
    free(compiler.compiled);
    return err;
}
