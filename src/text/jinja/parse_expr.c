/* SPDX-License-Identifier: Apache-2.0 */

/* Expressions: the operators, from the weakest to the strongest; parse_operand.c has the
 * operands. */

#include "jinja/parser.h"

static enum err parse_or(struct parser *parser, struct expr **ret_expr);

enum err parse_expr_new(struct parser *parser, enum expr_kind kind, struct expr *left,
                        struct expr **ret_expr) {
    struct expr *expr = parser_alloc(parser, sizeof *expr);
    if (!expr) return ERR_LIMIT;
    expr->kind = kind;
    expr->line = parser->token->line;
    expr->left = left;
    if (left) left->parent = expr;
    *ret_expr = expr;
    return OK;
}

/* then if test else otherwise: `then` has been parsed. */
static enum err parse_condition(struct parser *parser, struct expr *then, struct expr **ret_expr) {
    struct expr *expr;
    bool defers = parser->defers_unknown;
    parser->defers_unknown = true;
    enum err err = parse_expr_new(parser, EXPR_CONDITION, NULL, &expr);
    if (!err) err = parse_or(parser, &expr->test);
    if (!err && parser_skip_name(parser, "else"))
        err = parse_expression(parser, true, &expr->otherwise);
    parser->defers_unknown = defers;
    if (err) return err;
    expr->then = then;
    *ret_expr = expr;
    return OK;
}

enum err parse_expression(struct parser *parser, bool conditions, struct expr **ret_expr) {
    struct str unknown = parser->unknown;
    struct expr *expr;
    enum err err = parser_enter(parser);
    if (!err) err = parse_or(parser, &expr);
    for (unsigned turns = 0; !err && conditions && parser_skip_name(parser, "if"); turns++) {
        /* Each turn puts the expression so far one level deeper. */
        if (turns + parser->depth >= JINJA_DEPTH_MAX)
            return err_set(parser->error, ERR_LIMIT, "line %u: the template nests deeper than %d",
                           parser->token->line, JINJA_DEPTH_MAX);
        parser->unknown = unknown;
        err = parse_condition(parser, expr, &expr);
    }
    parser_leave(parser);
    if (!err) *ret_expr = expr;
    return err;
}

/* Parses the right side of an operator whose left side is `left`. */
static enum err parse_right(struct parser *parser, enum expr_kind kind, struct expr *left,
                            enum err (*parse)(struct parser *parser, struct expr **ret_expr),
                            struct expr **ret_expr) {
    struct expr *expr;
    enum err err = parse_expr_new(parser, kind, left, &expr);
    if (!err) err = parse(parser, &expr->right);
    if (!err) *ret_expr = expr;
    return err;
}

static enum err parse_pow(struct parser *parser, struct expr **ret_expr) {
    enum err err = parse_unary(parser, true, ret_expr);
    while (!err && parser_skip(parser, LEXEME_POW)) {
        struct expr *expr;
        err = parse_expr_new(parser, EXPR_ARITHMETIC, *ret_expr, &expr);
        if (!err) err = parse_unary(parser, true, &expr->right);
        if (err) return err;
        expr->operator= OPERATOR_POWER;
        *ret_expr = expr;
    }
    return err;
}

static bool take_operator(struct parser *parser, const enum lexeme_kind *tokens,
                          const enum operator* operators, size_t count,
                          enum operator* ret_operator) {
    for (size_t i = 0; i < count; i++) {
        if (!parser_skip(parser, tokens[i])) continue;
        *ret_operator = operators[i];
        return true;
    }
    return false;
}

static enum err parse_product(struct parser *parser, struct expr **ret_expr) {
    static const enum lexeme_kind tokens[] = {LEXEME_MUL, LEXEME_DIV, LEXEME_FLOOR_DIV, LEXEME_MOD};
    static const enum operator operators[] = {OPERATOR_MULTIPLY, OPERATOR_DIVIDE,
                                              OPERATOR_FLOOR_DIVIDE, OPERATOR_REMAINDER};
    enum operator operator;
    enum err err = parse_pow(parser, ret_expr);
    while (!err && take_operator(parser, tokens, operators, 4, &operator)) {
        err = parse_right(parser, EXPR_ARITHMETIC, *ret_expr, parse_pow, ret_expr);
        if (!err) (*ret_expr)->operator= operator;
    }
    return err;
}

static enum err parse_join(struct parser *parser, struct expr **ret_expr) {
    enum err err = parse_product(parser, ret_expr);
    while (!err && parser_skip(parser, LEXEME_TILDE))
        err = parse_right(parser, EXPR_JOIN, *ret_expr, parse_product, ret_expr);
    return err;
}

static enum err parse_sum(struct parser *parser, struct expr **ret_expr) {
    static const enum lexeme_kind tokens[] = {LEXEME_ADD, LEXEME_SUB};
    static const enum operator operators[] = {OPERATOR_ADD, OPERATOR_SUBTRACT};
    enum operator operator;
    enum err err = parse_join(parser, ret_expr);
    while (!err && take_operator(parser, tokens, operators, 2, &operator)) {
        err = parse_right(parser, EXPR_ARITHMETIC, *ret_expr, parse_join, ret_expr);
        if (!err) (*ret_expr)->operator= operator;
    }
    return err;
}

static bool take_comparison(struct parser *parser, enum comparison *ret_comparison) {
    static const enum lexeme_kind tokens[] = {LEXEME_EQ, LEXEME_NE, LEXEME_LT,
                                              LEXEME_LE, LEXEME_GT, LEXEME_GE};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        if (!parser_skip(parser, tokens[i])) continue;
        *ret_comparison = (enum comparison)i;
        return true;
    }
    if (parser_skip_name(parser, "in")) {
        *ret_comparison = COMPARE_IN;
        return true;
    }
    const struct lexeme *next = parser->token + 1;
    if (!parser_at_name(parser, "not") || next->kind != LEXEME_NAME || !str_is(next->text, "in"))
        return false;
    parser->token += 2;
    *ret_comparison = COMPARE_NOT_IN;
    return true;
}

static enum err parse_compare(struct parser *parser, struct expr **ret_expr) {
    struct expr *expr = NULL;
    struct comparand **end = NULL;
    enum comparison comparison;
    enum err err = parse_sum(parser, ret_expr);
    while (!err && take_comparison(parser, &comparison)) {
        if (!expr) {
            err = parse_expr_new(parser, EXPR_COMPARE, *ret_expr, &expr);
            if (err) return err;
            end = &expr->comparands;
            *ret_expr = expr;
        }
        struct comparand *comparand = parser_alloc(parser, sizeof *comparand);
        if (!comparand) return ERR_LIMIT;
        comparand->comparison = comparison;
        *end = comparand;
        end = &comparand->next;
        err = parse_sum(parser, &comparand->right);
    }
    return err;
}

static enum err parse_not(struct parser *parser, struct expr **ret_expr) {
    unsigned count = 0;
    while (parser_skip_name(parser, "not")) count++;
    enum err err = parse_compare(parser, ret_expr);
    for (; !err && count > 0; count--) err = parse_expr_new(parser, EXPR_NOT, *ret_expr, ret_expr);
    return err;
}

static enum err parse_and(struct parser *parser, struct expr **ret_expr) {
    enum err err = parse_not(parser, ret_expr);
    while (!err && parser_skip_name(parser, "and"))
        err = parse_right(parser, EXPR_AND, *ret_expr, parse_not, ret_expr);
    return err;
}

static enum err parse_or(struct parser *parser, struct expr **ret_expr) {
    enum err err = parse_and(parser, ret_expr);
    while (!err && parser_skip_name(parser, "or"))
        err = parse_right(parser, EXPR_OR, *ret_expr, parse_and, ret_expr);
    return err;
}
