/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* estimate: the arithmetic of a preflight: quantiles of lengths, points of Student's
 * distribution, a length to recommend.
 *
 * Thread: any; the functions are pure.
 * Memory: the caller's. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The smallest value that at least a share (0..1) of the sorted values does not exceed; 0 without
 * values. */
uint32_t estimate_quantile(const uint32_t *sorted, size_t count, double share);

struct interval {
    double low, mean, high;
    bool is_known; /* `low` and `high` count: there were at least two measurements */
};

/* The two-sided 95 % point of Student's distribution with `freedom` (from 1) degrees. */
double estimate_t(size_t freedom);
/* The interval with a further, independent uncertainty: the true value may be `down` (0..1) or `up`
 * (from 1) times the one it has. Uncertainties are ratios, so their logarithms add up as squares.
 * An interval that is not known stays as it is. */
struct interval estimate_widened(struct interval interval, double down, double up);
/* All three times `factor`. */
struct interval estimate_scaled(struct interval interval, double factor);

#define ESTIMATE_BINS 12

struct estimate_bin {
    uint32_t from; /* to the next bin's; the last bin of a histogram is open */
    uint64_t count;
};

/* Counts sorted lengths in equally wide bins that begin with the shortest; returns their number, 0
 * without lengths. Where a few lengths are much longer than 95 % of all, the last bin has them, so
 * that they do not squeeze the others into one bin. */
size_t estimate_histogram(const uint32_t *sorted, size_t count,
                          struct estimate_bin ret_bins[ESTIMATE_BINS]);

/* `length` plus 500 tokens, rounded up to a multiple of 128. */
uint32_t estimate_roomy(uint32_t length);
