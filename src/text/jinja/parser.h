/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* parser: from lexemes to the ast, by recursive descent. The one internal header of parser.c,
 * parse_expr.c, parse_operand.c and parse_stmt.c.
 *
 * Thread: one per struct.
 * Memory: nodes lie in the arena of the template; the parser lives for one template_parse.
 * Invariant: `depth` counts every function that calls itself. */

#include "base/map.h"
#include "jinja/lexer.h"
#include "jinja/template.h"

struct parser {
    struct jinja_template *template;
    const struct lexeme *token; /* the next lexeme */
    struct error *error;
    struct map symbols;
    uint32_t symbol_capacity;
    unsigned depth;
    unsigned loops;      /* loops around this place that a break can end; a macro starts from 0 */
    unsigned for_loops;  /* loops around this place, also outside a macro */
    unsigned uses;       /* USES_ bits of the macro being parsed */
    bool keeps_scope;    /* a macro was defined inside the loop being parsed */
    bool defers_unknown; /* an unknown filter or test fails only when it is reached */
    struct str unknown;  /* the first unknown filter or test, when they fail at once */
    const char *unknown_kind;
    uint32_t unknown_line;
};

enum err parser_fail(struct parser *parser, const char *format, ...) PRINTF_LIKE(2, 3);
#define parser_fail(...) err_not_ok((parser_fail)(__VA_ARGS__))
/* Fails with "expected X, found Y". */
enum err parser_fail_expected(struct parser *parser, const char *expected);
#define parser_fail_expected(...) err_not_ok((parser_fail_expected)(__VA_ARGS__))
/* NULL, with the error set, when the arena is full. */
void *parser_alloc(struct parser *parser, size_t bytes);
enum err parser_enter(struct parser *parser) MUST_CHECK;
static inline void parser_leave(struct parser *parser) {
    parser->depth--;
}

bool parser_at_name(const struct parser *parser, const char *name);
/* Take the next lexeme if it is of the kind, or the name. */
bool parser_skip(struct parser *parser, enum lexeme_kind kind);
bool parser_skip_name(struct parser *parser, const char *name);
enum err parser_expect(struct parser *parser, enum lexeme_kind kind, const char *what) MUST_CHECK;
/* Takes a name of any kind. */
enum err parser_name(struct parser *parser, struct str *ret_name) MUST_CHECK;
enum err parser_symbol(struct parser *parser, struct str name, uint32_t *ret_symbol) MUST_CHECK;

enum err parse_expr_new(struct parser *parser, enum expr_kind kind, struct expr *left,
                        struct expr **ret_expr) MUST_CHECK;
/* Parses an expression; `… if … else …` only with `conditions`. */
enum err parse_expression(struct parser *parser, bool conditions,
                          struct expr **ret_expr) MUST_CHECK;
/* Parses one operand with its signs, attributes, items and calls; with `filters` also its filters
 * and tests. */
enum err parse_unary(struct parser *parser, bool filters, struct expr **ret_expr) MUST_CHECK;
/* Parses one expression, or a tuple of several with commas between them. */
enum err parse_tuple(struct parser *parser, bool conditions, struct expr **ret_expr) MUST_CHECK;
/* Parses `|filter|filter…` over `input`; with `inline_first` the first filter has no bar. */
enum err parse_filters(struct parser *parser, struct expr *input, bool inline_first,
                       struct expr **ret_expr) MUST_CHECK;
/* ERR_INVALID when an expression since the last call names an unknown filter or test. */
enum err parse_check_known(struct parser *parser) MUST_CHECK;

/* Parses the statements of the whole template. */
enum err parse_statements(struct parser *parser, struct stmt **ret_body) MUST_CHECK;
