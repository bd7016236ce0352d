/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* number_grid: the multiples of a number between two bounds, as one leaf of an expression.
 *
 * A multiple alone is a remainder (number.h), and a large one has so many remainders that no search
 * for a text of a conjunction ends. A grid's state is the number that was written so far.
 * Arithmetic tells whether digits can follow that make it one of the grid, so every state of it has
 * a text and nothing is searched.
 *
 * Thread: as expr.h.
 * Memory: the grids belong to the exprs; a state is an expression as any other.
 * Invariant: a leaf of a grid has a text. */

#include "grammar/number.h"

/* Bounds of the size of a number, for one sign. */
struct number_sizes {
    const struct decimal *low, *high; /* NULL: none; their sign is not looked at */
    bool above_low, below_high;       /* the bound itself is outside */
    bool has_zero;                    /* 0 may be written */
};

/* The unsigned texts of multiples within the bounds. *ret_expr is EXPR_NEVER if there is none.
 * False if the rules' multiples are so small that number.h takes them, or have too many digits for
 * a grid. */
bool number_grid_expr(struct exprs *exprs, const struct number_rules *rules,
                      const struct number_sizes *sizes, uint32_t *ret_expr);
/* The derivative of a leaf. */
uint32_t number_grid_derive(struct exprs *exprs, uint32_t index, uint64_t state,
                            unsigned char byte);
void number_grids_close(struct number_grids *grids); /* NULL is allowed */
