/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* lexer: a template's source as lexemes: text, and the tokens inside tags.
 *
 * White space control (trim_blocks, lstrip_blocks, the signs - and +), comments and raw blocks are
 * handled here; the parser sees text as it will be written.
 *
 * Thread: any; pure.
 * Memory: lexemes and decoded strings lie in the given arena. */

#include "base/arena.h"
#include "base/err.h"

enum lexeme_kind {
    LEXEME_END,
    LEXEME_TEXT,
    LEXEME_PRINT_BEGIN, /* {{ */
    LEXEME_PRINT_END,
    LEXEME_BLOCK_BEGIN, /* {% */
    LEXEME_BLOCK_END,
    LEXEME_NAME,
    LEXEME_STRING, /* text: decoded */
    LEXEME_INTEGER,
    LEXEME_FLOAT,
    LEXEME_ADD,
    LEXEME_SUB,
    LEXEME_MUL,
    LEXEME_DIV,
    LEXEME_FLOOR_DIV,
    LEXEME_MOD,
    LEXEME_POW,
    LEXEME_TILDE,
    LEXEME_EQ,
    LEXEME_NE,
    LEXEME_LT,
    LEXEME_LE,
    LEXEME_GT,
    LEXEME_GE,
    LEXEME_ASSIGN,
    LEXEME_DOT,
    LEXEME_COMMA,
    LEXEME_COLON,
    LEXEME_SEMICOLON,
    LEXEME_PIPE,
    LEXEME_PAREN_OPEN,
    LEXEME_PAREN_CLOSE,
    LEXEME_BRACKET_OPEN,
    LEXEME_BRACKET_CLOSE,
    LEXEME_BRACE_OPEN,
    LEXEME_BRACE_CLOSE,
};

struct lexeme {
    enum lexeme_kind kind;
    uint32_t line;
    struct str text;
    union {
        int64_t integer;
        double real;
    };
};

/* Splits valid UTF-8 with normalised newlines; the last lexeme is LEXEME_END. ERR_INVALID with the
 * line for text that is no lexeme, ERR_LIMIT when the arena is full. */
enum err lexer_split(struct arena *arena, struct str source, struct lexeme **ret_tokens,
                     struct error *error) MUST_CHECK;
