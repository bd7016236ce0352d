/* SPDX-License-Identifier: Apache-2.0 */

/* Operands: constants, names and lists, with the attributes, items, calls, filters and tests behind
 * them. */

#include "base/utf8.h"
#include "jinja/parser.h"
#include "jinja/text.h"

#include <string.h>

/* Most keyword arguments of one call. */
#define KEYWORDS_MAX 255

static enum err parse_primary(struct parser *parser, struct expr **ret_expr);
static enum err parse_postfix(struct parser *parser, struct expr *expr, struct expr **ret_expr);

enum err parse_check_known(struct parser *parser) {
    if (!parser->unknown.at) return OK;
    return err_set(parser->error, ERR_INVALID, "line %u: there is no %s named '%.*s'",
                   parser->unknown_line, parser->unknown_kind,
                   (int)(parser->unknown.bytes < 60 ? parser->unknown.bytes : 60),
                   parser->unknown.at);
}

/* Jinja lets a branch name filters that do not exist, as long as it is not taken. */
static void note_unknown(struct parser *parser, const char *kind, struct str name) {
    if (parser->defers_unknown || parser->unknown.at) return;
    parser->unknown = name;
    parser->unknown_kind = kind;
    parser->unknown_line = parser->token->line;
}

/* Adds an expression to a list of them. */
static enum err add_item(struct parser *parser, struct expr *item, struct expr_item ***end,
                         size_t *count) {
    struct expr_item *link = parser_alloc(parser, sizeof *link);
    if (!link) return ERR_LIMIT;
    link->expr = item;
    **end = link;
    *end = &link->next;
    (*count)++;
    return OK;
}

static bool at_tuple_end(const struct parser *parser) {
    enum lexeme_kind kind = parser->token->kind;
    return kind == LEXEME_PRINT_END || kind == LEXEME_BLOCK_END || kind == LEXEME_PAREN_CLOSE;
}

enum err parse_tuple(struct parser *parser, bool conditions, struct expr **ret_expr) {
    struct expr *tuple, *first;
    enum err err = parse_expression(parser, conditions, &first);
    if (err) return err;
    if (parser->token->kind != LEXEME_COMMA) {
        *ret_expr = first;
        return OK;
    }
    err = parse_expr_new(parser, EXPR_TUPLE, NULL, &tuple);
    if (err) return err;
    struct expr_item **end = &tuple->items;
    err = add_item(parser, first, &end, &tuple->item_count);
    while (!err && parser_skip(parser, LEXEME_COMMA) && !at_tuple_end(parser)) {
        struct expr *item;
        err = parse_expression(parser, conditions, &item);
        if (!err) err = add_item(parser, item, &end, &tuple->item_count);
    }
    *ret_expr = tuple;
    return err;
}

static enum err parse_parentheses(struct parser *parser, struct expr **ret_expr) {
    parser->token++;
    if (parser_skip(parser, LEXEME_PAREN_CLOSE))
        return parse_expr_new(parser, EXPR_TUPLE, NULL, ret_expr);
    enum err err = parse_tuple(parser, true, ret_expr);
    return err ? err : parser_expect(parser, LEXEME_PAREN_CLOSE, "')'");
}

/* [a, b] and {k: v, …}: items up to the closing token, keys and values in turn. */
static enum err parse_items(struct parser *parser, enum expr_kind kind, enum lexeme_kind close,
                            const char *close_name, struct expr **ret_expr) {
    struct expr *expr;
    enum err err = parse_expr_new(parser, kind, NULL, &expr);
    if (err) return err;
    struct expr_item **end = &expr->items;
    parser->token++;
    while (!parser_skip(parser, close)) {
        struct expr *item;
        if (expr->item_count > 0) {
            err = parser_expect(parser, LEXEME_COMMA, close_name);
            if (err) return err;
            if (parser_skip(parser, close)) break;
        }
        err = parse_expression(parser, true, &item);
        if (!err) err = add_item(parser, item, &end, &expr->item_count);
        if (!err && kind == EXPR_DICT) {
            err = parser_expect(parser, LEXEME_COLON, "':'");
            if (!err) err = parse_expression(parser, true, &item);
            if (!err) err = add_item(parser, item, &end, &expr->item_count);
        }
        if (err) return err;
    }
    *ret_expr = expr;
    return OK;
}

static enum err parse_constant(struct parser *parser, struct value value, struct expr **ret_expr) {
    enum err err = parse_expr_new(parser, EXPR_CONSTANT, NULL, ret_expr);
    if (!err) (*ret_expr)->constant = value;
    parser->token++;
    return err;
}

/* Strings that stand side by side are one. */
static enum err parse_string(struct parser *parser, struct expr **ret_expr) {
    size_t bytes = 0, at = 0;
    for (const struct lexeme *token = parser->token; token->kind == LEXEME_STRING; token++)
        bytes += token->text.bytes;
    struct text *text = parser_alloc(parser, sizeof *text);
    char *joined = parser_alloc(parser, bytes + 1);
    if (!text || !joined) return ERR_LIMIT;
    for (; parser->token[1].kind == LEXEME_STRING; parser->token++) {
        memcpy(joined + at, parser->token->text.at, parser->token->text.bytes);
        at += parser->token->text.bytes;
    }
    memcpy(joined + at, parser->token->text.at, parser->token->text.bytes);
    /* Counted here, since a constant must not be written to while it is shared. */
    *text = (struct text){
        .at = joined, .bytes = bytes, .points = utf8_count((struct str){joined, bytes})};
    return parse_constant(parser, (struct value){.kind = VALUE_TEXT, .text = text}, ret_expr);
}

static enum err parse_variable(struct parser *parser, struct expr **ret_expr) {
    struct str name = parser->token->text;
    if (str_is(name, "true") || str_is(name, "True"))
        return parse_constant(parser, value_bool(true), ret_expr);
    if (str_is(name, "false") || str_is(name, "False"))
        return parse_constant(parser, value_bool(false), ret_expr);
    if (str_is(name, "none") || str_is(name, "None"))
        return parse_constant(parser, value_none(), ret_expr);
    if (str_is(name, "caller")) parser->uses |= USES_CALLER;
    if (str_is(name, "varargs")) parser->uses |= USES_VARARGS;
    if (str_is(name, "kwargs")) parser->uses |= USES_KWARGS;
    enum err err = parse_expr_new(parser, EXPR_NAME, NULL, ret_expr);
    if (!err) err = parser_symbol(parser, name, &(*ret_expr)->symbol);
    parser->token++;
    return err;
}

static enum err parse_primary(struct parser *parser, struct expr **ret_expr) {
    const struct lexeme *token = parser->token;
    switch (token->kind) {
    case LEXEME_NAME: return parse_variable(parser, ret_expr);
    case LEXEME_STRING: return parse_string(parser, ret_expr);
    case LEXEME_INTEGER: return parse_constant(parser, value_int(token->integer), ret_expr);
    case LEXEME_FLOAT: return parse_constant(parser, value_float(token->real), ret_expr);
    case LEXEME_PAREN_OPEN: return parse_parentheses(parser, ret_expr);
    case LEXEME_BRACKET_OPEN:
        return parse_items(parser, EXPR_LIST, LEXEME_BRACKET_CLOSE, "',' or ']'", ret_expr);
    case LEXEME_BRACE_OPEN:
        return parse_items(parser, EXPR_DICT, LEXEME_BRACE_CLOSE, "',' or '}'", ret_expr);
    default: return parser_fail_expected(parser, "an expression");
    }
}

static enum err parse_keyword(struct parser *parser, struct call *call, struct keyword ***end) {
    struct keyword *keyword = parser_alloc(parser, sizeof *keyword);
    if (!keyword) return ERR_LIMIT;
    keyword->name = parser->token->text;
    if (call->keyword_count == KEYWORDS_MAX) return parser_fail(parser, "too many arguments");
    for (const struct keyword *at = call->keywords; at; at = at->next)
        if (str_equals(at->name, keyword->name))
            return parser_fail(parser, "keyword argument '%.*s' is repeated",
                               (int)(at->name.bytes < 60 ? at->name.bytes : 60), at->name.at);
    parser->token += 2;
    **end = keyword;
    *end = &keyword->next;
    call->keyword_count++;
    return parse_expression(parser, true, &keyword->value);
}

/* (a, b, k=c, *d, **e) */
static enum err parse_call_args(struct parser *parser, struct call **ret_call) {
    struct call *call = parser_alloc(parser, sizeof *call);
    if (!call) return ERR_LIMIT;
    struct expr_item **end = &call->values;
    struct keyword **keyword_end = &call->keywords;
    bool first = true;
    parser->token++;
    while (!parser_skip(parser, LEXEME_PAREN_CLOSE)) {
        enum err err = first ? OK : parser_expect(parser, LEXEME_COMMA, "',' or ')'");
        if (err) return err;
        if (!first && parser_skip(parser, LEXEME_PAREN_CLOSE)) break;
        first = false;
        struct expr *value;
        bool is_keyword =
            parser->token->kind == LEXEME_NAME && parser->token[1].kind == LEXEME_ASSIGN;
        if (!call->star && !call->star_star && parser_skip(parser, LEXEME_MUL)) {
            err = parse_expression(parser, true, &call->star);
        } else if (!call->star_star && parser_skip(parser, LEXEME_POW)) {
            err = parse_expression(parser, true, &call->star_star);
        } else if (is_keyword && !call->star_star) {
            err = parse_keyword(parser, call, &keyword_end);
        } else if (call->star || call->star_star || call->keywords) {
            err = parser_fail(parser, "a positional argument follows another kind");
        } else {
            err = parse_expression(parser, true, &value);
            if (!err) err = add_item(parser, value, &end, &call->value_count);
        }
        if (err) return err;
    }
    *ret_call = call;
    return OK;
}

/* a[b], a[b:c:d] */
static enum err parse_subscript(struct parser *parser, struct expr *left, struct expr **ret_expr) {
    struct expr *expr;
    struct expr *bounds[3] = {NULL, NULL, NULL};
    size_t count = 0;
    parser->token++;
    enum err err = parse_expr_new(parser, EXPR_ITEM, left, &expr);
    if (!err && parser->token->kind != LEXEME_COLON) err = parse_tuple(parser, true, &bounds[0]);
    while (!err && count < 2 && parser_skip(parser, LEXEME_COLON)) {
        count++;
        if (parser->token->kind != LEXEME_COLON && parser->token->kind != LEXEME_BRACKET_CLOSE)
            err = parse_expression(parser, true, &bounds[count]);
    }
    if (!err) err = parser_expect(parser, LEXEME_BRACKET_CLOSE, "']'");
    if (err) return err;
    if (count > 0) {
        expr->kind = EXPR_SLICE;
        expr->start = bounds[0];
        expr->stop = bounds[1];
        expr->step = bounds[2];
    } else {
        expr->right = bounds[0];
    }
    *ret_expr = expr;
    return OK;
}

static enum err parse_dot(struct parser *parser, struct expr *left, struct expr **ret_expr) {
    struct expr *expr;
    parser->token++;
    const struct lexeme *token = parser->token;
    if (token->kind == LEXEME_INTEGER) {
        enum err err = parse_expr_new(parser, EXPR_ITEM, left, &expr);
        if (!err) err = parse_constant(parser, value_int(token->integer), &expr->right);
        if (!err) *ret_expr = expr;
        return err;
    }
    enum err err = parse_expr_new(parser, EXPR_ATTRIBUTE, left, &expr);
    if (!err) err = parser_name(parser, &expr->name);
    if (!err) *ret_expr = expr;
    return err;
}

static enum err parse_call(struct parser *parser, struct expr *left, struct expr **ret_expr) {
    struct expr *expr;
    enum err err = parse_expr_new(parser, EXPR_CALL, left, &expr);
    if (!err) err = parse_call_args(parser, &expr->call);
    if (!err) *ret_expr = expr;
    return err;
}

static enum err parse_postfix(struct parser *parser, struct expr *expr, struct expr **ret_expr) {
    enum err err = OK;
    for (bool more = true; !err && more;) {
        switch (parser->token->kind) {
        case LEXEME_DOT: err = parse_dot(parser, expr, &expr); break;
        case LEXEME_BRACKET_OPEN: err = parse_subscript(parser, expr, &expr); break;
        case LEXEME_PAREN_OPEN: err = parse_call(parser, expr, &expr); break;
        default: more = false;
        }
    }
    if (!err) *ret_expr = expr;
    return err;
}

/* A name with dots, as Jinja allows for filters and tests. */
static enum err parse_dotted(struct parser *parser, struct str *ret_name) {
    enum err err = parser_name(parser, ret_name);
    while (!err && parser_skip(parser, LEXEME_DOT)) {
        struct str part;
        err = parser_name(parser, &part);
        if (!err) ret_name->bytes = (size_t)(part.at + part.bytes - ret_name->at);
    }
    return err;
}

enum err parse_filters(struct parser *parser, struct expr *input, bool inline_first,
                       struct expr **ret_expr) {
    enum err err = OK;
    struct expr *expr = input;
    while (!err && (inline_first || parser_skip(parser, LEXEME_PIPE))) {
        inline_first = false;
        err = parse_expr_new(parser, EXPR_FILTER, expr, &expr);
        if (!err) err = parse_dotted(parser, &expr->called);
        if (err) return err;
        expr->builtin = filter_find(expr->called);
        if (!expr->builtin) note_unknown(parser, "filter", expr->called);
        if (parser->token->kind == LEXEME_PAREN_OPEN) err = parse_call_args(parser, &expr->call);
    }
    if (!err) *ret_expr = expr;
    return err;
}

/* The one argument that a test may take without parentheses. */
static enum err parse_bare_argument(struct parser *parser, struct call **ret_call) {
    enum lexeme_kind kind = parser->token->kind;
    bool starts = kind == LEXEME_STRING || kind == LEXEME_INTEGER || kind == LEXEME_FLOAT ||
                  kind == LEXEME_BRACKET_OPEN || kind == LEXEME_BRACE_OPEN || kind == LEXEME_NAME;
    if (!starts || parser_at_name(parser, "else") || parser_at_name(parser, "or") ||
        parser_at_name(parser, "and"))
        return OK;
    if (parser_at_name(parser, "is"))
        return parser_fail(parser, "tests cannot be chained with 'is'");
    struct call *call = parser_alloc(parser, sizeof *call);
    if (!call) return ERR_LIMIT;
    struct expr_item **end = &call->values;
    struct expr *argument = NULL;
    enum err err = parse_primary(parser, &argument);
    if (!err) err = parse_postfix(parser, argument, &argument);
    if (!err) err = add_item(parser, argument, &end, &call->value_count);
    if (!err) *ret_call = call;
    return err;
}

static enum err parse_test(struct parser *parser, struct expr *left, struct expr **ret_expr) {
    struct expr *expr;
    parser->token++;
    bool negated = parser_skip_name(parser, "not");
    enum err err = parse_expr_new(parser, EXPR_TEST, left, &expr);
    if (!err) err = parse_dotted(parser, &expr->called);
    if (err) return err;
    expr->builtin = test_find(expr->called);
    if (!expr->builtin) note_unknown(parser, "test", expr->called);
    if (parser->token->kind == LEXEME_PAREN_OPEN) {
        err = parse_call_args(parser, &expr->call);
    } else {
        err = parse_bare_argument(parser, &expr->call);
    }
    if (!err && negated) err = parse_expr_new(parser, EXPR_NOT, expr, &expr);
    if (!err) *ret_expr = expr;
    return err;
}

static enum err parse_filter_chain(struct parser *parser, struct expr *expr,
                                   struct expr **ret_expr) {
    enum err err = OK;
    for (bool more = true; !err && more;) {
        if (parser->token->kind == LEXEME_PIPE) {
            err = parse_filters(parser, expr, false, &expr);
        } else if (parser_at_name(parser, "is")) {
            err = parse_test(parser, expr, &expr);
        } else if (parser->token->kind == LEXEME_PAREN_OPEN) {
            err = parse_call(parser, expr, &expr);
        } else {
            more = false;
        }
    }
    if (!err) *ret_expr = expr;
    return err;
}

enum err parse_unary(struct parser *parser, bool filters, struct expr **ret_expr) {
    struct expr *expr = NULL;
    enum err err;
    bool minus = parser->token->kind == LEXEME_SUB;
    if (parser_skip(parser, LEXEME_SUB) || parser_skip(parser, LEXEME_ADD)) {
        err = parser_enter(parser);
        if (!err) err = parse_unary(parser, false, &expr);
        parser_leave(parser);
        if (!err) err = parse_expr_new(parser, minus ? EXPR_NEGATE : EXPR_POSITIVE, expr, &expr);
    } else {
        err = parse_primary(parser, &expr);
    }
    if (!err) err = parse_postfix(parser, expr, &expr);
    if (!err && filters) err = parse_filter_chain(parser, expr, &expr);
    if (!err) *ret_expr = expr;
    return err;
}
