/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/expr.h"

#include "base/mem.h"
#include "grammar/number.h"
#include "grammar/number_grid.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define SLOTS_FIRST 1024u

void exprs_init(struct exprs *exprs) {
    *exprs = (struct exprs){.fuel = EXPR_FUEL, .fuel_max = EXPR_FUEL};
    exprs->slots = mem_new(SLOTS_FIRST, sizeof *exprs->slots);
    exprs->slot_mask = SLOTS_FIRST - 1;
    exprs->capacity = SLOTS_FIRST / 2;
    exprs->at = mem_new(exprs->capacity, sizeof *exprs->at);
    exprs->at[EXPR_NEVER] =
        (struct expr){.kind = KIND_NEVER, .alive = ALIVE_NO, .row = NONE, .pruned = EXPR_NEVER};
    exprs->at[EXPR_EMPTY] = (struct expr){.kind = KIND_EMPTY,
                                          .alive = ALIVE_YES,
                                          .is_nullable = true,
                                          .row = NONE,
                                          .pruned = EXPR_EMPTY};
    exprs->count = 2;
    exprs->numbers = number_table_open();
}

void exprs_release(struct exprs *exprs) {
    free(exprs->at);
    free(exprs->members);
    free(exprs->sets);
    free(exprs->rules);
    free(exprs->slots);
    free(exprs->rows);
    number_table_close(exprs->numbers);
    number_grids_close(exprs->grids);
    *exprs = (struct exprs){0};
}

size_t exprs_bytes(const struct exprs *exprs) {
    return exprs->capacity * sizeof *exprs->at + exprs->member_capacity * sizeof *exprs->members +
           exprs->set_capacity * sizeof *exprs->sets + exprs->rule_capacity * sizeof *exprs->rules +
           exprs->row_capacity * sizeof *exprs->rows +
           (exprs->slot_mask + 1) * sizeof *exprs->slots;
}

/* --- one number for equal expressions --- */

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

static uint64_t hash_of(const struct exprs *exprs, const struct expr *expr) {
    uint64_t hash = mix(0x51, expr->kind);
    if (expr->kind == KIND_SET) {
        for (int i = 0; i < 4; i++) hash = mix(hash, exprs->sets[expr->a].words[i]);
    } else if (expr->kind == KIND_ALT || expr->kind == KIND_AND) {
        for (uint32_t i = 0; i < expr->b; i++) hash = mix(hash, exprs->members[expr->a + i]);
    } else {
        hash = mix(mix(mix(hash, expr->a), expr->b), expr->c);
    }
    return hash;
}

static bool is_equal(const struct exprs *exprs, const struct expr *a, const struct expr *b) {
    if (a->kind != b->kind) return false;
    if (a->kind == KIND_SET)
        return memcmp(&exprs->sets[a->a], &exprs->sets[b->a], sizeof *exprs->sets) == 0;
    if (a->kind == KIND_ALT || a->kind == KIND_AND)
        return a->b == b->b && memcmp(exprs->members + a->a, exprs->members + b->a,
                                      a->b * sizeof *exprs->members) == 0;
    return a->a == b->a && a->b == b->b && a->c == b->c;
}

/* The slot of an equal expression, or the free slot where it belongs. */
static uint32_t *slot_of(const struct exprs *exprs, const struct expr *expr) {
    size_t at = hash_of(exprs, expr) & exprs->slot_mask;
    while (exprs->slots[at] && !is_equal(exprs, &exprs->at[exprs->slots[at] - 1], expr))
        at = (at + 1) & exprs->slot_mask;
    return &exprs->slots[at];
}

static void fill_slots(struct exprs *exprs) {
    for (uint32_t i = 2; i < exprs->count; i++) *slot_of(exprs, &exprs->at[i]) = i + 1;
}

static void grow_slots(struct exprs *exprs) {
    if (exprs->count * 2 <= exprs->slot_mask) return;
    free(exprs->slots);
    exprs->slot_mask = exprs->slot_mask * 2 + 1;
    exprs->slots = mem_new(exprs->slot_mask + 1, sizeof *exprs->slots);
    fill_slots(exprs);
}

bool exprs_use_fuel(struct exprs *exprs, size_t amount) {
    if (exprs->fuel < amount) {
        exprs->fuel = 0;
        exprs->overflowed = true;
    }
    if (exprs->overflowed) return false;
    exprs->fuel -= (uint32_t)amount;
    return true;
}

static uint32_t overflow(struct exprs *exprs) {
    exprs->overflowed = true;
    return EXPR_NEVER;
}

/* Members and sets that the expression brings are the last of their pools; they go if it is known.
 */
static uint32_t intern(struct exprs *exprs, struct expr expr) {
    if (!exprs_use_fuel(exprs, 1)) return EXPR_NEVER;
    uint32_t *slot = slot_of(exprs, &expr);
    if (*slot) {
        if (expr.kind == KIND_SET) exprs->set_count = expr.a;
        if (expr.kind == KIND_ALT || expr.kind == KIND_AND) exprs->member_count = expr.a;
        return *slot - 1;
    }
    size_t most = exprs->is_sealed ? EXPR_COUNT_MAX : EXPR_COMPILED_MAX;
    if (exprs->count >= most) return overflow(exprs);
    expr.row = expr.pruned = NONE;
    exprs->at = vec_grow(exprs->at, exprs->count, &exprs->capacity, sizeof *exprs->at);
    exprs->at[exprs->count++] = expr;
    uint32_t number = (uint32_t)exprs->count - 1;
    *slot = number + 1;
    grow_slots(exprs);
    return number;
}

/* --- making expressions --- */

uint32_t expr_set(struct exprs *exprs, const struct byte_set *set) {
    uint64_t any = set->words[0] | set->words[1] | set->words[2] | set->words[3];
    if (any == 0 || exprs->overflowed) return EXPR_NEVER;
    exprs->sets =
        vec_grow(exprs->sets, exprs->set_count, &exprs->set_capacity, sizeof *exprs->sets);
    exprs->sets[exprs->set_count] = *set;
    return intern(exprs, (struct expr){.kind = KIND_SET, .a = (uint32_t)exprs->set_count++});
}

uint32_t expr_range(struct exprs *exprs, unsigned char first, unsigned char last) {
    struct byte_set set = {{0}};
    for (unsigned byte = first; byte <= last; byte++) byte_set_add(&set, (unsigned char)byte);
    return expr_set(exprs, &set);
}

uint32_t expr_byte(struct exprs *exprs, unsigned char byte) {
    return expr_range(exprs, byte, byte);
}

uint32_t expr_bytes(struct exprs *exprs, struct str text) {
    uint32_t rest = EXPR_EMPTY;
    for (size_t i = text.bytes; i-- > 0 && !exprs->overflowed;)
        rest = expr_cat(exprs, expr_byte(exprs, (unsigned char)text.at[i]), rest);
    return rest;
}

static uint32_t make_cat(struct exprs *exprs, uint32_t first, uint32_t rest) {
    if (first == EXPR_NEVER || rest == EXPR_NEVER) return EXPR_NEVER;
    if (first == EXPR_EMPTY) return rest;
    if (rest == EXPR_EMPTY) return first;
    const struct expr *one = &exprs->at[first], *other = &exprs->at[rest];
    return intern(exprs, (struct expr){.kind = KIND_CAT,
                                       .is_nullable = one->is_nullable && other->is_nullable,
                                       .has_counts = one->has_counts || other->has_counts,
                                       .a = first,
                                       .b = rest});
}

uint32_t expr_cat(struct exprs *exprs, uint32_t first, uint32_t rest) {
    if (rest == EXPR_NEVER) return EXPR_NEVER;
    if (exprs->at[first].kind != KIND_CAT || rest == EXPR_EMPTY)
        return make_cat(exprs, first, rest);
    /* The chain of `first` is made again with the rest at its end. */
    uint32_t few[64], *parts = few;
    size_t count = 0, capacity = sizeof few / sizeof *few;
    for (uint32_t at = first;; at = exprs->at[at].b) {
        if (count == capacity) {
            capacity *= 4;
            uint32_t *more = mem_alloc(capacity * sizeof *more);
            memcpy(more, parts, count * sizeof *more);
            if (parts != few) free(parts);
            parts = more;
        }
        bool is_last = exprs->at[at].kind != KIND_CAT;
        parts[count++] = is_last ? at : exprs->at[at].a;
        if (is_last) break;
    }
    while (count > 0) rest = make_cat(exprs, parts[--count], rest);
    if (parts != few) free(parts);
    return rest;
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* A list that parts are gathered in. */
struct gathered {
    uint32_t *at;
    size_t count, capacity;
};

static void gather(struct exprs *exprs, struct gathered *list, uint32_t part, enum expr_kind kind) {
    const struct expr *expr = &exprs->at[part];
    if (expr->kind == kind) {
        for (uint32_t i = 0; i < expr->b; i++)
            gather(exprs, list, exprs->members[exprs->at[part].a + i], kind);
        return;
    }
    list->at = vec_grow(list->at, list->count, &list->capacity, sizeof *list->at);
    list->at[list->count++] = part;
}

/* Puts all sets of the list together into one: their union, or what they share. */
static void join_sets(struct exprs *exprs, struct gathered *list, enum expr_kind kind) {
    struct byte_set joined;
    size_t sets = 0, kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct expr *expr = &exprs->at[list->at[i]];
        if (expr->kind != KIND_SET) {
            list->at[kept++] = list->at[i];
            continue;
        }
        const struct byte_set *set = &exprs->sets[expr->a];
        if (sets++ == 0) joined = *set;
        for (int k = 0; k < 4; k++) {
            if (kind == KIND_ALT)
                joined.words[k] |= set->words[k];
            else
                joined.words[k] &= set->words[k];
        }
    }
    list->count = kept;
    if (sets > 0) list->at[list->count++] = expr_set(exprs, &joined);
}

/* Sorts the list and drops repetitions and `neutral`. True if it holds `ruling`. */
static bool settle(struct gathered *list, uint32_t neutral, uint32_t ruling) {
    size_t kept = 0;
    bool is_ruled = false;
    if (list->count > 1) qsort(list->at, list->count, sizeof *list->at, compare);
    for (size_t i = 0; i < list->count; i++) {
        if (list->at[i] == ruling) is_ruled = true;
        if (list->at[i] == neutral || (kept > 0 && list->at[kept - 1] == list->at[i])) continue;
        list->at[kept++] = list->at[i];
    }
    list->count = kept;
    return is_ruled;
}

static uint32_t make_members(struct exprs *exprs, const struct gathered *list,
                             enum expr_kind kind) {
    if (exprs->member_count + list->count > EXPR_MEMBERS_MAX) return overflow(exprs);
    if (!exprs_use_fuel(exprs, list->count)) return EXPR_NEVER;
    bool is_nullable = kind == KIND_AND, has_counts = false;
    uint32_t first = (uint32_t)exprs->member_count;
    for (size_t i = 0; i < list->count; i++) {
        exprs->members = vec_grow(exprs->members, exprs->member_count, &exprs->member_capacity,
                                  sizeof *exprs->members);
        exprs->members[exprs->member_count++] = list->at[i];
        bool one = exprs->at[list->at[i]].is_nullable;
        has_counts = has_counts || (kind == KIND_ALT && exprs->at[list->at[i]].has_counts);
        is_nullable = kind == KIND_AND ? is_nullable && one : is_nullable || one;
    }
    return intern(exprs, (struct expr){.kind = (uint8_t)kind,
                                       .is_nullable = is_nullable,
                                       .has_counts = has_counts,
                                       .a = first,
                                       .b = (uint32_t)list->count});
}

static uint32_t make_many(struct exprs *exprs, const uint32_t *parts, size_t count,
                          enum expr_kind kind) {
    struct gathered list = {NULL, 0, 0};
    if (!exprs_use_fuel(exprs, count)) return EXPR_NEVER;
    uint32_t all = kind == KIND_AND ? expr_all(exprs) : EXPR_NEVER;
    uint32_t neutral = kind == KIND_AND ? all : EXPR_NEVER;
    for (size_t i = 0; i < count; i++) gather(exprs, &list, parts[i], kind);
    if (!exprs_use_fuel(exprs, list.count)) list.count = 0;
    join_sets(exprs, &list, kind);
    bool is_ruled = settle(&list, neutral, kind == KIND_AND ? EXPR_NEVER : NONE);
    uint32_t made;
    if (is_ruled)
        made = EXPR_NEVER;
    else if (list.count == 0)
        made = neutral;
    else
        made = list.count == 1 ? list.at[0] : make_members(exprs, &list, kind);
    free(list.at);
    return made;
}

uint32_t expr_alt(struct exprs *exprs, const uint32_t *parts, size_t count) {
    return make_many(exprs, parts, count, KIND_ALT);
}

uint32_t expr_and(struct exprs *exprs, const uint32_t *parts, size_t count) {
    return make_many(exprs, parts, count, KIND_AND);
}

uint32_t expr_alt2(struct exprs *exprs, uint32_t a, uint32_t b) {
    if (a == b || b == EXPR_NEVER) return a;
    if (a == EXPR_NEVER) return b;
    return expr_alt(exprs, (const uint32_t[]){a, b}, 2);
}

uint32_t expr_and2(struct exprs *exprs, uint32_t a, uint32_t b) {
    if (a == b) return a;
    return expr_and(exprs, (const uint32_t[]){a, b}, 2);
}

uint32_t expr_not(struct exprs *exprs, uint32_t part) {
    const struct expr *expr = &exprs->at[part];
    if (expr->kind == KIND_NOT) return expr->a;
    return intern(exprs,
                  (struct expr){.kind = KIND_NOT, .is_nullable = !expr->is_nullable, .a = part});
}

uint32_t expr_all(struct exprs *exprs) {
    return expr_not(exprs, EXPR_NEVER);
}

uint32_t expr_repeat(struct exprs *exprs, uint32_t part, uint32_t min, uint32_t max) {
    if (min > max) return EXPR_NEVER;
    if (max == 0 || part == EXPR_EMPTY) return EXPR_EMPTY;
    if (part == EXPR_NEVER) return min == 0 ? EXPR_EMPTY : EXPR_NEVER;
    if (min == 1 && max == 1) return part;
    if (exprs->at[part].is_nullable) min = 0;
    return intern(exprs, (struct expr){.kind = KIND_REPEAT,
                                       .is_nullable = min == 0,
                                       .has_counts = min > 1 || max != EXPR_NO_MAX,
                                       .a = part,
                                       .b = min,
                                       .c = max});
}

uint32_t expr_optional(struct exprs *exprs, uint32_t part) {
    return expr_alt2(exprs, EXPR_EMPTY, part);
}

uint32_t expr_leaf(struct exprs *exprs, enum expr_kind kind, uint32_t a, uint32_t b,
                   bool is_nullable) {
    return intern(exprs,
                  (struct expr){.kind = (uint8_t)kind, .is_nullable = is_nullable, .a = a, .b = b});
}

uint32_t expr_grid(struct exprs *exprs, uint32_t grid, uint64_t state, bool is_nullable) {
    return intern(exprs, (struct expr){.kind = KIND_GRID,
                                       .alive = ALIVE_YES,
                                       .is_nullable = is_nullable,
                                       .a = grid,
                                       .b = (uint32_t)state,
                                       .c = (uint32_t)(state >> 32)});
}

uint32_t expr_rule(struct exprs *exprs, bool is_nullable) {
    exprs->rules =
        vec_grow(exprs->rules, exprs->rule_count, &exprs->rule_capacity, sizeof *exprs->rules);
    exprs->rules[exprs->rule_count] = EXPR_NEVER;
    return intern(exprs, (struct expr){.kind = KIND_RULE,
                                       .is_nullable = is_nullable,
                                       .a = (uint32_t)exprs->rule_count++});
}

void expr_rule_body(struct exprs *exprs, uint32_t rule, uint32_t body) {
    if (exprs->overflowed) return;
    assert(exprs->at[rule].kind == KIND_RULE);
    assert(exprs->at[rule].is_nullable == exprs->at[body].is_nullable || body == EXPR_NEVER);
    exprs->rules[exprs->at[rule].a] = body;
}

void exprs_reset(struct exprs *exprs) {
    exprs->count = exprs->sealed;
    exprs->member_count = exprs->sealed_members;
    exprs->set_count = exprs->sealed_sets;
    exprs->row_count = 0;
    exprs->overflowed = false;
    exprs->fuel = exprs->fuel_max;
    for (size_t i = 0; i < exprs->count; i++) {
        struct expr *expr = &exprs->at[i];
        expr->row = NONE;
        if (expr->pruned != NONE && expr->pruned >= exprs->sealed) expr->pruned = NONE;
    }
    memset(exprs->slots, 0, (exprs->slot_mask + 1) * sizeof *exprs->slots);
    fill_slots(exprs);
}

void exprs_shrink(struct exprs *exprs) {
    free(exprs->rows);
    exprs->rows = NULL;
    exprs->row_capacity = 0;
    exprs->capacity = exprs->sealed;
    exprs->at = mem_resize(exprs->at, exprs->capacity, sizeof *exprs->at);
    exprs->member_capacity = exprs->sealed_members;
    exprs->members = mem_resize(exprs->members, exprs->member_capacity + 1, sizeof *exprs->members);
    while (exprs->slot_mask / 2 > exprs->sealed * 2) exprs->slot_mask /= 2;
    exprs->slots = mem_resize(exprs->slots, exprs->slot_mask + 1, sizeof *exprs->slots);
    exprs_reset(exprs);
}
