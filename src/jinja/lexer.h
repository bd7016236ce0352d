/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* lexer: a template's source as tokens: text, and what stands within tags.
 *
 * White space control (trim_blocks, lstrip_blocks, the signs - and +), comments and raw blocks end
 * here; the parser sees text as it is to be written.
 *
 * Memory: tokens and decoded strings lie in the arena given. */

#include "base/arena.h"
#include "base/err.h"

enum token_kind {
    TOKEN_END,
    TOKEN_TEXT,
    TOKEN_PRINT_BEGIN, /* {{ */
    TOKEN_PRINT_END,
    TOKEN_BLOCK_BEGIN, /* {% */
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING, /* text: decoded */
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_ADD,
    TOKEN_SUB,
    TOKEN_MUL,
    TOKEN_DIV,
    TOKEN_FLOOR_DIV,
    TOKEN_MOD,
    TOKEN_POW,
    TOKEN_TILDE,
    TOKEN_EQ,
    TOKEN_NE,
    TOKEN_LT,
    TOKEN_LE,
    TOKEN_GT,
    TOKEN_GE,
    TOKEN_ASSIGN,
    TOKEN_DOT,
    TOKEN_COMMA,
    TOKEN_COLON,
    TOKEN_SEMICOLON,
    TOKEN_PIPE,
    TOKEN_PAREN_OPEN,
    TOKEN_PAREN_CLOSE,
    TOKEN_BRACKET_OPEN,
    TOKEN_BRACKET_CLOSE,
    TOKEN_BRACE_OPEN,
    TOKEN_BRACE_CLOSE,
};

struct token {
    enum token_kind kind;
    uint32_t line;
    struct str text;
    union {
        int64_t integer;
        double real;
    };
};

/* Splits valid UTF-8 with normalised newlines; the last token is TOKEN_END. ERR_INVALID with the
 * line for what is no token, ERR_LIMIT when the arena is full. */
enum err lexer_split(struct arena *arena, struct str source, struct token **ret_tokens,
                     struct error *error) MUST_CHECK;
