/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of a schema.
 *
 * No automaton remembers the items that it has seen, so uniqueItems is held where it can be written
 * down: at most one item, or items from an enum. Few values may come in any order, by a rule per
 * set of values that are left; many come in the order of their enum. */
#include "base/mem.h"
#include "grammar/schema_internal.h"

#include <stdlib.h>

#define ANY_ORDER_MAX 6         /* values: 64 sets */
#define UNIQUE_PARTS_MAX 120000 /* values in all rules, of which half are left on the average */

/* The values of the item at `index`. An index that no prefixItems has means every item behind
 * them. */
static enum err item(struct compiler *compiler, const struct atoms *atoms, size_t index,
                     uint32_t *ret_expr) {
    struct atoms child = {.count = 0};
    const json_t *schema;
    enum err err = OK;
    for (size_t at = 0; err == OK && (schema = schema_next_base(atoms, &at));) {
        const json_t *own = json_array_get(json_object_get(schema, "prefixItems"), index);
        if (!own) own = json_object_get(schema, "items");
        if (own) err = schema_add(compiler, &child, own);
    }
    compiler->level++;
    if (err == OK) err = schema_compile(compiler, &child, ret_expr);
    compiler->level--;
    return err;
}

static size_t prefix_count(const struct atoms *atoms) {
    size_t most = 0;
    const json_t *schema;
    for (size_t at = 0; (schema = schema_next_base(atoms, &at));) {
        size_t own = json_array_size(json_object_get(schema, "prefixItems"));
        if (own > most) most = own;
    }
    return most;
}

static uint32_t less(uint32_t count, size_t by) {
    if (count == EXPR_NO_MAX) return count;
    return count > by ? count - (uint32_t)by : 0;
}

/* All that follows the first `count` items, which are all that prefixItems has. */
static uint32_t rest(struct compiler *compiler, uint32_t one, size_t count, uint32_t min,
                     uint32_t max) {
    struct exprs *exprs = compiler->exprs;
    uint32_t end = expr_byte(exprs, ']'), next = expr_cat(exprs, schema_mark(compiler, ','), one);
    uint32_t own_min = less(min, count), own_max = less(max, count);
    if (count > 0) return expr_cat(exprs, expr_repeat(exprs, next, own_min, own_max), end);
    uint32_t some = EXPR_NEVER;
    if (own_max > 0)
        some = expr_cat(exprs, one,
                        expr_cat(exprs, expr_repeat(exprs, next, less(min, 1), less(max, 1)), end));
    return expr_alt2(exprs, some, min == 0 ? end : EXPR_NEVER);
}

/* --- uniqueItems --- */

static const json_t *find_unique(const struct atoms *atoms) {
    const json_t *schema;
    for (size_t at = 0; (schema = schema_next_base(atoms, &at));)
        if (json_is_true(json_object_get(schema, "uniqueItems"))) return schema;
    return NULL;
}

/* The different values of the items, as expressions; *ret_values is NULL if they cannot be listed.
 */
static enum err list_values(struct compiler *compiler, const struct atoms *atoms,
                            uint32_t **ret_values, size_t *ret_count) {
    struct atoms child = {.count = 0};
    const json_t *schema;
    enum err err = OK;
    bool has = false;
    *ret_values = NULL;
    for (size_t at = 0; err == OK && (schema = schema_next_base(atoms, &at));) {
        const json_t *own = json_object_get(schema, "items");
        if (own) err = schema_add(compiler, &child, own);
    }
    for (size_t i = 0; i < child.count; i++)
        if (child.at[i].kind == ATOM_ANY || child.at[i].kind == ATOM_ONE) return err;
    if (err != OK || child.is_false) return err;
    err = schema_enum_values(compiler, &child, &has, ret_values, ret_count);
    unsigned types = schema_types(&child);
    if (err != OK || has || !types || types & ~(unsigned)(TYPE_NULL | TYPE_BOOLEAN)) return err;
    static const char *const texts[] = {"null", "true", "false"};
    *ret_values = mem_new(3, sizeof **ret_values);
    *ret_count = 0;
    for (size_t i = types & TYPE_NULL ? 0 : 1; i < (types & TYPE_BOOLEAN ? 3 : 1); i++)
        (*ret_values)[(*ret_count)++] = expr_bytes(compiler->exprs, str_from(texts[i]));
    return OK;
}

static size_t drop_equal(uint32_t *values, size_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;
        while (k < kept && values[k] != values[i]) k++;
        if (k == kept) values[kept++] = values[i];
    }
    return kept;
}

/* Arrays of different values. What may follow is a rule: by the values that are left, as bits, or
 * as the place from which on they are left; and by the number of items so far. */
struct unique {
    struct compiler *compiler;
    const uint32_t *values; /* (count) */
    size_t count, columns;
    uint32_t min, max;
    uint32_t end; /* the closing bracket */
    bool is_ordered;
    uint32_t *rules;
};

/* Items past the last one that min and max tell apart count as that one. */
static uint32_t rule_of(const struct unique *unique, size_t left, size_t written) {
    if (written >= unique->columns) written = unique->columns - 1;
    return unique->rules[left * unique->columns + written];
}

static uint32_t body_of(const struct unique *unique, size_t left, size_t written) {
    struct exprs *exprs = unique->compiler->exprs;
    uint32_t *parts = mem_new(unique->count + 1, sizeof *parts);
    size_t parts_count = 0;
    if (written >= unique->min) parts[parts_count++] = unique->end;
    for (size_t i = unique->is_ordered ? left : 0; i < unique->count && written < unique->max;
         i++) {
        if (!unique->is_ordered && !(left >> i & 1)) continue;
        size_t then = unique->is_ordered ? i + 1 : left & ~((size_t)1 << i);
        uint32_t one = expr_cat(exprs, unique->values[i], rule_of(unique, then, written + 1));
        if (written > 0) one = expr_cat(exprs, schema_mark(unique->compiler, ','), one);
        parts[parts_count++] = one;
    }
    uint32_t body = expr_alt(exprs, parts, parts_count);
    free(parts);
    return body;
}

enum err schema_unique(struct compiler *compiler, const char brackets[2], const uint32_t *values,
                       size_t count, uint32_t min, uint32_t max, uint32_t *ret_expr) {
    struct exprs *exprs = compiler->exprs;
    uint32_t counted = max == EXPR_NO_MAX ? min : max;
    struct unique unique = {.compiler = compiler,
                            .values = values,
                            .count = count,
                            .columns = (counted > 1 ? counted : 1) + (size_t)1,
                            .min = min,
                            .max = max,
                            .end = expr_byte(exprs, (unsigned char)brackets[1]),
                            .is_ordered = count > SCHEMA_ANY_ORDER_MAX};
    *ret_expr = EXPR_NEVER;
    if (min > count) return OK;
    if (unique.columns > count + 1) unique.columns = count + 1;
    size_t states = unique.is_ordered ? count + 1 : (size_t)1 << count;
    size_t rules = states * unique.columns;
    if (rules * count > UNIQUE_PARTS_MAX)
        return err_set(compiler->error, ERR_LIMIT,
                       "%zu values that may each come once are too many", count);
    unique.rules = mem_new(rules, sizeof *unique.rules);
    for (size_t i = 0; i < rules; i++) unique.rules[i] = expr_rule(exprs, false);
    /* From the ends on: exprs_seal is quick when bodies refer to earlier rules. */
    for (size_t k = 0; k < states && !exprs->overflowed; k++) {
        size_t left = unique.is_ordered ? states - 1 - k : k;
        for (size_t written = unique.columns; written-- > 0;)
            expr_rule_body(exprs, unique.rules[left * unique.columns + written],
                           body_of(&unique, left, written));
    }
    *ret_expr = expr_cat(exprs, expr_byte(exprs, (unsigned char)brackets[0]),
                         rule_of(&unique, unique.is_ordered ? 0 : states - 1, 0));
    free(unique.rules);
    return OK;
}

static enum err try_unique(struct compiler *compiler, const struct atoms *atoms,
                           const json_t *schema, uint32_t min, uint32_t max, uint32_t *ret_expr) {
    uint32_t *values = NULL;
    size_t count = 0;
    enum err err = list_values(compiler, atoms, &values, &count);
    if (err == OK && (!values || prefix_count(atoms) > 0))
        err = schema_refuse(compiler, schema, NULL,
                            "the keyword 'uniqueItems' is not supported, but for items of an enum "
                            "and for at most one item");
    if (err == OK && values)
        err = schema_unique(compiler, "[]", values, drop_equal(values, count), min, max, ret_expr);
    free(values);
    return err;
}

enum err schema_array(struct compiler *compiler, const struct atoms *atoms, uint32_t *ret_expr) {
    struct exprs *exprs = compiler->exprs;
    const json_t *unique = find_unique(atoms);
    uint32_t min, max, one, all;
    enum err err = schema_counts(compiler, atoms, "minItems", "maxItems", &min, &max);
    if (err != OK) return err;
    if (min > max) {
        *ret_expr = EXPR_NEVER;
        return OK;
    }
    if (unique && max > 1) return try_unique(compiler, atoms, unique, min, max, ret_expr);
    size_t prefix = prefix_count(atoms);
    err = item(compiler, atoms, prefix, &one);
    if (err != OK) return err;
    if (prefix > max) prefix = max;
    all =
        prefix > 0 && prefix == max ? expr_byte(exprs, ']') : rest(compiler, one, prefix, min, max);
    for (size_t i = prefix; i-- > 0;) {
        err = item(compiler, atoms, i, &one);
        if (err != OK) return err;
        all = expr_cat(exprs, one, all);
        if (i > 0) all = expr_cat(exprs, schema_mark(compiler, ','), all);
        if (i >= min) all = expr_alt2(exprs, all, expr_byte(exprs, ']'));
    }
    *ret_expr = expr_cat(exprs, expr_byte(exprs, '['), all);
    return OK;
}
