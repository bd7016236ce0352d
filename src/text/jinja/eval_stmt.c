/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/dict.h"
#include "jinja/eval.h"
#include "jinja/print.h"
#include "jinja/template.h"
#include "jinja/text.h"

static enum err assign_namespace(struct render *render, struct scope *scope,
                                 const struct target *target, struct value value) {
    struct value object, name;
    enum err err = scope_get(render, scope, target->symbol, &object);
    if (err) return err;
    if (object.kind != VALUE_NAMESPACE)
        return render_fail(render, "an attribute can only be set on a namespace");
    err = text_borrow(render, target->attribute, &name);
    return err ? err : dict_put(render, object.dict, name, value);
}

/* Hands the items of a value out to as many targets. */
static enum err assign_tuple(struct render *render, struct scope *scope,
                             const struct target *target, struct value value) {
    struct list *list;
    enum err err = cursor_list(render, value, &list);
    if (err) return err;
    if (list->count != target->item_count)
        return render_fail(render, "%zu values cannot be assigned to %zu names", list->count,
                           target->item_count);
    const struct value *item = list->items;
    for (const struct target *at = target->items; !err && at; at = at->next)
        err = eval_assign(render, scope, at, *item++);
    return err;
}

enum err eval_assign(struct render *render, struct scope *scope, const struct target *target,
                     struct value value) {
    switch (target->kind) {
    case TARGET_NAME: return scope_set(render, scope, target->symbol, value);
    case TARGET_NAMESPACE: return assign_namespace(render, scope, target, value);
    case TARGET_TUPLE: break;
    }
    return assign_tuple(render, scope, target, value);
}

static enum err eval_if(struct render *render, struct scope *scope, const struct stmt *stmt) {
    for (const struct branch *branch = stmt->branches; branch; branch = branch->next) {
        struct value test = value_bool(true);
        enum err err = branch->test ? eval_expr(render, scope, branch->test, &test) : OK;
        if (err) return err;
        if (value_is_true(test)) return eval_body(render, scope, branch->body);
    }
    return OK;
}

static enum err eval_print(struct render *render, struct scope *scope, const struct stmt *stmt) {
    struct value value;
    enum err err = eval_expr(render, scope, stmt->expr, &value);
    return err ? err : print_value(render, value);
}

/* Runs a body in a scope of its own and takes its output as a text. A break or continue out of the
 * body leaves *ret_text absent. */
static enum err capture(struct render *render, struct scope *scope, const struct stmt *body,
                        struct value *ret_text) {
    struct scope *inner;
    size_t start = render->out->bytes;
    enum err err = scope_new(render, scope, &inner);
    if (!err) err = eval_body(render, inner, body);
    if (!err) err = text_take(render, start, ret_text);
    if (!err && render->flow != FLOW_ON) *ret_text = value_absent();
    return err;
}

/* {% set x | filter %}…{% endset %} and {% filter f %}…{% endfilter %} */
static enum err eval_captured(struct render *render, struct scope *scope, const struct stmt *stmt) {
    struct value text;
    enum err err = capture(render, scope, stmt->body, &text);
    if (err || text.kind == VALUE_ABSENT) return err;
    struct value outer = render->input;
    render->input = text;
    err = eval_expr(render, scope, stmt->expr, &text);
    render->input = outer;
    if (err) return err;
    if (stmt->kind == STMT_FILTER && !value_is_text(text))
        return render_fail(render, "the filter of a block gave a value of type %s, not a str",
                           value_type(text));
    if (stmt->kind == STMT_FILTER) return print_value(render, text);
    return eval_assign(render, scope, stmt->target, text);
}

static enum err macro_new(struct render *render, struct scope *scope, const struct macro_def *def,
                          struct value *ret_value) {
    struct macro *macro = render_alloc(render, sizeof *macro);
    if (!macro) return ERR_LIMIT;
    *macro = (struct macro){def, scope};
    *ret_value = (struct value){.kind = VALUE_MACRO, .macro = macro};
    return OK;
}

static enum err eval_call_block(struct render *render, struct scope *scope,
                                const struct stmt *stmt) {
    struct value caller, callee, result;
    struct arguments args;
    enum err err = macro_new(render, scope, stmt->macro, &caller);
    if (!err) err = eval_expr(render, scope, stmt->called->left, &callee);
    if (!err) err = eval_arguments(render, scope, stmt->called->call, caller, &args);
    if (!err) err = eval_call(render, callee, &args, &result);
    return err ? err : print_value(render, result);
}

static enum err eval_with(struct render *render, struct scope *scope, const struct stmt *stmt) {
    struct scope *inner;
    enum err err = scope_new(render, scope, &inner);
    for (const struct binding *at = stmt->bindings; !err && at; at = at->next) {
        struct value value;
        err = eval_expr(render, scope, at->value, &value);
        if (!err) err = eval_assign(render, inner, at->target, value);
    }
    return err ? err : eval_body(render, inner, stmt->body);
}

static enum err eval_stmt(struct render *render, struct scope *scope, const struct stmt *stmt) {
    struct value value;
    struct scope *inner;
    enum err err;
    switch (stmt->kind) {
    case STMT_TEXT:
        buf_add_str(render->out, stmt->text);
        err = render_charge(render, stmt->text.bytes / 4);
        return err ? err : render_check(render);
    case STMT_PRINT: return eval_print(render, scope, stmt);
    case STMT_IF: return eval_if(render, scope, stmt);
    case STMT_FOR:
        err = eval_expr(render, scope, stmt->expr, &value);
        return err ? err : eval_for(render, scope, stmt, value, 0);
    case STMT_SET:
        err = eval_expr(render, scope, stmt->expr, &value);
        return err ? err : eval_assign(render, scope, stmt->target, value);
    case STMT_SET_BLOCK:
    case STMT_FILTER: return eval_captured(render, scope, stmt);
    case STMT_MACRO:
        err = macro_new(render, scope, stmt->macro, &value);
        return err ? err : scope_set(render, scope, stmt->macro->symbol, value);
    case STMT_CALL: return eval_call_block(render, scope, stmt);
    case STMT_WITH: return eval_with(render, scope, stmt);
    case STMT_SCOPE:
        err = scope_new(render, stmt->isolated ? NULL : scope, &inner);
        return err ? err : eval_body(render, inner, stmt->body);
    case STMT_BREAK: render->flow = FLOW_BREAK; return OK;
    case STMT_CONTINUE: render->flow = FLOW_CONTINUE; return OK;
    }
    return OK;
}

enum err eval_body(struct render *render, struct scope *scope, const struct stmt *body) {
    if (render->depth == JINJA_EVAL_DEPTH_MAX) return render_limit(render, "its depth");
    render->depth++;
    enum err err = OK;
    for (const struct stmt *stmt = body; !err && stmt && render->flow == FLOW_ON;
         stmt = stmt->next) {
        render->line = stmt->line;
        err = render_charge(render, UNITS_PER_STEP);
        if (!err) err = eval_stmt(render, scope, stmt);
    }
    render->depth--;
    return err;
}
