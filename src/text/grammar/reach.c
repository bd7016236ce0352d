/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/reach.h"

#include <assert.h>
#include <string.h>

#define NONE UINT32_MAX
#define PLACES_MAX 64 /* places inside a character that are looked at; more end the search */
#define CHAIN_MAX 253 /* characters that are looked at one after another; REACH_ANY - 1 */
#define UNKNOWN 0     /* struct expr.reach; other values are the reach + 1 */

/* The bytes that continue a character, and the place behind them. */
static const struct {
    unsigned char first, last;
    enum plain_place next;
} inside[] = {
    [PLAIN_ONE] = {0x80, 0xbf, PLAIN_WHOLE}, [PLAIN_TWO] = {0x80, 0xbf, PLAIN_ONE},
    [PLAIN_THREE] = {0x80, 0xbf, PLAIN_TWO}, [PLAIN_E0] = {0xa0, 0xbf, PLAIN_ONE},
    [PLAIN_ED] = {0x80, 0x9f, PLAIN_ONE},    [PLAIN_F0] = {0x90, 0xbf, PLAIN_TWO},
    [PLAIN_F4] = {0x80, 0x8f, PLAIN_TWO},
};

static enum plain_place first_step(unsigned char byte) {
    if (byte < 0x80) return byte >= 0x20 && byte != '"' && byte != '\\' ? PLAIN_WHOLE : PLAIN_NOT;
    if (byte < 0xc2 || byte > 0xf4) return PLAIN_NOT;
    if (byte < 0xe0) return PLAIN_ONE;
    if (byte < 0xf0) return byte == 0xe0 ? PLAIN_E0 : byte == 0xed ? PLAIN_ED : PLAIN_TWO;
    return byte == 0xf0 ? PLAIN_F0 : byte == 0xf4 ? PLAIN_F4 : PLAIN_THREE;
}

enum plain_place plain_step(enum plain_place place, unsigned char byte) {
    assert(place < PLAIN_NOT);
    if (place == PLAIN_WHOLE) return first_step(byte);
    return byte >= inside[place].first && byte <= inside[place].last ? inside[place].next
                                                                     : PLAIN_NOT;
}

/* States with their places inside a character. */
struct places {
    struct {
        uint32_t state;
        enum plain_place place;
    } at[PLACES_MAX];
    uint32_t count;
};

/* False if there are too many. */
static bool add_place(struct places *places, uint32_t state, enum plain_place place) {
    for (uint32_t i = 0; i < places->count; i++)
        if (places->at[i].state == state && places->at[i].place == place) return true;
    if (places->count == PLACES_MAX) return false;
    places->at[places->count].state = state;
    places->at[places->count++].place = place;
    return true;
}

/* Looks at all bytes of one place. False if one is not taken, or leads to another state than
 * *after. */
static bool take_bytes(struct exprs *exprs, struct places *places, uint32_t index,
                       uint32_t *after) {
    uint32_t state = places->at[index].state;
    enum plain_place place = places->at[index].place;
    bool is_first = place == PLAIN_WHOLE;
    unsigned last = is_first ? 0xf4 : inside[place].last;
    uint64_t seen[PLAIN_NOT][4] = {{0}}; /* classes of bytes, by the place behind them */
    for (unsigned byte = is_first ? 0x20 : inside[place].first; byte <= last; byte++) {
        enum plain_place next = plain_step(place, (unsigned char)byte);
        if (next == PLAIN_NOT) continue;
        uint8_t class = exprs->class_of[byte];
        uint64_t bit = (uint64_t)1 << (class % 64);
        if (seen[next][class / 64] & bit) continue;
        seen[next][class / 64] |= bit;
        uint32_t rest = expr_step(exprs, state, (unsigned char)byte);
        if (rest == EXPR_NEVER) return false;
        if (next != PLAIN_WHOLE) {
            if (!add_place(places, rest, next)) return false;
        } else if (*after == NONE) {
            *after = rest;
        } else if (*after != rest) {
            return false;
        }
    }
    return true;
}

/* The state that every plain character leads to; NONE: they differ, or one is not taken. */
static uint32_t after_character(struct exprs *exprs, uint32_t state) {
    struct places places = {.count = 0};
    uint32_t after = NONE;
    (void)add_place(&places, state, PLAIN_WHOLE);
    for (uint32_t i = 0; i < places.count; i++)
        if (!take_bytes(exprs, &places, i, &after)) return NONE;
    return after;
}

/* True if no plain character can begin. */
static bool takes_none(struct exprs *exprs, uint32_t state) {
    uint64_t seen[4] = {0};
    for (unsigned byte = 0x20; byte <= 0xf4; byte++) {
        uint8_t class = exprs->class_of[byte];
        uint64_t bit = (uint64_t)1 << (class % 64);
        if (first_step((unsigned char)byte) == PLAIN_NOT || (seen[class / 64] & bit)) continue;
        seen[class / 64] |= bit;
        if (expr_step(exprs, state, (unsigned char)byte) != EXPR_NEVER) return false;
    }
    return true;
}

/* Follows the states that plain characters lead to, up to one whose reach is known, or that leads
 * to no other. */
static void find_reach(struct exprs *exprs, uint32_t number) {
    uint32_t chain[CHAIN_MAX], count = 0, at = number;
    struct reach reach = {0, false};
    bool is_end = false; /* the chain ends at a state that takes no character or leads to itself */
    while (exprs->at[at].reach == UNKNOWN && count < CHAIN_MAX && !is_end) {
        uint32_t next = after_character(exprs, at);
        chain[count++] = at;
        is_end = next == NONE || next == at;
        if (next == NONE) reach.is_closed = takes_none(exprs, at);
        if (next == at) reach.characters = REACH_ANY;
        if (!is_end) at = next;
    }
    if (exprs->overflowed) return;
    if (!is_end && exprs->at[at].reach != UNKNOWN)
        reach = (struct reach){exprs->at[at].reach - 1u, exprs->at[at].is_closed};
    while (count > 0) {
        struct expr *expr = &exprs->at[chain[--count]];
        if (!is_end && reach.characters == REACH_ANY - 1)
            reach.is_closed = false;
        else if (!is_end && reach.characters < REACH_ANY - 1)
            reach.characters++;
        is_end = false;
        expr->reach = (uint8_t)(reach.characters + 1);
        expr->is_closed = reach.is_closed;
    }
}

struct reach expr_reach(struct exprs *exprs, uint32_t number) {
    if (exprs->at[number].reach == UNKNOWN) find_reach(exprs, number);
    const struct expr *expr = &exprs->at[number];
    return (struct reach){expr->reach == UNKNOWN ? 0 : expr->reach - 1u, expr->is_closed};
}
