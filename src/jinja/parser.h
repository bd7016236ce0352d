/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* parser: tokens to ast, by recursive descent; shared by parser.c, parse_expr.c,
 * parse_operand.c and parse_stmt.c.
 *
 * Memory: nodes lie in the arena of the template; the parser itself lives for one
 * template_parse. Invariant: depth counts every function that calls itself. */

#include "base/map.h"
#include "jinja/lexer.h"
#include "jinja/template.h"

struct parser {
    struct jinja_template *template;
    const struct lexeme *token; /* the next one */
    struct error *error;
    struct map symbols;
    uint32_t symbol_capacity;
    unsigned depth;
    unsigned loops; /* that a break here would find */
    unsigned for_loops;
    unsigned uses; /* USES_ of the macro being parsed */
    bool keeps_scope;
    bool soft;          /* a filter that is not known fails only when it is reached */
    struct str unknown; /* the first filter or test that is not known */
    const char *unknown_kind;
    uint32_t unknown_line;
};

enum err parser_fail(struct parser *parser, const char *format, ...) PRINTF_LIKE(2, 3);
#define parser_fail(...) err_not_ok((parser_fail)(__VA_ARGS__))
/* "expected X, found Y". */
enum err parser_fail_expected(struct parser *parser, const char *expected);
#define parser_fail_expected(...) err_not_ok((parser_fail_expected)(__VA_ARGS__))
/* NULL, with the error set, when the arena is full. */
void *parser_alloc(struct parser *parser, size_t bytes);
enum err parser_enter(struct parser *parser) MUST_CHECK;
static inline void parser_leave(struct parser *parser) {
    parser->depth--;
}

bool parser_at_name(const struct parser *parser, const char *name);
/* Takes the token when it is of the kind, or the name. */
bool parser_skip(struct parser *parser, enum lexeme_kind kind);
bool parser_skip_name(struct parser *parser, const char *name);
enum err parser_expect(struct parser *parser, enum lexeme_kind kind, const char *what) MUST_CHECK;
/* Takes a name of any kind. */
enum err parser_name(struct parser *parser, struct str *ret_name) MUST_CHECK;
enum err parser_symbol(struct parser *parser, struct str name, uint32_t *ret_symbol) MUST_CHECK;

enum err parse_expr_new(struct parser *parser, enum expr_kind kind, struct expr *left,
                        struct expr **ret_expr) MUST_CHECK;
/* With or without `… if … else …`. */
enum err parse_expression(struct parser *parser, bool conditions,
                          struct expr **ret_expr) MUST_CHECK;
/* One operand with its signs and all that follows it; with `filters`, those and tests too. */
enum err parse_unary(struct parser *parser, bool filters, struct expr **ret_expr) MUST_CHECK;
/* One expression, or several with commas between them: a tuple. */
enum err parse_tuple(struct parser *parser, bool conditions, struct expr **ret_expr) MUST_CHECK;
/* `|filter|filter…` over `input`, the first one without its bar when `inline_first`. */
enum err parse_filters(struct parser *parser, struct expr *input, bool inline_first,
                       struct expr **ret_expr) MUST_CHECK;
/* ERR_INVALID when an expression since the last call names a filter or test that is not known. */
enum err parse_check_known(struct parser *parser) MUST_CHECK;

/* Statements up to the end of the template. */
enum err parse_statements(struct parser *parser, struct stmt **ret_body) MUST_CHECK;
