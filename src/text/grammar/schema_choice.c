/* SPDX-License-Identifier: Apache-2.0 */
/* The choices of a schema: enum, const and oneOf. */
#include "base/mem.h"
#include "grammar/schema_internal.h"
#include "json/json.h"

#include <stdlib.h>

#define FUEL_OF_NUMBERS 5 /* for comparing two */

/* --- values --- */

/* Whether two values are equal as JSON Schema means it: 1 is 1.0. */
static bool is_same(struct compiler *compiler, const json_t *a, const json_t *b) {
    if (!exprs_use_fuel(compiler->exprs, json_is_number(a) ? FUEL_OF_NUMBERS : 1)) return false;
    if (json_is_number(a) && json_is_number(b)) {
        struct decimal x, y;
        return decimal_read(a, &x, NULL) == OK && decimal_read(b, &y, NULL) == OK &&
               decimal_compare(&x, &y) == 0;
    }
    if (json_typeof(a) != json_typeof(b)) return false;
    const char *key;
    json_t *value;
    if (json_is_object(a)) {
        if (json_object_size(a) != json_object_size(b)) return false;
        json_object_foreach((json_t *)(uintptr_t)a, key, value) {
            const json_t *other = json_object_get(b, key);
            if (!other || !is_same(compiler, value, other)) return false;
        }
        return true;
    }
    if (!json_is_array(a)) return json_equal(a, b);
    if (json_array_size(a) != json_array_size(b)) return false;
    for (size_t i = 0; i < json_array_size(a); i++)
        if (!is_same(compiler, json_array_get(a, i), json_array_get(b, i))) return false;
    return true;
}

static unsigned type_of(const json_t *value) {
    struct decimal decimal;
    switch (json_typeof(value)) {
    case JSON_NULL: return TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE: return TYPE_BOOLEAN;
    case JSON_STRING: return TYPE_STRING;
    case JSON_ARRAY: return TYPE_ARRAY;
    case JSON_OBJECT: return TYPE_OBJECT;
    case JSON_INTEGER:
    case JSON_REAL: break;
    }
    bool is_fraction = decimal_read(value, &decimal, NULL) != OK || decimal.fraction_count > 0;
    return is_fraction ? TYPE_FRACTION : TYPE_INTEGER;
}

static enum err write_number(struct compiler *compiler, const json_t *value, unsigned types,
                             uint32_t *ret_expr) {
    struct decimal decimal;
    enum err err = decimal_read(value, &decimal, compiler->error);
    if (err != OK) return err;
    if (types & TYPE_EVERY_SPELLING) {
        struct number_rules rules = {.form = NUMBER_DECIMAL, .min = &decimal, .max = &decimal};
        return number_expr(compiler->exprs, &rules, ret_expr, compiler->error);
    }
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    decimal_write(&decimal, &text);
    *ret_expr = expr_bytes(compiler->exprs, buf_str(&text));
    buf_release(&text);
    return OK;
}

static enum err write_value(struct compiler *compiler, const json_t *value, unsigned types,
                            uint32_t *ret_expr);

/* The elements of an array, or the members of an object in their order. */
static enum err write_container(struct compiler *compiler, const json_t *value, unsigned types,
                                uint32_t *ret_expr) {
    struct exprs *exprs = compiler->exprs;
    const char *key;
    json_t *member;
    enum err err = OK;
    bool is_object = json_is_object(value), is_first = true;
    uint32_t all = expr_byte(exprs, is_object ? '{' : '['), one;
    for (size_t i = 0; i < json_array_size(value) && err == OK; i++) {
        if (i > 0) all = expr_cat(exprs, all, schema_mark(compiler, ','));
        err = write_value(compiler, json_array_get(value, i), types, &one);
        if (err == OK) all = expr_cat(exprs, all, one);
    }
    json_object_foreach((json_t *)(uintptr_t)value, key, member) {
        if (err != OK) break;
        if (!is_first) all = expr_cat(exprs, all, schema_mark(compiler, ','));
        is_first = false;
        all = expr_cat(exprs, all, schema_literal(compiler, str_from(key)));
        all = expr_cat(exprs, all, schema_mark(compiler, ':'));
        err = write_value(compiler, member, types, &one);
        if (err == OK) all = expr_cat(exprs, all, one);
    }
    *ret_expr = expr_cat(exprs, all, expr_byte(exprs, is_object ? '}' : ']'));
    return err;
}

/* The texts of exactly this value. */
static enum err write_value(struct compiler *compiler, const json_t *value, unsigned types,
                            uint32_t *ret_expr) {
    struct exprs *exprs = compiler->exprs;
    switch (json_typeof(value)) {
    case JSON_NULL: *ret_expr = expr_bytes(exprs, STR("null")); return OK;
    case JSON_TRUE: *ret_expr = expr_bytes(exprs, STR("true")); return OK;
    case JSON_FALSE: *ret_expr = expr_bytes(exprs, STR("false")); return OK;
    case JSON_STRING: *ret_expr = schema_literal(compiler, json_str(value)); return OK;
    case JSON_INTEGER:
    case JSON_REAL: return write_number(compiler, value, types, ret_expr);
    case JSON_ARRAY:
    case JSON_OBJECT: break;
    }
    return write_container(compiler, value, types, ret_expr);
}

/* --- enum and const --- */

/* Whether the schema's enum and const, as far as it has them, have the value. */
static bool is_chosen(struct compiler *compiler, const json_t *schema, const json_t *value) {
    const json_t *one = json_object_get(schema, "const"), *list = json_object_get(schema, "enum");
    bool is_in = !list;
    for (size_t i = 0; i < json_array_size(list) && !is_in; i++)
        is_in = is_same(compiler, json_array_get(list, i), value);
    return is_in && (!one || is_same(compiler, one, value));
}

/* True if the atoms have more to say than enum, const and type. */
static bool has_more(const struct atoms *atoms) {
    const json_t *schema;
    const char *key;
    json_t *value;
    for (size_t at = 0; (schema = schema_next_base(atoms, &at));) {
        json_t *bare = json_object();
        json_object_foreach((json_t *)(uintptr_t)schema, key, value) {
            struct str name = str_from(key);
            if (!str_is(name, "enum") && !str_is(name, "const") && !str_is(name, "type") &&
                !str_is(name, "$ref") && !str_is(name, "allOf") && !str_is(name, "anyOf") &&
                !str_is(name, "oneOf"))
                json_object_set_new(bare, key, json_true());
        }
        bool has = schema_has_keywords(bare);
        json_decref(bare);
        if (has) return true;
    }
    return false;
}

/* Candidates of an enum on their way through the other keywords. */
struct candidates {
    const struct atoms *atoms;
    const json_t *source; /* the schema whose list they are */
    unsigned types;
    bool has_rest;
    uint32_t rest; /* values that keep the other keywords, in every spelling */
};

/* The one text of a value that is no container: an expression of it, one per byte, would be dear.
 */
static enum err spell_scalar(struct compiler *compiler, const json_t *value, struct buf *text) {
    struct decimal decimal;
    enum err err = OK;
    if (json_is_string(value)) {
        buf_add_byte(text, '"');
        charset_spell(json_str(value), SPELLING_JSON, text);
        buf_add_byte(text, '"');
    } else if (json_is_number(value)) {
        err = decimal_read(value, &decimal, compiler->error);
        if (err == OK) decimal_write(&decimal, text);
    } else {
        buf_add_text(text, json_is_null(value) ? "null" : json_is_true(value) ? "true" : "false");
    }
    return err;
}

static enum err check_candidate(struct compiler *compiler, const struct candidates *candidates,
                                const json_t *value, bool *ret_is_good) {
    const json_t *schema;
    bool is_good = type_of(value) & candidates->types;
    for (size_t at = 0; is_good && (schema = schema_next_base(candidates->atoms, &at));)
        is_good = schema == candidates->source || is_chosen(compiler, schema, value);
    *ret_is_good = is_good;
    if (!is_good || !candidates->has_rest) return OK;
    if (json_is_object(value) || json_is_array(value))
        return err_set(compiler->error, ERR_INVALID,
                       "an enum or const of arrays or objects next to other keywords is not "
                       "supported");
    struct buf text;
    buf_init(&text, BUF_UNLIMITED);
    enum err err = spell_scalar(compiler, value, &text);
    if (err == OK) *ret_is_good = expr_matches(compiler->exprs, candidates->rest, buf_str(&text));
    buf_release(&text);
    return err;
}

/* The values of the other keywords, of types that are no containers. */
static enum err find_rest(struct compiler *compiler, struct candidates *candidates) {
    struct atoms others = *candidates->atoms;
    candidates->has_rest = has_more(&others);
    if (!candidates->has_rest) return OK;
    unsigned types = TYPE_ALL & ~(unsigned)(TYPE_ARRAY | TYPE_OBJECT);
    types |= TYPE_EVERY_SPELLING | TYPE_NO_ENUM;
    enum err err = schema_add_atom(compiler, &others, (struct atom){ATOM_TYPES, types});
    return err == OK ? schema_compile(compiler, &others, &candidates->rest) : err;
}

enum err schema_enum_values(struct compiler *compiler, const struct atoms *atoms, bool *ret_has,
                            uint32_t **ret_parts, size_t *ret_count) {
    struct candidates candidates = {.atoms = atoms, .types = schema_types(atoms)};
    const json_t *schema, *list = NULL, *one = NULL;
    for (size_t at = 0; !list && !one && (schema = schema_next_base(atoms, &at));) {
        list = json_object_get(schema, "enum");
        one = list ? NULL : json_object_get(schema, "const");
        /* With both, the list goes through the const. */
        candidates.source = list && json_object_get(schema, "const") ? NULL : schema;
    }
    *ret_has = (list || one) && !(candidates.types & TYPE_NO_ENUM);
    *ret_parts = NULL;
    if (!*ret_has) return OK;
    enum err err = find_rest(compiler, &candidates);
    size_t count = one ? 1 : json_array_size(list), kept = 0;
    uint32_t *parts = mem_new(count + 1, sizeof *parts);
    for (size_t i = 0; i < count && err == OK && !compiler->exprs->overflowed; i++) {
        const json_t *value = one ? one : json_array_get(list, i);
        bool is_good;
        err = check_candidate(compiler, &candidates, value, &is_good);
        if (err == OK && is_good)
            err = write_value(compiler, value, candidates.types, &parts[kept++]);
    }
    *ret_parts = parts;
    *ret_count = kept;
    return err;
}

enum err schema_enum(struct compiler *compiler, const struct atoms *atoms, bool *ret_has,
                     uint32_t *ret_expr) {
    uint32_t *parts;
    size_t count;
    enum err err = schema_enum_values(compiler, atoms, ret_has, &parts, &count);
    if (err == OK && *ret_has) *ret_expr = expr_alt(compiler->exprs, parts, count);
    free(parts);
    return err;
}

/* --- oneOf --- */

/* The branches of a oneOf, each with the atoms next to the oneOf. */
struct branches {
    struct atoms *at; /* (count) */
    size_t count;
    const json_t *list;
};

/* The values of some types that keep a list of atoms. */
static enum err of_types(struct compiler *compiler, const struct atoms *atoms, unsigned types,
                         uint32_t *ret_expr) {
    struct atoms own = *atoms;
    enum err err = schema_add_atom(compiler, &own, (struct atom){ATOM_TYPES, types});
    return err == OK ? schema_compile(compiler, &own, ret_expr) : err;
}

/* Texts of values that are no containers, which exactly one branch allows. */
static enum err one_scalar(struct compiler *compiler, const struct branches *branches,
                           unsigned types, uint32_t *ret_expr) {
    struct exprs *exprs = compiler->exprs;
    size_t count = branches->count;
    uint32_t *own = mem_new(3 * count, sizeof *own), *every = own + count, *parts = every + count;
    enum err err = OK;
    for (size_t i = 0; i < count && err == OK; i++) {
        err = of_types(compiler, &branches->at[i], types, &own[i]);
        if (err == OK)
            err = of_types(compiler, &branches->at[i], types | TYPE_EVERY_SPELLING, &every[i]);
    }
    const struct number_rules any = {.form = NUMBER_DECIMAL};
    uint32_t decimal = EXPR_NEVER;
    if (err == OK) err = number_expr(exprs, &any, &decimal, compiler->error);
    for (size_t i = 0; i < count && err == OK; i++) {
        uint32_t kept = every[i]; /* its place is used for the list of the others */
        every[i] = EXPR_NEVER;
        uint32_t others = expr_alt(exprs, every, count);
        every[i] = kept;
        parts[i] = own[i];
        if (others == EXPR_NEVER || own[i] == EXPR_NEVER) continue;
        /* No text with an exponent is in `every`. */
        if (types & TYPE_FRACTION) parts[i] = expr_and2(exprs, parts[i], decimal);
        parts[i] = expr_and2(exprs, parts[i], expr_not(exprs, others));
        if (!expr_is_alive(exprs, parts[i])) parts[i] = EXPR_NEVER;
    }
    if (err == OK) *ret_expr = expr_alt(exprs, parts, count);
    free(own);
    return err;
}

/* The values of a member as a list: its enum, its const as *ret_one; NULL without either. */
static const json_t *values_of(struct compiler *compiler, const json_t *member,
                               const json_t **ret_one) {
    const json_t *target;
    *ret_one = NULL;
    if (json_object_get(member, "$ref") && schema_resolve(compiler, member, &target) == OK)
        member = target;
    *ret_one = json_object_get(member, "const");
    return *ret_one ? NULL : json_object_get(member, "enum");
}

/* Whether a name that both schemas require has other values in each, by const or enum. */
static bool is_told_apart(struct compiler *compiler, const json_t *a, const json_t *b,
                          const char *name) {
    const json_t *one_a, *one_b,
        *list_a =
            values_of(compiler, json_object_get(json_object_get(a, "properties"), name), &one_a),
        *list_b =
            values_of(compiler, json_object_get(json_object_get(b, "properties"), name), &one_b);
    if (!(one_a || list_a) || !(one_b || list_b)) return false;
    size_t count_a = one_a ? 1 : json_array_size(list_a),
           count_b = one_b ? 1 : json_array_size(list_b);
    for (size_t i = 0; i < count_a; i++)
        for (size_t k = 0; k < count_b; k++)
            if (is_same(compiler, one_a ? one_a : json_array_get(list_a, i),
                        one_b ? one_b : json_array_get(list_b, k)))
                return false;
    return true;
}

static bool requires(const json_t *schema, const json_t *name) {
    const json_t *required = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(required); i++)
        if (json_equal(json_array_get(required, i), name)) return true;
    return false;
}

/* Whether one look shows that two branches share no object: a mark such as `kind` tells them apart.
 * The schemas of all atoms of both are compared, which is quick where each has few. */
static bool have_marks(struct compiler *compiler, const struct atoms *a, const struct atoms *b) {
    const json_t *one, *two;
    for (size_t i = 0; (one = schema_next_base(a, &i));) {
        const json_t *required = json_object_get(one, "required");
        for (size_t n = 0; n < json_array_size(required); n++) {
            const json_t *name = json_array_get(required, n);
            for (size_t k = 0; json_is_string(name) && (two = schema_next_base(b, &k));)
                if (exprs_use_fuel(compiler->exprs, 1) && requires(two, name) &&
                    is_told_apart(compiler, one, two, json_string_value(name)))
                    return true;
        }
    }
    return false;
}

/* Arrays or objects: no two branches may share a value. */
static enum err one_container(struct compiler *compiler, const struct branches *branches,
                              unsigned types, uint32_t *ret_expr) {
    size_t count = branches->count;
    uint32_t *parts = mem_new(count, sizeof *parts), both;
    enum err err = OK;
    for (size_t i = 0; i < count && err == OK; i++)
        err = of_types(compiler, &branches->at[i], types, &parts[i]);
    for (size_t i = 0; i < count && err == OK; i++) {
        for (size_t k = i + 1; k < count && err == OK; k++) {
            if (parts[i] == EXPR_NEVER || parts[k] == EXPR_NEVER) continue;
            if (types == TYPE_OBJECT && have_marks(compiler, &branches->at[i], &branches->at[k]))
                continue;
            struct atoms shared = branches->at[i];
            err = schema_add(compiler, &shared, json_array_get(branches->list, k));
            if (err == OK) err = of_types(compiler, &shared, types, &both);
            if (err == OK && both != EXPR_NEVER)
                err = schema_refuse(compiler, branches->list, NULL,
                                    "branches %zu and %zu may allow the same value; anyOf allows "
                                    "that",
                                    i, k);
        }
    }
    if (err == OK) *ret_expr = expr_alt(compiler->exprs, parts, count);
    free(parts);
    return err;
}

enum err schema_one_of(struct compiler *compiler, const struct atoms *atoms, const json_t *list,
                       uint32_t *ret_expr) {
    static const unsigned groups[] = {TYPE_NULL,   TYPE_BOOLEAN, TYPE_INTEGER | TYPE_FRACTION,
                                      TYPE_STRING, TYPE_ARRAY,   TYPE_OBJECT};
    struct branches branches = {.count = json_array_size(list), .list = list};
    uint32_t parts[6] = {0};
    enum err err = schema_take_steps(compiler, branches.count);
    if (err != OK) return err;
    branches.at = mem_new(branches.count, sizeof *branches.at);
    for (size_t i = 0; i < branches.count && err == OK; i++) {
        branches.at[i] = *atoms;
        err = schema_add(compiler, &branches.at[i], json_array_get(list, i));
    }
    for (size_t i = 0; i < 6 && err == OK; i++) {
        bool is_scalar = groups[i] < TYPE_ARRAY;
        err = is_scalar ? one_scalar(compiler, &branches, groups[i], &parts[i])
                        : one_container(compiler, &branches, groups[i], &parts[i]);
    }
    if (err == OK) *ret_expr = expr_alt(compiler->exprs, parts, 6);
    free(branches.at);
    return err;
}
