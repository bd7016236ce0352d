/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/parser.h"

#include <stdio.h>
#include <string.h>

enum err(parser_fail)(struct parser *parser, const char *format, ...) {
    char sentence[ERROR_TEXT_BYTES / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    return err_set(parser->error, ERR_INVALID, "line %u: %s", parser->token->line, sentence);
}

enum err(parser_fail_expected)(struct parser *parser, const char *expected) {
    const struct lexeme *token = parser->token;
    switch (token->kind) {
    case LEXEME_END:
        return parser_fail(parser, "expected %s, found the end of the template", expected);
    case LEXEME_TEXT: return parser_fail(parser, "expected %s, found text", expected);
    case LEXEME_PRINT_END:
    case LEXEME_BLOCK_END:
        return parser_fail(parser, "expected %s, found the end of the tag", expected);
    case LEXEME_STRING: return parser_fail(parser, "expected %s, found a string", expected);
    default:
        return parser_fail(parser, "expected %s, found '%.*s'", expected,
                           (int)(token->text.bytes < 60 ? token->text.bytes : 60), token->text.at);
    }
}

void *parser_alloc(struct parser *parser, size_t bytes) {
    void *memory = arena_alloc(&parser->template->arena, bytes);
    if (!memory) err_set(parser->error, ERR_LIMIT, "the template is too large");
    return memory;
}

enum err parser_enter(struct parser *parser) {
    if (parser->depth == JINJA_DEPTH_MAX)
        return err_set(parser->error, ERR_LIMIT, "line %u: the template nests deeper than %d",
                       parser->token->line, JINJA_DEPTH_MAX);
    parser->depth++;
    return OK;
}

bool parser_at_name(const struct parser *parser, const char *name) {
    return parser->token->kind == LEXEME_NAME && str_is(parser->token->text, name);
}

bool parser_skip(struct parser *parser, enum lexeme_kind kind) {
    if (parser->token->kind != kind) return false;
    if (kind != LEXEME_END) parser->token++;
    return true;
}

bool parser_skip_name(struct parser *parser, const char *name) {
    return parser_at_name(parser, name) && parser_skip(parser, LEXEME_NAME);
}

enum err parser_expect(struct parser *parser, enum lexeme_kind kind, const char *what) {
    return parser_skip(parser, kind) ? OK : parser_fail_expected(parser, what);
}

enum err parser_name(struct parser *parser, struct str *ret_name) {
    struct str name = parser->token->text;
    if (!parser_skip(parser, LEXEME_NAME)) return parser_fail_expected(parser, "a name");
    *ret_name = name;
    return OK;
}

enum err parser_symbol(struct parser *parser, struct str name, uint32_t *ret_symbol) {
    struct jinja_template *template = parser->template;
    uint64_t known;
    if (!map_put_new(&parser->symbols, name, template->symbol_count, &known)) {
        *ret_symbol = (uint32_t)known;
        return OK;
    }
    if (template->symbol_count == parser->symbol_capacity) {
        uint32_t capacity = parser->symbol_capacity ? parser->symbol_capacity * 2 : 32;
        struct str *grown = parser_alloc(parser, capacity * sizeof *grown);
        if (!grown) return ERR_LIMIT;
        if (template->symbol_count > 0)
            memcpy(grown, template->symbols, template->symbol_count * sizeof *grown);
        template->symbols = grown;
        parser->symbol_capacity = capacity;
    }
    template->symbols[template->symbol_count] = name;
    *ret_symbol = template->symbol_count++;
    return OK;
}

enum err template_parse(struct jinja_template *template, struct error *error) {
    struct lexeme *tokens;
    struct parser parser = {.template = template, .error = error};
    enum err err = lexer_split(&template->arena, template->source, &tokens, error);
    if (err) return err;
    parser.token = tokens;
    map_init(&parser.symbols);
    err = parse_statements(&parser, &template->body);
    map_release(&parser.symbols);
    if (!err) template->takes_parts = template_walks_content(template);
    return err;
}
