/* SPDX-License-Identifier: Apache-2.0 */
/* Derivatives: what is left of an expression after a byte (Brzozowski 1964), and which expressions
 * have a text at all. */
#include "base/mem.h"
#include "grammar/expr.h"
#include "grammar/number.h"
#include "grammar/number_grid.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define FEW 32
#define CLAMPED_PARTS 16
#define KNOWN_STEPS 16 /* steps that are known or simple, and take one fuel together */
#define SHORT_TEXTS 50 /* states looked at in the order of the lengths of their texts */

static uint32_t derive(struct exprs *exprs, uint32_t number, unsigned char byte);

/* The rest of each member, joined again. */
static uint32_t derive_members(struct exprs *exprs, const struct expr *expr, unsigned char byte) {
    uint32_t few[FEW], *rests = few;
    if (!exprs_use_fuel(exprs, expr->b / KNOWN_STEPS)) return EXPR_NEVER;
    if (expr->b > FEW) rests = mem_alloc(expr->b * sizeof *rests);
    size_t count = 0;
    bool is_never = false;
    for (uint32_t i = 0; i < expr->b && !is_never; i++) {
        uint32_t rest = derive(exprs, exprs->members[expr->a + i], byte);
        if (rest != EXPR_NEVER || expr->kind == KIND_AND) rests[count++] = rest;
        is_never = expr->kind == KIND_AND && rest == EXPR_NEVER;
    }
    uint32_t joined = EXPR_NEVER;
    if (!is_never)
        joined =
            expr->kind == KIND_ALT ? expr_alt(exprs, rests, count) : expr_and(exprs, rests, count);
    if (rests != few) free(rests);
    return joined;
}

static uint32_t derive_new(struct exprs *exprs, const struct expr *expr, unsigned char byte) {
    uint32_t rest;
    switch ((enum expr_kind)expr->kind) {
    case KIND_NEVER:
    case KIND_EMPTY: return EXPR_NEVER;
    case KIND_SET: return byte_set_has(&exprs->sets[expr->a], byte) ? EXPR_EMPTY : EXPR_NEVER;
    case KIND_CAT:
        rest = expr_cat(exprs, derive(exprs, expr->a, byte), expr->b);
        if (!exprs->at[expr->a].is_nullable) return rest;
        return expr_alt2(exprs, rest, derive(exprs, expr->b, byte));
    case KIND_ALT:
    case KIND_AND: return derive_members(exprs, expr, byte);
    case KIND_NOT: return expr_not(exprs, derive(exprs, expr->a, byte));
    case KIND_REPEAT:
        rest = derive(exprs, expr->a, byte);
        if (rest == EXPR_NEVER) return EXPR_NEVER;
        return expr_cat(exprs, rest,
                        expr_repeat(exprs, expr->a, expr->b > 0 ? expr->b - 1 : 0,
                                    expr->c == EXPR_NO_MAX ? EXPR_NO_MAX : expr->c - 1));
    case KIND_RULE: return derive(exprs, exprs->rules[expr->a], byte);
    case KIND_BOUND:
    case KIND_MULTIPLE:
        return number_derive(exprs, (enum expr_kind)expr->kind, expr->a, expr->b, byte);
    case KIND_GRID:
        return number_grid_derive(exprs, expr->a, (uint64_t)expr->c << 32 | expr->b, byte);
    }
    return EXPR_NEVER;
}

/* The place where the derivative by the class of `byte` is kept. */
static uint32_t *place_of(struct exprs *exprs, uint32_t number, unsigned char byte) {
    struct expr *expr = &exprs->at[number];
    if (expr->row == NONE) {
        size_t need = exprs->row_count + exprs->class_count;
        if (need > EXPR_ROW_INTS_MAX) {
            exprs->overflowed = true;
            return NULL;
        }
        while (need > exprs->row_capacity)
            exprs->rows = vec_grow(exprs->rows, exprs->row_capacity, &exprs->row_capacity,
                                   sizeof *exprs->rows);
        expr->row = (uint32_t)exprs->row_count;
        memset(exprs->rows + expr->row, 0xff, exprs->class_count * sizeof *exprs->rows);
        exprs->row_count = need;
    }
    return &exprs->rows[expr->row + exprs->class_of[byte]];
}

/* Kinds whose derivative is found at once, without a table. */
static bool is_simple(const struct exprs *exprs, const struct expr *expr) {
    return expr->kind <= KIND_SET || expr->kind == KIND_RULE ||
           (expr->kind == KIND_CAT && exprs->at[expr->a].kind == KIND_SET);
}

static uint32_t derive(struct exprs *exprs, uint32_t number, unsigned char byte) {
    if (exprs->overflowed) return EXPR_NEVER;
    struct expr expr = exprs->at[number];
    uint32_t *place = NULL;
    if (exprs->is_sealed && !is_simple(exprs, &expr)) {
        place = place_of(exprs, number, byte);
        if (place && *place != NONE) return *place;
    }
    if (exprs->depth >= EXPR_DEPTH_MAX || exprs->fuel == 0) {
        exprs->overflowed = true;
        return EXPR_NEVER;
    }
    exprs->depth++;
    if (!is_simple(exprs, &expr)) exprs->fuel--;
    uint32_t rest = derive_new(exprs, &expr, byte);
    exprs->depth--;
    if (place && !exprs->overflowed && (place = place_of(exprs, number, byte))) *place = rest;
    return rest;
}

uint32_t expr_derive(struct exprs *exprs, uint32_t expr, unsigned char byte) {
    return derive(exprs, expr, byte);
}

bool expr_matches(struct exprs *exprs, uint32_t expr, struct str text) {
    for (size_t i = 0; i < text.bytes && expr != EXPR_NEVER; i++)
        expr = derive(exprs, expr, (unsigned char)text.at[i]);
    return exprs->at[expr].is_nullable;
}

/* --- expressions without a text --- */

static void split_classes(struct exprs *exprs, const struct byte_set *set) {
    uint32_t outside[256] = {0}, inside[256] = {0}, before = exprs->class_count;
    uint8_t split[256]; /* the new class of the bytes in the set, by their old one */
    for (unsigned byte = 0; byte < 256; byte++)
        (byte_set_has(set, (unsigned char)byte) ? inside : outside)[exprs->class_of[byte]]++;
    for (uint32_t k = 0; k < before; k++)
        split[k] = (uint8_t)(inside[k] && outside[k] ? exprs->class_count++ : k);
    if (exprs->class_count == before) return;
    for (unsigned byte = 0; byte < 256; byte++)
        if (byte_set_has(set, (unsigned char)byte))
            exprs->class_of[byte] = split[exprs->class_of[byte]];
}

/* Bytes that no set tells apart get one class; sets that came since the last time split classes. */
static void find_classes(struct exprs *exprs) {
    if (exprs->class_count == 0) {
        exprs->class_count = 1;
        /* Leaves of numbers tell each digit from the others. */
        for (const char *at = "0123456789."; *at; at++)
            exprs->class_of[(unsigned char)*at] = (uint8_t)exprs->class_count++;
    } else if (exprs->classed_sets == exprs->set_count) {
        return;
    }
    while (exprs->classed_sets < exprs->set_count)
        split_classes(exprs, &exprs->sets[exprs->classed_sets++]);
    memset(exprs->class_bytes, 0, sizeof exprs->class_bytes);
    for (unsigned byte = 256; byte-- > 0;) {
        exprs->byte_of[exprs->class_of[byte]] = (uint8_t)byte;
        exprs->class_bytes[exprs->class_of[byte]]++;
    }
}

/* The states met on the search for a text, each with the place of the one before it. */
struct search {
    uint32_t *states, *from;
    size_t count, states_capacity, from_capacity;
};

static void found(struct exprs *exprs, const struct search *search, size_t at) {
    while (exprs->at[search->states[at]].alive != ALIVE_YES) {
        exprs->at[search->states[at]].alive = ALIVE_YES;
        if (at == 0) break;
        at = search->from[at];
    }
}

/* Adds a state. True if it is known to have a text. */
static bool meet(struct exprs *exprs, struct search *search, uint32_t state, size_t from) {
    struct expr *expr = &exprs->at[state];
    if (expr->alive == ALIVE_NO || expr->mark == exprs->walk) return false;
    expr->mark = exprs->walk;
    search->states =
        vec_grow(search->states, search->count, &search->states_capacity, sizeof *search->states);
    search->from =
        vec_grow(search->from, search->count, &search->from_capacity, sizeof *search->from);
    search->states[search->count] = state;
    search->from[search->count++] = (uint32_t)from;
    if (!expr->is_nullable && expr->alive != ALIVE_YES) return false;
    found(exprs, search, search->count - 1);
    return true;
}

bool expr_is_alive(struct exprs *exprs, uint32_t number) {
    const struct expr *expr = &exprs->at[number];
    if (expr->is_nullable || expr->alive == ALIVE_YES) return true;
    if (expr->alive == ALIVE_NO) return false;
    /* A search would walk the count. */
    if (expr->kind == KIND_REPEAT) return expr_is_alive(exprs, expr->a);
    struct search search = {0};
    bool is_alive = false;
    if (!exprs->is_sealed) find_classes(exprs);
    /* Sets that a conjunction makes on the way are parts of sets that are classed. */
    const uint8_t *bytes = exprs->byte_of;
    uint32_t count = exprs->class_count;
    exprs->walk++;
    (void)meet(exprs, &search, number, 0);
    assert(search.count == 1);
    /* Short texts are looked for first; then the newest state, so that counts are walked to their
     * end. */
    size_t *open = NULL, open_first = 0, open_count = 0, open_capacity = 0;
    open = vec_grow(open, open_count, &open_capacity, sizeof *open);
    open[open_count++] = 0;
    while (open_count > open_first && !is_alive && !exprs->overflowed) {
        size_t at = open_first < SHORT_TEXTS ? open[open_first++] : open[--open_count];
        if (!exprs_use_fuel(exprs, 1 + count / KNOWN_STEPS)) break;
        for (uint32_t i = 0; i < count && !is_alive; i++) {
            uint32_t next = derive(exprs, search.states[at], bytes[i]);
            size_t before = search.count;
            is_alive = meet(exprs, &search, next, at);
            if (is_alive || search.count == before) continue;
            open = vec_grow(open, open_count, &open_capacity, sizeof *open);
            open[open_count++] = before;
        }
        if (search.count > EXPR_ALIVE_MAX) exprs->overflowed = true;
    }
    for (size_t i = 0; i < search.count && !is_alive && !exprs->overflowed; i++)
        exprs->at[search.states[i]].alive = ALIVE_NO;
    free(open);
    free(search.states);
    free(search.from);
    return is_alive;
}

static uint32_t prune_members(struct exprs *exprs, const struct expr *expr) {
    uint32_t *parts = mem_alloc(expr->b * sizeof *parts);
    for (uint32_t i = 0; i < expr->b; i++)
        parts[i] = expr_pruned(exprs, exprs->members[expr->a + i]);
    uint32_t pruned = expr_alt(exprs, parts, expr->b);
    free(parts);
    return pruned;
}

/* Only a conjunction can have no text without being EXPR_NEVER; the rest of a chain was pruned when
 * it was compiled. */
uint32_t expr_pruned(struct exprs *exprs, uint32_t number) {
    struct expr expr = exprs->at[number];
    if (expr.pruned != NONE) return expr.pruned;
    uint32_t pruned = number;
    if (expr.kind == KIND_AND || expr.kind == KIND_NOT || expr.kind == KIND_BOUND ||
        expr.kind == KIND_MULTIPLE)
        pruned = expr_is_alive(exprs, number) ? number : EXPR_NEVER;
    else if (expr.kind == KIND_ALT)
        pruned = prune_members(exprs, &expr);
    else if (expr.kind == KIND_CAT)
        pruned = expr_cat(exprs, expr_pruned(exprs, expr.a), expr.b);
    if (!exprs->overflowed) exprs->at[number].pruned = pruned;
    return pruned;
}

uint32_t expr_step(struct exprs *exprs, uint32_t number, unsigned char byte) {
    const struct expr *expr = &exprs->at[number];
    if (expr->kind == KIND_CAT && exprs->at[expr->a].kind == KIND_SET)
        return byte_set_has(&exprs->sets[exprs->at[expr->a].a], byte) ? expr->b : EXPR_NEVER;
    uint32_t rest = derive(exprs, number, byte);
    if (rest <= EXPR_EMPTY || exprs->at[rest].pruned == rest) return rest;
    return expr_pruned(exprs, rest);
}

/* --- counts that do not matter --- */

static uint32_t clamp(struct exprs *exprs, uint32_t number, uint32_t bytes, int parts);

static uint32_t clamp_members(struct exprs *exprs, const struct expr *expr, uint32_t bytes,
                              int parts) {
    uint32_t *members = mem_alloc(expr->b * sizeof *members);
    for (uint32_t i = 0; i < expr->b; i++)
        members[i] = clamp(exprs, exprs->members[expr->a + i], bytes, parts);
    uint32_t clamped = expr_alt(exprs, members, expr->b);
    free(members);
    return clamped;
}

/* A conjunction is left as it is: there a count decides about other members' texts. A chain is as
 * long as the automaton's stack is deep, so only its first parts are looked at. */
static uint32_t clamp(struct exprs *exprs, uint32_t number, uint32_t bytes, int parts) {
    struct expr expr = exprs->at[number];
    if (parts == 0 || !expr.has_counts) return number;
    switch ((enum expr_kind)expr.kind) {
    case KIND_REPEAT: {
        if (exprs->at[expr.a].is_nullable) return number;
        uint32_t min = expr.b > bytes ? bytes + 1 : expr.b;
        uint32_t max = expr.c > bytes ? EXPR_NO_MAX : expr.c;
        return expr_repeat(exprs, expr.a, min, max);
    }
    case KIND_ALT: return clamp_members(exprs, &expr, bytes, parts - 1);
    case KIND_CAT: {
        uint32_t rest = clamp(exprs, expr.b, bytes, parts - 1);
        return expr_cat(exprs, clamp(exprs, expr.a, bytes, parts - 1), rest);
    }
    default: return number;
    }
}

uint32_t expr_clamped(struct exprs *exprs, uint32_t number, uint32_t bytes) {
    return clamp(exprs, number, bytes, CLAMPED_PARTS);
}

/* --- the end of a compile --- */

/* Whether an expression has a text, as far as is known. */
static bool has_text(const struct exprs *exprs, const bool *has, uint32_t number) {
    const struct expr *expr = &exprs->at[number];
    return has[number] || (expr->kind == KIND_RULE && has[exprs->rules[expr->a]]);
}

/* Which expressions have a text; a rule has one if its body has. */
static bool *find_productive(struct exprs *exprs, size_t count) {
    bool *has = mem_new(count, sizeof *has);
    for (bool is_new = true; is_new && exprs_use_fuel(exprs, count / KNOWN_STEPS);) {
        is_new = false;
        for (uint32_t i = 0; i < count; i++) {
            const struct expr *expr = &exprs->at[i];
            bool now = false;
            switch ((enum expr_kind)expr->kind) {
            case KIND_NEVER: break;
            case KIND_EMPTY:
            case KIND_SET: now = true; break;
            case KIND_CAT:
                now = has_text(exprs, has, expr->a) && has_text(exprs, has, expr->b);
                break;
            case KIND_ALT:
                for (uint32_t k = 0; k < expr->b; k++)
                    now = now || has_text(exprs, has, exprs->members[expr->a + k]);
                break;
            case KIND_REPEAT: now = expr->b == 0 || has_text(exprs, has, expr->a); break;
            case KIND_RULE: now = has_text(exprs, has, i); break;
            case KIND_AND:
            case KIND_NOT:
            case KIND_BOUND:
            case KIND_GRID:
            case KIND_MULTIPLE: now = true; break; /* checked where it is used: see rebuild */
            }
            if (now && !has[i]) has[i] = is_new = true;
        }
    }
    return has;
}

static uint32_t rebuild(struct exprs *exprs, const uint32_t *to, uint32_t number) {
    struct expr expr = exprs->at[number];
    switch ((enum expr_kind)expr.kind) {
    case KIND_CAT: return expr_cat(exprs, to[expr.a], to[expr.b]);
    case KIND_REPEAT: return expr_repeat(exprs, to[expr.a], expr.b, expr.c);
    case KIND_ALT: {
        uint32_t *parts = mem_alloc(expr.b * sizeof *parts);
        for (uint32_t i = 0; i < expr.b; i++) parts[i] = to[exprs->members[expr.a + i]];
        uint32_t joined = expr_alt(exprs, parts, expr.b);
        free(parts);
        return joined;
    }
    default: return number; /* conjunctions have no rules that could go */
    }
}

/* Rules without a text are taken out everywhere. Returns what `start` has become. */
static uint32_t drop_dead_rules(struct exprs *exprs, uint32_t start) {
    size_t count = exprs->count;
    bool *has = find_productive(exprs, count);
    bool all = true;
    for (size_t i = 0; i < count; i++) all = all && (has[i] || i == EXPR_NEVER);
    if (!all && !exprs->overflowed) {
        uint32_t *to = mem_alloc(count * sizeof *to);
        for (uint32_t i = 0; i < count; i++) to[i] = has[i] ? rebuild(exprs, to, i) : EXPR_NEVER;
        for (size_t i = 0; i < exprs->rule_count; i++) exprs->rules[i] = to[exprs->rules[i]];
        start = to[start];
        free(to);
    }
    free(has);
    return start;
}

uint32_t exprs_seal(struct exprs *exprs, uint32_t start) {
    start = drop_dead_rules(exprs, start);
    find_classes(exprs);
    exprs->is_sealed = true;
    exprs->fuel = exprs->fuel_max;
    start = expr_pruned(exprs, start);
    exprs->sealed = exprs->count;
    exprs->sealed_members = exprs->member_count;
    exprs->sealed_sets = exprs->set_count;
    return start;
}
