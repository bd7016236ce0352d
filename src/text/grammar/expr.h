/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* expr: languages over bytes as expressions, and what is left of one after a byte.
 *
 * An expression is a regular expression with conjunction and negation, and with rules that may
 * refer to each other. Equal expressions have one number (hash consing), so a number is a state of
 * an automaton: its derivative by a byte is the next state. A rule that is under way stands inside
 * its rest, which is so the automaton's stack. States and their transitions are made when they are
 * first needed. Nothing here knows JSON or tokens.
 *
 * `exprs_seal` ends the compile. What is made later, while the automaton runs, is thrown away by
 * `exprs_reset`, so that the memory of a grammar stays below its limit.
 *
 * Thread: one at a time.
 * Memory: owns its tables, at most EXPR_COUNT_MAX expressions; past a limit `overflowed` is set and
 *     every expression made is EXPR_NEVER.
 * Invariant: the parts of an expression have lower numbers, except bodies of rules. Bodies of rules
 *     reach no rule again before a byte (no left recursion): expr_derive would not end. */

#include "base/str.h"

#define EXPR_NEVER 0u /* no text */
#define EXPR_EMPTY 1u /* the empty text */
#define EXPR_NO_MAX UINT32_MAX

#define EXPR_COUNT_MAX (250u * 1000)
#define EXPR_COMPILED_MAX (150u * 1000) /* most expressions before the seal */
#define EXPR_ROW_INTS_MAX (3u << 20)    /* transitions, 12 MiB */
#define EXPR_MEMBERS_MAX (1u << 20)     /* members of alternatives, 4 MiB */
#define EXPR_DEPTH_MAX 1500             /* parts inside parts while a derivative is made */
#define EXPR_ALIVE_MAX 10000 /* states looked at to see whether a conjunction has a text */
#define EXPR_FUEL 2000000u   /* expressions asked for by one compile */

enum expr_kind {
    KIND_NEVER,
    KIND_EMPTY,
    KIND_SET,      /* a: index of a byte_set */
    KIND_CAT,      /* a, then b; a is no KIND_CAT */
    KIND_ALT,      /* b members from index a on: any of them */
    KIND_AND,      /* b members from index a on: all of them */
    KIND_NOT,      /* every text that a is not */
    KIND_REPEAT,   /* a, b to c times */
    KIND_RULE,     /* a: index of a rule */
    KIND_BOUND,    /* number.h: a: index of a bound, b: its state */
    KIND_MULTIPLE, /* number.h: a: index of a multiple, b: its state */
    KIND_GRID,     /* number_grid.h: a: index of a grid, b and c: its state; it has a text */
};

enum expr_alive { ALIVE_UNKNOWN, ALIVE_NO, ALIVE_YES };

struct expr {
    uint8_t kind;
    uint8_t alive;        /* enum expr_alive: whether it has a text */
    bool is_nullable : 1; /* the empty text is one of its texts */
    bool is_closed : 1;   /* reach.h: behind the reach no plain character follows */
    bool has_counts : 1;  /* expr_clamped may change it */
    uint8_t reach;        /* reach.h: the reach + 1; 0: not known */
    uint32_t a, b, c;
    uint32_t row;    /* index of its transitions by class; UINT32_MAX: none yet */
    uint32_t pruned; /* the same without parts that have no text; UINT32_MAX: not known */
    uint32_t mark;   /* the last walk that met it */
};

struct byte_set {
    uint64_t words[4];
};

struct number_table;

struct exprs {
    struct expr *at; /* (count) */
    size_t count, capacity;
    uint32_t *members; /* (member_count) members of KIND_ALT and KIND_AND */
    size_t member_count, member_capacity;
    struct byte_set *sets; /* (set_count) */
    size_t set_count, set_capacity;
    uint32_t *rules; /* (rule_count) bodies */
    size_t rule_count, rule_capacity;
    uint32_t *slots; /* (slot_mask + 1) numbers + 1 by hash; 0: free */
    size_t slot_mask;
    uint32_t *rows; /* (row_count) transitions; UINT32_MAX: not known */
    size_t row_count, row_capacity;
    struct number_table *numbers; /* bounds and multiples; owned */
    struct number_grids *grids;   /* owned; NULL: none */

    uint8_t class_of[256];     /* bytes that no expression tells apart have one class */
    uint8_t byte_of[256];      /* a byte of each class */
    uint16_t class_bytes[256]; /* bytes of each class */
    uint32_t class_count;
    size_t classed_sets; /* the first sets, which the classes are made of; all after the seal */
    bool is_sealed;
    size_t sealed, sealed_members, sealed_sets;
    uint32_t walk;     /* number of the last walk */
    uint32_t fuel;     /* expressions that may still be asked for */
    uint32_t fuel_max; /* the most that the seal and a reset give (default EXPR_FUEL) */
    uint32_t depth;
    bool overflowed;
};

void exprs_init(struct exprs *exprs);
void exprs_release(struct exprs *exprs);
size_t exprs_bytes(const struct exprs *exprs); /* memory of its tables */

uint32_t expr_set(struct exprs *exprs, const struct byte_set *set);
uint32_t expr_byte(struct exprs *exprs, unsigned char byte);
uint32_t expr_range(struct exprs *exprs, unsigned char first, unsigned char last);
uint32_t expr_bytes(struct exprs *exprs, struct str text); /* exactly this text */
uint32_t expr_cat(struct exprs *exprs, uint32_t first, uint32_t rest);
/* Any or all of `count` parts. */
uint32_t expr_alt(struct exprs *exprs, const uint32_t *parts, size_t count);
uint32_t expr_and(struct exprs *exprs, const uint32_t *parts, size_t count);
uint32_t expr_alt2(struct exprs *exprs, uint32_t a, uint32_t b);
uint32_t expr_and2(struct exprs *exprs, uint32_t a, uint32_t b);
uint32_t expr_not(struct exprs *exprs, uint32_t part);
uint32_t expr_repeat(struct exprs *exprs, uint32_t part, uint32_t min, uint32_t max);
uint32_t expr_optional(struct exprs *exprs, uint32_t part);
uint32_t expr_all(struct exprs *exprs); /* every text */
/* A leaf of number.c; one of number_grid.c, whose state is `state`. */
uint32_t expr_leaf(struct exprs *exprs, enum expr_kind kind, uint32_t a, uint32_t b,
                   bool is_nullable);
uint32_t expr_grid(struct exprs *exprs, uint32_t grid, uint64_t state, bool is_nullable);
/* Takes `amount` of fuel. False, and it has overflowed without any left, if there is less. */
bool exprs_use_fuel(struct exprs *exprs, size_t amount);
/* A new rule without a body; `is_nullable` must become true of the body. */
uint32_t expr_rule(struct exprs *exprs, bool is_nullable);
void expr_rule_body(struct exprs *exprs, uint32_t rule, uint32_t body);

/* Removes rules that have no text, tells bytes apart by class, and prunes. Returns `start` as it is
 * then; EXPR_NEVER has no text. */
uint32_t exprs_seal(struct exprs *exprs, uint32_t start);
/* Forgets all expressions made since the seal. */
void exprs_reset(struct exprs *exprs);
/* The same, and gives their memory back. */
void exprs_shrink(struct exprs *exprs);

/* What may follow `byte` in the texts that begin with it. */
uint32_t expr_derive(struct exprs *exprs, uint32_t expr, unsigned char byte);
/* The same after the seal, kept for the next time, and EXPR_NEVER when no text is left. */
uint32_t expr_step(struct exprs *exprs, uint32_t number, unsigned char byte);
/* Whether the expression, which is regular, has a text. Sets `overflowed` if that takes too long.
 */
bool expr_is_alive(struct exprs *exprs, uint32_t expr);
/* The same expression without parts that have no text. */
uint32_t expr_pruned(struct exprs *exprs, uint32_t number);
/* True if the regular expression has the text. */
bool expr_matches(struct exprs *exprs, uint32_t expr, struct str text);
/* An expression that agrees with `number` on whether a text of at most `bytes` bytes can begin one
 * of its texts: counts that cannot matter are equal in it. */
uint32_t expr_clamped(struct exprs *exprs, uint32_t number, uint32_t bytes);

static inline bool expr_is_nullable(const struct exprs *exprs, uint32_t expr) {
    return exprs->at[expr].is_nullable;
}

static inline bool byte_set_has(const struct byte_set *set, unsigned char byte) {
    return set->words[byte / 64] >> (byte % 64) & 1;
}

static inline void byte_set_add(struct byte_set *set, unsigned char byte) {
    set->words[byte / 64] |= (uint64_t)1 << (byte % 64);
}
