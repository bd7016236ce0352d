/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/parser.h"

static enum err parse_body(struct parser *parser, const char *const *ends, const char *tag,
                           struct stmt **ret_body);

static enum err stmt_new(struct parser *parser, enum stmt_kind kind, struct stmt **ret_stmt) {
    struct stmt *stmt = parser_alloc(parser, sizeof *stmt);
    if (!stmt) return ERR_LIMIT;
    stmt->kind = kind;
    stmt->line = parser->token->line;
    *ret_stmt = stmt;
    return OK;
}

static enum err end_tag(struct parser *parser) {
    enum err err = parse_check_known(parser);
    return err ? err : parser_expect(parser, LEXEME_BLOCK_END, "'%}'");
}

/* The rest of the tag, the statements up to `{% END`, and that name. */
static enum err parse_block(struct parser *parser, const char *end, struct stmt **ret_body) {
    const char *const ends[] = {end, NULL};
    enum err err = parse_check_known(parser);
    parser_skip(parser, LEXEME_COLON); /* which Jinja allows, for Python's sake */
    if (!err) err = end_tag(parser);
    if (!err) err = parse_body(parser, ends, end, ret_body);
    if (!err) parser->token++;
    return err;
}

static enum err target_new(struct parser *parser, enum target_kind kind,
                           struct target **ret_target) {
    struct target *target = parser_alloc(parser, sizeof *target);
    if (!target) return ERR_LIMIT;
    target->kind = kind;
    target->line = parser->token->line;
    *ret_target = target;
    return OK;
}

static enum err parse_target_name(struct parser *parser, struct target **ret_target) {
    static const char *const constants[] = {"true", "True", "false", "False", "none", "None"};
    struct str name;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (parser_at_name(parser, constants[i]))
            return parser_fail(parser, "'%s' cannot be assigned to", constants[i]);
    if (parser->for_loops > 0 && parser_at_name(parser, "loop"))
        return parser_fail(parser, "'loop' cannot be assigned to within a loop");
    struct target *target;
    enum err err = target_new(parser, TARGET_NAME, &target);
    if (!err) err = parser_name(parser, &name);
    if (!err) err = parser_symbol(parser, name, &target->symbol);
    if (!err) *ret_target = target;
    return err;
}

static enum err parse_target(struct parser *parser, bool namespaces, struct target **ret_target);

/* A name, namespace.attribute, or targets in parentheses. */
static enum err parse_one_target(struct parser *parser, bool namespaces,
                                 struct target **ret_target) {
    if (parser->token->kind == LEXEME_PAREN_OPEN) {
        enum err err = parser_enter(parser);
        parser->token++;
        if (!err) err = parse_target(parser, namespaces, ret_target);
        if (!err) err = parser_expect(parser, LEXEME_PAREN_CLOSE, "')'");
        parser_leave(parser);
        return err;
    }
    enum err err = parse_target_name(parser, ret_target);
    if (!err && namespaces && parser_skip(parser, LEXEME_DOT)) {
        (*ret_target)->kind = TARGET_NAMESPACE;
        err = parser_name(parser, &(*ret_target)->attribute);
    }
    return err;
}

/* One target, or several with commas between them. */
static enum err parse_target(struct parser *parser, bool namespaces, struct target **ret_target) {
    struct target *first, *tuple;
    enum err err = parse_one_target(parser, namespaces, &first);
    if (err) return err;
    if (parser->token->kind != LEXEME_COMMA) {
        *ret_target = first;
        return OK;
    }
    err = target_new(parser, TARGET_TUPLE, &tuple);
    if (err) return err;
    tuple->items = first;
    tuple->item_count = 1;
    for (struct target *last = first; parser_skip(parser, LEXEME_COMMA); last = last->next) {
        if (parser->token->kind == LEXEME_PAREN_CLOSE || parser->token->kind == LEXEME_BLOCK_END)
            break;
        err = parse_one_target(parser, namespaces, &last->next);
        if (err) return err;
        tuple->item_count++;
    }
    *ret_target = tuple;
    return OK;
}

static enum err parse_if(struct parser *parser, struct stmt **ret_stmt) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct stmt *stmt;
    bool defers = parser->defers_unknown;
    enum err err = stmt_new(parser, STMT_IF, &stmt);
    if (err) return err;
    struct branch **end = &stmt->branches;
    parser->defers_unknown = true;
    for (bool more = true, is_else = false; !err && more;) {
        struct branch *branch = parser_alloc(parser, sizeof *branch);
        if (!branch) return ERR_LIMIT;
        *end = branch;
        end = &branch->next;
        if (is_else) {
            err = parse_block(parser, "endif", &branch->body);
            break;
        }
        err = parse_tuple(parser, false, &branch->test);
        parser_skip(parser, LEXEME_COLON);
        if (!err) err = end_tag(parser);
        if (!err) err = parse_body(parser, ends, "endif", &branch->body);
        if (err) return err;
        is_else = parser_at_name(parser, "else");
        more = !parser_at_name(parser, "endif");
        parser->token++;
    }
    parser->defers_unknown = defers;
    if (!err) *ret_stmt = stmt;
    return err;
}

/* The head of a loop, between `{% for` and its body. */
static enum err parse_for_head(struct parser *parser, struct stmt *stmt) {
    enum err err = parse_target(parser, false, &stmt->target);
    if (err) return err;
    if (!parser_skip_name(parser, "in")) return parser_fail_expected(parser, "'in'");
    err = parse_tuple(parser, false, &stmt->expr);
    if (!err) err = parse_check_known(parser);
    parser->defers_unknown = false;
    if (!err && parser_skip_name(parser, "if"))
        err = parse_expression(parser, true, &stmt->condition);
    stmt->recursive = parser_skip_name(parser, "recursive");
    parser_skip(parser, LEXEME_COLON);
    return err ? err : end_tag(parser);
}

static enum err parse_for(struct parser *parser, struct stmt **ret_stmt) {
    static const char *const ends[] = {"else", "endfor", NULL};
    bool defers = parser->defers_unknown, keeps_scope = parser->keeps_scope;
    struct stmt *stmt;
    enum err err = stmt_new(parser, STMT_FOR, &stmt);
    if (!err) err = parser_symbol(parser, STR("loop"), &stmt->loop_symbol);
    if (err) return err;
    parser->keeps_scope = false;
    parser->for_loops++;
    parser->loops++;
    err = parse_for_head(parser, stmt);
    if (!err) err = parse_body(parser, ends, "endfor", &stmt->body);
    parser->loops--;
    if (!err && parser_skip_name(parser, "else")) {
        err = parse_block(parser, "endfor", &stmt->otherwise);
    } else if (!err) {
        parser->token++;
    }
    parser->for_loops--;
    stmt->keeps_scope = parser->keeps_scope;
    parser->keeps_scope |= keeps_scope;
    parser->defers_unknown = defers;
    if (!err) *ret_stmt = stmt;
    return err;
}

static enum err parse_set(struct parser *parser, struct stmt **ret_stmt) {
    struct stmt *stmt;
    enum err err = stmt_new(parser, STMT_SET, &stmt);
    if (!err) err = parse_target(parser, true, &stmt->target);
    if (err) return err;
    *ret_stmt = stmt;
    if (parser_skip(parser, LEXEME_ASSIGN)) return parse_tuple(parser, true, &stmt->expr);
    stmt->kind = STMT_SET_BLOCK;
    bool defers = parser->defers_unknown;
    parser->defers_unknown = false;
    struct expr *input;
    err = parse_expr_new(parser, EXPR_INPUT, NULL, &input);
    if (!err) err = parse_filters(parser, input, false, &stmt->expr);
    if (!err) err = parse_block(parser, "endset", &stmt->body);
    parser->defers_unknown = defers;
    return err;
}

static enum err parse_params(struct parser *parser, struct macro_def *macro) {
    struct param **end = &macro->params;
    bool fallbacks = false;
    enum err err = parser_expect(parser, LEXEME_PAREN_OPEN, "'('");
    while (!err && !parser_skip(parser, LEXEME_PAREN_CLOSE)) {
        if (macro->param_count > 0) {
            err = parser_expect(parser, LEXEME_COMMA, "',' or ')'");
            if (err) return err;
        }
        struct param *param = parser_alloc(parser, sizeof *param);
        if (!param) return ERR_LIMIT;
        err = parser_name(parser, &param->name);
        if (!err) err = parser_symbol(parser, param->name, &param->symbol);
        if (!err && parser_skip(parser, LEXEME_ASSIGN)) {
            fallbacks = true;
            err = parse_expression(parser, true, &param->fallback);
        } else if (!err && fallbacks) {
            err = parser_fail(parser, "a parameter without a default follows one with a default");
        }
        *end = param;
        end = &param->next;
        macro->param_count++;
    }
    return err;
}

/* The body of a macro or call block. It cannot break out of loops around it. */
static enum err parse_macro_body(struct parser *parser, const char *end, struct macro_def *macro) {
    unsigned loops = parser->loops, uses = parser->uses;
    bool defers = parser->defers_unknown;
    enum err err = parser_symbol(parser, STR("caller"), &macro->caller_symbol);
    if (!err) err = parser_symbol(parser, STR("varargs"), &macro->varargs_symbol);
    if (!err) err = parser_symbol(parser, STR("kwargs"), &macro->kwargs_symbol);
    if (err) return err;
    parser->loops = 0;
    parser->uses = 0;
    parser->defers_unknown = false;
    parser->keeps_scope = true;
    err = parse_block(parser, end, &macro->body);
    macro->uses = parser->uses;
    parser->uses |= uses;
    parser->defers_unknown = defers;
    parser->loops = loops;
    return err;
}

static enum err parse_macro(struct parser *parser, struct stmt **ret_stmt) {
    struct macro_def *macro = parser_alloc(parser, sizeof *macro);
    if (!macro) return ERR_LIMIT;
    struct stmt *stmt;
    enum err err = stmt_new(parser, STMT_MACRO, &stmt);
    if (!err) err = parser_name(parser, &macro->name);
    if (!err) err = parser_symbol(parser, macro->name, &macro->symbol);
    if (!err) err = parse_params(parser, macro);
    if (!err) err = parse_macro_body(parser, "endmacro", macro);
    if (err) return err;
    stmt->macro = macro;
    *ret_stmt = stmt;
    return OK;
}

static enum err parse_call(struct parser *parser, struct stmt **ret_stmt) {
    struct macro_def *macro = parser_alloc(parser, sizeof *macro);
    if (!macro) return ERR_LIMIT;
    struct stmt *stmt;
    enum err err = stmt_new(parser, STMT_CALL, &stmt);
    if (!err && parser->token->kind == LEXEME_PAREN_OPEN) err = parse_params(parser, macro);
    if (!err) err = parse_expression(parser, true, &stmt->called);
    if (!err && stmt->called->kind != EXPR_CALL) err = parser_fail_expected(parser, "a call");
    if (!err) err = parse_macro_body(parser, "endcall", macro);
    if (err) return err;
    stmt->macro = macro;
    *ret_stmt = stmt;
    return OK;
}

/* A body that Jinja compiles with names of its own. */
static enum err parse_inner(struct parser *parser, const char *end, struct stmt *stmt,
                            struct stmt **ret_stmt) {
    bool defers = parser->defers_unknown;
    parser->defers_unknown = false;
    enum err err = parse_block(parser, end, &stmt->body);
    parser->defers_unknown = defers;
    if (!err) *ret_stmt = stmt;
    return err;
}

static enum err parse_filter(struct parser *parser, struct stmt **ret_stmt) {
    struct stmt *stmt;
    struct expr *input;
    enum err err = stmt_new(parser, STMT_FILTER, &stmt);
    if (!err) err = parse_expr_new(parser, EXPR_INPUT, NULL, &input);
    if (!err) err = parse_filters(parser, input, true, &stmt->expr);
    return err ? err : parse_inner(parser, "endfilter", stmt, ret_stmt);
}

static enum err parse_with(struct parser *parser, struct stmt **ret_stmt) {
    struct stmt *stmt;
    enum err err = stmt_new(parser, STMT_WITH, &stmt);
    if (err) return err;
    struct binding **end = &stmt->bindings;
    while (!err && parser->token->kind != LEXEME_BLOCK_END) {
        if (stmt->bindings) err = parser_expect(parser, LEXEME_COMMA, "','");
        struct binding *binding = parser_alloc(parser, sizeof *binding);
        if (!binding) return ERR_LIMIT;
        if (!err) err = parse_target(parser, false, &binding->target);
        if (!err) err = parser_expect(parser, LEXEME_ASSIGN, "'='");
        if (!err) err = parse_expression(parser, true, &binding->value);
        *end = binding;
        end = &binding->next;
    }
    return err ? err : parse_inner(parser, "endwith", stmt, ret_stmt);
}

static enum err parse_generation(struct parser *parser, struct stmt **ret_stmt) {
    struct stmt *stmt;
    enum err err = stmt_new(parser, STMT_SCOPE, &stmt);
    return err ? err : parse_inner(parser, "endgeneration", stmt, ret_stmt);
}

static enum err parse_autoescape(struct parser *parser, struct stmt **ret_stmt) {
    struct stmt *stmt;
    if (!parser_skip_name(parser, "false") && !parser_skip_name(parser, "False"))
        return parser_fail(parser, "autoescape is only supported with false");
    enum err err = stmt_new(parser, STMT_SCOPE, &stmt);
    return err ? err : parse_inner(parser, "endautoescape", stmt, ret_stmt);
}

static enum err parse_named_block(struct parser *parser, struct stmt **ret_stmt) {
    struct stmt *stmt;
    struct str name, again;
    unsigned loops = parser->loops;
    enum err err = stmt_new(parser, STMT_SCOPE, &stmt);
    if (!err) err = parser_name(parser, &name);
    if (err) return err;
    stmt->isolated = !parser_skip_name(parser, "scoped");
    parser->loops = 0;
    err = parse_inner(parser, "endblock", stmt, ret_stmt);
    parser->loops = loops;
    if (!err && parser->token->kind == LEXEME_NAME) {
        err = parser_name(parser, &again);
        if (!err && !str_equals(name, again)) err = parser_fail(parser, "another block is open");
    }
    return err;
}

/* {% print a, b %} */
static enum err parse_print(struct parser *parser, struct stmt **ret_stmt) {
    struct stmt **end = ret_stmt;
    enum err err;
    do {
        err = stmt_new(parser, STMT_PRINT, end);
        if (!err) err = parse_expression(parser, true, &(*end)->expr);
        if (!err) end = &(*end)->next;
    } while (!err && parser_skip(parser, LEXEME_COMMA));
    return err;
}

static enum err parse_jump(struct parser *parser, enum stmt_kind kind, struct stmt **ret_stmt) {
    if (parser->loops == 0)
        return parser_fail(parser, "'%s' stands outside a loop",
                           kind == STMT_BREAK ? "break" : "continue");
    return stmt_new(parser, kind, ret_stmt);
}

static enum err parse_break(struct parser *parser, struct stmt **ret_stmt) {
    return parse_jump(parser, STMT_BREAK, ret_stmt);
}

static enum err parse_continue(struct parser *parser, struct stmt **ret_stmt) {
    return parse_jump(parser, STMT_CONTINUE, ret_stmt);
}

static const struct {
    const char *name;
    enum err (*parse)(struct parser *parser, struct stmt **ret_stmt);
} tags[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call},
    {"filter", parse_filter},
    {"with", parse_with},
    {"generation", parse_generation},
    {"autoescape", parse_autoescape},
    {"block", parse_named_block},
    {"print", parse_print},
    {"break", parse_break},
    {"continue", parse_continue},
};

/* A tag after its `{%`, up to and with the `%}` that ends the statement. */
static enum err parse_tag(struct parser *parser, struct stmt **ret_stmt) {
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (!parser_skip_name(parser, tags[i].name)) continue;
        enum err err = tags[i].parse(parser, ret_stmt);
        return err ? err : end_tag(parser);
    }
    if (parser->token->kind != LEXEME_NAME)
        return parser_fail_expected(parser, "the name of a tag");
    struct str name = parser->token->text;
    return parser_fail(parser, "the tag '%.*s' is not known, or not expected here",
                       (int)(name.bytes < 60 ? name.bytes : 60), name.at);
}

/* One piece of a template that is not an end tag. */
static enum err parse_piece(struct parser *parser, struct stmt **ret_stmt) {
    enum err err;
    if (parser->token->kind == LEXEME_TEXT) {
        err = stmt_new(parser, STMT_TEXT, ret_stmt);
        if (!err) (*ret_stmt)->text = parser->token->text;
        parser->token++;
        return err;
    }
    if (!parser_skip(parser, LEXEME_PRINT_BEGIN)) {
        parser->token++; /* {% */
        return parse_tag(parser, ret_stmt);
    }
    err = stmt_new(parser, STMT_PRINT, ret_stmt);
    if (!err) err = parse_tuple(parser, true, &(*ret_stmt)->expr);
    if (!err) err = parse_check_known(parser);
    return err ? err : parser_expect(parser, LEXEME_PRINT_END, "'}}'");
}

/* Whether the next tag is one of `ends`; if so its {% is taken. */
static bool at_end(struct parser *parser, const char *const *ends) {
    const struct lexeme *name = parser->token + 1;
    if (parser->token->kind != LEXEME_BLOCK_BEGIN || name->kind != LEXEME_NAME) return false;
    for (; ends && *ends; ends++) {
        if (!str_is(name->text, *ends)) continue;
        parser->token++;
        return true;
    }
    return false;
}

/* Statements up to one of the end tags, of which the parser then stands at the name. Without
 * `ends`: up to the end of the template. */
static enum err parse_body(struct parser *parser, const char *const *ends, const char *tag,
                           struct stmt **ret_body) {
    enum err err = parser_enter(parser);
    struct stmt *body = NULL, **end = &body;
    while (!err && !at_end(parser, ends)) {
        if (parser->token->kind == LEXEME_END) {
            if (!ends) break;
            return parser_fail(parser, "the template ends without '%s'", tag);
        }
        err = parse_piece(parser, end);
        while (!err && *end) end = &(*end)->next;
    }
    parser_leave(parser);
    if (!err) *ret_body = body;
    return err;
}

enum err parse_statements(struct parser *parser, struct stmt **ret_body) {
    return parse_body(parser, NULL, NULL, ret_body);
}
