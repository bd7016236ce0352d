/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* ranks: how far two lists of scores of the same rows put the rows into the same order.
 *
 * Spearman's rho is the correlation (Pearson's) of ranks, and equal scores share the mean of their
 * ranks. Kendall's tau-b compares pairs of rows and corrects for ties (Kendall 1945):
 *
 *     tau-b = (C - D) / sqrt((P - A) (P - B))
 *
 * with P all pairs, C and D the pairs that both lists put into the same and into opposite order, A
 * and B the pairs that the first and the second list tie. One merge sort counts D, in n log n steps
 * (Knight, "A computer method for calculating Kendall's tau with ungrouped data", 1966).
 *
 * Thread: any; pure but for the order of the caller's array.
 * Memory: one copy of the array, freed before the return. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NORMAL_95 1.959963984540054 /* quantile of the standard normal distribution at 0.975 */

/* The scores that one row has in the two lists. */
struct rank_pair {
    double a, b; /* finite */
    uint32_t row;
};

struct ranks {
    bool is_known; /* false: a list has fewer than two different scores; both figures are 0 */
    double spearman, kendall;
    uint64_t pairs;                     /* pairs of rows */
    uint64_t tied_a, tied_b, tied_both; /* pairs with a tie */
};

/* Measures the pairs, and leaves them in the order of `a`, then `b`, then `row`. */
struct ranks ranks_measure(struct rank_pair *pairs, size_t count);
/* The interval of 95 % of a Spearman's rho over `count` rows, by Fisher's transformation with the
 * variance of Bonett and Wright ("Sample size requirements for estimating Pearson, Kendall and
 * Spearman correlations", 2000). False with fewer than 4 rows. */
bool ranks_interval(double spearman, size_t count, double *ret_low, double *ret_high);
