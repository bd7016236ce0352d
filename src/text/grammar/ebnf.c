/* SPDX-License-Identifier: Apache-2.0 */
/* Rules as expressions: which of them may be empty, which begin with themselves, and their bodies.
 */
#include "grammar/ebnf.h"

#include "base/mem.h"
#include "grammar/ebnf_internal.h"

#include <stdlib.h>

#define NODE_DEPTH_MAX                                                                             \
    2000 /* nodes inside nodes and rules: each takes up to 0.5 KiB of the stack */

enum { NOT_SEEN, UNDER_WAY, SEEN };

/* --- rules that may be empty --- */

static bool node_is_nullable(const struct reading *reading, const struct node *node) {
    const struct node *nodes = reading->nodes;
    switch (node->kind) {
    case NODE_LEAF: return expr_is_nullable(reading->exprs, node->a);
    case NODE_REF: return nodes[reading->rules[node->a].node].is_nullable;
    case NODE_CAT: return nodes[node->a].is_nullable && nodes[node->b].is_nullable;
    case NODE_ALT: return nodes[node->a].is_nullable || nodes[node->b].is_nullable;
    case NODE_REPEAT: return node->min == 0 || nodes[node->a].is_nullable;
    }
    return false;
}

static void find_nullable(struct reading *reading) {
    for (bool is_new = true; is_new;) {
        is_new = false;
        if (!exprs_use_fuel(reading->exprs, reading->node_count)) return;
        for (size_t i = 0; i < reading->node_count; i++) {
            struct node *node = &reading->nodes[i];
            if (node->is_nullable || !node_is_nullable(reading, node)) continue;
            node->is_nullable = is_new = true;
        }
    }
}

/* --- rules that begin with themselves --- */

/* The alternatives of a rule that begin with it, without that beginning, and the others. EBNF_NONE:
 * there are none. */
struct alternatives {
    uint32_t again, others;
    bool has_own;
};

static uint32_t with(struct reading *reading, uint32_t alternatives, uint32_t one) {
    if (alternatives == EBNF_NONE) return one;
    return ebnf_add_node(reading, (struct node){.kind = NODE_ALT, .a = one, .b = alternatives});
}

static struct alternatives split(struct reading *reading, uint32_t rule) {
    struct alternatives found = {EBNF_NONE, EBNF_NONE, false};
    uint32_t at = reading->rules[rule].node;
    for (bool is_last = false; !is_last;) {
        struct node node = reading->nodes[at];
        is_last = node.kind != NODE_ALT;
        uint32_t one = is_last ? at : node.a;
        struct node first = reading->nodes[one];
        uint32_t behind = first.b;
        bool is_cat = first.kind == NODE_CAT;
        if (is_cat) first = reading->nodes[first.a];
        bool is_own = first.kind == NODE_REF && first.a == rule;
        /* An alternative that is the rule alone allows no new text. */
        found.has_own = found.has_own || is_own;
        if (is_own && is_cat) found.again = with(reading, found.again, behind);
        if (!is_own) found.others = with(reading, found.others, one);
        at = node.b;
    }
    return found;
}

/* rule ::= rule x | y becomes rule ::= y x*. */
static void turn_left_recursion(struct reading *reading, uint32_t rule) {
    struct alternatives found = split(reading, rule);
    if (!found.has_own || found.others == EBNF_NONE) return; /* without others: refused later */
    reading->rules[rule].node = found.others;
    if (found.again == EBNF_NONE) return;
    uint32_t more = ebnf_add_node(
        reading,
        (struct node){.kind = NODE_REPEAT, .a = found.again, .min = 0, .max = EXPR_NO_MAX});
    reading->rules[rule].node =
        ebnf_add_node(reading, (struct node){.kind = NODE_CAT, .a = found.others, .b = more});
}

/* Before a walk goes into a node. It comes back by depth--, also after an error. */
static enum err go_down(struct reading *reading) {
    if (++reading->depth <= NODE_DEPTH_MAX) return OK;
    return err_set(reading->error, ERR_LIMIT, "rules and parts are nested more than %d deep",
                   NODE_DEPTH_MAX);
}

static enum err check_begin(struct reading *reading, uint32_t index);

/* Checks the rules that a text of the node may begin with. */
static enum err check_begin_of(struct reading *reading, uint32_t at) {
    for (;;) {
        struct node node = reading->nodes[at];
        enum err err = OK;
        switch (node.kind) {
        case NODE_LEAF: return OK;
        case NODE_REF:
            err = go_down(reading);
            if (err == OK) err = check_begin(reading, node.a);
            reading->depth--;
            return err;
        case NODE_REPEAT: at = node.a; continue;
        case NODE_CAT:
        case NODE_ALT:
            err = go_down(reading);
            if (err == OK) err = check_begin_of(reading, node.a);
            reading->depth--;
            if (err != OK) return err;
            if (node.kind == NODE_CAT && !reading->nodes[node.a].is_nullable) return OK;
            at = node.b;
        }
    }
}

static enum err check_begin(struct reading *reading, uint32_t index) {
    struct rule *rule = &reading->rules[index];
    if (rule->state == SEEN) return OK;
    if (rule->state == UNDER_WAY)
        return ebnf_fail(reading, rule->line,
                         "the rule '%.*s' begins with itself, through other rules or through parts "
                         "that may be empty; this is not supported",
                         EBNF_NAME_ARGS(rule->name));
    rule->state = UNDER_WAY;
    enum err err = check_begin_of(reading, rule->node);
    reading->rules[index].state = SEEN;
    return err;
}

/* --- expressions --- */

static enum err compile_rule(struct reading *reading, uint32_t index, uint32_t *ret_expr);

static enum err compile_node(struct reading *reading, uint32_t at, uint32_t *ret_expr);

/* A chain of CAT or ALT nodes. */
static enum err compile_chain(struct reading *reading, uint32_t at, uint32_t *ret_expr) {
    struct exprs *exprs = reading->exprs;
    enum node_kind kind = reading->nodes[at].kind;
    uint32_t *parts = NULL, expr = EXPR_EMPTY;
    size_t count = 0, capacity = 0;
    enum err err = OK;
    for (bool is_last = false; err == OK && !is_last; at = reading->nodes[at].b) {
        is_last = reading->nodes[at].kind != kind;
        parts = vec_grow(parts, count, &capacity, sizeof *parts);
        err = compile_node(reading, is_last ? at : reading->nodes[at].a, &parts[count++]);
    }
    if (err == OK && kind == NODE_ALT) expr = expr_alt(exprs, parts, count);
    while (err == OK && kind == NODE_CAT && count > 0) expr = expr_cat(exprs, parts[--count], expr);
    free(parts);
    *ret_expr = expr;
    return err;
}

static enum err compile_shallow(struct reading *reading, uint32_t at, uint32_t *ret_expr) {
    struct node node = reading->nodes[at];
    uint32_t part = EXPR_NEVER;
    enum err err;
    if (!exprs_use_fuel(reading->exprs, 1))
        return err_set(reading->error, ERR_LIMIT, "the grammar is too large");
    switch (node.kind) {
    case NODE_LEAF: *ret_expr = node.a; return OK;
    case NODE_REF: return compile_rule(reading, node.a, ret_expr);
    case NODE_CAT:
    case NODE_ALT: return compile_chain(reading, at, ret_expr);
    case NODE_REPEAT:
        err = compile_node(reading, node.a, &part);
        if (err == OK) *ret_expr = expr_repeat(reading->exprs, part, node.min, node.max);
        return err;
    }
    return OK;
}

static enum err compile_node(struct reading *reading, uint32_t at, uint32_t *ret_expr) {
    enum err err = go_down(reading);
    if (err == OK) err = compile_shallow(reading, at, ret_expr);
    reading->depth--;
    return err;
}

/* A rule that does not come to itself is its body; any other one is a rule of the expressions. */
static enum err compile_rule(struct reading *reading, uint32_t index, uint32_t *ret_expr) {
    struct exprs *exprs = reading->exprs;
    struct rule *rule = &reading->rules[index];
    uint32_t body = EXPR_NEVER;
    bool is_nullable = reading->nodes[rule->node].is_nullable;
    if (rule->state == UNDER_WAY && rule->expr == EBNF_NONE)
        rule->expr = expr_rule(exprs, is_nullable);
    *ret_expr = rule->expr;
    if (rule->state != NOT_SEEN) return OK;
    rule->state = UNDER_WAY;
    enum err err = compile_node(reading, rule->node, &body);
    if (err != OK) return err;
    rule = &reading->rules[index];
    rule->state = SEEN;
    if (rule->expr != EBNF_NONE && !exprs->overflowed)
        expr_rule_body(exprs, rule->expr, body);
    else
        rule->expr = body;
    *ret_expr = rule->expr;
    return OK;
}

/* --- all --- */

static enum err find_start(struct reading *reading, uint32_t *ret_rule) {
    uint64_t rule;
    if (!map_get(&reading->names, STR("root"), &rule) &&
        !map_get(&reading->names, STR("start"), &rule))
        return err_set(reading->error, ERR_INVALID, "the grammar has no rule 'root'");
    *ret_rule = (uint32_t)rule;
    return OK;
}

static enum err compile(struct reading *reading, uint32_t *ret_expr) {
    uint32_t start;
    enum err err = ebnf_read(reading);
    if (err == OK) err = find_start(reading, &start);
    if (err != OK) return err;
    size_t count = reading->rule_count;
    for (size_t i = 0; i < count; i++) {
        const struct rule *rule = &reading->rules[i];
        if (rule->node == EBNF_NONE)
            return ebnf_fail(reading, rule->line, "the rule '%.*s' is not there",
                             EBNF_NAME_ARGS(rule->name));
    }
    for (size_t i = 0; i < count; i++) turn_left_recursion(reading, (uint32_t)i);
    find_nullable(reading);
    for (size_t i = 0; i < count && err == OK; i++) err = check_begin(reading, (uint32_t)i);
    for (size_t i = 0; i < count; i++) reading->rules[i].state = NOT_SEEN;
    if (err == OK) err = compile_rule(reading, start, ret_expr);
    if (err == OK && reading->exprs->overflowed)
        err = err_set(reading->error, ERR_LIMIT, "the grammar is too large");
    return err;
}

enum err ebnf_expr(struct exprs *exprs, struct str text, uint32_t *ret_expr, struct error *error) {
    struct reading reading = {.exprs = exprs, .text = text, .error = error};
    map_init(&reading.names);
    enum err err = compile(&reading, ret_expr);
    map_release(&reading.names);
    free(reading.rules);
    free(reading.nodes);
    return err;
}
