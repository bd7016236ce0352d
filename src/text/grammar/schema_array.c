/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of a schema. */
#include "grammar/schema_internal.h"

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

enum err schema_array(struct compiler *compiler, const struct atoms *atoms, uint32_t *ret_expr) {
    struct exprs *exprs = compiler->exprs;
    uint32_t min, max, one, all;
    enum err err = schema_counts(compiler, atoms, "minItems", "maxItems", &min, &max);
    if (err != OK) return err;
    if (min > max) {
        *ret_expr = EXPR_NEVER;
        return OK;
    }
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
