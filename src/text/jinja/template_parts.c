/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/template.h"

/* Which variables hold the content of a message, and which a loop walks over. A variable holds it
 * when it is set from message.content or message['content'], or is the parameter of a macro that
 * is called with it. The walk over the ast is repeated until nothing new is found. */

struct parts {
    const struct macro_def *macros[64]; /* names found so far; further ones are not looked at */
    size_t macro_count;
    unsigned char *holds; /* by symbol */
    bool changed;
    bool walked;
};

static void look_at_expr(struct parts *parts, const struct expr *expr);
static void look_at_body(struct parts *parts, const struct stmt *body);

static bool is_content_name(const struct expr *expr) {
    return expr->kind == EXPR_CONSTANT && value_is_text(expr->constant) &&
           str_is(value_str(expr->constant), "content");
}

/* Whether the value is content, or a part or filtered form of it. */
static bool is_content(const struct parts *parts, const struct expr *expr) {
    for (; expr; expr = expr->left) {
        switch (expr->kind) {
        case EXPR_NAME: return parts->holds[expr->symbol];
        case EXPR_ATTRIBUTE: return str_is(expr->name, "content");
        case EXPR_ITEM: return is_content_name(expr->right);
        case EXPR_CONDITION:
            return is_content(parts, expr->then) ||
                   (expr->otherwise && is_content(parts, expr->otherwise));
        case EXPR_CALL: /* message.get('content') */
            return expr->left->kind == EXPR_ATTRIBUTE && str_is(expr->left->name, "get") &&
                   expr->call->values && is_content_name(expr->call->values->expr);
        case EXPR_FILTER:
        case EXPR_SLICE: break;
        case EXPR_OR:
        case EXPR_AND:
            if (is_content(parts, expr->right)) return true;
            break;
        default: return false;
        }
    }
    return false;
}

static void mark(struct parts *parts, uint32_t symbol) {
    parts->changed |= !parts->holds[symbol];
    parts->holds[symbol] = 1;
}

/* The parameters that a call gives content to. */
static void look_at_call(struct parts *parts, const struct expr *callee, const struct call *call) {
    const struct param *param = NULL;
    for (size_t i = 0; i < parts->macro_count && callee && callee->kind == EXPR_NAME; i++)
        if (parts->macros[i]->symbol == callee->symbol) param = parts->macros[i]->params;
    for (const struct expr_item *item = call->values; item; item = item->next) {
        if (param && is_content(parts, item->expr)) mark(parts, param->symbol);
        look_at_expr(parts, item->expr);
        if (param) param = param->next;
    }
    for (const struct keyword *at = call->keywords; at; at = at->next)
        look_at_expr(parts, at->value);
}

static void look_at_expr(struct parts *parts, const struct expr *expr) {
    for (; expr; expr = expr->left) {
        switch (expr->kind) {
        case EXPR_LIST:
        case EXPR_TUPLE:
        case EXPR_DICT:
            for (const struct expr_item *item = expr->items; item; item = item->next)
                look_at_expr(parts, item->expr);
            break;
        case EXPR_CONDITION:
            look_at_expr(parts, expr->test);
            look_at_expr(parts, expr->then);
            look_at_expr(parts, expr->otherwise);
            break;
        case EXPR_ARITHMETIC:
        case EXPR_JOIN:
        case EXPR_AND:
        case EXPR_OR: look_at_expr(parts, expr->right); break;
        case EXPR_CALL:
        case EXPR_FILTER:
            if (expr->call)
                look_at_call(parts, expr->kind == EXPR_CALL ? expr->left : NULL, expr->call);
            break;
        default: break;
        }
    }
}

static void look_at_macro(struct parts *parts, const struct macro_def *macro) {
    bool known = parts->macro_count == sizeof parts->macros / sizeof parts->macros[0];
    for (size_t i = 0; i < parts->macro_count; i++) known |= parts->macros[i] == macro;
    if (!known) {
        parts->macros[parts->macro_count++] = macro;
        parts->changed = true;
    }
    look_at_body(parts, macro->body);
}

static void look_at_stmt(struct parts *parts, const struct stmt *stmt) {
    switch (stmt->kind) {
    case STMT_PRINT: look_at_expr(parts, stmt->expr); break;
    case STMT_IF:
        for (const struct branch *branch = stmt->branches; branch; branch = branch->next) {
            look_at_expr(parts, branch->test);
            look_at_body(parts, branch->body);
        }
        break;
    case STMT_FOR:
        parts->walked |= is_content(parts, stmt->expr);
        look_at_expr(parts, stmt->expr);
        look_at_body(parts, stmt->body);
        look_at_body(parts, stmt->otherwise);
        break;
    case STMT_SET:
        if (stmt->target->kind == TARGET_NAME && is_content(parts, stmt->expr))
            mark(parts, stmt->target->symbol);
        look_at_expr(parts, stmt->expr);
        break;
    case STMT_SET_BLOCK:
    case STMT_FILTER:
    case STMT_WITH:
    case STMT_SCOPE: look_at_body(parts, stmt->body); break;
    case STMT_MACRO: look_at_macro(parts, stmt->macro); break;
    case STMT_CALL:
        look_at_expr(parts, stmt->called);
        look_at_body(parts, stmt->macro->body);
        break;
    default: break;
    }
}

static void look_at_body(struct parts *parts, const struct stmt *body) {
    for (; body && !parts->walked; body = body->next) look_at_stmt(parts, body);
}

bool template_walks_content(struct jinja_template *template) {
    struct parts parts = {.changed = true};
    parts.holds = arena_alloc(&template->arena, template->symbol_count + 1);
    /* Content seldom passes through more than two variables or macros, so four rounds suffice. */
    for (int turn = 0; turn < 4 && parts.holds && parts.changed && !parts.walked; turn++) {
        parts.changed = false;
        look_at_body(&parts, template->body);
    }
    return parts.walked;
}
