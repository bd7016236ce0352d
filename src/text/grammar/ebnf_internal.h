/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ebnf_internal: the rules of a grammar as trees, between ebnf_read.c, which reads them, and
 * ebnf.c, which makes expressions of them.
 *
 * Thread: as ebnf.h.
 * Memory: a reading owns its arrays; the text is borrowed.
 * Invariant: the parts of a node have lower numbers. */

#include "base/map.h"
#include "grammar/ebnf.h"

#define EBNF_NONE UINT32_MAX /* no node, no expression */

/* The arguments of printf's "%.*s" for a name in an error, which is cut to 60 bytes. */
#define EBNF_NAME_ARGS(name) (int)((name).bytes < 60 ? (name).bytes : 60), (name).at

enum node_kind {
    NODE_LEAF,   /* a: an expression without rules */
    NODE_REF,    /* a: a rule */
    NODE_CAT,    /* a, then b */
    NODE_ALT,    /* a or b */
    NODE_REPEAT, /* a, min to max times */
};

struct node {
    enum node_kind kind;
    uint32_t a, b;
    uint32_t min, max;
    bool is_nullable;
};

struct rule {
    struct str name; /* borrowed */
    uint32_t line;   /* line of its first use or definition */
    uint32_t node;   /* EBNF_NONE: not defined */
    uint32_t expr;   /* EBNF_NONE: not compiled, nor referred to while it is */
    uint8_t state;   /* state in the walk that is made over all rules */
};

struct reading {
    struct exprs *exprs;
    struct error *error;
    struct str text;
    size_t at;
    uint32_t line;
    bool is_lark;
    uint32_t depth; /* depth of groups while the text is read, then of nodes */
    struct map names;
    struct rule *rules; /* (rule_count) */
    size_t rule_count, rule_capacity;
    struct node *nodes; /* (node_count) */
    size_t node_count, node_capacity;
};

uint32_t ebnf_add_node(struct reading *reading, struct node node);
/* Reads all rules of the text. */
enum err ebnf_read(struct reading *reading);
/* Fails with the line. */
enum err ebnf_fail(struct reading *reading, uint32_t line, const char *format, ...)
    PRINTF_LIKE(3, 4);
#define ebnf_fail(...) err_not_ok((ebnf_fail)(__VA_ARGS__))
