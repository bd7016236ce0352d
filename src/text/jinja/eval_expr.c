/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/access.h"
#include "jinja/compare.h"
#include "jinja/dict.h"
#include "jinja/eval.h"
#include "jinja/template.h"

static enum err eval_list(struct render *render, struct scope *scope, const struct expr *expr,
                          struct value *ret_value) {
    struct list *list;
    enum err err = list_new(render, expr->item_count, &list);
    for (const struct expr_item *item = expr->items; !err && item; item = item->next) {
        struct value value = value_absent();
        err = eval_expr(render, scope, item->expr, &value);
        if (!err) err = list_add(render, list, value);
    }
    if (!err) *ret_value = value_of_list(list, expr->kind == EXPR_TUPLE);
    return err;
}

static enum err eval_dict(struct render *render, struct scope *scope, const struct expr *expr,
                          struct value *ret_value) {
    struct dict *dict;
    enum err err = dict_new(render, expr->item_count / 2, &dict);
    for (const struct expr_item *item = expr->items; !err && item; item = item->next->next) {
        struct value key = value_absent(), value = value_absent();
        err = eval_expr(render, scope, item->expr, &key);
        if (!err) err = eval_expr(render, scope, item->next->expr, &value);
        if (!err) err = dict_put(render, dict, key, value);
    }
    if (!err) *ret_value = value_of_dict(dict);
    return err;
}

static enum err eval_name(struct render *render, struct scope *scope, const struct expr *expr,
                          struct value *ret_value) {
    enum err err = scope_get(render, scope, expr->symbol, ret_value);
    if (err || ret_value->kind != VALUE_ABSENT) return err;
    return value_undefined(render, UNDEFINED_NAME, render->template->symbols[expr->symbol], NULL,
                           ret_value);
}

/* a if b else c if d else …, walking down the else side. */
static enum err eval_condition(struct render *render, struct scope *scope, const struct expr *expr,
                               struct value *ret_value) {
    while (expr && expr->kind == EXPR_CONDITION) {
        struct value test = value_absent();
        enum err err = eval_expr(render, scope, expr->test, &test);
        if (err) return err;
        expr = value_is_true(test) ? expr->then : expr->otherwise;
    }
    if (expr) return eval_expr(render, scope, expr, ret_value);
    return value_undefined(render, UNDEFINED_REASON,
                           STR("the condition is false and there is no else"), NULL, ret_value);
}

static enum err eval_leaf(struct render *render, struct scope *scope, const struct expr *expr,
                          struct value *ret_value) {
    switch (expr->kind) {
    case EXPR_CONSTANT: *ret_value = expr->constant; return OK;
    case EXPR_NAME: return eval_name(render, scope, expr, ret_value);
    case EXPR_LIST:
    case EXPR_TUPLE: return eval_list(render, scope, expr, ret_value);
    case EXPR_DICT: return eval_dict(render, scope, expr, ret_value);
    case EXPR_CONDITION: return eval_condition(render, scope, expr, ret_value);
    default: *ret_value = render->input; return OK; /* EXPR_INPUT */
    }
}

static enum err compare(struct render *render, enum comparison comparison, struct value left,
                        struct value right, bool *ret_holds) {
    enum err err;
    bool found;
    int order;
    switch (comparison) {
    case COMPARE_EQUAL:
    case COMPARE_UNEQUAL:
        err = compare_equal(render, left, right, &found);
        if (!err) *ret_holds = found == (comparison == COMPARE_EQUAL);
        return err;
    case COMPARE_IN:
    case COMPARE_NOT_IN:
        err = compare_contains(render, right, left, &found);
        if (!err) *ret_holds = found == (comparison == COMPARE_IN);
        return err;
    default: break;
    }
    if (left.kind == VALUE_UNDEFINED) return arith_fail_undefined(render, left);
    if (right.kind == VALUE_UNDEFINED) return arith_fail_undefined(render, right);
    err = compare_order(render, left, right, &order);
    if (err) return err;
    *ret_holds = comparison == COMPARE_LESS         ? order < 0
                 : comparison == COMPARE_LESS_EQUAL ? order <= 0
                 : comparison == COMPARE_GREATER    ? order > 0
                                                    : order >= 0;
    return OK;
}

static enum err apply_compare(struct render *render, struct scope *scope, const struct expr *expr,
                              struct value left, struct value *ret_value) {
    for (const struct comparand *link = expr->comparands; link; link = link->next) {
        struct value right;
        bool holds = false;
        enum err err = eval_expr(render, scope, link->right, &right);
        if (!err) err = compare(render, link->comparison, left, right, &holds);
        if (err) return err;
        *ret_value = value_bool(holds);
        if (!holds) return OK;
        left = right;
    }
    return OK;
}

static enum err apply_slice(struct render *render, struct scope *scope, const struct expr *expr,
                            struct value left, struct value *ret_value) {
    const struct expr *bounds[3] = {expr->start, expr->stop, expr->step};
    struct value values[3] = {value_absent(), value_absent(), value_absent()};
    for (size_t i = 0; i < 3; i++) {
        if (!bounds[i]) continue;
        enum err err = eval_expr(render, scope, bounds[i], &values[i]);
        if (err) return err;
    }
    return access_slice(render, left, values[0], values[1], values[2], ret_value);
}

static enum err apply_call(struct render *render, struct scope *scope, const struct expr *expr,
                           struct value left, struct value *ret_value) {
    struct arguments args;
    enum err err = eval_arguments(render, scope, expr->call, value_absent(), &args);
    if (err) return err;
    render->line = expr->line;
    return eval_call(render, left, &args, ret_value);
}

/* A filter or test. */
static enum err apply_builtin(struct render *render, struct scope *scope, const struct expr *expr,
                              struct value left, struct value *ret_value) {
    struct arguments args = {0};
    if (!expr->builtin)
        return render_fail(
            render, "there is no %s named '%.*s'", expr->kind == EXPR_FILTER ? "filter" : "test",
            (int)(expr->called.bytes < 60 ? expr->called.bytes : 60), expr->called.at);
    if (expr->call) {
        enum err err = eval_arguments(render, scope, expr->call, value_absent(), &args);
        if (err) return err;
    }
    render->line = expr->line;
    return builtin_call(render, expr->builtin, left, &args, ret_value);
}

/* Operators with a right side. */
static enum err apply_binary(struct render *render, struct scope *scope, const struct expr *expr,
                             struct value left, struct value *ret_value) {
    struct value right;
    if (expr->kind == EXPR_AND || expr->kind == EXPR_OR) {
        if (value_is_true(left) == (expr->kind == EXPR_OR)) {
            *ret_value = left;
            return OK;
        }
        return eval_expr(render, scope, expr->right, ret_value);
    }
    enum err err = eval_expr(render, scope, expr->right, &right);
    if (err) return err;
    render->line = expr->line;
    if (expr->kind == EXPR_ITEM) return access_item(render, left, right, ret_value);
    if (expr->kind == EXPR_JOIN) return arith_join(render, left, right, ret_value);
    return arith_apply(render, expr->operator, left, right, ret_value);
}

/* Computes the expression from the value of its left side. */
static enum err apply(struct render *render, struct scope *scope, const struct expr *expr,
                      struct value left, struct value *ret_value) {
    switch (expr->kind) {
    case EXPR_NOT: *ret_value = value_bool(!value_is_true(left)); return OK;
    case EXPR_NEGATE: return arith_sign(render, left, true, ret_value);
    case EXPR_POSITIVE: return arith_sign(render, left, false, ret_value);
    case EXPR_COMPARE: return apply_compare(render, scope, expr, left, ret_value);
    case EXPR_ATTRIBUTE: return access_attribute(render, left, expr->name, ret_value);
    case EXPR_SLICE: return apply_slice(render, scope, expr, left, ret_value);
    case EXPR_CALL: return apply_call(render, scope, expr, left, ret_value);
    case EXPR_FILTER:
    case EXPR_TEST: return apply_builtin(render, scope, expr, left, ret_value);
    default: return apply_binary(render, scope, expr, left, ret_value);
    }
}

enum err eval_expr(struct render *render, struct scope *scope, const struct expr *expr,
                   struct value *ret_value) {
    if (render->depth == JINJA_EVAL_DEPTH_MAX) return render_limit(render, "its depth");
    render->depth++;
    const struct expr *at = expr;
    while (at->left) at = at->left;
    struct value value = value_absent();
    render->line = at->line;
    enum err err = eval_leaf(render, scope, at, &value);
    while (!err && at != expr) {
        at = at->parent;
        err = render_charge(render, UNITS_PER_STEP);
        if (!err) err = apply(render, scope, at, value, &value);
    }
    if (!err) err = render_charge(render, UNITS_PER_STEP);
    render->depth--;
    if (!err) *ret_value = value;
    return err;
}
