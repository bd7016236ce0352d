/* SPDX-License-Identifier: Apache-2.0 */
#include "grammar/number_grid.h"

#include "base/mem.h"

#include <stdlib.h>

#define SIZE_END 100000000000000000u /* 10^17: sizes, times 10^places, are below it */
#define SIZE_DIGITS 17
#define PLACES_MAX 8        /* places in a multiple's fraction */
#define SMALL_MULTIPLE 100u /* multiple for which number.h has few enough remainders */
#define FRACTION_DIGITS 17  /* most zeros and digits after the point */
#define NOTHING UINT64_MAX  /* the state before the first digit */
#define VALUE_BITS 58       /* bits for a state; above them the digits after the point + 1, or 0 */

_Static_assert(SIZE_END < (uint64_t)1 << VALUE_BITS, "a size fits into a state");
_Static_assert(FRACTION_DIGITS + 1 < 1 << (64 - VALUE_BITS), "and its places");

/* All numbers are times 10^places. */
struct grid {
    uint64_t of, low, high;
    uint32_t places;
    bool has_point; /* a fraction may be written, if only of zeros */
};

struct number_grids {
    struct grid *at; /* (count) */
    size_t count, capacity;
};

void number_grids_close(struct number_grids *grids) {
    if (!grids) return;
    free(grids->at);
    free(grids);
}

static uint64_t power(uint32_t of_ten) {
    uint64_t value = 1;
    while (of_ten-- > 0) value *= 10;
    return value;
}

/* --- states --- */

/* Whether a multiple lies between the two, and within the grid. */
static bool has_multiple(const struct grid *grid, uint64_t from, uint64_t to) {
    if (from < grid->low) from = grid->low;
    if (to > grid->high) to = grid->high;
    return from <= to && to / grid->of * grid->of >= from;
}

/* Whether a number of the grid begins with these whole digits. */
static bool reaches_whole(const struct grid *grid, uint64_t whole) {
    uint64_t unit = power(grid->places);
    if (whole == 0) return has_multiple(grid, 0, unit - 1);
    for (; whole <= grid->high / unit; unit *= 10) {
        if (has_multiple(grid, whole * unit, (whole + 1) * unit - 1)) return true;
        if (unit > SIZE_END) break;
    }
    return false;
}

static uint32_t whole_state(struct exprs *exprs, uint32_t index, uint64_t whole) {
    const struct grid *grid = &exprs->grids->at[index];
    uint64_t unit = power(grid->places);
    if (whole > grid->high / unit || !reaches_whole(grid, whole)) return EXPR_NEVER;
    return expr_grid(exprs, index, whole, has_multiple(grid, whole * unit, whole * unit));
}

/* After the point, with `digits` digits behind it. */
static uint32_t fraction_state(struct exprs *exprs, uint32_t index, uint64_t value,
                               uint32_t digits) {
    const struct grid *grid = &exprs->grids->at[index];
    uint64_t unit = power(digits < grid->places ? grid->places - digits : 0);
    uint64_t from = value * unit;
    if (!has_multiple(grid, from, from + unit - 1)) return EXPR_NEVER;
    bool is_whole = digits > 0 && has_multiple(grid, from, from);
    return expr_grid(exprs, index, value | (uint64_t)(digits + 1) << VALUE_BITS, is_whole);
}

uint32_t number_grid_derive(struct exprs *exprs, uint32_t index, uint64_t state,
                            unsigned char byte) {
    const struct grid *grid = &exprs->grids->at[index];
    uint64_t value = state & (((uint64_t)1 << VALUE_BITS) - 1);
    uint32_t places = state == NOTHING ? 0 : (uint32_t)(state >> VALUE_BITS);
    if (byte == '.')
        return grid->has_point && state != NOTHING && places == 0
                   ? fraction_state(exprs, index, value, 0)
                   : EXPR_NEVER;
    if (byte < '0' || byte > '9') return EXPR_NEVER;
    uint64_t digit = byte - (uint64_t)'0';
    if (state == NOTHING) return whole_state(exprs, index, digit);
    if (places == 0) return value == 0 ? EXPR_NEVER : whole_state(exprs, index, value * 10 + digit);
    if (places > FRACTION_DIGITS) return EXPR_NEVER;
    if (places <= grid->places) return fraction_state(exprs, index, value * 10 + digit, places);
    return digit == 0 ? fraction_state(exprs, index, value, places) : EXPR_NEVER;
}

/* --- the grid --- */

static uint64_t common(uint64_t a, uint64_t b) {
    while (b > 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The size times 10^places, rounded down; *ret_is_exact: it was whole. False if it is too large. */
static bool scale(const struct decimal *decimal, uint32_t places, uint64_t *ret_value,
                  bool *ret_is_exact) {
    uint64_t value = 0;
    if (decimal->whole_count + places > SIZE_DIGITS) return false;
    for (size_t i = 0; i < decimal->whole_count; i++) value = value * 10 + decimal->whole[i];
    for (size_t i = 0; i < places; i++)
        value = value * 10 + (i < decimal->fraction_count ? decimal->fraction[i] : 0);
    *ret_value = value;
    *ret_is_exact = decimal->fraction_count <= places;
    return true;
}

/* The least common multiple of all. False if it is too small or too large for a grid. */
static bool find_multiple(const struct number_rules *rules, struct grid *grid) {
    bool is_integer = rules->form == NUMBER_INTEGER || rules->form == NUMBER_INTEGER_OR_ZEROS;
    bool is_exact;
    grid->of = 1;
    for (size_t i = 0; i < rules->multiple_count; i++)
        if (rules->multiples[i].fraction_count > grid->places)
            grid->places = rules->multiples[i].fraction_count;
    if (rules->multiple_count == 0 || grid->places > PLACES_MAX) return false;
    for (size_t i = 0; i < rules->multiple_count; i++) {
        uint64_t own;
        if (!scale(&rules->multiples[i], grid->places, &own, &is_exact) || own == 0) return false;
        own /= common(grid->of, own);
        if (own > SIZE_END / grid->of) return false;
        grid->of *= own;
    }
    if (grid->of <= SMALL_MULTIPLE) return false;
    if (is_integer) { /* a multiple of 2.5 that is an integer is one of 5 */
        grid->of /= common(grid->of, power(grid->places));
        grid->places = 0;
    }
    return true;
}

/* False if the bounds have too many digits. *ret_is_empty: nothing lies between them. */
static bool find_bounds(const struct number_sizes *sizes, struct grid *grid, bool *ret_is_empty) {
    bool is_exact;
    grid->low = sizes->has_zero ? 0 : 1;
    grid->high = SIZE_END - 1;
    *ret_is_empty = false;
    if (sizes->low) {
        uint64_t low;
        if (!scale(sizes->low, grid->places, &low, &is_exact)) return false;
        low += !is_exact || sizes->above_low;
        if (low > grid->low) grid->low = low;
    }
    if (sizes->high && scale(sizes->high, grid->places, &grid->high, &is_exact)) {
        *ret_is_empty = is_exact && sizes->below_high && grid->high == 0;
        if (is_exact && sizes->below_high && grid->high > 0) grid->high--;
    }
    return true;
}

bool number_grid_expr(struct exprs *exprs, const struct number_rules *rules,
                      const struct number_sizes *sizes, uint32_t *ret_expr) {
    struct grid grid = {.has_point = rules->form != NUMBER_INTEGER};
    bool is_empty;
    if (!find_multiple(rules, &grid) || !find_bounds(sizes, &grid, &is_empty)) return false;
    *ret_expr = EXPR_NEVER;
    if (is_empty || !has_multiple(&grid, 0, UINT64_MAX)) return true;
    if (!exprs->grids) exprs->grids = mem_new(1, sizeof *exprs->grids);
    struct number_grids *grids = exprs->grids;
    grids->at = vec_grow(grids->at, grids->count, &grids->capacity, sizeof *grids->at);
    grids->at[grids->count] = grid;
    *ret_expr = expr_grid(exprs, (uint32_t)grids->count++, NOTHING, false);
    return true;
}
