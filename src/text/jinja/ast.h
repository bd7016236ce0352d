/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ast: a parsed template, which the parser builds and the evaluator walks.
 *
 * Thread: any; immutable after jinja_template_open.
 * Memory: the arena of the template.
 * Invariant: the `left` of an expression is evaluated first, and its `parent` is the expression. So
 *     long chains (a + b + …, a.b.c|f|g) are walked with a loop, not by recursion. */

#include "jinja/arith.h"
#include "jinja/builtin.h"

enum expr_kind {
    /* expressions without `left` */
    EXPR_CONSTANT,
    EXPR_NAME,
    EXPR_LIST,
    EXPR_TUPLE,
    EXPR_DICT, /* items are keys and values in turn */
    EXPR_CONDITION,
    EXPR_INPUT, /* the text that a filter block gives to its filters */
    /* expressions with `left` */
    EXPR_NOT,
    EXPR_NEGATE,
    EXPR_POSITIVE,
    EXPR_ARITHMETIC,
    EXPR_JOIN,
    EXPR_AND,
    EXPR_OR,
    EXPR_COMPARE,
    EXPR_ATTRIBUTE,
    EXPR_ITEM,
    EXPR_SLICE,
    EXPR_CALL,
    EXPR_FILTER,
    EXPR_TEST,
};

enum comparison {
    COMPARE_EQUAL,
    COMPARE_UNEQUAL,
    COMPARE_LESS,
    COMPARE_LESS_EQUAL,
    COMPARE_GREATER,
    COMPARE_GREATER_EQUAL,
    COMPARE_IN,
    COMPARE_NOT_IN,
};

struct expr;

struct comparand { /* one link of a < b < c */
    enum comparison comparison;
    struct expr *right;
    struct comparand *next;
};

struct expr_item {
    struct expr *expr;
    struct expr_item *next;
};

struct keyword {
    struct str name;
    struct expr *value;
    struct keyword *next;
};

struct call {
    struct expr_item *values;
    struct keyword *keywords;
    size_t value_count;
    size_t keyword_count;
    struct expr *star;      /* *values; may be NULL */
    struct expr *star_star; /* **mapping; may be NULL */
};

struct expr {
    enum expr_kind kind;
    uint32_t line;
    struct expr *left;
    struct expr *parent;
    union {
        struct value constant;
        uint32_t symbol;
        struct str name; /* ATTRIBUTE */
        struct {
            struct expr_item *items;
            size_t item_count;
        };
        struct {
            struct expr *test, *then, *otherwise; /* otherwise may be NULL */
        };
        struct {
            enum operator operator;
            struct expr *right; /* also for JOIN, AND, OR and ITEM */
        };
        struct comparand *comparands;
        struct {
            struct expr *start, *stop, *step; /* each may be NULL */
        };
        struct {
            const struct builtin *builtin; /* FILTER, TEST; NULL: unknown, and fails when reached */
            struct str called;             /* name of the filter or test */
            struct call *call;             /* CALL; also FILTER and TEST, where it may be NULL */
        };
    };
};

enum target_kind { TARGET_NAME, TARGET_NAMESPACE, TARGET_TUPLE };

struct target {
    enum target_kind kind;
    uint32_t line;
    uint32_t symbol;
    struct str attribute; /* NAMESPACE */
    struct target *items; /* TUPLE */
    struct target *next;
    size_t item_count;
};

enum stmt_kind {
    STMT_TEXT,
    STMT_PRINT,
    STMT_IF,
    STMT_FOR,
    STMT_SET,
    STMT_SET_BLOCK,
    STMT_MACRO,
    STMT_CALL,
    STMT_FILTER,
    STMT_WITH,
    STMT_SCOPE, /* generation, block, autoescape */
    STMT_BREAK,
    STMT_CONTINUE,
};

struct param {
    uint32_t symbol;
    struct str name;
    struct expr *fallback; /* NULL: none */
    struct param *next;
};

/* Special names that the body of a macro uses; they change the arguments it may be called with. */
enum { USES_CALLER = 1, USES_VARARGS = 2, USES_KWARGS = 4 };

struct macro_def {
    struct str name; /* empty for the body of a call block */
    uint32_t symbol; /* symbol of the macro's name */
    struct param *params;
    size_t param_count;
    unsigned uses;
    uint32_t caller_symbol, varargs_symbol, kwargs_symbol;
    struct stmt *body;
};

struct branch {
    struct expr *test; /* NULL: else */
    struct stmt *body;
    struct branch *next;
};

struct binding {
    struct target *target;
    struct expr *value;
    struct binding *next;
};

struct stmt {
    enum stmt_kind kind;
    uint32_t line;
    struct stmt *next;
    union {
        struct str text;
        struct {
            struct expr *expr;     /* PRINT, SET; the filters of SET_BLOCK and FILTER; CALL */
            struct target *target; /* SET, SET_BLOCK, FOR */
            struct stmt *body;     /* SET_BLOCK, FILTER, FOR, WITH, SCOPE */
            struct stmt *otherwise;
            struct expr *condition; /* FOR */
            uint32_t loop_symbol;
            bool recursive;
            bool keeps_scope; /* a macro in the body may keep the scope of a turn */
            bool isolated;    /* SCOPE: only the outermost names are visible */
            struct binding *bindings;
        };
        struct branch *branches;
        struct {
            struct macro_def *macro; /* MACRO; the body of CALL */
            struct expr *called;     /* CALL */
        };
    };
};
